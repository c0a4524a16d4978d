"""Runs under chaos in which something goes wrong, one a seed: what counts as valid afterwards is valid, nothing is lost
that the run did not touch, and the runs that follow on the same memories give the sequential result.

    python -m tests.run.chaos.chaos_faults KIND COUNT [FIRST SEED]

runs so many seeds of a kind (or of ``all``); those that fail are told, and belong into ``chaos_seeds.json``.
"""

from __future__ import annotations

import itertools
import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from manycl.errors import ManyclError, ResultError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, Graph, HostTask
from manycl.machine import HOST, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import again, execute
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import Faults
from tests.run.chaos.chaos_values import left_by, touched
from tests.run.chaos.test_state import Anyhow, Unit, expected, launch, machine

KEPT = Path(__file__).with_name("chaos_seeds.json")
"""Seeds that failed once, by kind."""


def a_graph(r: Random, buffers: list[int]) -> Graph:
    builder = GraphBuilder()
    for key in buffers:
        builder.adopt(Buffer(key, 4, f"b{key}"))

    def some() -> tuple[int, ...]:
        return tuple(r.sample(buffers, r.randint(0, min(3, len(buffers)))))

    for i in range(r.randint(1, 14)):
        reads, writes = some(), some()
        if r.random() < 0.1:
            builder.add(HostTask(f"h{i}", print, (), reads, writes))
        else:
            builder.add(launch(f"n{i}", reads, writes))
    return builder.build()


def a_machine(r: Random, is_mortal: bool) -> Machine:
    """``is_mortal``: devices may be lost one by one, so they do not wait for each other's events."""
    own = itertools.count(1)
    found = machine([HOST if r.random() < 0.3 else next(own) for _ in range(r.randint(1, 4))])
    domain = "" if is_mortal else r.choice(["", "a"])
    return replace(found, devices=tuple(replace(d, event_domain=domain) for d in found.devices))


def a_policy(r: Random, graph: Graph, where: Machine, alive: list[int]) -> Any:
    if len(alive) == len(where.devices) and r.random() < 0.3:
        return Anyhow([r.randrange(100) for _ in range(r.randrange(20))])
    places = [(ON_HOST, 0) if isinstance(task, HostTask) else (r.choice(alive), r.randrange(2)) for task in graph.nodes]
    longest = r.choice([0.0, 0.0, 0.3, 3.0])  # of the seconds that are foreseen: how far ahead things are enqueued
    ranges = tuple(Assignment(n, device, queue, 0.0, r.random() * longest) for n, (device, queue) in enumerate(places))
    return Plan(ranges, "random", tuple(d.name for d in where.devices), 0.0)


def of_kind(kind: str, r: Random, graph: Graph, where: Machine) -> Faults:
    """What goes wrong in a run, by its kind."""
    n, chance = len(graph), {"goes_on": kind == "goes on" or r.random() < 0.3, "drains": r.random() < 0.5}
    if kind == "node" or kind == "goes on":
        return Faults(frozenset(r.sample(range(n), 1 + (n > 1 and r.random() < 0.3))), **chance)
    if kind == "transfer":
        return Faults(frozenset({n + r.randrange(6)}), **chance)
    if kind == "dies":
        return Faults(dies={r.randrange(len(where.devices)): r.randrange(3 * n)}, **chance)
    if kind == "paused":
        failing = frozenset({r.randrange(n)}) if r.random() < 0.5 else frozenset()
        device = r.randrange(-1, len(where.devices))
        return Faults(failing, paused=(device, r.choice([-2, -1, 0, 1]) if device >= 0 else 0), **chance)
    if kind in ("interrupt", "abort", "late"):
        late = kind == "late" or r.random() < 0.3
        return Faults(interrupt=r.randrange(3 * n), again=kind != "interrupt", late=late, **chance)
    raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")


KINDS = ("node", "goes on", "transfer", "dies", "paused", "interrupt", "abort", "late")


