"""A cache of answers that outlive the process: found again by what was asked, in the user's cache folder.

One file an answer, named by the digest of the question, so any number of processes may read and write: what is written
appears at once, whole (a file is moved to its name), and what was damaged since is not believed (a file begins with a
digest of question and answer). An answer holds as long as the code that found it has not changed. What lies here is
unpickled and run, so only folders and files count that nobody but the user can write. Nothing here ever fails: what
cannot be read or kept, for want of rights or of room, is found out anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from manycl import flags
from manycl.utilities.logs import logger
from manycl.utilities.runtime_folder import is_own, lasting_folder

_DIGEST = 32  # bytes
_LOOK = 64
"""Answers that a process keeps until it looks again whether they are too large: listing takes milliseconds."""
_ENDING = ".answer"
log = logger(__name__)


class DiskCache:
    """A cache of the answers of one kind (``name``) that were last kept or asked for: ``most`` bytes on disk, nearly.
    ``code``: what finds them, files and folders of Python's packages (``manycl/analysis``; a package's name is its
    folder)."""

    def __init__(self, name: str, most: int, code: tuple[str, ...] = ()) -> None:
        self._name, self._most = name, most
        self._kept = 0
        self._stamp = _stamp(code)  # now: code that is imported later may be newer, never older

    def get(self, question: bytes) -> bytes | None:
        """Return the bytes that were kept for a question; None if nothing was."""
        folder = self._folder()
        if folder is None:
            return None
        asked = hashlib.sha256(self._stamp + question)
        path = folder / (asked.hexdigest() + _ENDING)
        try:
            with open(path, "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                data = file.read()
        except OSError:
            return None
        answer = data[_DIGEST:]
        if hashlib.sha256(asked.digest() + answer).digest() != data[:_DIGEST]:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return answer

    def keep(self, question: bytes, answer: bytes) -> None:
        """Keep the answer to a question for whoever asks the same. What cannot be kept is told once."""
        try:
            folder = self._folder(made=True)
            if folder is None:
                return
            if self._kept % _LOOK == 0:
                self._trim(folder)
            self._kept += 1
            asked = hashlib.sha256(self._stamp + question)
            handle, name = tempfile.mkstemp(dir=folder)
            try:
                with open(handle, "wb") as file:
                    file.write(hashlib.sha256(asked.digest() + answer).digest() + answer)
                os.replace(name, folder / (asked.hexdigest() + _ENDING))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            _tell(f"nothing is kept in {cache_folder()}: {error.strerror or error}")

    def recall(self, question: bytes) -> object:
        """Return the value that was noted for a question; None if nothing was."""
        kept = self.get(question)
        return None if kept is None else pickle.loads(kept)

    def note(self, question: bytes, answer: object) -> None:
        """Keep a value of Python's."""
        self.keep(question, pickle.dumps(answer, protocol=5))

    def _folder(self, made: bool = False) -> Path | None:
        """Return the folder with its answers: None if there is none, or if somebody else could write there. ``made``:
        it is made where it is not there; raises OSError where it cannot be."""
        whole = cache_folder()
        if whole is None or not self._stamp:
            return None
        folder = whole / self._name
        if made:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            state = folder.lstat()
        except OSError:
            return None
        if is_own(state, 0o022):
            return folder
        _tell(f"{folder} is not used: others can write there, or it is somebody else's")
        return None

    def _trim(self, folder: Path) -> None:
        """Remove the oldest answers, and what processes that were ended left half written."""
        left = self._most
        states = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process has just forgotten it
                    states.append((entry.path, entry.stat(follow_symlinks=False)))
        for path, state in sorted(states, key=lambda found: found[1].st_mtime, reverse=True):
            left -= 512 * state.st_blocks
            if left < 0:
                with contextlib.suppress(OSError):
                    os.unlink(path)


@cache
def _tell(words: str) -> None:
    """Log a warning, each only once."""
    log.warning("%s", words)


@cache
def _folder_of(given: str) -> Path:
    return Path(given) if given else lasting_folder("cache")


def cache_folder() -> Path | None:
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
