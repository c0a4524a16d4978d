"""A cache of answers that outlive the process: found again by what was asked, in the user's cache folder.

One file an answer, named by the digest of the question, so any number of processes may read and write: what is written
appears at once, whole (a file is moved to its name), and what was damaged since is not believed (a file begins with a
digest of question and answer). An answer holds as long as the code that found it has not changed. What lies here is
unpickled and run, so only folders and files count that nobody but the user can write. Nothing here ever fails: what
cannot be read or kept, for want of rights or of room, is found out anew.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Hashable, Mapping
from functools import cache
from importlib.util import find_spec
from threading import Thread
from typing import Any

from manycl import flags
from manycl.utilities.kept import Kept
from manycl.utilities.logs import logger
from manycl.utilities.runtime_folder import is_own, lasting_folder

_DIGEST = 32  # bytes
_LOOK = 64
"""Answers that a process keeps until it looks again whether they are too large: listing takes milliseconds."""
_ENDING = ".answer"
_SUBJECTS, _TOGETHER = 256, 256
"""Subjects whose records a process keeps, and answers that are kept of each; our own choice."""
log = logger(__name__)


class DiskCache:
    """A cache of the answers of one kind (``name``) that were last kept or asked for: ``most`` bytes on disk, nearly.
    ``code``: what finds them, files and folders of packages (``manycl/analysis``; a package is its folder)."""

    def __init__(self, name: str, most: int, code: tuple[str, ...] = ()) -> None:
        self._name, self._most = name, most
        self._kept = 0
        self.trimming: Thread | None = None
        """What removes the oldest answers, the last time."""
        self._stamp = _stamp(code)  # now: code that is imported later may be newer, never older

    def get(self, question: bytes) -> bytes | None:
        """Return the bytes that were kept for a question; None if nothing was."""
        folder = self._folder()
        if folder is None:
            return None
        asked = hashlib.sha256(self._stamp + question)
        try:
            file = os.open(os.path.join(folder, asked.hexdigest() + _ENDING), os.O_RDONLY)
        except OSError:
            return None
        try:
            state = os.fstat(file)
            if state.st_uid != os.geteuid():
                return None
            data = os.read(file, state.st_size)  # (less than all of it is not believed)
            with contextlib.suppress(OSError):
                os.utime(file)
        except OSError:
            return None
        finally:
            os.close(file)
        answer = data[_DIGEST:]
        return answer if hashlib.sha256(asked.digest() + answer).digest() == data[:_DIGEST] else None

    def keep(self, question: bytes, answer: bytes) -> None:
        """Keep the answer to a question for whoever asks the same. What cannot be kept is told once."""
        try:
            folder = self._folder(made=True)
            if folder is None:
                return
            if self._kept % _LOOK == 0:  # by another thread: of thousands of answers, this takes 0.1 s
                self.trimming = Thread(target=self._trim, args=(folder,), name="manycl-trim", daemon=True)
                with contextlib.suppress(RuntimeError):  # the interpreter ends
                    self.trimming.start()
            self._kept += 1
            asked = hashlib.sha256(self._stamp + question)
            handle, name = tempfile.mkstemp(dir=folder)
            try:
                with open(handle, "wb") as file:
                    file.write(hashlib.sha256(asked.digest() + answer).digest() + answer)
                os.replace(name, os.path.join(folder, asked.hexdigest() + _ENDING))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            _tell(f"nothing is kept in {cache_folder()}: {error.strerror or error}")

    @property
    def is_empty(self) -> bool:
        """True if no answer is kept on disk."""
        folder = self._folder()
        return folder is None or not os.listdir(folder)

    def recall(self, question: bytes) -> object:
        """Return the value that was noted for a question; None if nothing was."""
        kept = self.get(question)
        return None if kept is None else pickle.loads(kept)

    def note(self, question: bytes, answer: object) -> None:
        """Keep a value of Python's."""
        self.keep(question, pickle.dumps(answer, protocol=5))

    def _folder(self, made: bool = False) -> str | None:
        """Return the folder with its answers: None if there is none, or if somebody else could write there. ``made``:
        it is made where it is not there; raises OSError where it cannot be."""
        whole = cache_folder()
        if whole is None or not self._stamp:
            return None
        folder = os.path.join(whole, self._name)
        if made:
            os.makedirs(folder, 0o700, exist_ok=True)
        try:
            state = os.lstat(folder)
        except OSError:
            return None
        if is_own(state, 0o022):
            return folder
        _tell(f"{folder} is not used: others can write there, or it is somebody else's")
        return None

    def _trim(self, folder: str) -> None:
        """Remove the oldest answers, and what processes that were ended left half written."""
        left = self._most
        states = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process has just forgotten it
                    states.append((entry.path, entry.stat(follow_symlinks=False)))
        for path, state in sorted(states, key=lambda found: found[1].st_mtime, reverse=True):
            left -= 512 * state.st_blocks
            if left < 0:
                with contextlib.suppress(OSError):
                    os.unlink(path)


