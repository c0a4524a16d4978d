"""Energy: joules by hand, powers fitted to joules, meters, and plans for objectives."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest

from manycl.applications.planning import this_machine
from manycl.cli import main
from manycl.drivers import meters
from manycl.graph.dependences import GraphBuilder
from manycl.machine import HOST, Device, Link, Machine
from manycl.model.energy.powers import Usage, fitted, joules, usage
from manycl.model.history.measured import on_machine
from manycl.plan.policies.auto import Auto
from manycl.run.simulation.foresee import foresee, with_times
from manycl.trace import Event, KernelEvent, Trace, TransferEvent
from tests.plan.plan_cases import launch, problem

CPU = Device("cpu0", "cpu", "a processor", idle_power=10.0, power=60.0, kernel_power={"light": 30.0})
GPU = Device("gpu0", "gpu", "a card", memory=1, idle_power=20.0, power=220.0)
BOTH = Machine((CPU, GPU), (Link(HOST, 1, 1e9, 0.0, energy=1e-9), Link(1, HOST, 1e9, 0.0, energy=2e-9)))


def kernel(device: str, name: str, start: float, end: float) -> KernelEvent:
    return KernelEvent(0, "node", device, 0, start, end, (1,), None, kernel=name)


def test_joules_by_hand() -> None:
    """Two seconds; kernels that overlap on the GPU take two thirds of it together."""
    events: list[Event] = [
        kernel("cpu0", "heavy", 0.0, 1.0),
        kernel("cpu0", "light", 1.0, 1.5),
        kernel("gpu0", "heavy", 0.0, 1.0),
        kernel("gpu0", "light", 0.5, 1.0),
        TransferEvent(0, "a", "host", "gpu0", 10**9, 1.0, 2.0),
        TransferEvent(0, "a", "gpu0", "host", 10**9, 1.0, 2.0),
        TransferEvent(0, "a", "gpu0", "gpu0", 10**9, 1.0, 2.0),
    ]
    found = joules(BOTH, usage(events, 2.0))
    assert found == pytest.approx({"cpu0": 20.0 + 50.0 + 10.0, "gpu0": 40.0 + 200.0 + 1.0 + 2.0})


def test_fitted_powers_predict_other_plans() -> None:
    """Sixty runs of eight kernels on three devices; the truth has a power for each kernel and warms up by up to 5 %,
    and is measured with 3 % of noise. Powers from forty of them say what the others take to within 10 %: on average,
    and for nineteen of these twenty."""
    chance = random.Random(7)
    names = [f"k{n}" for n in range(8)]
    where = Machine((CPU, GPU, replace(GPU, name="gpu1", model="another", memory=2)))
    watts = {(d, k): chance.uniform(40.0, 300.0) for d, k in product(["cpu0", "gpu0", "gpu1"], names)}
    runs, true, measured = [], [], []
    for _ in range(60):
        busy = {key: chance.uniform(0.1, 1.0) for key in watts if chance.random() < 0.5}
        moved = {("host", "gpu0"): chance.randrange(10**9), ("gpu0", "host"): chance.randrange(10**9)}
        seconds = max(sum(t for (d, _), t in busy.items() if d == device) for device in ("cpu0", "gpu0", "gpu1"))
        runs.append(Usage(seconds * chance.uniform(1.0, 1.5), busy, moved))
        warm = 1.0 + 0.05 * (1.0 - 2.0 ** (-seconds))
        drawn = 130.0 * runs[-1].seconds + warm * sum(t * watts[key] for key, t in busy.items())
        true.append(drawn + 20e-9 * sum(moved.values()))
        measured.append(true[-1] * chance.gauss(1.0, 0.03))
    machine = on_machine(where, fitted(where, runs[:40], measured[:40]))
    errors = sorted(abs(sum(joules(machine, r).values()) / t - 1.0) for r, t in zip(runs[40:], true[40:], strict=True))
    assert mean(errors) <= 0.10
    assert errors[18] <= 0.10
    assert all(d.power >= d.idle_power >= 0.0 for d in machine.devices)


def test_few_runs_are_explained_by_powers_above_zero() -> None:
    runs = [Usage(1.0, {("cpu0", "a"): 1.0}, {}), Usage(1.0, {("gpu0", "a"): 1.0}, {})]
    machine = on_machine(BOTH, fitted(BOTH, runs, [50.0, 20.0]))
    assert [sum(joules(machine, r).values()) for r in runs] == pytest.approx([50.0, 20.0])
    assert min(machine.devices[1].idle_power, machine.devices[1].power) >= 0.0


def test_rapl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package, its memory and its cores, which are a part of it; a package that may not be read."""
    for name, called in (("intel-rapl:0", "package-0"), ("intel-rapl:0:1", "core"), ("intel-rapl:0:2", "dram")):
        zone = tmp_path / name
        zone.mkdir()
        (zone / "name").write_text(f"{called}\n")
        (zone / "energy_uj").write_text("9000000\n")
        (zone / "max_energy_range_uj").write_text("10000000\n")
    (tmp_path / "intel-rapl:1").mkdir()
    (tmp_path / "intel-rapl:1" / "name").write_text("package-1\n")
    found = meters.rapl(tmp_path)
    assert [m.name for m in found] == ["package-0 (intel-rapl:0)", "dram (intel-rapl:0:2)"]
    monkeypatch.setattr(meters, "meters", lambda: tuple(found))
    spent = meters.measuring()
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("1500000\n")  # it has begun again
    (tmp_path / "intel-rapl:0:2" / "energy_uj").unlink()
    assert spent() == pytest.approx({"package-0 (intel-rapl:0)": 2.5})
    assert meters.rapl(tmp_path / "nothing") == []


