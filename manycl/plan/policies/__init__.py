"""The scheduling policies that come with manycl, one file each."""


def load() -> None:
    """Register them all (idempotent)."""
    from manycl.plan.policies import auto, clustering, cpop, eager, heft, in_order, peft, portfolio  # noqa: F401
