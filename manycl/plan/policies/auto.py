"""``auto``, the default: predicts the plans of several policies, and takes the best.

It always tries HEFT's list scheduling and the fastest device alone. HEFT: Topcuoglu, Hariri and Wu,
"Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE TPDS 13(3), 2002; here
without insertion into gaps (an in-order queue that has been given work cannot take any in between), O(V P), and with
several queues a device.

A policy whose planning takes longer is only used as long as its planning fits into the budget: by default a part of the
makespan that was predicted so far, or what dividing kernels may gain of it, so that a small graph does not wait for its
plan. The time of planning is predicted from the graph's size, never measured, so the same problem gets the same plan
however busy the machine is. How launches may be split is analysed when this graph may gain more, or when the graphs of
the session that would gain have been predicted to take long enough to be worth it (:mod:`manycl.plan.analysis_budget`).

Predictions are not exact to a handover, so no plan is taken for less (nor are whole kernels of a graph that runs again
put on several devices for less than a tenth); and kernels are divided only if that gains more than the estimates are
off (:func:`_gains`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import NamedTuple

from manycl.errors import ManyclError, PolicyError
from manycl.graph.graph import HostTask, Launch
from manycl.machine import HOST, Device, DeviceIndex
from manycl.plan.analysis_budget import AnalysisBudget
from manycl.plan.foreseen import foreseen
from manycl.plan.options import Option, Options, real
from manycl.plan.plan import COMPARED, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.policies import load
from manycl.plan.policies.classical.in_order import on_one_device
from manycl.plan.policies.papers import mkmd, mkmd_coarse, tenths
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.costs import Costs, costs
from manycl.plan.search.insertion import Setting, setting
from manycl.plan.search.list_scheduling import list_schedule
from manycl.plan.search.objective import OPTIONS, TIME, cheapest, objective, with_fewer_devices
from manycl.plan.search.rank import bottom_levels, priority_order
from manycl.plan.split import AnalysedSplits, Split, as_ranges
from manycl.plan.tuning import PLANNING
from manycl.utilities.unforeseen import told

_BUDGET: Option[float | None] = Option("budget", None, real(), "seconds")


class Candidate(NamedTuple):
    """A policy that may be used, and the seconds that its planning is predicted to take; ``least``: those that its plan
    takes at least."""

    name: str
    seconds: float
    plan: Callable[[], Plan]
    least: float = -inf


@register("auto")
class Auto:
    """The policy that predicts, compares and takes the best. ``details`` has the policy ``chosen``, and in ``asked``
    every candidate's makespan; ``postponed``: how kernels may be split was not analysed, but will be for graphs that
    run on. Option ``budget``: seconds that planning by policies other than list scheduling may be predicted to take;
    ``objective``, ``deadline``: what the best is."""

    options = Options("auto", _BUDGET, *OPTIONS)

    def plan(self, problem: Problem) -> Plan:
        given = self.options.read(problem.options)
        wanted, budget = objective(problem, given), given[_BUDGET]
        if wanted != TIME:
            plain = replace(problem, options={k: v for k, v in problem.options.items() if k == _BUDGET.name})
            return cheapest(problem, wanted, [self.plan(part) for part in with_fewer_devices(plain)])
        if tenths.asked_for(problem):  # the application's author has decided
            said = tenths.Tenths().plan(replace(problem, options={}))
            return replace(said, policy="auto", details={"chosen": "tenths", "asked": {"tenths": said.makespan}})
        if budget is None and not (problem.repeated or problem.fixed) and (rough := _rough(problem)) is not None:
            return rough
        begin = _begin(problem, budget)
        answers = _Answers(problem, begin.best)
        left = begin.left
        for candidate in _candidates(begin, left, _foresees(problem)):
            if answers.best is None or (candidate.seconds <= left and not answers.is_near(candidate.least)):
                left -= candidate.seconds
                answers.ask(candidate)
        best = answers.result(begin.impossible)
        later = {"postponed": True} if begin.postponed and budget is None else {}
        return replace(best, details={**best.details, "asked": answers.asked, **later})


def _rough(problem: Problem) -> Plan | None:
    """Return the plan of whole kernels by rough guesses; None where these, or measurements, say that the graph takes so
    long that counting its operations, and more plans, may pay."""
    known = problem.estimates.uncounted()
    if known is problem.estimates:
        return None
    guessed = replace(problem, options={}, splits={}, estimates=known)
    try:
        best = _simple(guessed, costs(guessed))
    except PolicyError:
        return None
    is_brief = best.makespan < PLANNING.most
    return replace(best, details={**best.details, "postponed": True}) if is_brief else None


class _Begin(NamedTuple):
    """The state before candidates are tried. ``whole``: the problem in which only fixed nodes, and those that fit
    nowhere whole, are divided; ``table``: its costs (None: a kernel fits into no device as a whole); ``best``: the best
    plan so far. ``splits``: of the launches worth dividing (``postponed``: they were not analysed). ``left``: seconds
    for candidates. ``impossible``: why there is no plan yet. ``least``: seconds that every plan takes."""

    whole: Problem
    table: Costs | None
    best: Plan | None
    splits: Mapping[int, Split]
    left: float
    postponed: bool = False
    impossible: PolicyError | None = None
    least: float = 0.0


def _begin(problem: Problem, budget: float | None) -> _Begin:
    # fixed nodes keep their ranges; how others may be split is not looked up yet, as that takes time
    fixed = {a.node for a in problem.fixed}
    of_fixed = {n: s for n in fixed if (s := problem.splits.get(n)) is not None}
    whole = replace(problem, options={}, splits=of_fixed)
    try:
        table = costs(whole)
    except PolicyError as error:
        whole = replace(whole, splits=problem.splits)  # a kernel fits into no device as a whole
        found, best = None, None
        with suppress(PolicyError):
            found = costs(whole)
            best = _simple(whole, found)
        return _Begin(whole, found, best, problem.splits, PLANNING.most if budget is None else budget, impossible=error)
    best = _simple(whole, table)
    left = (
        (PLANNING.most if problem.repeated else min(PLANNING.most, PLANNING.share * best.makespan))
        if budget is None
        else budget
    )
    least, off = _at_best(problem, table)
    gain = best.makespan * (1.0 - off / least) - least if least > 0.0 and not problem.repeated else 0.0
    looked = _splits(problem, table, best.makespan, budget, PLANNING.repeated if problem.repeated else gain)
    if looked and budget is None:
        left = max(left, min(PLANNING.most, gain))
    return _Begin(whole, table, best, looked or {}, left, postponed=looked is None, least=least)


class _Answers:
    """The candidates' answers: the best plan of whole kernels, and the best that divides some."""

    def __init__(self, problem: Problem, best: Plan | None) -> None:
        self._problem = problem
        self._divided: Plan | None = None
        self.best = best
        self.asked: dict[str, float] = {} if best is None else {str(best.details["chosen"]): best.makespan}

    def ask(self, candidate: Candidate) -> None:
        try:
            found = candidate.plan()
            if found.is_split:
                found = foreseen(self._problem, found)
        except ManyclError:
            raise
        except Exception as error:
            told(error, f"planning with {candidate.name}")
            return
        found = replace(found, policy="auto", details={"chosen": candidate.name})
        if self.best is None:
            self.best = found
        elif found.is_split:
            if self._divided is None or found.makespan < self._divided.makespan:
                self._divided = found
        elif _worth(self._problem, found.makespan, _is_spread(self.best) or not _is_spread(found)) < self.best.makespan:
            self.best = found
        self.asked[candidate.name] = found.makespan

    def is_near(self, least: float) -> bool:
        """Return whether a plan of a graph that runs again does not gain enough over the best one, as it takes so
        long."""
        makespan = min((plan.makespan for plan in (self.best, self._divided) if plan is not None), default=inf)
        return self._problem.repeated > 0 and makespan < inf and not _is_gain(makespan, least)

    def result(self, impossible: PolicyError | None) -> Plan:
        best, divided = self.best, self._divided
        if best is None:
            raise impossible or PolicyError("there is nothing to plan with")
        if divided is None:
            return best
        # a rival is the other plan: whole kernels where divided ones are predicted to be faster, or the other way round
        is_near = max(divided.makespan, best.makespan) < PLANNING.near * min(divided.makespan, best.makespan)
        is_rival = self._problem.rival and is_near
        whole = foreseen(self._problem, best) if divided.foreseen else best
        gains = _gains(self._problem, divided, whole)
        taken = divided if is_rival != gains else best
        compared = {"whole": whole.makespan, "divided": divided.makespan, "gains": gains}
        return taken if whole.is_split else replace(taken, details={**taken.details, COMPARED: compared})


