"""The merged record of a run that was stopped and resumed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from manycl.machine import DeviceIndex
from manycl.run.commands.backend import Failed, Record
from manycl.trace import Event, HostEvent, KernelEvent, later


class RecordedBatch(NamedTuple):
    """The record of a command batch that ended with a stop. ``void``: the steps whose entries in it do not count;
    ``first``: the number of its first step in the whole run."""

    record: Record
    void: Collection[int]
    first: int = 0


class MergedRecord:
    """A record made of the records of several command batches, one after another."""

    failure: Failed | None = None
    failed_transfer: Failed | None = None

    def __init__(self, stretches: Sequence[RecordedBatch], last: Record, first: int = 0) -> None:
        self._stretches = (*stretches, RecordedBatch(last, (), first))
        self.begin = self._stretches[0].record.begin
        self.failure, self.failed_transfer = last.failure, last.failed_transfer

    def _shift(self, record: Record) -> float:
        return record.begin - self.begin

    def events(self) -> Sequence[Event]:
        found = [
            later(event, self._shift(record), first)
            for record, void, first in self._stretches
            for event in record.events()
            if not (isinstance(event, (KernelEvent, HostEvent)) and event.node in void)
        ]
        return sorted(found, key=lambda event: event.start if hasattr(event, "start") else event.time)

    def durations(self) -> Iterable[tuple[int, DeviceIndex, float]]:
        return [
            (first + step, device, seconds)
            for record, void, first in self._stretches
            for step, device, seconds in record.durations()
            if step not in void
        ]

    def waited(self) -> Iterable[tuple[float, float]]:
        shifts = ((record, self._shift(record)) for record, _, _ in self._stretches)
        return [(shift + start, shift + end) for record, shift in shifts for start, end in record.waited()]
