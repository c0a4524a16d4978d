"""Commands on kernel files: ``analyze``, ``doctor`` and ``spec``."""
