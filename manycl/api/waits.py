"""Waits for what a queue has given a device, while the eager stream goes on."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from manycl.api.background import Background
from manycl.api.events import Commands, Event, MoveEvent
from manycl.api.recording import underway
from manycl.api.submission import Submission
from manycl.drivers.driver import Bytes
from manycl.errors import LaunchError
from manycl.graph.copies import Place
from manycl.graph.horizon import HORIZON

if TYPE_CHECKING:  # run/ loads drivers: it is imported when a queue opens devices
    from manycl.api.arrays.arrays import Array
    from manycl.run.graph_cache.graph_cache import GraphCache
    from manycl.run.session.session import Session
    from manycl.run.streams.eager_stream import EagerStream


class Waits:
    """The part of a queue that waits without ending the eager stream (:class:`manycl.api.running.RunningQueue` ends
    streams that do not go on)."""

    session: Session
    background: Background
    enqueued: Submission
    preparing: dict[int, Submission]
    lock: threading.RLock
    _recurring: GraphCache
    _taken: deque[Submission]
    _failure: BaseException | None

    @property
    def is_running_here(self) -> bool:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        raise NotImplementedError

    def _complete(self, last: Commands | None) -> None:
        raise NotImplementedError

    def _look(self, wanted: Place | None) -> bool:
        raise NotImplementedError

    def refuse_while_preparing(self) -> None:
        """Raise LaunchError if the calling thread is preparing a graph of this queue."""
        if self.preparing and threading.get_ident() in self.preparing:
            raise LaunchError(
                "a graph is being prepared: results can be asked for when its `with` block has ended",
                hint="Queue.read and Queue.write enqueue copies that are part of the graph",
            )

    def wait_for(self, enqueued: Commands, node: int) -> bool:
        """Wait until a node has ended. Returns True if it is known to have succeeded, else False, whatever has become
        of it. Raises what went wrong with the commands that had to run for it."""
        with self.lock:
            if enqueued.is_over or not (enqueued.is_taken or enqueued is self.enqueued):
                return False
        stream, is_last = enqueued.stream, node == len(enqueued) - 1
        if stream is not None and node < stream.waited:
            return False
        # (a part of a program ends at the horizon, and an eager stream has to end some time)
        if (
            stream is not None
            and node < min(len(stream.given), HORIZON)
            and (not is_last or (stream.is_short and stream.is_young and not underway))
        ):
            self.session.devices.refuse_host_functions()
            if stream.wait_for(node):
                return True
        if not (is_last and enqueued is self.enqueued and self._look(None)):
            self._complete(enqueued)
        return False

    def catch_up(self) -> bool:
        """Run all that is enqueued and wait for it, as ``finish``, for callers that do not look at runs. Where a device
        has been given little, and is given what comes next, too, the batch goes on: then it returns True, and no run
        was noted."""
        stream = self._light()
        if stream is not None and stream.wait_for_all():
            stream.is_joined = True
            return True
        self.finish()
        return False

    def read_ahead(self, wanted: Place, out: Bytes) -> bool:
        """Copy bytes of a buffer to the host behind all that was enqueued, while the batch goes on, as in ``catch_up``.
        Returns False if that cannot be done here. For devices with memory of their own."""
        stream = self._light()
        return stream is not None and stream.read(wanted, out)

    def read_behind(self, array: Array, wanted: Place, out: Bytes) -> Event | None:
        """Have bytes of an array copied to the host when all that was enqueued has run, while more is enqueued, and
        return the event of the copy. Returns None if that was not done, as nothing is under way, or it has to be waited
        for. Commands that have to be planned run in the background."""
        with self.lock:
            enqueued = self.enqueued
            if self.preparing or self.session.closed or self._failure is not None:
                return None
            if self._taken or enqueued.builder.nodes:
                node = enqueued.read_last(array, wanted, out)
                self.flush()
                return Event(self, enqueued, node)
            stream = enqueued.stream
            moved = stream.read_behind(array, wanted, out) if stream is not None else None
            if stream is None or moved is None:
                return None
            return MoveEvent(self, enqueued, len(stream.given) - 1, moved)

    def write_ahead(self, place: Place, data: Bytes) -> bool:
        """Copy bytes of the host, as they are now, to a buffer; otherwise as ``read_ahead``."""
        stream = self._light()
        return stream is not None and stream.write(place, data)

    def _light(self) -> EagerStream | None:
        """Return the eager stream whose device is given the next commands, too, if nothing else is enqueued and the
        stream has little; else None."""
        enqueued = self.enqueued
        stream = enqueued.stream
        if stream is None or not stream.is_light or underway or not self._recurring.rests(stream.device):
            return None
        self.session.devices.refuse_host_functions()
        if self._taken or self.preparing or enqueued.builder.nodes or self._failure is not None:
            return None
        return stream

    @property
    def is_caught_up(self) -> bool:
        """True if nothing is under way: all that was enqueued is one device's and has been waited for, and the batch
        goes on."""
        with self.lock:
            enqueued = self.enqueued
            stream = enqueued.stream
            if stream is None or self._taken or enqueued.builder.nodes or self.preparing:
                return False
            return stream.is_open and stream.is_waited and self._recurring.rests(stream.device)
