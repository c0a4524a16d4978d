"""One opened device: its context, its queues, the threads that wait for them if any do, and its clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
import pyopencl as cl

from manycl.errors import DeviceError
from manycl.interrupts import interruptible
from manycl.machine import HOST
from manycl.run.backend import AHEAD_QUEUE, EARLY_QUEUE
from manycl.run.backends.platforms import OpenDevice
from manycl.run.backends.staging import Stager

CALIBRATE_EVERY = 2.0  # seconds; device clocks drift against the host's
LEAVE_OUT = "leave the device out: --devices, MANYCL_DEVICES"
_FINISHING = -100
"""The number of the thread that waits for the end of all of a device's queues."""


class Worker:
    """A thread that does one job after another."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def settle(self) -> None:
        """Wait until all that was submitted is done."""
        self.mark().wait()

    def mark(self) -> threading.Event:
        """Is set when all that was submitted before is done."""
        reached = threading.Event()
        self._jobs.put(reached.set)
        return reached

    def is_current(self) -> bool:
        """Whether the caller is one of the jobs."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        self.release()
        self._thread.join(timeout=10)

    def release(self) -> None:
        """Let the thread end behind what was submitted."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


@dataclass(frozen=True)
class _Queues:
    """Of a device: those of kernels, and of its transfers (the first of kernels, where it computes in the host's
    memory)."""

    kernels: list[cl.CommandQueue]
    uploads: cl.CommandQueue
    ahead: cl.CommandQueue
    downloads: cl.CommandQueue
    results: cl.CommandQueue

    def __iter__(self) -> Iterator[cl.CommandQueue]:
        yield from {*self.kernels, self.uploads, self.ahead, self.downloads, self.results}


class Driver:
    """One opened device: its context, queues, waiting threads and clock offset. It has queues with a clock and, when
    they are first asked for, without (``use``)."""

    def __init__(self, opened: OpenDevice, profile: bool = True) -> None:
        self.device = opened.device
        self.cl = opened.cl
        try:
            self.context = cl.Context([opened.cl])
        except cl.Error as error:
            raise DeviceError(f"{opened.device.name} cannot be opened: {error}", hint=LEAVE_OUT) from None
        self.throttled = opened.device.slowdown > 1.0
        # commands are looked after by the engine's thread; not where the device needs the host's cores to get on, or
        # where commands are enqueued by another thread
        self.watched = opened.device.kind != "cpu" and not self.throttled
        self._own = opened.device.memory != HOST
        self._by_profile: dict[bool, _Queues] = {}
        self.use(profile)
        self.stager = Stager(self.context, self.new_queue()) if self._own else None
        # a queue's commands end in order, those of several do not: each queue has somebody who waits
        self.workers: dict[int, Worker] = {}
        self.latest: dict[int, cl.Event] = {}
        """The last command of each queue that was used since all were empty."""
        self._lock = threading.Lock()
        self._offset = 0.0
        self._calibrated = float("-inf")

    def new_queue(self, profile: bool = False) -> cl.CommandQueue:
        """Always for this device by name: a context made of a sub-device may list its parent (seen with PoCL 3).
        ``profile``: its commands are timed. Raises DeviceError."""
        properties = cl.command_queue_properties.PROFILING_ENABLE if profile else 0
        try:
            return cl.CommandQueue(self.context, self.cl, properties=properties)
        except cl.Error as error:
            raise DeviceError(f"{self.device.name} gives no more queues: {error}", hint=LEAVE_OUT) from None

    def use(self, profile: bool) -> None:
        """From now on use the queues whose commands are timed, or the others; between runs, when all are empty. A
        slowed device needs the times."""
        profile = profile or self.throttled
        if profile not in self._by_profile:
            kernels = [self.new_queue(profile)]
            others = [self.new_queue(profile) if self._own else kernels[0] for _ in range(4)]
            self._by_profile[profile] = _Queues(kernels, *others)
        self.profile, chosen = profile, self._by_profile[profile]
        self.queues, self.uploads, self.ahead = chosen.kernels, chosen.uploads, chosen.ahead
        self.downloads, self.results = chosen.downloads, chosen.results

    def need_queues(self, count: int) -> None:
        while len(self.queues) < count:
            self.queues.append(self.new_queue(self.profile))

    def probe(self) -> str:
        """Whether the device still works: what is wrong with it, or nothing. Ctrl-C ends the waiting."""
        found: list[str] = []
        self.submit(_FINISHING, lambda: found.append(self._probe()))
        with interruptible:
            self.workers[_FINISHING].settle()
        return found[0]

    def _probe(self) -> str:
        sent, came = np.arange(16, dtype=np.uint32), np.zeros(16, np.uint32)
        try:
            queue = self.new_queue()
            buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, sent.nbytes)
            cl.enqueue_copy(queue, buffer, sent)
            cl.enqueue_copy(queue, came, buffer)
            queue.finish()
        except cl.Error as error:
            return str(error)
        except DeviceError as error:
            return error.message
        return "" if (sent == came).all() else "it does not keep what is written to it"

    def is_settled(self) -> bool:
        """Whether the latest command of every queue is complete. GPUs' drivers take longer to finish an idle queue than
        to say that."""
        while self.latest:
            _, event = self.latest.popitem()
            try:
                if event.command_execution_status != cl.command_execution_status.COMPLETE:
                    return False
            except cl.Error:
                return False
        return True

    def finish(self) -> threading.Event:
        """Is set when no queue holds anything, whatever was enqueued before something failed."""
        self.submit(_FINISHING, self._finish)
        return self.workers[_FINISHING].mark()

    def _finish(self) -> None:
        self.latest.clear()
        for queues in list(self._by_profile.values()):
            for queue in queues:
                with suppress(cl.Error):  # the driver may refuse; the failure itself has been reported
                    queue.finish()

    def of_uploads(self, queue: int) -> cl.CommandQueue:
        """The queue of uploads of a number (UPLOAD_QUEUE, AHEAD_QUEUE, or a kernel queue's)."""
        return self.queues[queue] if queue >= 0 else self.ahead if queue == AHEAD_QUEUE else self.uploads

    def of_downloads(self, queue: int) -> cl.CommandQueue:
        """The queue of downloads of a number (DOWNLOAD_QUEUE, EARLY_QUEUE, or a kernel queue's)."""
        return self.queues[queue] if queue >= 0 else self.results if queue == EARLY_QUEUE else self.downloads

    def submit(self, lane: int, job: Callable[[], None]) -> None:
        """Run a job on the thread that waits for one of the device's queues, after those submitted before."""
        worker = self.workers.get(lane)
        if worker is None:
            with self._lock:  # a slowed device's own thread submits as well
                worker = self.workers.get(lane)
                if worker is None:
                    worker = self.workers[lane] = Worker(f"manycl-{self.device.name}")
        worker.submit(job)

    def offset(self) -> float | None:
        """Seconds to add to the device's profiling clock to get the host's ``perf_counter``; None where the driver
        fails to say (what needs it is left out of the run's record).

        A marker's ``queued`` time lies between two readings of the host's clock (Intel's driver leaves it at 0: then
        its ``submit`` time, and the second reading comes after the marker is complete). The narrowest of a few is kept.
        """
        now = time.perf_counter()
        if not self.profile or now - self._calibrated < CALIBRATE_EVERY:
            return self._offset
        try:
            self._calibrate()
        except cl.Error:  # of the device, or of its clock: the run's own commands will tell
            return None
        self._calibrated = time.perf_counter()
        return self._offset

    def _calibrate(self) -> None:
        best = float("inf")
        for _ in range(5):
            before = time.perf_counter()
            event = cl.enqueue_marker(self.queues[0])
            after = time.perf_counter()
            event.wait()
            try:
                stamp = event.get_profiling_info(cl.profiling_info.QUEUED)
                if not stamp:
                    stamp = event.get_profiling_info(cl.profiling_info.SUBMIT)
                    after = time.perf_counter()
            except cl.Error:
                break  # a driver without times for markers: its clock is taken for the host's
            if after - before < best:
                best = after - before
                self._offset = (before + after) / 2 - stamp * 1e-9

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        if self.stager is not None:
            self.stager.close()
        self._finish()

    def release(self) -> None:
        """Let the threads end when they have nothing to do any more."""
        for worker in self.workers.values():
            worker.release()
        if self.stager is not None:
            self.stager.close(wait=False)
