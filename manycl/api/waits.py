"""Waits for what a queue has given a device, while the eager stream goes on; and what the last run was."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import TYPE_CHECKING

from manycl.api.events import Event, MoveEvent
from manycl.api.recording import RunTrace, showable, underway
from manycl.api.running import RunningQueue
from manycl.drivers.driver import Bytes
from manycl.errors import ManyclError
from manycl.graph.copies import Place
from manycl.graph.graph import BufferKey

if TYPE_CHECKING:  # run/ loads drivers: it is imported when a queue opens devices
    from manycl.api.arrays.arrays import Array
    from manycl.run.data.coherence import ValidRegion
    from manycl.run.engine.result import Result
    from manycl.run.streams.eager_stream import EagerStream

ROOM = 256 << 20
"""Bytes of new arrays since the queue was last waited for, after which it checks whether most of them are kept alive
only by commands that are enqueued; more where all memories are large."""
_ONLY_HERE = 4  # references to an array by the submission, and by the code that counts them


class WaitingQueue(RunningQueue):
    """The part of a queue that waits without ending the eager stream, and tells of the last run."""

    def make_room(self, nbytes: int) -> None:
        """Count bytes that are about to be allocated. Where at least half of the arrays made since the last check are
        kept alive only by what is enqueued, wait for that, so that they are freed: a program may drop arrays in a loop
        that waits for nothing. Raises what went wrong."""
        self._made_bytes += nbytes
        if self._made_bytes < ROOM or self._made_bytes < self.session.backend.memory.roomy:
            return
        made, self._made_bytes = self._made_bytes, 0
        if (self.policy or self._default) != "auto" or self.options or self.preparing or self.is_running_here:
            return
        with self.lock:
            stream = self.enqueued.stream
            held = [*self.enqueued.arrays.values(), *(stream.arrays.values() if stream is not None else ())]
            dropped = sum([array.buffer.nbytes for array in held if getrefcount(array) <= _ONLY_HERE])
        if 2 * dropped >= made:
            self.finish()

    def first_reads(self, key: BufferKey) -> Sequence[ValidRegion]:
        """Return the regions of a buffer that devices are expected to need first, with the masks of their memories;
        empty: that is not known, or a run is under way."""
        with self.lock:
            return () if self._taken else self._recurring.first_reads(key)

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
        """True if nothing is under way: all that was enqueued is one device's and waited for, and the batch goes on."""
        with self.lock:
            enqueued = self.enqueued
            stream = enqueued.stream
            if stream is None or self._taken or enqueued.builder.nodes or self.preparing:
                return False
            return stream.is_open and stream.is_waited and self._recurring.rests(stream.device)

    def _end_waited(self) -> None:
        """Make a run of commands that have been waited for one by one."""
        stream = self.enqueued.stream
        is_over = stream is not None and stream.has_batch and stream.is_waited
        if is_over and not self.enqueued.builder.nodes and not self.preparing:
            self._complete(None)

    @property
    def result(self) -> Result:
        """The last run: its seconds, plan and record."""
        self._end_waited()
        if self._result is None:
            raise ManyclError("nothing has run on this queue yet")
        return self._result()

    @property
    def trace(self) -> RunTrace:
        """The trace of the runs since a result was last asked for."""
        self._end_waited()
        if self._trace is None:
            from manycl.run.engine.merged_traces import joined, past_run  # what runs is imported with the first queue

            trace = self.result.trace
            if self._past:
                trace = joined([past_run(run()) for run in (*self._past, self._result) if run is not None])
            self._trace = showable(trace)
        return self._trace
