"""Host functions, called one after another: by an own thread, or the engine's while no other report can come."""

from __future__ import annotations

import threading

from manycl.graph.graph import BufferArg, HostTask
from manycl.run.commands.backend import Done
from manycl.run.data.memory import Memory
from manycl.run.executor.lanes import Worker
from manycl.run.executor.run_state import RunState
from manycl.utilities.interrupts import interruptible


class HostCalls:
    """The calls of host functions. ``workers``: the thread, once there is one."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.workers: list[Worker] = []
        self.is_used = False
        self._caller: int | None = None  # the thread that runs a host function instead of waiting

    def call(self, run: RunState, token: int, alone: bool) -> None:
        """Call a host function. ``alone``: no other report can come before it returns, so the engine's thread does."""
        self.is_used = True
        if alone:
            self._caller = threading.get_ident()
            try:
                with interruptible:
                    self._call(run, token)
            finally:
                self._caller = None
            return
        if not self.workers:
            self.workers.append(Worker("manycl-host"))
        self.workers[0].submit(lambda: self._call(run, token))

    def are_current(self) -> bool:
        """Return whether the caller is a host function of the run that is under way."""
        return self._caller == threading.get_ident() or any(worker.is_current() for worker in self.workers)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def release(self) -> None:
        """Let the thread end when it has no jobs left."""
        for worker in self.workers:
            worker.release()

    def _call(self, run: RunState, node: int) -> None:
        if run.stopping:
            return
        task = run.graph.nodes[node]
        assert isinstance(task, HostTask)
        start = run.now()
        run.host = node
        try:
            # new views: their reference counts tell that the memory is still in use
            task.function(*(self._memory.on_host(a)[:] if isinstance(a, BufferArg) else a for a in task.args))
        except BaseException as error:  # also SystemExit: the run would wait forever for a thread that just ends
            if self._caller is not None and isinstance(error, KeyboardInterrupt):
                raise  # the user stops the run, not the function
            run.fail(node, f"{type(error).__name__}: {error}")
            return
        finally:
            run.host = None
        end = run.now()
        run.record.hosts.append((node, start, end))
        run.inbox.put(Done(node, end, run.number))
