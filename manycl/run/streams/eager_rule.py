"""The eager rule: whether commands go to a device as they are enqueued, or are planned; when eager streams end. Pure.

Commands are given to a device before it is known which graph they will be, so what is predicted of them is what was
measured of the graph that is expected. Planning is worth its seconds as long as it costs less than all runs to come
could gain; as many are expected as there have been. What was decided is corrected by later runs, and the way that
was not taken is tried again, ever more rarely. The sentences say in a trace why it was decided so.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import NamedTuple

from manycl.graph.horizon import HORIZON
from manycl.machine import DeviceIndex
from manycl.plan.movable import SHORTEST
from manycl.plan.problem import ENQUEUING
from manycl.plan.tuning import PLANNING
from manycl.run.engine.trial import LOSING
from manycl.utilities.kept import ENOUGH

WORTH = 1e-3
"""Seconds of a run below which neither a plan nor the examination of its end gains anything: by a kept plan, one launch
that computes nothing takes 0.6 to 0.8 ms on two parts of a processor."""
SHORT = ENQUEUING / 4
"""Seconds of a command below which a plan gains nothing either: a kept one takes 1 to 5 us to give each of its commands
to a device (docs/decisions/16-eager-streams.md)."""
LONG = 1e-2
"""Seconds of a run beside which planning is little, and plans make copies in case that a device is lost; our choice."""
TRIALS = 2
"""The number of runs by which a way is judged at first, as memory and code are cold in the first; our own choice."""
RECENT = 16
"""The number of last runs of each way whose shortest eighth tells its time: most may have been disturbed; our own
choice."""
RETRIED = 4
"""The number of runs of one way after which the other one is tried again, if that is affordable: the first runs of each
way are slow, as memory is cold; our own choice. It is doubled each time."""
RARELY = 4096
"""The most runs of one way after which the other one is tried again; our own choice."""
SEVERAL = 256
"""The most commands, and transfers, of a stream that goes on: it keeps an event of each. Ending it and beginning
another one takes some 40 us (docs/decisions/16-eager-streams.md)."""
MOST_ARRAYS = 16
"""The most arrays that a batch may keep while it is waited for again and again, as the program may have dropped them;
our own choice."""
LIGHT = 64 << 20
"""The most bytes of these arrays; our own choice."""

SUBMITTED = "submission"
"""The key of a trace's details that says how commands were submitted, and why."""


class Need(Enum):
    """A reason why commands have to be planned, whatever was measured; the values are sentences for users."""

    GUARDED = "memory is guarded"
    QUEUES = "a device has several command queues"
    SLOWED = "a device is slowed down"
    CHECKPOINTS = "checkpoints are made"
    OPTIONS = "the policy has options"
    OBSERVED = "each command is logged"
    EARLIER = "commands before have yet to run"
    BUSY = "another run uses the devices"
    HOST = "a host function is among the commands"
    COMPONENT = "it is a task component"
    PREFERENCE = "a launch prefers some devices, or needs them"
    SEQUENCE = "a version is several launches"
    PREPARED = "it was prepared"
    RENAMED = "the policy was changed"
    REFUSED = "the device cannot be given all of it"


class MeasuredGraph(NamedTuple):
    """Measurements of the graph that is expected. Seconds are of one run, from its first call on; infinite where there
    was none.

    ``device`` can run all of it, as far as is known; not if some of its commands ``stays`` to be planned. ``eager``,
    ``planned``: of an undisturbed run of each way, planning apart where a plan is kept; runs that were planned with all
    commands on one device count as both; ``whole``: predicted for these, where a plan divides. ``eager_runs``,
    ``planned_runs``: how many there were. ``latest``: of its last run. ``is_analysed``: whether it is known how its
    launches may be divided. ``spare``: what trials may cost
    (:class:`~manycl.run.graph_cache.autotuner.TrialBudget`), and ``planning``: what planning takes. ``repeats``:
    whether it followed itself. ``since``: the runs since the other way was tried, and ``retries``: how often it was.
    ``is_cold``: its device is about to get callers' contents straight, as no device in the host's memory can.
    """

    nodes: int = 1
    device: DeviceIndex | None = None
    stays: bool = False
    repeats: bool = False
    latest: float = 0.0
    eager: float = inf
    eager_runs: int = 0
    planned: float = inf
    planned_runs: int = 0
    is_analysed: bool = False
    spare: float = 0.0
    planning: float = 0.0
    since: int = 0
    retries: int = 0
    whole: float = 0.0
    is_cold: bool = False


