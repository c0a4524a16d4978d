"""Commands on kernel files: ``analyze``, ``doctor`` and ``spec``.

May import, of cli: its modules."""
