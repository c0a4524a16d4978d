"""Commands on models of time: ``models``, ``profile`` and ``train``."""