class Memories:
    """What one seed's runs work on: ``now`` is what every buffer holds by the sequential reckoning, while it is
    defined."""

    def __init__(self, kind: str, seed: int) -> None:
        self.r = Random(f"{kind} {seed}")
        self.where = a_machine(self.r, kind == "dies")
        self.seconds = self.r.choice([1e-9, 1.0])  # which decides how much is enqueued ahead
        self.buffers = list(range(self.r.randint(1, 5)))
        self.directory = Directory()
        self.backend = ChaosBackend(self.where, self.r.randrange(1 << 30))
        self.now: dict[int, object] = {}
        for key in self.buffers:
            if self.r.random() < 0.75:
                self.define(key, self.r.randrange(self.where.memories), f"initial {key}")

    def define(self, key: int, home: int, value: str) -> None:
        self.directory.define(key, home)
        self.now[key] = self.backend.values[home][key] = value
        for m in range(self.where.memories):
            if m != home:
                self.backend.values[m][key] = f"stale {m} {key}"

    def execute(self, graph: Graph, policy: Any) -> Any:
        problem = Problem(graph, self.where, Unit(self.seconds), tuple(2 for _ in self.where.devices))
        return execute(problem, policy, self.backend, self.directory)

    def holds(self, key: int) -> object:
        """What is there where a buffer counts as valid: the same everywhere."""
        mask = self.directory.valid[key]
        assert mask > 0, "valid nowhere, and nobody says that it is lost"
        held = [self.backend.values[m].get(key) for m in range(self.where.memories) if mask >> m & 1]
        assert len(set(held)) == 1, f"buffer {key} differs between the memories {mask:b} where it counts as valid"
        return held[0]

    def run(self, graph: Graph, act: Callable[[], Any]) -> bool:
        """A run, and what it leaves; whether it ended well."""
        written = {key for task in graph.nodes for key in task.writes}
        versions = {key: [self.now.get(key)] for key in self.buffers}
        current = dict(self.now)
        for n, task in enumerate(graph.nodes):
            seen = {k: current.get(k) for k in touched(graph, n)}
            for key in task.writes:
                current[key] = left_by(graph, n, key, seen, None)
                versions[key].append(current[key])
        final = expected(graph, self.now)
        try:
            act()
            ended = True
        except (ManyclError, KeyboardInterrupt):
            ended = False
        self.directory.validate(self.where.memories)
        for key in self.buffers:
            if key not in self.directory.valid:
                assert key not in self.now or (key in written and not ended), f"buffer {key} is lost by nobody"
                if key in written:
                    assert not ended, f"buffer {key} was written and nobody knows where it is"
                continue
            value = self.holds(key)
            if ended:
                assert value == final.get(key), f"buffer {key} is wrong"
            assert value in versions[key], f"buffer {key} holds what nobody ever wrote to it: {value}"
            self.now[key] = value
        return ended

    def write_again(self) -> None:
        """As a program does that was told what is lost; a session waits for what was left before it lets it write."""
        self.backend.settle()
        for key in self.directory.valid:
            assert self.holds(key) == self.now.get(key), f"buffer {key} was changed by a run that was left"
        for key in self.buffers:
            if key not in self.directory.valid and key in self.now:
                del self.now[key]
            try:
                self.directory.check(key)
            except ResultError:
                self.define(key, HOST, f"written again {key} {self.r.random()}")


def run_seed(kind: str, seed: int) -> None:
    """Raises AssertionError where something is wrong."""
    of = Memories(kind, seed)
    r, everything = of.r, list(range(len(of.where.devices)))
    graph = a_graph(r, of.buffers)
    policy = a_policy(r, graph, of.where, everything)
    command_graph = None
    if isinstance(policy, Plan) and r.random() < 0.3:
        made: list[Any] = []
        assert of.run(graph, lambda: made.append(of.execute(graph, policy))), "nothing went wrong"
        command_graph = made[0].command_graph
    of.backend.faults = of_kind(kind, r, graph, of.where)
    assert command_graph is None or isinstance(policy, Plan)

    def faulty() -> None:
        if command_graph is None or again(command_graph, of.backend, of.directory) is None:
            of.execute(graph, policy)

    of.run(graph, faulty)
    faults = of.backend.faults
    alive = [d for d in everything if d not in faults.dies]
    for _ in range(2):
        of.write_again()
        for key, mask in list(of.directory.valid.items()):
            kept = [m for m in range(of.where.memories) if mask >> m & 1]
            if not any(m == HOST or of.where.devices[d].memory == m for m in kept for d in alive):
                of.define(key, HOST, f"brought back {key}")  # of what has died, nothing is left
            for d in faults.dies:
                if (memory := of.where.devices[d].memory) != HOST and of.directory.valid.get(key, 0) >> memory & 1:
                    of.directory.evict(key, memory)
        if not alive:
            return
        of.backend.faults = Faults(dies=faults.dies, late=faults.late)
        then = a_graph(r, of.buffers)
        plan = a_policy(r, then, of.where, alive)
        ended = of.run(then, partial(of.execute, then, plan))
        assert ended, "nothing went wrong in the run that follows, and yet it failed"


def kept() -> list[tuple[str, int]]:
    """Seeds that failed once."""
    return [(kind, seed) for kind, seeds in json.loads(KEPT.read_text()).items() for seed in seeds]


def main(arguments: list[str]) -> int:
    kind, count, first = arguments[0], int(arguments[1]), int(arguments[2]) if len(arguments) > 2 else 0
    failed: dict[str, list[int]] = {}
    for one in KINDS if kind == "all" else (kind,):
        for seed in range(first, first + count):
            try:
                run_seed(one, seed)
            except Exception as error:
                failed.setdefault(one, []).append(seed)
                if len(failed[one]) <= 3:
                    traceback.print_exc()
                    print(f"{one} {seed}: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"{one}: {count} seeds from {first}, {len(failed.get(one, []))} failed {failed.get(one, [])[:20]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