def _simple(problem: Problem, table: Costs) -> Plan:
    """Return the better of list scheduling over all devices, one device with all its queues, and ``in_order``; a rival
    may be on several devices without gaining enough to be believed."""
    order = priority_order(problem.graph, bottom_levels(problem, table))
    best, chosen = list_schedule(problem, table, order, table.allowed, problem.queues), "heft"
    below = best.makespan if problem.rival else _worth(problem, best.makespan)
    rival = on_one_device(problem, table, order, problem.queues, below=below)
    if rival is not None:
        best, chosen, below = rival, "one device", rival.makespan
    rival = on_one_device(problem, table, range(len(order)), [1] * len(problem.queues), below=below)
    if rival is not None:
        best, chosen = rival, "in_order"
    return best.plan(problem, "auto", chosen=chosen)


def _worth(problem: Problem, makespan: float, is_alike: bool = False) -> float:
    """Return the seconds above which another plan is given up for one that takes ``makespan``: predictions are not
    exact to a handover, nor, of a graph that runs again, to a tenth where the other one is on one device, and this one
    on several (not ``is_alike``), unless rivals are wanted, or a run has begun."""
    part = PLANNING.gain if problem.repeated and not (is_alike or problem.rival or problem.fixed) else 0.0
    return max(makespan + problem.handover, makespan / (1.0 - part))


