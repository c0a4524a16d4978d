"""How the corpus describes a kernel, its launches, and what a person expects of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Buffer:
    """``count`` scalars of NumPy type ``dtype`` drawn from [``low``, ``high``), or the given ``values``.

    ``steers``: the contents decide which elements are touched; they stay the same in every run of one truth.
    ``whole``: any bit pattern will do (an output that the kernel does not read).
    ``granule``: the smallest piece in bytes that the kernel writes at once, where it is not the scalar.
    """

    dtype: str
    count: int
    low: float = 1
    high: float = 1000
    steers: bool = False
    whole: bool = False
    values: tuple[int, ...] | None = None
    granule: int = 0

    @property
    def nbytes(self) -> int:
        return self.count * np.dtype(self.dtype).itemsize

    def contents(self, seed: int) -> np.ndarray:
        """Bytes; the same for the same seed."""
        kind = np.dtype(self.dtype)
        if self.values is not None:
            return np.asarray(self.values, kind).view(np.uint8).copy()
        random = np.random.default_rng(seed)
        if self.whole:
            return random.integers(0, 256, self.nbytes, np.uint8)
        if kind.kind == "f":
            return random.uniform(self.low, self.high, self.count).astype(kind).view(np.uint8)
        return random.integers(int(self.low), int(self.high), self.count).astype(kind).view(np.uint8)


@dataclass(frozen=True)
class Image(Buffer):
    """A two-dimensional image of ``shape`` (width, height) with one or four numbers in each place: ``count`` of them in
    all."""

    shape: tuple[int, int] = (1, 1)

    @property
    def channels(self) -> int:
        return self.count // (self.shape[0] * self.shape[1])


@dataclass(frozen=True)
class Local:
    """A __local argument of so many bytes."""

    nbytes: int


@dataclass(frozen=True)
class Same:
    """The buffer of an earlier argument once more."""

    index: int


Argument = Buffer | Local | Same | np.generic | np.ndarray


@dataclass(frozen=True, eq=False)
class Launch:
    """One launch; sizes in work-items, outermost dimension last as in OpenCL."""

    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    arguments: tuple[Argument, ...]
    offset: tuple[int, ...] = ()

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(g // s for g, s in zip(self.global_size, self.local_size, strict=True))

    @property
    def buffers(self) -> dict[int, Buffer]:
        return {i: a for i, a in enumerate(self.arguments) if isinstance(a, Buffer)}


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel of ``corpus/FILE.cl``.

    ``split``: per dimension, whether its groups may run anywhere and in any order (a person's derivation).
    ``idempotent``: running the whole launch twice gives what running it once gives.
    ``exact``: the written regions are expected to come out exact at launch.
    ``writes``: the elements that one work-group range writes, in words, where that is simple.
    """

    name: str
    file: str
    launches: tuple[Launch, ...]
    split: tuple[bool, ...]
    idempotent: bool = True
    exact: bool = True
    writes: str = ""
    options: tuple[str, ...] = ()
    text: str = ""

    @property
    def source(self) -> str:
        return self.text or _text(self.file)


@functools.cache
def _text(file: str) -> str:
    return (FOLDER / f"{file}.cl").read_text()


def _sizes(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else value


def launch(
    global_size: int | tuple[int, ...],
    local_size: int | tuple[int, ...],
    *arguments: object,
    offset: int | tuple[int, ...] = (),
) -> Launch:
    """A launch; Python's int and float stand for OpenCL's int and float."""
    ready: list[Argument] = []
    for a in arguments:
        if isinstance(a, int):
            ready.append(np.int32(a))
        elif isinstance(a, float):
            ready.append(np.float32(a))
        else:
            assert isinstance(a, Buffer | Local | Same | np.generic | np.ndarray), a
            ready.append(a)
    return Launch(_sizes(global_size), _sizes(local_size), tuple(ready), _sizes(offset))


def f32(count: int, low: float = 0.5, high: float = 2.0) -> Buffer:
    return Buffer("f4", count, low, high)


def i32(count: int, low: int = 1, high: int = 1000) -> Buffer:
    return Buffer("i4", count, low, high)


def out(count: int, dtype: str = "f4") -> Buffer:
    return Buffer(dtype, count, whole=True)


def index(count: int, high: int, low: int = 0, dtype: str = "i4") -> Buffer:
    """Subscripts below ``high``."""
    return Buffer(dtype, count, low, high, steers=True)


def table(*values: int, dtype: str = "i4") -> Buffer:
    """Given contents that steer the kernel."""
    return Buffer(dtype, len(values), steers=True, values=values)
