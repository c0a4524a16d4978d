"""Weak and strong scaling of five applications on simulated clusters, and the time of planning on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isqrt
from pathlib import Path
from typing import Any

from manycl.applications.load import load_application
from manycl.applications.planning import PlanningTarget, problem_of
from manycl.machine import Machine
from manycl.machine_file import load_machine
from manycl.model.history.history import History
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.run.simulation.simulate import simulate
from manycl.trace import KernelEvent, TransferEvent

FOLDER = Path(__file__).parent
MACHINE = FOLDER / "cluster.toml"
POLICY = "balance"
CLIENT = 80e-6
"""Seconds of the client's thread for a command, from docs/clusters.md: 0.32 ms of a step of two ranges and two
transfers."""
LAUNCHES = 100
"""Launches that are planned where the time of planning is asked for."""
SOME = 256
"""The most nodes of strong scaling, and where the client's time counts."""
Parameters = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """An application: its parameters on so many nodes in weak and in strong scaling, and the most nodes of both."""

    name: str
    file: Path
    weak: Callable[[int], Parameters]
    strong: Parameters
    most: int


CASES = (
    Case(
        "stencil",
        FOLDER / "stencil.json",
        lambda nodes: {"n": 16384, "rows": 65536 * nodes, "steps": 6},
        {"n": 16384, "rows": 65536 * 16, "steps": 6},
        1024,
    ),
    Case(
        "product",
        FOLDER / "product.json",
        lambda nodes: {"n": 4096, "rows": 16384 * nodes, "steps": 4},
        {"n": 4096, "rows": 16384 * 64, "steps": 4},
        64,
    ),
    Case(
        "gradients",
        FOLDER / "gradients.json",
        lambda nodes: {"n": 16384, "rows": 65536 * nodes, "steps": 2},
        {"n": 16384, "rows": 65536 * 16, "steps": 2},
        64,
    ),
    Case(
        "bodies",
        FOLDER / "bodies.json",
        lambda nodes: {"n": 262144 * isqrt(nodes), "steps": 2},
        {"n": 262144 * 8, "steps": 2},
        64,
    ),
    Case(
        "transformer",
        FOLDER.parent / "transformer.json",
        lambda nodes: {"beta": 2048, "H": nodes},
        {"beta": 2048, "H": 64},
        16,
    ),
)


@dataclass(frozen=True)
class Settings:
    """The numbers of nodes on which applications run, of those on which they may, and those that are planned for."""

    nodes: Sequence[int] = (1, 4, 16, 64, 256, 1024)
    planned: Sequence[int] = (4, 16, 64, 256, 1024, 4096)
    names: Sequence[str] = ()

    @property
    def cases(self) -> Sequence[Case]:
        return [case for case in CASES if not self.names or case.name in self.names]


def machine_of(nodes: int, client: float = 0.0) -> Machine:
    """Return the first nodes of the cluster. ``client``: seconds of the client's thread for a command."""
    whole = load_machine(MACHINE)
    devices = [replace(d, enqueuing=client, enqueuing_copy=client) for d in whole.devices[:nodes]]
    return replace(whole, devices=tuple(devices))


def problem(case: Case, nodes: int, parameters: Parameters, client: float = 0.0) -> Problem:
    """Return the problem of an application, whose plans are not foreseen: the policy alone decides."""
    application = load_application(case.file, {name: str(value) for name, value in parameters.items()})
    found, _ = problem_of(application, PlanningTarget(machine_of(nodes, client), History()), {}, {})
    return replace(found, foresee=None)


def scaled(case: Case, nodes: int, parameters: Parameters, client: float = 0.0) -> dict[str, Any]:
    """Return the time of an application on so many nodes, and the parts of it in which nodes run kernels, and in which
    something is on its way to them."""
    of = problem(case, nodes, parameters, client)
    policy = find(POLICY)
    assert isinstance(policy, StaticPolicy)
    trace = simulate(of, policy.plan(of))
    computing = sum(e.end - e.start for e in trace.events if isinstance(e, KernelEvent))
    moves = [e for e in trace.events if isinstance(e, TransferEvent)]
    whole = nodes * trace.makespan
    return {
        "application": case.name,
        "nodes": nodes,
        "ms": 1e3 * trace.makespan,
        "computing": computing / whole,
        "moving": sum(e.end - e.start for e in moves) / whole,
        "transfers": len(moves),
        "mbytes": sum(e.nbytes for e in moves) / 1e6,
    }


def run(settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the figures of all experiments."""
    weak, strong, client = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for case in settings.cases:
        for nodes in [n for n in settings.nodes if n <= case.most]:
            weak.append(scaled(case, nodes, case.weak(nodes)))
            say(f"weak {case.name} {nodes}: {weak[-1]['ms']:.1f} ms")
            if nodes <= SOME:
                strong.append(scaled(case, nodes, case.strong))
                say(f"strong {case.name} {nodes}: {strong[-1]['ms']:.1f} ms")
            if case.name == "stencil" and nodes <= SOME:
                client.append(scaled(case, nodes, case.weak(nodes), CLIENT))
    for rows, grows in ((weak, True), (client, True), (strong, False)):
        first = {row["application"]: row["ms"] for row in reversed(rows)}
        for row in rows:
            row["efficiency"] = first[row["application"]] / row["ms"] / (1 if grows else row["nodes"])
    planning = [planned(nodes, say) for nodes in settings.planned]
    found = {(row["application"], row["nodes"]): row["efficiency"] for row in weak}
    summary = {
        f"{name}_{nodes}_percent": 100 * found[name, nodes]
        for name, nodes in chain(*([(c.name, n) for n in (64, 1024)] for c in settings.cases))
        if (name, nodes) in found
    }
    return {"summary": summary, "weak": weak, "client": client, "strong": strong, "planning": planning}


def planned(nodes: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the seconds of a processor that planning many launches of the stencil takes."""
    of = problem(CASES[0], nodes, {"n": 8192, "rows": 1024 * nodes, "steps": LAUNCHES})
    policy = find(POLICY)
    assert isinstance(policy, StaticPolicy)
    begin = time.process_time()
    plan = policy.plan(of)
    seconds = time.process_time() - begin
    say(f"planning on {nodes}: {seconds:.2f} s")
    return {"nodes": nodes, "launches": LAUNCHES, "ranges": len(plan.assignments), "seconds": seconds}