def _is_spread(plan: Plan) -> bool:
    return len({a.device for a in plan.assignments if a.device != ON_HOST}) > 1


def _splits(
    problem: Problem, table: Costs, makespan: float, budget: float | None, least: float
) -> Mapping[int, Split] | None:
    """Return the splits of the nodes that are worth it, None where the analysis is not affordable yet (``least``: the
    seconds that it may take in any case); empty where there is one device only, and no link that could transfer
    meanwhile for long."""
    devices = problem.machine.devices
    if len(devices) == 1 and (not _foresees(problem) or _moving(problem) <= PLANNING.hidden * makespan):
        return {}
    # where the engine foresees plans, it may show that dividing short kernels pays (data stay in place)
    brief = 0.0 if _foresees(problem) else PLANNING.worth * problem.handover
    bring = _bringing(problem)
    nodes = problem.graph.nodes
    may = [n for n, task in enumerate(nodes) if isinstance(task, Launch) and table.allowed[n]]
    worth = [n for n in may if min(table.seconds[n]) + bring.get(n, 0.0) > brief]
    if not worth:
        return {}
    analysis, splits = problem.analysis if problem.analysis is not None else AnalysisBudget(), problem.splits
    analysed = splits if isinstance(splits, AnalysedSplits) else None
    asked = [n for n in worth if analysed is None or not analysed.is_known(n)]
    if not analysis.afford(
        [nodes[n] for n in asked],
        PLANNING.looking * makespan,
        budget,
        least,
        lambda: sum(map(analysed.following, asked)) if analysed is not None else 0.0,
        problem.estimates.is_counted,
    ):
        return None
    return {n: split for n in worth if (split := splits.get(n)) is not None}


def _at_best(problem: Problem, table: Costs) -> tuple[float, float]:
    """Return the seconds of all kernels divided among all devices, if no parts waited for anything, and those by which
    that may be off."""
    shared = off = 0.0
    for n, devices in enumerate(table.allowed):
        times = [table.seconds[n][d] for d in devices]
        if min(times, default=0.0) > 0.0:
            seconds = 1.0 / sum(1.0 / t for t in times)
            shared += seconds
            off += seconds * problem.estimates.doubt(n, sorted(devices)) if not problem.repeated else 0.0
    return shared, off


