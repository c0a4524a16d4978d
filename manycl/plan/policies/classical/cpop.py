"""``cpop``: the critical path on one device, every other node where it ends first. H. Topcuoglu, S. Hariri and M.-Y.
Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE TPDS 13(3), 2002,
Section 5.2 (Critical Path on a Processor), with insertion into gaps."""

from __future__ import annotations

from manycl.machine import DeviceIndex
from manycl.plan.options import Options
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.insertion import CONTENTION, Setting, ready_order, setting
from manycl.plan.timeline.delays import Delays, after, downward_ranks, upward_ranks
from manycl.plan.timeline.timeline import Schedule


def schedule(given: Setting) -> Schedule:
    """Return CPOP's schedule."""
    view = given.view
    up, down = upward_ranks(view), downward_ranks(view)
    priority = [u + d for u, d in zip(up, down, strict=True)]
    path = critical_path(view, priority)
    device = path_device(view, path)
    on_path = frozenset(path)
    board = given.board()
    for node in ready_order(given, priority):
        mine = node in on_path and device in view.places[node]
        board.put(node, (device,) if mine else view.places[node])
    return board.schedule()


def critical_path(view: Delays, priority: list[float]) -> list[int]:
    """Return the path from the first node of highest priority (upward plus downward rank) along the highest on."""
    path: list[int] = []
    following = after(view)
    entries = [n for n, edges in enumerate(view.before) if not edges]
    while entries:
        path.append(max(entries, key=lambda n: (priority[n], -n)))
        entries = [n for n, _ in following[path[-1]]]
    return path


def path_device(view: Delays, path: list[int]) -> DeviceIndex:
    """Return the device that may run most of the path, and of those the one where that takes least time."""
    kernels = [n for n in path if view.places[n] != (ON_HOST,)]
    devices = sorted({d for n in kernels for d in view.places[n]})

    def cost(device: DeviceIndex) -> tuple[int, float]:
        mine = [view.seconds[n][device] for n in kernels if device in view.places[n]]
        return -len(mine), sum(mine)

    return min(devices, key=cost, default=ON_HOST)


@register("cpop")
class Cpop:
    """The critical path on a processor; option ``contention``."""

    options = Options("cpop", CONTENTION)

    def plan(self, problem: Problem) -> Plan:
        given = setting(problem, "cpop", self.options.read(problem.options)[CONTENTION])
        return given.plan("cpop", schedule(given))