class Facts(NamedTuple):
    """The facts by which it is decided. (Named tuples are made in half the time of frozen data classes.)

    ``policy``: the one that the user has named. ``devices``: how many there are; ``away``: those that have left.
    ``gpu``: the first one that is waited for by polling; ``fastest``: the one with the highest peak. ``is_demanded``:
    whether other processes ask for devices; ``is_mortal``: whether devices may be lost; ``shortens``: whether there are
    devices on which launches can end early. ``is_awaited``: whether others would wait for a run of the graph, which may
    run in packets. ``fresh``: seconds and number of commands of the last new graphs. ``first``: seconds that the first
    command of an unknown graph took before; infinite where it is not known.
    """

    policy: str = "auto"
    need: Need | None = None
    devices: int = 1
    away: frozenset[DeviceIndex] = frozenset()
    gpu: DeviceIndex | None = None
    fastest: DeviceIndex | None = None
    is_demanded: bool = False
    is_mortal: bool = False
    shortens: bool = False
    is_awaited: bool = False
    fresh: tuple[tuple[float, int], ...] = ()
    graph: MeasuredGraph | None = None
    first: float = inf


class Decision(NamedTuple):
    """A decision of the eager rule, with its reason in words. ``device``: where commands go eagerly (None: they are
    planned); ``until``: the most commands, and transfers, of a stream that goes on; ``within``: the most seconds of its
    last batch. ``is_settled``: whether runs need not be examined singly. ``lasts``: whether it holds until the devices,
    or the policy, change. ``is_compared``: both ways have been measured; ``is_trial``: the slower one again."""

    reason: str
    device: DeviceIndex | None = None
    until: int = 0
    within: float = 0.0
    is_settled: bool = False
    lasts: bool = False
    is_compared: bool = False
    is_trial: bool = False


def is_light(arrays: int, nbytes: int) -> bool:
    """Return whether a batch that keeps so much goes on when it has been waited for."""
    return arrays <= MOST_ARRAYS and nbytes <= LIGHT


def gains_nothing(seconds: float, is_new: bool = False) -> bool:
    """Return whether a run of so many seconds is too short for a plan to pay. ``is_new``: the next ones take less."""
    return seconds < (LONG if is_new else WORTH)


def are_short(graph: MeasuredGraph) -> bool:
    """Return whether a graph's runs are too short for a plan to pay: as wholes, or each of its commands."""
    return gains_nothing(graph.eager) or graph.eager < SHORT * graph.nodes


def is_worth_planning(graph: MeasuredGraph) -> bool:
    """Return whether a plan of a graph that runs eagerly is to be made in the background, so that it can be tried."""
    is_due = graph.is_analysed and graph.nodes < HORIZON  # (a long one is tried in parts)
    return is_due and not are_short(graph) and graph.planned_runs < TRIALS


def decide(facts: Facts) -> Decision:
    """Return how the next commands run."""
    if facts.policy not in ("auto", "in_order"):  # these are eager submission where there is no choice
        return _planned(f"policy {facts.policy} was asked for", lasts=True)
    if facts.need is not None:
        return _planned(facts.need.value)
    if facts.is_awaited:
        return _planned("other processes would wait: launches run in packets")
    found = _of_one(facts) if facts.devices == 1 else _of_several(facts)
    return _planned("the device has left") if found.device in facts.away else found


def _planned(reason: str, *, lasts: bool = False, is_compared: bool = False, is_trial: bool = False) -> Decision:
    return Decision(reason, lasts=lasts, is_compared=is_compared, is_trial=is_trial)


def _eager(reason: str, device: DeviceIndex, is_settled: bool = False, lasts: bool = False, *more: bool) -> Decision:
    within = inf if lasts else WORTH  # (where nothing is compared, it does not matter)
    return Decision(reason, device, SEVERAL, within, is_settled, lasts, *more)


def _of_one(facts: Facts) -> Decision:
    lasts = not facts.is_demanded
    return _eager("there is one device", DeviceIndex(0), lasts, lasts)


