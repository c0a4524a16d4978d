"""Fixtures for the tests of runs."""

from __future__ import annotations

from typing import Any

import pytest

from manycl.run.moving import Moving


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Moving]:
    """Those who play runs with shares that may move."""
    found: list[Moving] = []
    following = Moving.following

    def noted(*given: Any) -> Moving:
        found.append(following(*given))
        return found[-1]

    monkeypatch.setattr(Moving, "following", noted)
    return found
