"""Fixtures for the tests of streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import manycl as mc
from manycl.drivers.opencl import staging
from manycl.run.data import host_memory
from manycl.run.streams import stream_state


@pytest.fixture(params=["shared", "own", "staged"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    if request.param != "shared":
        monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    if request.param == "staged":
        monkeypatch.setattr(staging, "STAGE_FROM", 1)
        monkeypatch.setattr(host_memory, "PAGE", 1 << 40)
        monkeypatch.setattr(stream_state, "LARGE", 1)
    with mc.Queue("opencl/2#0" if request.param == "staged" else "cpu/2#0") as queue:
        yield queue
