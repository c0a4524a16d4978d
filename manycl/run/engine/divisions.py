"""Why a run's launches were divided, or not, by what was predicted and measured; for its trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, cast

from manycl.graph.graph import Launch
from manycl.model.occupancy import work_groups
from manycl.plan.plan import COMPARED, WHOLE, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import AnalysedSplits
from manycl.plan.splitting import Splits
from manycl.plan.tuning import PLANNING
from manycl.run.streams.eager_rule import MeasuredGraph, gains_nothing
from manycl.utilities.unforeseen import told

DIVISIONS, MEASURED = "divisions", "measured"
"""The keys of the list, in a trace's details (:class:`manycl.report.decisions.LaunchDivision`), and, in a result's
details, of a weak reference to the recurring graph that ran."""


def divisions(problem: Problem | None, plan: Plan | None, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace's details about its launches, as far as is known now; ``details``: those of the result."""
    if problem is None or plan is None or len(problem.machine.devices) < 2:
        return {}
    try:
        known = details[MEASURED]() if MEASURED in details else None
        gain = _Gain(plan, known.measured, known.plan or plan) if known else _Gain(plan, MeasuredGraph(), plan)
        return {DIVISIONS: counted(_divisions(problem, plan, gain))}
    except Exception as error:
        told(error, "saying why launches were divided, or not")
        return {}


def _divisions(problem: Problem, plan: Plan, gain: _Gain) -> Iterator[dict[str, Any]]:
    nodes, splits = problem.graph.nodes, problem.splits
    same = problem.graph.same if isinstance(splits, AnalysedSplits) else None
    if any(a.node >= len(nodes) for a in plan.assignments):
        return  # the run was planned anew on its way: the plan is of all its parts, the problem of the first
    groups: dict[int, Counter[str]] = {}  # by divided launch
    whole: dict[int, int] = {}  # launches, by the first that has the same reason
    kernels: dict[tuple[int, int], int] = {}  # the first launch of each that nobody divides
    of_kernel: Counter[int] = Counter()  # launches that ran whole
    for a in plan.assignments:
        if a.is_range:
            groups.setdefault(a.node, Counter())[plan.devices[a.device]] += a.groups
        elif a.dimension is WHOLE and isinstance(task := nodes[a.node], Launch):
            of_kernel[id(task.kernel)] += 1
            first = a.node if same is None else same[a.node]
            if same is None and first not in splits:
                first = kernels.setdefault((id(task.program), id(task.kernel)), first)
            whole[first] = whole.get(first, 0) + 1

    def entry(node: int, launches: int, is_divided: bool, reason: str, numbers: dict[str, Any]) -> dict[str, Any]:
        name, numbers = cast("Launch", nodes[node]).kernel.name, {**numbers, **gain.seconds}
        return {"kernel": name, "launches": launches, "divided": is_divided, "reason": reason, "numbers": numbers}

    for node, count in groups.items():
        parts = ", ".join([f"{name} {100 * n / count.total():.0f} %" for name, n in sorted(count.items())])
        yield entry(node, 1, True, f"{parts}: {gain.words}" if gain.words else parts, {})
    for node, launches in whole.items():
        alike = of_kernel[id(cast("Launch", nodes[node]).kernel)]
        yield entry(node, launches, False, *_reason(problem, plan, node, alike, gain))


class _Gain:
    """The ratio by which divided runs are faster than whole ones, in ``words``, and ``seconds`` of both, if known."""

    def __init__(self, plan: Plan, measured: MeasuredGraph, kept: Plan) -> None:
        self.compared, self.run = plan.details.get(COMPARED) or kept.details.get(COMPARED, {}), measured.eager
        predicted = [self.compared.get("whole", inf), self.compared.get("divided", inf)]
        ran = [measured.eager, measured.planned if kept.is_split else inf]
        pairs = (("predicted", predicted), ("measured", ran))
        self.seconds = {how: pair for how, pair in pairs if max(pair) < inf and min(pair) > 0.0}
        words = ", ".join(f"{how} {whole / divided:.2f}" for how, (whole, divided) in self.seconds.items())
        self.words = f"{words} times as fast as whole" if words else ""

    def why(self, plan: Plan) -> str:
        """Return why a launch ran whole whose division was compared."""
        measured = self.seconds.get("measured")
        if plan.is_split:
            return "whole beside others that are divided"
        if self.compared and not self.compared["gains"]:
            return "dividing gains too little"
        if measured is None:
            return "not divided so far"
        return "dividing was slower" if measured[0] < measured[1] else "in other runs divided"


def _reason(problem: Problem, plan: Plan, node: int, launches: int, gain: _Gain) -> tuple[str, dict[str, Any]]:
    """Return why a launch, one of so many of its kernel, ran whole."""
    task, splits, estimates = cast("Launch", problem.graph.nodes[node]), problem.splits, problem.estimates
    is_known = not isinstance(splits, AnalysedSplits) or splits.is_known(node)
    split = splits.get(node) if is_known else None
    if is_known and split is None:
        why = splits.why(node) if isinstance(splits, Splits) else "it may not be divided"
        return f"{task.program.path or 'line'}:{task.kernel.line}: {why}", {}
    if gains_nothing(gain.run):
        return f"a run takes {1e3 * gain.run:.3g} ms: too short to gain from dividing", {"run": gain.run}
    if split is None:
        return f"how it may be divided {'is being' if gain.run < inf else 'was not'} analysed", {}
    device, middle = min(problem.preferred(node), key=lambda d: estimates.launch(node, d)), split.groups // 2
    whole, halves = estimates.launch(node, device), ((0, middle), (middle, split.groups - middle))
    half = min(problem.range_seconds(node, device, count, first) for first, count in halves) if middle else whole
    if 0.0 < whole < inf and half > (1.0 - PLANNING.gain) * whole:
        number, waves = work_groups(task) or split.groups, estimates.waves(node, device, split.groups)
        filled = f": {number} work-groups are {waves:.2f} waves of {problem.machine.devices[device].name}"
        said = f"half of it takes as long{filled if 0 < waves < 2 else ''}"
        numbers = {"launch": [whole, half], "groups": number, "waves": waves}
        return f"{said} (predicted gain {max(0.0, 100 * (1 - half / whole)):.0f} %)", numbers
    if gains_nothing(launches * whole):
        words = "it takes" if launches == 1 else f"its {launches} launches take"
        return f"{words} {1e3 * launches * whole:.3g} ms: too short to gain from dividing", {"launch": [whole, half]}
    if not gain.words:
        is_named = plan.policy not in ("auto", "in_order")  # eager runs are in order, whatever was asked for
        return f"policy {plan.policy} runs it whole" if is_named else "no plan that divides it has been compared", {}
    return f"{gain.why(plan)}: {gain.words}", {}


def counted(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries of details with their ``launches`` added up where all else is the same."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        key = repr({**entry, "launches": 0})
        if same := found.get(key):
            same["launches"] += entry["launches"]
        else:
            found[key] = {**entry}
    return list(found.values())
