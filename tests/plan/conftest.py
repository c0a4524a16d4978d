from __future__ import annotations

from collections.abc import Iterator

import pytest

from manycl.plan import policy
from manycl.plan.policies import auto
from manycl.plan.policy import names
from manycl.plan.tuning import PLANNING


@pytest.fixture(autouse=True, scope="session")
def _little_effort() -> Iterator[None]:
    """A twentieth of the local search that ``auto`` has a portfolio do: no test asks how good that is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "PLANNING", PLANNING._replace(effort=PLANNING.effort // 20))
        yield


@pytest.fixture(autouse=True)
def _registered_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    names()
    monkeypatch.setattr(policy, "registry", dict(policy.registry))
