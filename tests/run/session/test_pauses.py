"""Links are measured between the runs of a session, whenever these come, and remembered."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from types import SimpleNamespace as Of
from typing import Any

import numpy as np
import pytest

from manycl.api.program import Program
from manycl.api.queue import Queue
from manycl.drivers.driver import DriverError
from manycl.machine import HOST
from manycl.model.history.history import identity
from manycl.model.history.measured import SOURCE, Measurements
from manycl.model.history.store import NAME, Store, StoreWarning
from manycl.run.session import pauses
from manycl.run.session.models import Models
from manycl.run.session.pauses import PAUSES, PauseMeasurement
from tests.run.session.test_measure import Driver, Real, World, device, machine_of, measured
from tests.run.session.test_measure import world as world  # a fixture

PROGRAM = Program("kernel void halve(global float *x) { x[get_global_id(0)] *= 0.5f; }")


class Devices:
    """What a measurement sees of a session: its devices, and ``runs`` that have begun."""

    def __init__(self, world: World, *reals: Real) -> None:
        self.lock, self.runs, self.is_busy, self.stream = threading.RLock(), 0, False, None
        self.machine = machine_of(*reals)
        drivers = [Driver(world, real) for real in reals]
        for driver in drivers:
            driver.may_be_lost = False  # type: ignore[attr-defined]
        lanes = [Of(own=d.device.memory != HOST, is_lost=False, driver=d, device=d.device) for d in drivers]
        self.backend = Of(lanes=lanes)
        self.found: list[Measurements] = []
        self.models = Of(are_unknown=lambda own: bool(own) and not self.found, measured=self.found.append)

    @property
    def pause(self) -> int | None:
        return None if self.is_busy else self.runs


def ran(measurement: PauseMeasurement, devices: Devices) -> None:
    """A run is over, and so is all that was measured then."""
    measurement.ran(devices)  # type: ignore[arg-type]
    if measurement.thread is not None:
        measurement.thread.join()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "DELAY", 0.0)


def two(peer: bool = True) -> list[Real]:
    ways: dict[str, Any] = {"up": (1e9, 3e-5), "down": (2e9, 5e-5), "peer": (4e9, 2e-5) if peer else None}
    return [Real(device(f"gpu{i}", memory=i + 1), 2e11, 4e9, 7e-6, **ways) for i in range(2)]


@pytest.mark.parametrize("when", [(), (1,), (40,), (7, 8, 60), range(1, 300, 9)], ids=str)
def test_runs_that_begin_change_nothing_of_what_is_found(world: World, at_once: None, when: Any) -> None:
    """Transfers during which a run begins take ten times as long, and are made again."""
    links = {s: {n: v for n, v in values.items() if ("_" in n and n != "launch_overhead") or s[:3] == "tog"}
             for s, values in measured(*two()).items()}  # fmt: skip
    world.buffers.clear()
    devices, waits = Devices(world, *two()), 0

    def waited() -> None:
        nonlocal waits
        waits += 1
        if waits in when:
            devices.runs += 1
            world.now += 10.0

    world.waited = waited
    measurement = PauseMeasurement()
    ran(measurement, devices)
    (found,) = devices.found
    assert found == {s: pytest.approx(values) for s, values in links.items()}
    assert world.buffers == [], "its memory is free again"
    measurement.close()


@pytest.mark.usefixtures("at_once")
def test_nothing_begins_while_a_run_is_under_way(world: World) -> None:
    """It waits for a pause, but not for ever."""
    devices, measurement = Devices(world, *two()), PauseMeasurement()
    devices.is_busy = True
    for _ in range(2):
        ran(measurement, devices)
    assert world.buffers == world.log == devices.found == []


@pytest.mark.usefixtures("at_once")
def test_runs_all_the_time_end_it(world: World) -> None:
    devices, measurement = Devices(world, *two()), PauseMeasurement()

    def waited() -> None:
        devices.runs += 1

    world.waited = waited
    ran(measurement, devices)
    assert devices.found == world.buffers == []
    assert len(world.log) < PAUSES


@pytest.mark.usefixtures("at_once")
def test_a_session_that_is_closed_waits_for_one_transfer(world: World) -> None:
    devices, measurement = Devices(world, *two()), PauseMeasurement()
    world.waited = measurement.over.set  # in the first transfer
    ran(measurement, devices)
    assert len(world.log) == 1
    assert devices.found == world.buffers == []


def test_a_session_that_is_closed_within_a_run_waits_for_no_lock(world: World) -> None:
    """The thread that closes has the lock that tells runs from pauses."""
    devices, measurement = Devices(world, *two()), PauseMeasurement()
    with devices.lock:
        measurement.ran(devices)  # type: ignore[arg-type]
        assert measurement.thread is not None
        measurement.over.set()
        measurement.thread.join(60.0)
        assert not measurement.thread.is_alive()
    assert devices.found == world.log == []


@pytest.mark.usefixtures("at_once")
def test_a_device_that_fails_is_left_alone(world: World) -> None:
    devices, measurement = Devices(world, *two()), PauseMeasurement()

    def waited() -> None:
        raise DriverError("lost")

    world.waited = waited
    for _ in range(3):
        ran(measurement, devices)
    assert len(world.log) == 1
    assert devices.found == []


def test_devices_in_the_hosts_memory_and_in_other_processes_have_nothing_to_measure(world: World) -> None:
    devices = Devices(world, Real(device("cpu0", "cpu", memory=HOST), 1e9, 1e9, 1e-6), *two())
    for lanes in devices.backend.lanes:
        lanes.driver.may_be_lost = True
    measurement = PauseMeasurement()
    ran(measurement, devices)
    assert measurement.thread is None


def run(queue: Queue) -> None:
    array = queue.array(np.ones(256, np.float32))
    PROGRAM.halve(queue, (256,), (64,), array)
    assert (array.get() == 0.5).all()


@pytest.mark.usefixtures("at_once")
def test_a_session_measures_uses_and_keeps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setenv("MANYCL_MODELS", "1")
    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    with Queue("cpu/2") as queue:
        devices = queue.session.devices
        assert devices.machine.notes == {}
        run(queue)
        assert devices.measuring.thread is not None
        devices.measuring.thread.join()
        devices.learn()
        machine = devices.machine
        assert machine.notes["host->cpu0.0.bandwidth"] == machine.notes["cpu0.1->cpu0.0.latency"] == SOURCE
    kept = Store().measurements()
    assert kept[identity(machine.devices[0])]["up_bandwidth"] == machine.link(HOST, 1).bandwidth  # type: ignore[union-attr]
    assert any(subject.startswith("together") for subject in kept)
    assert not Models(True).are_unknown(machine.devices)
    (tmp_path / NAME).write_bytes(b"no database")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        assert Models(True).are_unknown(machine.devices), "what cannot be read is measured anew"


def test_nothing_is_measured_that_would_not_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with Queue("cpu/2#0") as queue:
        run(queue)
        assert queue.session.devices.measuring.thread is None
