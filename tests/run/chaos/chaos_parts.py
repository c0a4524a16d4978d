"""What the chaos back end is given and tells: faults, a record, and transfers by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeGuard

from manycl.machine import HOST
from manycl.run.commands.backend import (
    Copy,
    Failed,
    TransferQueue,
)
from manycl.trace import Event


@dataclass(slots=True)
class ChaosRecord:
    """What ran: (node, device) in the order of ending."""

    begin: float = 0.0
    ran: list[tuple[int, int]] = field(default_factory=list)
    moved: list[tuple[int, int, int]] = field(default_factory=list)  # buffer, source, target
    failure: Failed | None = None
    failed_transfer: Failed | None = None

    def events(self) -> Sequence[Event]:
        return []

    def waited(self) -> Iterable[tuple[float, float]]:
        return ()  # nothing is compiled

    def durations(self, nodes: Set[int] | None = None) -> Iterable[tuple[int, int, float]]:
        return []


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong. ``fail``: tokens of commands (nodes and transfers) that fail when they would end. ``dies``: by
    device, the step from which on everything on it fails. ``goes_on``: a queue in which something has failed goes on
    with what comes behind it, as some drivers do. ``paused``: a queue whose reports come after all others.
    ``interrupt``: the step in which Ctrl-C is pressed, also while the run is being stopped (``again``: once more then).
    ``exact``: how far queues were that have died is known: what is behind the one command that each had begun has not.
    ``late``: reports of interrupted runs come in later ones. ``drains``: what is under way when a run is stopped still
    runs to its end; else it never happens.
    """

    fail: frozenset[int] = frozenset()
    dies: Mapping[int, int] = field(default_factory=dict)
    goes_on: bool = False
    paused: tuple[int, int] | None = None
    interrupt: int | None = None
    again: bool = False
    late: bool = False
    drains: bool = False
    exact: bool = False


def is_upload(command: object) -> TypeGuard[Copy]:
    return isinstance(command, Copy) and command.is_upload


def is_download(command: object) -> TypeGuard[Copy]:
    return isinstance(command, Copy) and command.is_download


def upload(
    token: int,
    buffer: int,
    device: int,
    after: Sequence[int],
    notify: bool,
    store: int | None = None,
    queue: int = TransferQueue.UPLOAD,
) -> Copy:
    """From the host's memory to a device's, where each device has the memory of the next number."""
    return Copy(token, buffer, device, queue, after, notify, HOST, device + 1, None, store)


def download(
    token: int,
    buffer: int,
    device: int,
    after: Sequence[int],
    notify: bool,
    store: int | None = None,
    queue: int = TransferQueue.DOWNLOAD,
) -> Copy:
    """From a device's memory to the host's."""
    return Copy(token, buffer, device, queue, after, notify, device + 1, HOST, store)
