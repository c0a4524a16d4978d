"""The process of the analysis, as who asks it has it: started, asked, and told why there is no answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from importlib import import_module

from manycl.analysis import worker

PATIENCE = 120.0  # seconds until a process is given up that does not even compute
ENDING = 5.0  # seconds that a process may take to end once it has stopped to answer
_NEXT = "manycl.analysis.interpreter.interpret"
"""The module that whoever asks needs next, to look at a launch: imported while the process starts."""
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1])\nfrom manycl.analysis import worker; worker.main()"


class LostError(Exception):
    """The worker died or had to be killed; ``outside``: not because of the question."""

    def __init__(self, words: str, *, outside: bool = False, hint: str = "") -> None:
        super().__init__(words)
        self.outside = outside
        self.hint = hint


def _lost(code: int, question: worker.Limited, stopped: bool) -> LostError:
    """Why there is no answer, by how the process ended."""
    if stopped:
        return LostError(f"no answer within {PATIENCE:g} s, the process of the analysis stands still", outside=True)
    about = "launch" if isinstance(question.question, worker.LaunchQuestion) else "source"
    if code == -getattr(signal, "SIGXCPU", 0):
        return LostError(
            f"the analysis of this {about} took more than {question.seconds:g} s",
            hint="is it deeply nested, or do its macros explode?",
        )
    if code == worker.NO_THREAD:
        words = "the process of the analysis can have no thread"
        return LostError(words, hint="are there too many processes and threads (ulimit -u), or too little memory?")
    if -code in _CRASHES or code >= 0:
        words = "the compiler crashed on this source" if about == "source" else "the analysis of this launch crashed"
        return LostError(words, hint="is it deeply nested?")
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return LostError(
        f"the process of the analysis was ended from outside ({name})",
        outside=True,
        hint="is there enough memory? The kernel's log says so if it was ended for want of it",
    )


_CRASHES = {getattr(signal, name, 0) for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGFPE", "SIGTRAP")}


class WorkerProcess:
    """A running worker process, used by one thread at a time."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps([entry or os.getcwd() for entry in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, question: worker.Limited) -> worker.WorkerAnswer:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        late = threading.Event()

        def kill() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(PATIENCE, kill)
        timer.daemon = True  # interrupted before it is cancelled, it must not keep the interpreter from ending
        with contextlib.suppress(RuntimeError):  # while the interpreter ends there are no new threads: the other
            timer.start()  # process's own limit of computing holds
        try:
            worker.send(self.process.stdin, question)
            import_module(_NEXT)
            reply = worker.receive(self.process.stdout)
            assert isinstance(reply, worker.WorkerAnswer)
            return reply
        except (EOFError, OSError):
            try:
                code = self.process.wait(ENDING)
            except subprocess.TimeoutExpired:
                code = 0
            self.close()
            raise _lost(code, question, late.is_set()) from None
        except BaseException:  # an interrupt: the answer would be taken for that of the next question
            self.close()
            raise
        finally:
            timer.cancel()

    def usable(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        if self.owner != os.getpid():
            return  # of the parent, before a fork
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # unsent bytes
                    stream.close()
