"""The scheduling policies that come with manycl, one file each, named as they are.

May import, of plan: its modules, adapt, policies.classical, policies.papers, search, timeline."""

import threading
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages

_HOMES = {m.name.rpartition(".")[2]: m.name for m in walk_packages(__path__, f"{__name__}.") if not m.ispkg}
if find_spec("manycl_bench") is not None:
    _HOMES["optimal"] = "manycl_bench.optimal.policy"
NAMES = tuple(sorted(_HOMES))

_loading = threading.RLock()  # threads that import modules which need one another may find them half made


def load(*names: str) -> None:
    """Register some of them (idempotent): programs that use one do not wait for all to be imported."""
    with _loading:
        for name in names:
            import_module(_HOMES[name])


def own_name(policy: object) -> str:
    """Return the name of a policy that is one of these, whose defects are manycl's own: empty for any other."""
    home = type(policy).__module__
    return next((name for name, module in _HOMES.items() if module == home), "")
