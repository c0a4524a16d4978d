"""The scheduling policies that come with manycl, one file each, named as they are."""

import threading
from importlib import import_module
from pkgutil import iter_modules

NAMES = tuple(sorted(module.name for module in iter_modules(__path__)))

_loading = threading.RLock()  # threads that import modules which need one another may find them half made


def load(*names: str) -> None:
    """Register some of them (idempotent): programs that use one do not wait for all to be imported."""
    with _loading:
        for name in names:
            import_module(f"{__name__}.{name}")
