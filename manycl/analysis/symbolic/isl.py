"""islpy, imported with Ctrl-C held back: what it registers when it is loaded cannot be registered again, and the
process aborts if an import that was interrupted is repeated."""

from manycl.utilities.interrupts import Uninterrupted

with Uninterrupted():
    import islpy as isl

__all__ = ["isl"]