def test_nvml() -> None:
    """Of two GPUs the first one is too old."""

    def total(handle: Any, value: Any) -> int:
        value._obj.value = 1234
        return 0 if handle.value == 1 else 3

    def count(value: Any) -> int:
        value._obj.value = 2
        return 0

    def handle(number: int, value: Any) -> int:
        value._obj.value = number
        return 0

    library = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetCount_v2=count,
        nvmlDeviceGetHandleByIndex_v2=handle,
        nvmlDeviceGetTotalEnergyConsumption=total,
    )
    (meter,) = meters.nvidia(lambda _: library)
    assert meter.name == "nvidia 1"
    assert meter.read() == pytest.approx(1.234)

    def missing(_: str) -> Any:
        raise OSError

    assert meters.nvidia(missing) == []


def test_powers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 W, and 30 W more while the kernel runs, from the traces of two runs of a second."""
    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    monkeypatch.setenv("MANYCL_MODELS", "1")
    monkeypatch.setenv("MANYCL_DEVICES", "native")
    (device,) = this_machine(None).machine.devices
    paths = [str(tmp_path / f"{n}.jsonl") for n in range(2)]
    for path, busy in zip(paths, (0.5, 1.0), strict=True):
        details = {"joules": {"a meter": 20.0 + 30.0 * busy}}
        Trace((kernel(device.name, "k", 0.0, busy),), (device.name,), "heft", 1.0, details=details).save(path)
    assert main(["models", "powers", "--runs", *paths]) == 0
    (device,) = this_machine(None).machine.devices
    assert (device.idle_power, device.power, device.above_idle("k")) == pytest.approx((20.0, 50.0, 30.0))
    bare = Trace((), (device.name,), "heft", 1.0)
    bare.save(paths[0])
    assert main(["models", "powers", "--runs", paths[0]]) == 1


def asked(**options: str) -> tuple[float, float]:
    """Seconds and joules of four kernels that depend on nothing, as ``auto`` plans them; the GPU is three times as fast
    and draws five times as much."""
    builder = GraphBuilder()
    for n in range(4):
        builder.add(launch(f"n{n}", (builder.buffer(1000),), (builder.buffer(1000),)))
    where = Machine((replace(CPU, kernel_power={}), replace(GPU, idle_power=0.0, power=250.0)), BOTH.links)
    p = problem(builder.build(), [0.03, 0.01], where, options=options)

    def foreseen(plan: Any) -> Any:
        return with_times(p, plan, foresee(p, plan))

    plan = Auto().plan(replace(p, foresee=foreseen))
    plan = plan if plan.foreseen else foreseen(plan)
    return plan.makespan, sum(plan.details["joules"].values())


def test_objectives() -> None:
    fast, thrifty = asked(), asked(objective="energy")
    assert fast == pytest.approx((0.03, 1.5 + 3 * 2.5 + 0.3), rel=1e-3)
    assert thrifty == pytest.approx((0.12, 6.0 + 1.2), rel=1e-3)
    balanced = asked(objective="edp")
    assert balanced[0] * balanced[1] <= min(fast[0] * fast[1], thrifty[0] * thrifty[1]) * 1.001
    within = asked(deadline="50ms")
    assert within[0] <= 0.05
    assert thrifty[1] <= within[1] <= fast[1]
    assert asked(deadline="1ms")[0] == pytest.approx(fast[0])


def test_without_powers_time_counts(caplog: pytest.LogCaptureFixture) -> None:
    builder = GraphBuilder()
    builder.add(launch("n", (builder.buffer(8),), (builder.buffer(8),)))
    plan = Auto().plan(problem(builder.build(), [2.0, 1.0], options={"objective": "energy"}))
    assert plan.makespan == 1.0
    assert "nobody knows the powers" in caplog.text
