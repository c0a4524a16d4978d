"""A plan: which device runs which node in which queue, and when. Plain data: saved, drawn, verified, executed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from manycl.errors import PolicyError
from manycl.graph.graph import Graph, HostTask, ResultTask
from manycl.group_range import GroupRange
from manycl.machine import DeviceIndex, Machine
from manycl.trace import Event, Trace
from manycl.utilities.checked import checked
from manycl.utilities.shown import html

ROUNDING = 1e-9
"""The part of a time by which sums of the same times in another order differ at most, as sums of floats are not exact:
far more than the rounding of doubles (our own choice)."""
FORMAT = 2  # version of the JSON files
ON_HOST: Final = DeviceIndex(-1)
"""The device index of a host task's assignment, the only negative one. Lists by device that also have an element for
the host have it last, where this index finds it."""
COMPARED = "compared"  # the key of details: makespans, if kernels are ``whole`` and ``divided``; whether it ``gains``


class Undivided(Enum):
    """Assignments that are not ranges: all of a node, or the merge of its ranges' partial results."""

    WHOLE = "whole"
    MERGE = "merge"

    def __str__(self) -> str:
        return self.value


WHOLE: Final = Undivided.WHOLE
MERGE: Final = Undivided.MERGE


class Assignment(NamedTuple):
    """An assignment: node ``node`` runs on device ``device`` (index) in its queue ``queue``; times in seconds are
    predictions. For a range, ``groups`` work-groups from number ``first`` on along ``dimension``, each group of the
    node in exactly one assignment. ``dimension`` is WHOLE for a launch that is not split, and MERGE for the step that
    merges the partial results of the ranges (``manycl.plan.split``). ``version``: the version of the launch that
    runs."""

    node: int
    device: DeviceIndex
    queue: int
    start: float
    end: float
    dimension: int | Undivided = WHOLE
    first: int = 0
    groups: int = 0
    version: int = 0

    @property
    def is_range(self) -> bool:
        return not isinstance(self.dimension, Undivided)

    @property
    def range(self) -> GroupRange:
        """The work-groups of a range."""
        assert not isinstance(self.dimension, Undivided)
        return GroupRange(self.dimension, self.first, self.groups)

    def at(self, start: float, end: float) -> Assignment:
        """Return the assignment at other times."""
        return Assignment(self.node, self.device, self.queue, start, end, *self[5:])

    def of_range(self, groups: GroupRange) -> Assignment:
        """Return the assignment for other work-groups of its node."""
        return self._replace(dimension=groups.dimension, first=groups.first, groups=groups.count)


