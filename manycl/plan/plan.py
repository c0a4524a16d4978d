"""A plan: who runs which node on which queue when. Plain data: saved, loaded, drawn, verified, simulated,
executed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from manycl.errors import PolicyError
from manycl.trace import Event, Trace

FORMAT = 1
ON_HOST = -1
"""The device index of a host task's assignment."""


class Assignment(NamedTuple):
    """Node ``node`` runs on device ``device`` (index) in its queue ``queue``; times in seconds are
    predictions."""

    node: int
    device: int
    queue: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Assignments in dispatch order: on each (device, queue) they run in this order, and no node stands
    before one that it depends on. ``makespan`` is predicted, in seconds. ``trace`` has the predicted events
    (may be empty)."""

    assignments: tuple[Assignment, ...]
    policy: str
    devices: tuple[str, ...]
    makespan: float
    events: tuple[Event, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "policy": self.policy,
                "devices": list(self.devices),
                "makespan": self.makespan,
                "assignments": [a._asdict() for a in self.assignments],
                "details": self.details,
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
                assignments=tuple(Assignment(**a) for a in data["assignments"]),
                policy=data["policy"],
                devices=tuple(data["devices"]),
                makespan=data["makespan"],
                details=data["details"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise PolicyError(f"not a plan: {error}") from None

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def as_trace(self, application: str = "", edges: tuple[tuple[int, int], ...] = ()) -> Trace:
        """The plan in the shape of a trace, for charts and summaries."""
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
