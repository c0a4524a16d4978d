"""The version of the package, where every layer may import it."""

__version__ = "0.1.0"