@checked("__init__")
@dataclass(frozen=True, slots=True)
class Plan:
    """A plan: assignments in dispatch order. On each (device, queue) they run in this order, and no node stands before
    one that it depends on. ``makespan`` is predicted, in seconds: by the policy's estimate or, if ``foreseen``, by the
    engine on the simulated machine (``run/simulation/foresee.py``); ``events`` are those of the simulation, transfers
    among them (an estimate has none). ``movable``: nodes whose ranges are shares that may move from device to device
    while they run; ``in_turn``: those of them that a faster device takes over as a whole as soon as it has begun;
    ``still``: those whose shares stay where they are until a device leaves, comes or becomes slower. ``in_units``: the
    launches of the graph that run in a version of several kernels, each as a node of its own (launch, version); nodes
    are then those of the graph that ``graph/versions/units.py`` makes."""

    assignments: tuple[Assignment, ...]
    policy: str
    devices: tuple[str, ...]
    makespan: float
    events: tuple[Event, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    foreseen: bool = False
    movable: tuple[int, ...] = ()
    in_turn: tuple[int, ...] = ()
    still: tuple[int, ...] = ()
    in_units: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        there: dict[str, set[int]] = {}
        for a in self.assignments:
            there.setdefault("host" if a.device == ON_HOST else self.devices[a.device], set()).add(a.node)
        nodes = ", ".join(f"{len(there[name])} on {name}" for name in (*self.devices, "host") if name in there)
        divided = len({a.node for a in self.assignments if a.is_range})
        said = [f"nodes: {nodes or 'none'}"]
        said += [f"divided: {divided}"] if divided else []
        said += [f"{self.makespan * 1e3:.3f} ms predicted"] if self.makespan else []
        return f"<manycl.Plan by {self.policy}, {', '.join(said)}>"

    def _repr_html_(self) -> str:
        return html(self)

    @property
    def is_split(self) -> bool:
        """True if some launch is divided into ranges."""
        return any(a.dimension is not WHOLE for a in self.assignments)

    @property
    def slack(self) -> float:
        """Seconds by which two of its times may differ and count as equal: sums of floats are not exact."""
        return 1e-9 * max(abs(self.makespan), max((abs(a.end) for a in self.assignments), default=0.0))

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "policy": self.policy,
                "devices": list(self.devices),
                "makespan": self.makespan,
                "assignments": [_fields(a) for a in self.assignments],
                "details": self.details,
                **({"foreseen": True} if self.foreseen else {}),
                **({"movable": list(self.movable)} if self.movable else {}),
                **({"in_turn": list(self.in_turn)} if self.in_turn else {}),
                **({"still": list(self.still)} if self.still else {}),
                **({"in_units": list(self.in_units)} if self.in_units else {}),
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']}, not {FORMAT}")
            return cls(
                assignments=tuple(_assignment(**a) for a in data["assignments"]),
                policy=data["policy"],
                devices=tuple(data["devices"]),
                makespan=data["makespan"],
                details=data["details"],
                foreseen=data.get("foreseen", False),
                movable=tuple(data.get("movable", ())),
                in_turn=tuple(data.get("in_turn", ())),
                still=tuple(data.get("still", ())),
                in_units=tuple([(node, version) for node, version in data.get("in_units", ())]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PolicyError(f"not a plan: {error}") from None

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def as_trace(self, application: str = "", edges: tuple[tuple[int, int], ...] = ()) -> Trace:
        """Return the plan in the shape of a trace, for charts and summaries."""
        return Trace(
            events=self.events,
            devices=self.devices,
            policy=self.policy,
            makespan=self.makespan,
            kind="plan",
            application=application,
            edges=edges,
            details=self.details,
        )


def _fields(value: Assignment) -> dict[str, Any]:
    """Return the fields by name, without those that have their default."""
    fields = {k: v for k, v in value._asdict().items() if value._field_defaults.get(k) != v}
    return fields | {k: v.value for k, v in fields.items() if isinstance(v, Undivided)}


def _assignment(*, dimension: int | str = "whole", **fields: Any) -> Assignment:
    return Assignment(dimension=Undivided(dimension) if isinstance(dimension, str) else dimension, **fields)


def alone(graph: Graph, device: DeviceIndex, machine: Machine, policy: str = "in_order") -> Plan:
    """Return the plan that has all of a graph's kernels, whole and in order, on one device; without times."""
    places = [ON_HOST if isinstance(task, HostTask) else device for task in graph.nodes]
    assignments = tuple([Assignment(n, place, 0, 0.0, 0.0) for n, place in enumerate(places)])
    return Plan(assignments, policy, tuple([d.name for d in machine.devices]), 0.0)


def fitted(plan: Plan, graph: Graph) -> Plan:
    """Return a plan of a graph whose results are read on the host, or are not, as the plan of this one, which may
    differ in that."""
    last, count = len(graph) - 1, len({a.node for a in plan.assignments})
    if count == last and isinstance(graph.nodes[last], ResultTask):
        results = Assignment(last, ON_HOST, 0, plan.makespan, plan.makespan)
        return replace(plan, assignments=(*plan.assignments, results))
    if count == last + 2 and (last + 1, ON_HOST) in [a[:2] for a in plan.assignments]:
        return replace(plan, assignments=tuple([a for a in plan.assignments if a.node <= last]))
    return plan


def same_plan(one: Plan | None, other: Plan | None) -> bool:
    """Return whether two plans are the same but for their times."""
    if one is None or other is None:
        return one is other
    is_same = one.in_units == other.in_units and len(one.assignments) == len(other.assignments)
    return is_same and all(
        a[:3] == b[:3] and a[5:] == b[5:] for a, b in zip(one.assignments, other.assignments, strict=True)
    )
