"""Fixtures of the suite: every driver, a desk of it, and a recording."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from manycl.drivers.choice import open_devices
from manycl.drivers.driver import (
    CommandRecorder,
    Driver,
)
from manycl.drivers.recorded_calls import RecordedCalls
from manycl.machine import HOST
from tests.drivers.conformance.suite import CASES, FUNCTIONS, GIVEN, Desk
from tests.drivers.native import native_entries


@pytest.fixture(scope="module", params=CASES)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    kind, where = request.param.split()
    with pytest.MonkeyPatch.context() as patch:
        if where != "any":
            patch.setenv("MANYCL_ZERO_COPY", "0" if where == "own" else "1")
        if kind == "entries":
            native_entries.add(patch)
        elif not kind.endswith("@process"):  # which has not got it
            FUNCTIONS.add(patch)
        names = {
            "opencl": "opencl/2#0",
            "opencl@process": "portable computing@process",
            "native@process": "native/2#0@process",
            "native": "native",
            "entries": "entries",
            "functions": "accelerator0" if where == "own" else "host functions cpu",
            "given": GIVEN,
        }
        machine, (opened, *_) = open_devices(names[kind])
        made = opened.open()
        assert made.device == opened.device == machine.devices[0]
        assert where == "any" or (made.device.memory == HOST) == (where == "shared")
    yield made
    made.finish()
    made.release()


@pytest.fixture
def desk(driver: Driver) -> Desk:
    return Desk(driver)


@pytest.fixture(params=["its own", "calls"])
def recording(request: pytest.FixtureRequest, desk: Desk) -> CommandRecorder:
    """What records a driver's commands: itself, if it can, or the calls."""
    if request.param == "calls":
        return RecordedCalls(desk.driver)
    if not isinstance(desk.driver, CommandRecorder):
        pytest.skip("it records nothing")
    return desk.driver
