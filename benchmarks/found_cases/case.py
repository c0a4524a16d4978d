"""How a reproduction is written down: a function, registered by name, that ends well, or says what is wrong."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

OWN_MEMORIES = {"MANYCL_ZERO_COPY": "0"}
"""Devices of the CPU have memories of their own, as GPUs do."""


class Wrong(Exception):
    """A result, a plan or a message is not what it must be."""


class Refused(Exception):
    """Something valid was refused."""


class Silent(Exception):
    """A process ended, and did not say of what."""


class Case(NamedTuple):
    """One reproduction: what it runs, in what environment, and the seconds after which it counts as hung."""

    name: str
    body: Callable[[], None]
    environment: Mapping[str, str]
    seconds: float


CASES: dict[str, Case] = {}


def case(
    environment: Mapping[str, str] | None = None, seconds: float = 120
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a reproduction under its function's name."""

    def register(body: Callable[[], None]) -> Callable[[], None]:
        name = body.__name__
        if name in CASES:
            raise ValueError(f"two cases are called {name}")
        CASES[name] = Case(name, body, environment or {}, seconds)
        return body

    return register


def same(got: Any, want: Any, what: str) -> None:
    """Both are equal, or ``Wrong`` says how many elements differ."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or not (got == want).all():
        bad = int((got != want).sum()) if got.shape == want.shape else got.size
        raise Wrong(f"{what}: {bad} of {want.size} elements are wrong")


def expect(holds: object, what: str) -> None:
    if not holds:
        raise Wrong(what)


def manycl(*words: str, folder: Path | None = None, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    """The command line; a traceback or a signal is a crash."""
    command = [sys.executable, "-m", "manycl", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=folder)
    if ended.returncode < 0 or "Traceback" in ended.stderr:
        raise RuntimeError(f"manycl {' '.join(words)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return ended


def python(text: str, *words: str, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    """A program of its own: what may end its process."""
    return subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, timeout=seconds)


@contextmanager
def files(contents: Mapping[str, str]) -> Iterator[Path]:
    """A folder with these files."""
    with tempfile.TemporaryDirectory(prefix="manycl-found-") as name:
        for path, text in contents.items():
            place = Path(name) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        yield Path(name)


def accepts(source: str, options: Sequence[str] = ()) -> None:
    """This source is read."""
    import manycl as mc

    try:
        mc.Program(source, list(options))
    except mc.ManyclError as error:
        raise Refused(str(error)) from error


def specification(source: str, kernel: str, threads: int, local: int, shape: int = 64, **more: Any) -> dict[str, str]:
    """``app.json`` and ``k.cl``: one kernel on one buffer of ints."""
    launch = {"name": kernel, "global": threads, "local": local, "args": ["b"]}
    buffer = {"type": "int", "shape": shape} | more
    app = {"manycl": 1, "source": "k.cl", "buffers": {"b": buffer}, "kernels": [launch]}
    return {"app.json": json.dumps(app), "k.cl": source}


def told(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    """The command failed in the words that a user needs."""
    expect(ended.returncode != 0, "nothing was said")
    if not ended.stderr.strip():
        raise Silent(f"status {ended.returncode}, without a word")
    for word in words:
        expect(word in ended.stderr, f"{word!r} is not in: {ended.stderr[-500:]}")


def error_of(of: Any) -> str:
    """The text of the ManyclError that this call raises."""
    import manycl as mc

    try:
        of()
    except mc.ManyclError as error:
        return str(error)
    raise Wrong("nothing was said")


def natively(source: str, name: str, want: Any, *arrays: Any, group: int | None = None) -> None:
    """A kernel is compiled natively, and leaves these values in its last array."""
    import manycl as mc

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("manycl").addHandler(handler)
    with mc.Queue("cpu0") as queue:
        given = [queue.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
        getattr(mc.Program(source), name)(queue, (64,), (group,) if group else None, *given)
        same([a for a in given if isinstance(a, mc.Array)][-1].get(), want, name)
    if any("not compiled natively" in line for line in said):
        raise Refused(said[0])