def _foresees(problem: Problem) -> bool:
    """Return whether the engine foresees plans however short the graph is: one that runs again."""
    return problem.foresee is not None and problem.repeated > 0


def _moving(problem: Problem) -> float:
    """Return the seconds of one device's transfers, which is the most that ranges can save."""
    (own,) = (device.memory for device in problem.machine.devices)
    seconds, places = 0.0, {key: set(found) for key, found in problem.valid.items()}
    for task in problem.graph.nodes:
        here = HOST if isinstance(task, HostTask) else own
        for key in {*task.reads, *task.writes}:  # a kernel may leave parts of what it writes as they were
            found = places.get(key)
            if found and here not in found:
                seconds += problem.estimates.transfer(problem.graph.buffers[key].nbytes, min(found), here)
                found.add(here)
        places.update((key, {here}) for key in task.writes)
    return seconds


def _bringing(problem: Problem) -> dict[int, float]:
    """Return, by node, the least seconds of moving its inputs that only the host has; they count for the first node
    that reads them."""
    far = [d.memory for d in problem.machine.devices if d.memory != HOST]
    if len(far) < len(problem.machine.devices):
        return {}  # some devices compute in the host's memory
    seconds: dict[int, float] = {}
    brought = set()
    for node, task in enumerate(problem.graph.nodes):
        if not isinstance(task, HostTask):
            for key in task.reads:
                if key not in brought and problem.valid.get(key) == frozenset({HOST}):
                    nbytes = problem.graph.buffers[key].nbytes
                    least = min(problem.estimates.transfer(nbytes, HOST, memory) for memory in far)
                    seconds[node] = seconds.get(node, 0.0) + least
                brought.add(key)
            brought.update(task.writes)
    return seconds


def _candidates(begin: _Begin, budget: float, foresees: bool) -> Iterator[Candidate]:
    """Yield the candidates, the quickest first; none where there is no choice. ``foresees``: the engine foresees plans
    that divide kernels."""
    whole, splits, table, least = begin.whole, begin.splits, begin.table, begin.least
    nodes, devices = len(whole.graph), len(whole.machine.devices)
    if nodes and (devices > 1 or splits):
        cells = nodes * devices
        # no other shares end earlier than equal ones, and nothing is merged
        are_apart = all(split.merge == "none" for split in splits.values())
        in_turn = table is not None and are_apart and _in_turn(whole, table)
        members = PLANNING.members * cells
        effort = min(PLANNING.effort, int((budget - members - PLANNING.coarse * cells) / PLANNING.placed))
        is_searched = not (splits or whole.fixed) and effort >= PLANNING.search * nodes
        given = setting(whole, "portfolio") if is_searched else None
        if given is not None and begin.best is not None and begin.best.makespan <= given.bound() + whole.handover:
            return  # no plan is shorter by more than a handover
        yield Candidate("mkmd_coarse", PLANNING.coarse * cells, lambda: mkmd_coarse.MkmdCoarse().plan(whole))
        if begin.best is not None and table is not None and splits and foresees:
            alone = min(map(sum, zip(*table.seconds, strict=True)))
            is_spread = len({d.memory for d in whole.machine.devices}) > 1
            if is_spread:
                yield Candidate("evenly", 0.0, lambda: _evenly(_in_parts(whole, table, splits), whole, table), least)
            yield Candidate("in parts", 0.0, lambda: _in_parts(whole, table, splits), alone)
            if is_spread and in_turn:
                return
        if splits:
            may = replace(whole, splits={**whole.splits, **splits}, options={"rounds": "1"} if in_turn else {})
            if not in_turn:
                yield Candidate("mkmd", PLANNING.mkmd * cells, lambda: mkmd.Mkmd().plan(may), least)
            yield Candidate("balance", PLANNING.balance * cells, lambda: _balance(may), least)
        elif given is not None:
            yield Candidate("portfolio", members + effort * PLANNING.placed, lambda: _portfolio(given, effort))


