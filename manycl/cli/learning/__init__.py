"""Commands on models of time: ``models``, ``profile`` and ``train``.

May import, of cli: its modules."""
