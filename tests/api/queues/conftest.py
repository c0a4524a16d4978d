"""Fixtures for the tests of queues: some on one device, and on two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import manycl as mc


@pytest.fixture(params=["cpu/2#0", "cpu/2"])
def queue(request: pytest.FixtureRequest) -> Iterator[mc.Queue]:
    """One device, which is given commands as they are enqueued; and two, which share what is planned."""
    with mc.Queue(request.param, profile=True) as queue:
        yield queue


@pytest.fixture
def single() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2#0", profile=True) as queue:
        yield queue


@pytest.fixture
def two() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2") as queue:
        yield queue
