"""The lanes of one device: its driver's queues, and the threads that wait for these where need be."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

import numpy as np

from manycl.drivers.driver import DirectlyLaunched, Driver, DriverError, End, Event, Queue, Shortening
from manycl.machine import HOST
from manycl.region import Rectangle
from manycl.run.commands.backend import UPLOADS, TransferQueue
from manycl.run.executor.waits import AdaptiveWait
from manycl.utilities.interrupts import interruptible
from manycl.utilities.prompt import be_prompt

_FINISHING = -100
"""The number of the thread that waits for the end of all of a device's queues."""


class Worker:
    """A thread that runs one job after another."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], object]) -> None:
        self._jobs.put(job)

    def settle(self) -> None:
        """Wait until all that was submitted is done."""
        self.mark().wait()

    def mark(self) -> threading.Event:
        """Return an event that is set when all jobs submitted before are done."""
        reached = threading.Event()
        self._jobs.put(reached.set)
        return reached

    def is_current(self) -> bool:
        """Return whether the caller runs in one of the jobs."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        self.release()
        self._thread.join(timeout=10)

    def stop(self) -> None:
        """End the thread at its next step in Python, in whatever job it is, and wait for that."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
        )
        self.close()

    def release(self) -> None:
        """Let the thread end after the jobs that were submitted."""
        self._jobs.put(None)

    def _work(self) -> None:
        be_prompt()
        with suppress(SystemExit):  # it is stopped
            while (job := self._jobs.get()) is not None:
                job()
                del job  # and with it the run that it was for


class Lanes:
    """The lanes of one driver. It has timed queues and, once they are asked for, queues without times (``use``)."""

    def __init__(self, driver: Driver, profile: bool = True) -> None:
        self.driver = driver
        self.device = driver.device
        self.launch, self.flush = driver.launch, driver.flush
        # (asked once: it takes tens of microseconds)
        self.direct = driver if isinstance(driver, DirectlyLaunched) else None
        self.shortening = driver if isinstance(driver, Shortening) else None
        # the engine's thread polls the events of commands
        self.watched = driver.is_polled
        # any thread may wait for a command's end in the driver, however long that takes
        self.is_interruptible = driver.is_interruptible
        self.own = self.device.memory != HOST
        self.is_lost = False  # set when the device was found to be lost
        self._by_profile: dict[bool, list[Queue]] = {}  # the queues of kernels
        self.use(profile)
        # a queue's commands end in order, those of several queues do not: one waiting thread for each queue
        self.workers: dict[int, Worker] = {}
        self.patience = AdaptiveWait()
        self.latest: dict[int, Event] = {}
        """The last command of each queue that was used since all were empty."""
        self._lock = threading.Lock()

    def use(self, profile: bool) -> None:
        """Use the timed queues of kernels from now on, or those without times; between runs, when all are empty.
        Transfers have the same queues in any case: making one takes NVIDIA's driver 10 ms or more."""
        is_first = not self._by_profile
        if profile not in self._by_profile:
            self._by_profile[profile] = [self.driver.queue(profile)]
        self.profile, self.queues = profile, self._by_profile[profile]
        if not self.own:
            self.uploads = self.prefetches = self.downloads = self.results = self.queues[0]
        elif is_first:
            self.uploads, self.prefetches, self.downloads, self.results = [self.driver.queue(profile) for _ in range(4)]

    def need_queues(self, count: int) -> None:
        while len(self.queues) < count:
            self.queues.append(self.driver.queue(self.profile))

    def probe(self) -> str:
        """Return what is wrong with the device, or nothing if it still works. Ctrl-C ends the waiting."""
        found: list[str] = []
        self.submit(_FINISHING, lambda: found.append(self._probe()))
        with interruptible:
            self.workers[_FINISHING].settle()
        return found[0]

    def _probe(self) -> str:
        sent, came, driver = np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8), self.driver
        try:
            queue, memory = driver.queue(timed=False), driver.allocate(len(sent))
            driver.copy(queue, End(memory), End(sent), (Rectangle(0, len(sent)),), ())
            (*_, event) = driver.copy(queue, End(came), End(memory), (Rectangle(0, len(sent)),), ())
            driver.flush(queue)
            driver.wait(event)
        except DriverError as error:
            return error.message
        return "" if (sent == came).all() else "it does not keep what is written to it"

    def is_settled(self) -> bool:
        """Return whether the latest command of every queue is complete. GPUs' drivers take longer to finish an idle
        queue than to answer that."""
        while self.latest:
            _, event = self.latest.popitem()
            try:
                if not self.driver.done(event):
                    return False
            except DriverError:
                return False
        return True

    def finish(self) -> threading.Event:
        """Return an event that is set when no queue holds a command, whatever was enqueued before a failure."""
        self.submit(_FINISHING, self._finish)
        return self.workers[_FINISHING].mark()

    def _finish(self) -> None:
        self.latest.clear()
        self.driver.finish()

    def of(self, queue: int) -> Queue:
        """Return the queue with a number."""
        if not isinstance(queue, TransferQueue):
            return self.queues[queue]
        if queue in UPLOADS:
            return self.prefetches if queue is TransferQueue.PREFETCH else self.uploads
        return self.results if queue is TransferQueue.EARLY else self.downloads

    def submit(self, lane: int, job: Callable[[], None]) -> None:
        """Run a job on the thread that waits for one of the device's queues, after those submitted before."""
        worker = self.workers.get(lane)
        if worker is None:
            with self._lock:  # several threads submit
                worker = self.workers.get(lane)
                if worker is None:
                    worker = self.workers[lane] = Worker(f"manycl-{self.device.name}")
        worker.submit(job)

    def warm(self) -> None:
        """Start the thread that waits for the first queue now: while the device computes, that takes longer."""
        if not (self.watched or self.is_interruptible):
            self.submit(0, lambda: None)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self._finish()
        self.driver.release()

    def release(self) -> None:
        """Let the threads end when they have no jobs left."""
        for worker in self.workers.values():
            worker.release()
        self.driver.release()