def _in_parts(problem: Problem, table: Costs, splits: Mapping[int, Split]) -> Plan:
    """Return a plan of all nodes on the device that is fastest alone, in the order of the program, as ranges: the
    engine cuts them where computing and transfers then overlap."""
    timeline = on_one_device(problem, table, range(len(problem.graph)), [1] * len(problem.queues))
    assert timeline is not None, "without a limit there is always one"
    plan = timeline.plan(problem, "auto")
    apart = {node for node, split in splits.items() if split.merge == "none"}
    return replace(plan, assignments=as_ranges(plan.assignments, splits, apart))


def _in_turn(problem: Problem, table: Costs) -> bool:
    """Return whether devices are alike, and launches of a graph that runs again run one after another, each long enough
    to be divided: as in a loop whose steps read what the step before has written."""
    brief, is_alike = PLANNING.worth * problem.handover, len({_kind(d) for d in problem.machine.devices}) == 1
    return (
        problem.repeated > 0
        and is_alike
        and all(
            (not isinstance(task, Launch) or min(table.seconds[n]) > brief) and {*range(n)[-1:]} <= {*before}
            for n, (task, before) in enumerate(zip(problem.graph.nodes, problem.graph.predecessors, strict=True))
        )
    )


def _kind(device: Device) -> tuple[str, str, str]:
    return device.kind, device.model, device.driver


def _evenly(plan: Plan, problem: Problem, table: Costs) -> Plan:
    """Return a plan with ranges of whole launches divided evenly between all devices that are like theirs. No launch
    may end earlier so for itself, where it takes less than an exchange: the engine has several between two exchanges
    (``run/lowering/depth.py``)."""
    devices, out = problem.machine.devices, list[Assignment]()
    kinds = [*map(_kind, devices)]
    for a in plan.assignments:
        alike = [d for d in table.allowed[a.node] if kinds[d] == kinds[a.device]] if a.is_range else []
        if problem.is_limited(a.node):
            alike = [d for d, _ in problem.partners(a.node, [(d, 0) for d in alike])]
        bounds = [a.groups * n // len(alike) for n in range(len(alike) + 1)] if alike else []
        shares = zip(alike, bounds, bounds[1:], strict=False)
        out += [a._replace(device=d, first=low, groups=high - low) for d, low, high in shares if low < high] or [a]
    return replace(plan, assignments=tuple(out))


def _balance(problem: Problem) -> Plan:
    load("balance")  # loading takes a while, for which programs that divide nothing should not wait
    from manycl.plan.policies.balance import Balance

    return Balance().plan(problem)


def _portfolio(given: Setting, effort: int) -> Plan:
    load("portfolio")  # loading takes a while, too
    from manycl.plan.policies.classical import portfolio

    return given.plan("portfolio", portfolio.schedule(given, effort)[0])


def _is_gain(before: float, after: float) -> bool:
    """Return whether a graph that runs again gains enough where it takes so many seconds instead."""
    return before - after >= max(PLANNING.gain * before, PLANNING.gained)


def _gains(problem: Problem, divided: Plan, whole: Plan) -> bool:
    """Return whether a plan that divides kernels is worth a run. For a graph that runs once, it must gain more than its
    estimates are expected to be off: how far off the ratios between the devices of each divided kernel are, weighted by
    the seconds that it takes. For one that runs again, and is measured, it must gain a tenth and half a millisecond."""
    if whole.is_split:  # both divide kernels
        return divided.makespan < whole.makespan
    if problem.repeated:
        return _is_gain(whole.makespan, divided.makespan)
    gain = 1.0 - divided.makespan / whole.makespan if whole.makespan > 0 else 0.0
    parts: dict[int, list[DeviceIndex]] = {}
    seconds: dict[int, float] = {}
    for a in divided.assignments:
        if a.device != ON_HOST:
            seconds[a.node] = seconds.get(a.node, 0.0) + a.end - a.start
            if a.dimension is not WHOLE:
                parts.setdefault(a.node, []).append(a.device)
    total = sum(seconds.values())
    off = sum(problem.estimates.doubt(node, sorted(set(devices))) * seconds[node] for node, devices in parts.items())
    return gain > (off / total if total > 0 else 0.0) and divided.makespan + problem.handover < whole.makespan
