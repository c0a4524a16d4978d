"""The suite of all drivers, on a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from manycl.api.node import workers
from manycl.api.queue import Queue
from manycl.drivers.driver import Driver
from tests.drivers.conformance.conftest import desk, recording  # noqa: F401
from tests.drivers.conformance.test_launches import *  # noqa: F403
from tests.drivers.conformance.test_memory import *  # noqa: F403
from tests.drivers.conformance.test_queues import *  # noqa: F403
from tests.drivers.conformance.test_recorded_commands import *  # noqa: F403
from tests.drivers.conformance.test_transfers import *  # noqa: F403


@pytest.fixture(scope="module")
def driver(client: Any) -> Iterator[Driver]:
    machine, devices = workers(client, Queue)
    drivers = [one.open() for one in devices]
    assert [made.device for made in drivers] == list(machine.devices)
    yield drivers[0]
    for made in drivers:
        made.finish()
        made.release()
