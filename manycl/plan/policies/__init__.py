"""The scheduling policies that come with manycl, one file each."""


def load() -> None:
    """Register them all (idempotent)."""
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
    )
