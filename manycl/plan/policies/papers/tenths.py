"""``tenths``: kernels divided between GPUs and CPUs as the application says, the others whole.

PySchedCL's partition classes (A. Ghose et al., "PySchedCL: Leveraging Concurrency in Heterogeneous Data-Parallel
Systems"): of a kernel with ``partition`` p, p tenths of the work-groups run on the GPUs and the rest on the CPUs. Of
several devices of a kind, each has a part by its speed. Kernels without one, and those that cannot be divided so, are
placed as ``mkmd_coarse`` does.
"""

from __future__ import annotations

from collections.abc import Sequence

from manycl.graph.graph import Launch
from manycl.plan.options import Options
from manycl.plan.plan import Plan
from manycl.plan.policies.papers.mkmd_coarse import Table, as_plan, coarse, in_priority, look_up, place
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.partition import last_slot, place_ranges
from manycl.plan.timeline.timeline import Timeline

TENTHS = 10
"""Parts of a kernel's work-groups that ``partition`` of PySchedCL's files counts, as docs/specification.md says."""


def asked_for(problem: Problem) -> bool:
    """Return whether some kernel of the graph is to be divided in tenths, and can be, on a machine with both."""
    kinds = {d.kind for d in problem.machine.devices}
    nodes = enumerate(problem.graph.nodes)
    return {"gpu", "cpu"} <= kinds and any(_tenths(task) is not None and n in problem.splits for n, task in nodes)


def _tenths(task: object) -> int | None:
    return task.partition if isinstance(task, Launch) else None


def shares(groups: int, tenths: int, gpus: Sequence[float], cpus: Sequence[float]) -> list[int]:
    """Return the work-groups of each GPU and then of each CPU; ``gpus``, ``cpus``: seconds each takes for all."""
    on_gpus = (groups * tenths + TENTHS // 2) // TENTHS
    return [*_by_speed(on_gpus, gpus), *_by_speed(groups - on_gpus, cpus)]


def _by_speed(groups: int, seconds: Sequence[float]) -> list[int]:
    """Return whole numbers in proportion to speeds that add up to ``groups``: the ends of the ranges are rounded."""
    speeds = [1.0 / max(s, 1e-12) for s in seconds]
    total, done, found = sum(speeds), 0.0, []
    at = 0
    for speed in speeds:
        done += speed
        end = round(groups * done / total)
        found.append(end - at)
        at = end
    return found


def _put(timeline: Timeline, table: Table, node: int) -> None:
    problem = timeline.problem
    tenths, split = _tenths(problem.graph.nodes[node]), problem.splits.get(node)
    roomy = dict(problem.partners(node, table.places[node]))
    of_kind = {kind: [d for d in roomy if problem.machine.devices[d].kind == kind] for kind in ("gpu", "cpu")}
    if tenths is None or split is None or not all(of_kind.values()):
        place(timeline, table, node)
        return
    devices = [*of_kind["gpu"], *of_kind["cpu"]]
    seconds = [[table.rows[node][d] for d in of_kind[kind]] for kind in ("gpu", "cpu")]
    counts = shares(split.groups, tenths, *seconds)
    if any(roomy[d] and n > roomy[d] for d, n in zip(devices, counts, strict=True)):
        place(timeline, table, node)  # a part does not fit into its device's memory
        return
    home = max(zip(devices, counts, strict=True), key=lambda part: part[1])[0]
    slots = [last_slot(timeline, node, device, roomy[device]) for device in devices]
    place_ranges(timeline, node, slots, counts, home)


@register("tenths")
class Tenths:
    """The policy of the application's own division between GPUs and CPUs. No options."""

    options = Options("tenths")

    def plan(self, problem: Problem) -> Plan:
        table = look_up(problem)
        return as_plan(problem, coarse(problem, table, in_priority(problem, table), _put), "tenths")
