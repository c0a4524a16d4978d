"""What happened, or what is planned to happen: typed events on lanes, written as JSON lines.

A run's trace and a plan have this one shape, so the same Gantt chart, summary and comparison serve both.
Times are seconds since the start of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from manycl.errors import ManyclError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """A launch ran on ``device`` (a name) in its in-order queue number ``queue``."""

    event: ClassVar[str] = "kernel"
    node: int
    name: str
    device: str
    queue: int
    start: float
    end: float
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    component: int = -1


@dataclass(frozen=True, slots=True)
class TransferEvent:
    """``nbytes`` of a buffer moved between two memories (``host`` or a device's name)."""

    event: ClassVar[str] = "transfer"
    buffer: int
    name: str
    source: str
    target: str
    nbytes: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class HostEvent:
    """A host function that is a node of the graph ran."""

    event: ClassVar[str] = "host"
    node: int
    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """The policy gave a task component to a device. ``time`` is when."""

    event: ClassVar[str] = "decision"
    time: float
    component: int
    nodes: tuple[int, ...]
    device: str


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """Something failed; the run stopped there."""

    event: ClassVar[str] = "failure"
    time: float
    node: int
    name: str
    device: str
    message: str


Event = KernelEvent | TransferEvent | HostEvent | DecisionEvent | FailureEvent
_TYPES: dict[str, type[Any]] = {
    t.event: t for t in (KernelEvent, TransferEvent, HostEvent, DecisionEvent, FailureEvent)
}
_TUPLES = {"global_size", "local_size", "nodes"}


@dataclass(frozen=True, slots=True)
class Trace:
    """``makespan`` in seconds. ``edges`` are (before, after) node pairs; ``devices`` all devices, also idle ones."""

    events: tuple[Event, ...]
    devices: tuple[str, ...]
    policy: str
    makespan: float
    kind: str = "run"  # "run" (measured), "simulation" or "plan"
    application: str = ""
    edges: tuple[tuple[int, int], ...] = ()
    details: dict[str, Any] = field(default_factory=dict)  # device models, parameters, planning seconds, ...

    def kernels(self) -> Iterator[KernelEvent]:
        return (e for e in self.events if isinstance(e, KernelEvent))

    def transfers(self) -> Iterator[TransferEvent]:
        return (e for e in self.events if isinstance(e, TransferEvent))

    def lines(self) -> Iterator[str]:
        """JSON lines: a header, then an event each."""
        header = {
            "event": "trace",
            "format": FORMAT,
            "kind": self.kind,
            "application": self.application,
            "policy": self.policy,
            "makespan": self.makespan,
            "devices": list(self.devices),
            "edges": [list(e) for e in self.edges],
            "details": self.details,
        }
        yield json.dumps(header)
        for event in self.events:
            yield json.dumps({"event": event.event, **asdict(event)})

    def save(self, path: str | Path) -> None:
        Path(path).write_text("".join(f"{line}\n" for line in self.lines()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace that ``save`` wrote; a file that is none gives an error that names the line."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ManyclError(f"{path}: cannot be read as a trace: {error}") from None
        return cls.parse(text.splitlines(), str(path))

    @classmethod
    def parse(cls, lines: Iterable[str], path: str = "trace") -> Trace:
        header: dict[str, Any] | None = None
        events: list[Event] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                tag = record.pop("event")
                if header is None:
                    if tag != "trace" or record.get("format") != FORMAT:
                        raise ValueError(f"not a trace of format {FORMAT}")
                    header = record
                    continue
                for key in _TUPLES & record.keys():
                    record[key] = tuple(record[key]) if record[key] is not None else None
                events.append(_TYPES[tag](**record))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ManyclError(f"{path}:{number}: not a line of a trace: {error}") from None
        if header is None:
            raise ManyclError(f"{path}: empty, not a trace")
        return cls(
            events=tuple(events),
            devices=tuple(header["devices"]),
            policy=header["policy"],
            makespan=header["makespan"],
            kind=header["kind"],
            application=header["application"],
            edges=tuple((a, b) for a, b in header["edges"]),
            details=header["details"],
        )
