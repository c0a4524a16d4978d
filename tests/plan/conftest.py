from __future__ import annotations

import pytest

from manycl.plan import policy
from manycl.plan.policy import names


@pytest.fixture(autouse=True)
def _registered_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    names()
    monkeypatch.setattr(policy, "registry", dict(policy.registry))