class DiskRecords:
    """A cache of answers to several questions about one subject (a program's launches, its kernels): all are in one
    file, which a process reads once. Arguments as of :class:`DiskCache`."""

    def __init__(self, name: str, most: int, code: tuple[str, ...] = ()) -> None:
        self._cache = DiskCache(name, most, code)
        self._read: Kept[bytes, dict[Any, Any]] = Kept(_SUBJECTS)
        self._later = set[bytes]()  # subjects whose records are written as the process ends
        self._lock = threading.Lock()

    def of(self, subject: bytes) -> Mapping[Any, Any]:
        """Return the answers about a subject, by question."""
        found = self._read.get(subject)
        return self._read.keep(subject, self._recall(subject)) if found is None else found

    def add(self, subject: bytes, question: Hashable, answer: object, later: bool = False) -> None:
        """Keep an answer about a subject for whoever asks the same: the last ``_TOGETHER`` ones stay. ``later``: it is
        written as the process ends, as it takes little to find."""
        with self._lock:
            known: Any = self.of(subject)
            known[question] = answer
            if later:
                if not self._later:
                    atexit.register(self._end)
                self._later.add(subject)
            else:
                self._write(subject)

    def _end(self) -> None:
        with self._lock:
            while self._later:
                self._write(self._later.pop())

    def _write(self, subject: bytes) -> None:
        whole = list({**self._recall(subject), **self.of(subject)}.items())  # others may have found more
        self._cache.note(hashlib.sha256(subject).digest(), dict(whole[-_TOGETHER:]))

    def _recall(self, subject: bytes) -> dict[Any, Any]:
        kept: Any = self._cache.recall(hashlib.sha256(subject).digest())
        return {} if kept is None else kept


@cache
def _tell(words: str) -> None:
    """Log a warning, each only once."""
    log.warning("%s", words)


@cache
def _folder_of(given: str) -> str:
    return given or str(lasting_folder("cache"))


def cache_folder() -> str | None:
    """Return the folder of all answers: the user's cache folder, another that was asked for, or none."""
    given = flags.cache()
    return None if given == "0" else _folder_of(given)


def _stamp(code: tuple[str, ...]) -> bytes:
    """Return what answers depend on beside the questions, as bytes: empty if that cannot be told."""
    try:
        return repr((sys.version, [state for name in code for state in _states(name)])).encode()
    except (OSError, ImportError, ValueError):
        return b""


@cache
def _states(name: str) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of a file, or of those in a folder: with those below if it ends with /."""
    package, _, below = name.partition("/")
    spec = find_spec(package)  # imports nothing
    if spec is None or spec.origin is None:
        raise ImportError(package)
    place = os.path.join(os.path.dirname(spec.origin), below)
    paths = [place]
    if os.path.isdir(place):
        folders = os.walk(place) if name.endswith("/") else [next(os.walk(place))]
        paths = sorted(os.path.join(folder, file) for folder, _, files in folders for file in files)
    states = [(path, os.stat(path)) for path in paths if not path.endswith(".pyc") and os.path.isfile(path)]
    return [(os.path.basename(path), state.st_size, state.st_mtime_ns) for path, state in states]