def _of_several(facts: Facts) -> Decision:
    graph = facts.graph
    if graph is None:
        return _unknown(facts)
    if graph.nodes >= HORIZON and graph.eager > ENQUEUING * graph.nodes:  # parts of it are compared as such
        return _planned("it is a part of a long program")
    if graph.latest >= LONG and facts.is_mortal:
        return _planned("it takes long, and plans keep copies in case that a device is lost")
    least = min(graph.eager, graph.planned)
    are_long = graph.is_analysed and SHORTEST * graph.nodes <= least < inf
    is_slower = PLANNING.nearly * graph.eager < graph.planned < inf
    if facts.shortens and are_long and not (is_slower or graph.is_cold):
        return _planned("its launches take long, and may move to other devices while they run")
    if graph.stays:
        return _planned(Need.REFUSED.value)
    if graph.device is not None:
        return _of_known(graph, graph.device)
    unknown = _unknown(facts)
    # by plans that use several devices, it is not known how long one of them takes
    device = facts.fastest if unknown.device is None and graph.planned_runs >= TRIALS else unknown.device
    return _of_known(graph, device) if device is not None else unknown


def _unknown(facts: Facts) -> Decision:
    """Return how commands run of which nothing is known. Without a GPU, devices are parts of one processor, and a plan
    costs little beside the work of each, unless that is little each time."""
    if facts.policy == "auto":
        if facts.gpu is not None:
            return _eager("nothing is known of it: it goes to the first GPU", facts.gpu)
        are_short = len(facts.fresh) >= ENOUGH and all(
            seconds < (LONG if commands == 1 else WORTH) for seconds, commands in facts.fresh[-ENOUGH:]
        )  # (a plan of one command only says which device has it)
        if are_short and facts.fastest is not None:
            return _eager("new graphs were short, each time", facts.fastest)
        if gains_nothing(facts.first) and facts.fastest is not None:
            return _eager("its first command is short", facts.fastest)
    return _planned("nothing is known of it")


def _of_known(graph: MeasuredGraph, device: DeviceIndex) -> Decision:
    """Return how a graph runs that has run before and may be given to a device."""
    eager, planned, is_short = graph.eager, graph.planned, are_short(graph)
    is_eager = eager <= planned
    gains = LONG <= planned < inf or planned <= LOSING * graph.whole  # as predicted, or it is not refuted yet
    if graph.is_cold or (graph.eager_runs < TRIALS and not (graph.is_analysed and gains)):
        reason = "contents do not go straight to it yet" if graph.is_cold else "it is tried without a plan"
        return _eager(reason, device)
    if is_eager and not is_short and not graph.is_analysed:
        return _eager("how its launches may be divided is not known yet", device)
    # memory is new in the first run of a plan, and the next ones take less
    is_losing = max(graph.spare, 0.0) < planned / LOSING**2 - eager < inf
    is_made = graph.planned_runs > 0 and not graph.planning  # then its first run, with memory to make, has cost most
    is_affordable = is_made or graph.spare > graph.planning
    if not is_short and graph.planned_runs < TRIALS and not is_losing and is_affordable:
        return _planned("a plan is tried")
    is_compared = not (is_eager and is_short) and graph.planned_runs > 0
    is_due = is_compared and graph.since >= min(RETRIED << graph.retries, RARELY)
    cost = abs(eager - planned) if graph.eager_runs else planned
    # one run may have been disturbed: what would make a run far longer is tried again when all runs pay for it
    has_lost = not is_short and LOSING * min(eager, planned) < max(eager, planned) < inf
    spare = graph.spare - (min(eager, planned) if has_lost else 0.0)
    is_trial = is_due and cost + (graph.planning if is_eager else 0.0) <= spare
    if is_eager is is_trial:  # a plan, because it is quicker or to try it
        reason = "a plan is tried again" if is_trial else "planned runs take less time"
        return _planned(reason, is_compared=is_compared, is_trial=is_trial)
    if is_trial:
        reason = "eager runs are tried again"
    else:
        reason = "it is too short for a plan to gain anything" if is_short else "eager runs take less time"
    is_settled = is_short and not is_trial and graph.repeats and graph.eager_runs > ENOUGH
    return _eager(reason, device, is_settled, False, is_compared, is_trial)
