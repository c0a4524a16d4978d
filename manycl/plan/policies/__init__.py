"""The scheduling policies that come with manycl, one file each."""

import threading

_loading = threading.RLock()  # threads that import modules which need one another may find them half made


def load() -> None:
    """Register them all (idempotent)."""
    with _loading:
        from manycl.plan.policies import (  # noqa: F401
            adaptive,
            auto,
            balance,
            clustering,
            cpop,
            eager,
            heft,
            in_order,
            mkmd,
            mkmd_coarse,
            optimal,
            peft,
            portfolio,
            repara,
            tenths,
        )
