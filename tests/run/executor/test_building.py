"""All that a run will use is built before time starts, where it will be used, and not again for the same run."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.drivers.driver import BuildError, Source
from manycl.drivers.native.driver import NativeDriver
from manycl.drivers.opencl.driver import OpenCLDriver
from manycl.errors import SourceError
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch, Version
from manycl.machine import Device, DeviceIndex, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.executor import programs
from manycl.run.executor.building import Builder, build_now
from manycl.run.lowering.steps import Lowered, Step

PROGRAMS = [ProgramFacts(text, (), {name: KernelFacts(name, 1, ()) for name in "ab"}) for text in ("one", "other")]


class Programs:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.kernels: set[tuple[str, str, int]] = set()
        self.versions: set[tuple[str, int]] = set()

    def prepare(self, wanted: Iterable[tuple[Launch, int]]) -> None:
        self.kernels.update((launch.program.source, launch.kernel.name, device) for launch, device in wanted)

    def version(self, launch: Launch, device: int) -> None:
        self.versions.add((launch.name, device))
        raise SourceError("none of them compiles")


@st.composite
def graphs(draw: Any) -> Graph:
    nodes: list[Launch | HostTask] = []
    for i in range(draw(st.integers(1, 6))):
        program, name = draw(st.sampled_from(PROGRAMS)), draw(st.sampled_from("ab"))
        several = (Version(program, program.kernels[name], (4,), None),) if draw(st.integers(0, 3)) == 0 else ()
        task = Launch(f"n{i}", program, program.kernels[name], (4,), None, (BufferArg(0),), (), (), versions=several)
        nodes.append(HostTask(f"h{i}", print, (), (), ()) if draw(st.integers(0, 4)) == 0 else task)
    return Graph(tuple(nodes), {}, ((),) * len(nodes))


@given(graphs(), st.lists(st.integers(0, 2), min_size=3, max_size=3), st.booleans(), st.booleans(), st.data())
def test_kernels_are_built_where_they_run(
    graph: Graph, queues: list[int], planned: bool, stepwise: bool, data: Any
) -> None:
    """Where a plan says so, of its steps; else on all devices that are used."""
    devices = [d for d, n in enumerate(queues) if n]
    assigned = []
    for node, task in enumerate(graph.nodes):
        device = ON_HOST if isinstance(task, HostTask) else data.draw(st.integers(0, 2))
        assigned.append(Assignment(node, device, 0, 0.0, 0.0))
    plan = Plan(tuple(assigned), "p", ("a", "b", "c"), 0.0) if planned else None
    lowered = Lowered(graph, plan, tuple(Step(n) for n in range(len(graph))) if stepwise else ())
    places: list[tuple[Launch, int]] = []
    for a in assigned:
        task = graph.nodes[a.node]
        if isinstance(task, Launch):
            places += [(task, d) for d in ([a.device] if planned and stepwise else devices)]
    asked = Programs()
    builder = Builder(asked, lambda program: None)  # type: ignore[arg-type]
    builder.build(lowered, queues)
    assert asked.kernels == {(t.program.source, t.kernel.name, d) for t, d in places if not t.versions}
    assert asked.versions == {(t.name, d) for t, d in places if t.versions}
    again = Builder(asked, lambda program: None)  # type: ignore[arg-type]
    again.build(lowered, queues)
    asked.kernels.clear()
    again.build(lowered, queues)
    assert asked.kernels == set(), "it is the same run"
    other = Lowered(Graph(graph.nodes, {}, graph.predecessors), plan, lowered.steps)
    again.build(other, queues)
    assert asked.kernels == {(t.program.source, t.kernel.name, d) for t, d in places if not t.versions}
    if not (planned and stepwise):
        asked.kernels.clear()
        again.build(other, [1, 1, 1, 1])
        plain = any(isinstance(task, Launch) and not task.versions for task in graph.nodes)
        assert {d for *_, d in asked.kernels} == (set(range(4)) if plain else set())


class Compiling:
    """A driver that counts what it builds."""

    def __init__(self, log: str = "") -> None:
        self.log, self.count = log, 0

    def build(self, source: Source) -> str:
        self.count += 1
        if self.log:
            raise BuildError(self.log)
        return f"{source.text}, built"

    def kernel(self, built: str, name: str) -> Any:
        return SimpleNamespace(set=None, most_items=64, text=f"{built}: {name}")


def compiled(drivers: Sequence[Compiling]) -> programs.Programs:
    devices = tuple(Device(f"d{i}", "cpu") for i in range(len(drivers)))
    return programs.Programs(Machine(devices), drivers)  # type: ignore[arg-type]


def test_a_program_is_built_for_the_session_that_was_opened_last() -> None:
    drivers = [Compiling() for _ in range(3)]
    builders = [Builder(compiled([driver]), lambda program: None) for driver in drivers]
    build_now(PROGRAMS[0])
    builders[0].close()
    build_now(PROGRAMS[1])
    assert [driver.count for driver in drivers] == [0, 0, 2]
    builders[2].close()
    build_now(PROGRAMS[0])
    assert [driver.count for driver in drivers] == [0, 0, 2]


def test_what_does_not_build_is_told_when_it_is_asked_for() -> None:
    drivers = [Compiling("no such function"), Compiling()]
    made = compiled(drivers)
    builder = Builder(made, lambda program: None)
    build_now(PROGRAMS[1])
    assert [driver.count for driver in drivers] == [1, 1]
    made.kernel(PROGRAMS[1], "b", 1)
    assert drivers[1].count == 1
    with pytest.raises(SourceError, match=r"does not build on d0(?s:.)*no such function") as raised:
        made.kernel(PROGRAMS[1], "b", 0)
    (told,) = raised.value.diagnostics
    assert (told.line, told.column, told.severity) == (0, 0, "build log"), "a driver says no place"
    builder.close()


class Meeting(Compiling):
    """Whoever compiles a kernel waits for another one who does; and whoever builds a program, for all ``builders``."""

    def __init__(self, builders: threading.Barrier | None = None) -> None:
        super().__init__()
        self.meeting, self.builders = threading.Barrier(2), builders
        self.names: list[str] = []

    def build(self, source: Source) -> str:
        if self.builders is not None:
            self.builders.wait(60)
        return super().build(source)

    def kernel(self, built: str, name: str) -> Any:
        self.meeting.wait(60)
        self.names.append(name)
        return super().kernel(built, name)


def test_kernels_are_compiled_several_at_once() -> None:
    everywhere, prepared = Meeting(), Meeting()
    compiled([everywhere]).build_everywhere(PROGRAMS[0])
    launches = [Launch(n, PROGRAMS[0], PROGRAMS[0].kernels[n], (4,), None, (), (), ()) for n in "abab"]
    compiled([prepared]).prepare([(launch, DeviceIndex(0)) for launch in launches])
    for driver in (everywhere, prepared):
        assert driver.count == 1, "both kernels are of one program"
        assert sorted(driver.names) == ["a", "b"]


def test_programs_are_built_on_all_devices_at_once() -> None:
    meeting = threading.Barrier(2)
    drivers = [Meeting(meeting) for _ in range(2)]
    launches = [Launch(n, PROGRAMS[0], PROGRAMS[0].kernels[n], (4,), None, (), (), ()) for n in "ab"]
    compiled(drivers).prepare([(launch, DeviceIndex(d)) for launch in launches for d in range(2)])
    assert [(driver.count, sorted(driver.names)) for driver in drivers] == [(1, ["a", "b"])] * 2


def test_one_device_after_the_other_has_a_kernel_compiled() -> None:
    """As what it is compiled to is kept for the next one."""
    names: list[str] = []

    class Noting(Compiling):
        def kernel(self, built: str, name: str) -> Any:
            names.append(name)
            return super().kernel(built, name)

    only_a = ProgramFacts("alone", (), {"a": KernelFacts("a", 1, ())})
    drivers = [Noting(), Compiling("no such function"), Noting()]
    compiled(drivers).build_everywhere(only_a)
    assert names == ["a", "a"]
    assert [driver.count for driver in drivers] == [1, 1, 1]


@pytest.mark.parametrize(("driver", "devices"), [(OpenCLDriver, "opencl/2"), (NativeDriver, "native/2")])
def test_a_program_is_built_when_that_is_asked_for(driver: Any, devices: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    driver_build = driver.build

    def build(self: Any, source: Source) -> Any:
        built.append(source.text)
        return driver_build(self, source)

    monkeypatch.setattr(driver, "build", build)
    source = "kernel void f(global int *x) { x[get_global_id(0)] += 5; }"
    mc.Program(source).build()  # no session is open, or another test's
    built.clear()
    with mc.Queue(devices) as queue:
        program = mc.Program(source)
        assert not built
        assert program.build() is program
        assert built == [source] * 2
        x = queue.zeros(64, np.int32)
        program.f(queue, (64,), (8,), x)
        assert (x.get() == 5).all()
        assert built == [source] * 2
        other = program.build("-DX=1")
        assert other is not program
        assert built == [source] * 4
