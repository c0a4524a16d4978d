"""The scheduling policies that come with manycl, one file each, named as they are."""

import threading
from importlib import import_module
from pkgutil import walk_packages

_HOMES = {m.name.rpartition(".")[2]: m.name for m in walk_packages(__path__, f"{__name__}.") if not m.ispkg}
NAMES = tuple(sorted(_HOMES))

_loading = threading.RLock()  # threads that import modules which need one another may find them half made


def load(*names: str) -> None:
    """Register some of them (idempotent): programs that use one do not wait for all to be imported."""
    with _loading:
        for name in names:
            import_module(_HOMES[name])
