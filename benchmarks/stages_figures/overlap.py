"""What the engine gains by computing while links are at work: MKMD's eleven equations on two H200, simulated.

The engine runs the steps of ``balance``'s plans on the machine ``h200_x2`` (its two GPUs; kernels take what a roofline
says, transfers what its links say, commands the time that enqueuing takes), with what the regions of the real kernels
move. For each equation, times faster than everything in order on one GPU: ``overlapping``, as it is; ``whole``, with
ranges that are not cut into parts; ``unforeseen``, with the plan that is predicted to be the best. Beside them the
geometric means of all. Data are on the host before and after; nothing is run on a device.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import common
import numpy as np

from manycl.api.queue import Queue
from manycl.machine import HOST, Machine
from manycl.machine_file import load_machine, shipped_machines
from manycl.plan.plan import Plan
from manycl.plan.policies.balance import Balance
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.run.data.coherence import Directory
from manycl.run.lowering import pipelining
from manycl.run.simulation.foresee import foreseeing
from manycl_bench.mkmd import real
from manycl_bench.mkmd.equations import EQUATIONS, Equation, N, RooflineEstimates

HANDOVER = 110e-6  # seconds, as measured on the machine


class Unset(real.Kernels):
    """Kernels on data that nobody reads."""

    def _given(self, name: str, *shape: int) -> Any:
        return self.runs.given(np.empty(shape, np.float32), name)


def problem(name: str, machine: Machine, queue: Queue) -> Problem:
    """An equation with real kernels, to be planned again and again."""
    counted = Equation()
    EQUATIONS[name](counted)
    counted.graph(name)  # a host function without work at the end
    runs = real.OnQueue(queue)
    with queue.prepare() as prepared:
        results = EQUATIONS[name](Unset(runs, N))  # type: ignore[arg-type]
        queue.call(_wait_for, *results)
    graph = prepared.graph
    inputs = [array.buffer.key for array in runs.inputs]
    directory = Directory()
    for key in inputs:
        directory.define(key)
    found = Problem(
        graph=graph,
        machine=machine,
        estimates=RooflineEstimates(counted, machine),
        queues=(1,) * len(machine.devices),
        valid={key: frozenset({HOST}) for key in inputs},
        handover=HANDOVER,
        splits=Splits(graph),
        repeated=2,
    )
    return replace(found, foresee=foreseeing(found, directory))


def _wait_for(*arrays: object) -> None:
    """The results are wanted on the host."""


@contextmanager
def uncut() -> Iterator[None]:
    """Ranges run as plans have them."""
    with patch.object(pipelining._Cutter, "_pays", lambda cutter, gain: False):
        yield


def measure(name: str, machine: Machine, queue: Queue) -> dict[str, float]:
    """Times faster than in order."""
    of = problem(name, machine, queue)
    foresee = of.foresee
    assert foresee is not None

    def gained(plan: Plan) -> float:
        return alone / foresee(plan).makespan

    alone = foresee(InOrder().plan(of)).makespan
    plain = Balance().plan(replace(of, foresee=None))
    found = {"overlapping": gained(Balance().plan(of)), "unforeseen": gained(plain)}
    with uncut():
        found["whole"] = gained(Balance().plan(of))
    return found


def main() -> None:
    args = common.parse(__doc__)
    whole = load_machine(shipped_machines()["h200_x2"])
    gpus = tuple(d for d in whole.devices if d.kind == "gpu")
    machine = replace(whole, devices=gpus)
    with Queue("cpu") as queue:
        rows = {name: measure(name, machine, queue) for name in EQUATIONS}
    figures: dict[str, Any] = {
        f"{way}_geomean": statistics.geometric_mean(row[way] for row in rows.values())
        for way in ("overlapping", "whole", "unforeseen")
    }
    figures |= {f"{name}_{way}": value for name, row in rows.items() for way, value in row.items()}
    common.report(args, {**figures, "least": min(row["overlapping"] for row in rows.values())})
