"""Traces: what happened, or what is planned to happen, as typed events on lanes, written as JSON lines. A run's trace
and a plan have this one shape, so the same Gantt chart, summary and comparison serve both. Times are seconds since the
start of the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from manycl.errors import ManyclError
from manycl.utilities.checked import checked, unfit
from manycl.utilities.shown import html

FORMAT = 2


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """A launch ran on ``device`` (a name) in its in-order queue number ``queue``.

    ``name`` is the node's; ``kernel`` the kernel function's, or empty where that is the same. A copy
    or fill is one without ``global_size``, whose ``kernel`` is ``copy`` or ``fill``.

    Of a launch that was taken apart there are several: ranges (``role`` ``range``: ``groups`` work-groups from number
    ``first`` on along ``dimension``), and what puts together what they wrote (``merge``; ``copy`` and ``clear`` prepare
    it). ``method`` says how that is done.
    """

    event: ClassVar[str] = "kernel"
    node: int
    name: str
    device: str
    queue: int
    start: float
    end: float
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    component: int | None = None
    kernel: str = ""
    role: str = ""
    dimension: int | None = None
    first: int = 0
    groups: int = 0
    method: str = ""


@dataclass(frozen=True, slots=True)
class TransferEvent:
    """``nbytes`` of a buffer moved between two memories (``host`` or a device's name), or within a device's (``source``
    and ``target`` are then the same): from one of its allocations to another."""

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


def later(event: Event, seconds: float, nodes: int) -> Event:
    """Return the event as a part of a longer trace: so much later, in a graph that so many nodes come before."""
    if isinstance(event, TransferEvent):
        return replace(event, start=event.start + seconds, end=event.end + seconds)
    if isinstance(event, DecisionEvent):
        return replace(event, time=event.time + seconds, nodes=tuple(n + nodes for n in event.nodes))
    number = event.node + nodes if event.node >= 0 else event.node
    if isinstance(event, FailureEvent):
        return replace(event, time=event.time + seconds, node=number)
    return replace(event, start=event.start + seconds, end=event.end + seconds, node=number)


def _is_time(value: object) -> bool:
    """Seconds within thirty years, so that no unit overflows; neither infinite nor NaN."""
    return isinstance(value, int | float) and -1e9 < value < 1e9


def _is_planned(value: object) -> bool:
    """A makespan (None: unknown), pairs of a node and seconds, and perhaps seconds in which kernels were to run."""
    if not isinstance(value, dict) or not isinstance(pairs := value.get("seconds", []), list):
        return False
    times = value.get("makespan"), value.get("computing")
    return all(t is None or _is_time(t) for t in times) and all(
        isinstance(p, list | tuple) and len(p) == 2 and type(p[0]) is int and _is_time(p[1]) for p in pairs
    )


_TIMES = ("start", "end", "time", "makespan")
_HEADER = ("kind", "application", "policy", "makespan", "devices", "edges", "details")
_DETAILS: dict[str, Callable[[Any], bool]] = {
    "planned": _is_planned,
    "joules": lambda value: isinstance(value, dict) and all(map(_is_time, value.values())),
    "compiled": lambda value: _is_time(value) and value >= 0,
}
"""Of the details, those that reports read as they are; others may be anything."""


@checked("__init__")
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

    def __repr__(self) -> str:
        what = self.kind + (f" of {self.application}" if self.application else "")
        kernels, transfers = (sum(1 for _ in events) for events in (self.kernels(), self.transfers()))
        said = f"devices: {', '.join(self.devices)}, kernels: {kernels}, transfers: {transfers}"
        return f"<manycl.Trace {what} by {self.policy}, {said}, {self.makespan * 1e3:.3f} ms>"

    def _repr_html_(self) -> str:
        return html(self)

    def kernels(self) -> Iterator[KernelEvent]:
        return (e for e in self.events if isinstance(e, KernelEvent))

    def transfers(self) -> Iterator[TransferEvent]:
        """Return the transfers between two memories."""
        return (e for e in self.events if isinstance(e, TransferEvent) and e.source != e.target)

    def copies(self) -> Iterator[TransferEvent]:
        """Return the transfers within a device's memory."""
        return (e for e in self.events if isinstance(e, TransferEvent) and e.source == e.target)

    def lines(self) -> Iterator[str]:
        """JSON lines: a header, then an event each."""
        yield json.dumps({"event": "trace", "format": FORMAT, **{key: getattr(self, key) for key in _HEADER}})
        for event in self.events:
            yield json.dumps({"event": event.event, **asdict(event)})

    def save(self, path: str | Path) -> None:
        Path(path).write_text("".join(f"{line}\n" for line in self.lines()), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace that ``save`` wrote; a file that is none gives an error that names the line."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path that cannot be one
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ManyclError(f"{path}: cannot be read as a trace: {reason}") from None
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
                if not isinstance(record, dict):
                    raise ValueError("not a JSON object")
                tag = record.pop("event", None)
                if header is None:
                    if tag != "trace" or record.get("format") != FORMAT:
                        raise ValueError(f"not a trace of format {FORMAT}")
                    if missing := sorted({*_HEADER} - record.keys()):
                        raise ValueError(f"{missing[0]!r} is missing")
                    header = _checked(cls, {key: record[key] for key in _HEADER})
                    for key, is_right in _DETAILS.items():
                        if key in header["details"] and not is_right(header["details"][key]):
                            raise ValueError(f"{key!r} cannot be {header['details'][key]!r:.60}")
                    continue
                if tag not in _TYPES:
                    raise ValueError(f"no event is called {tag!r}")
                events.append(_TYPES[tag](**_checked(_TYPES[tag], record)))
            except (ValueError, TypeError, RecursionError) as error:
                raise ManyclError(f"{path}:{number}: not a line of a trace: {error}") from None
        if header is None:
            raise ManyclError(f"{path}: empty, not a trace")
        return cls(tuple(events), **header)


def _checked(kind: type, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of JSON's values as a class has them. Raises ValueError for what it cannot have."""
    record = {key: _tuples(value) if isinstance(value, list) else value for key, value in record.items()}
    wrong = unfit(kind, record) or next((key for key in _TIMES if not _is_time(record.get(key, 0.0))), "")
    if wrong:
        raise ValueError(f"{wrong!r} cannot be {record[wrong]!r:.60}")
    return record


def _tuples(values: list[Any]) -> tuple[Any, ...]:
    return tuple([tuple(v) if isinstance(v, list) else v for v in values])
