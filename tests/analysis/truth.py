"""What kernels really do: work-group ranges run on Oclgrind and PoCL, and the bytes that changed.

Nothing here knows how the analysis or the rewriting works. A range of work-groups runs by ``global_work_offset``.
Queries that then answer otherwise than in the whole launch are replaced textually, by macros in front of the source:
the group id is derived from the global id, and what belongs to the launch (sizes, numbers of groups, offsets) becomes
constants. ``get_global_linear_id`` and everything of OpenCL C 2.0 is beyond Oclgrind, and is not covered.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from manycl.drivers.survey import survey
from tests.analysis.corpus_case import Buffer, Case, Image, Launch, Local, Same

cl = pytest.importorskip("pyopencl")

OCLGRIND, POCL = "Oclgrind", "Portable"
# optimised code uses integers of odd widths, such as 2 bits for a switch, which Oclgrind 21.10 does not truncate; PoCL
# compiles in a third of the time, but does not come through all that is random
UNOPTIMISED = {OCLGRIND: ("-cl-opt-disable",), POCL: ("-cl-opt-disable",)}
SENTINELS = 3
PROGRAMS_KEPT = 16  # a program that Oclgrind has built takes up to some megabytes; cases come one after another
_KERNEL = re.compile(r"^kernel void (\w+)\((?:.*\}\n|.*\n(?:(?!\}).*\n)*\}.*\n)", re.M)
_WORD = re.compile(r"\w+")
_QUERIES = re.compile(r"\bget_(group_id|num_groups|global_size|global_offset)\b")

Contents = dict[int, np.ndarray]


@functools.cache
def device(name: str) -> Any:
    """(device, context, queue) of the implementation; skips the test where it is missing. Of several devices, processes
    take one each."""
    survey()  # PoCL must be told what a processor is like that it does not know
    for platform in cl.get_platforms():
        if name in platform.name:
            devices = platform.get_devices()
            found = devices[os.getpid() % len(devices)]
            context = cl.Context([found])
            return found, context, cl.CommandQueue(context)
    pytest.skip(f"no {name} here")


def _switch(values: Sequence[int], default: int) -> str:
    """A C expression that chooses by the dimension."""
    chain = "".join(f"truth_d == {d} ? {v}u : " for d, v in enumerate(values))
    return f"(size_t)({chain}{default}u)"


def prelude(launch: Launch) -> str:
    """Definitions that answer as in the whole launch, whatever range is run."""
    functions = {
        "global_offset": _switch(launch.offset, 0),
        "global_size": _switch(launch.global_size, 1),
        "num_groups": _switch(launch.groups, 1),
        "group_id": "(get_global_id(truth_d) - get_local_id(truth_d) - truth_global_offset(truth_d))"
        " / get_local_size(truth_d)",
    }
    lines = [
        f"size_t truth_{n}(uint truth_d); size_t truth_{n}(uint truth_d) {{ return {e}; }}"
        for n, e in functions.items()
    ]
    return "\n".join([*lines, *(f"#define get_{n} truth_{n}" for n in functions), "#line 1", ""])


@functools.lru_cache(maxsize=PROGRAMS_KEPT)
def _program(name: str, text: str, options: tuple[str, ...]) -> Any:
    found, context, _ = device(name)
    return cl.Program(context, text).build(["-w", *UNOPTIMISED.get(name, ()), *options], devices=[found])


@functools.lru_cache(maxsize=PROGRAMS_KEPT)
def _kernel(name: str, text: str, options: tuple[str, ...], function: str) -> Any:
    return cl.Kernel(_program(name, text, options), function)


@functools.lru_cache(maxsize=PROGRAMS_KEPT)
def _asks(source: str) -> bool:
    return _QUERIES.search(source) is not None


@functools.lru_cache(maxsize=PROGRAMS_KEPT)
def _alone(source: str, name: str) -> str:
    """A text without the other kernels of a file of the corpus, whose compilation takes longer than most runs; all of
    it where one of them is mentioned."""
    others = {found[1] for found in _KERNEL.finditer(source)} - {name}
    rest = _KERNEL.sub(lambda found: found[0] if found[1] == name else "", source)
    return rest if others.isdisjoint(_WORD.findall(rest)) else source


def kernel(case: Case, launch: Launch, name: str, whole: bool) -> Any:
    """The compiled kernel; unchanged text for the whole launch or where no query needs replacing."""
    source = case.source
    if not whole and _asks(own := _alone(source, case.name)):
        source = prelude(launch) + own
    return _kernel(name, source, case.options, case.name)


class Machine:
    """One device with the buffers of one launch."""

    def __init__(self, case: Case, launch: Launch, contents: Contents, name: str) -> None:
        self.case, self.launch, self.name = case, launch, name
        _, self.context, self.queue = device(name)
        self.before = contents
        self.buffers = {i: self._memory(launch.buffers[i], data) for i, data in contents.items()}

    def _memory(self, argument: Buffer, data: np.ndarray) -> Any:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        if not isinstance(argument, Image):
            return cl.Buffer(self.context, flags, hostbuf=data)
        kind = np.dtype(argument.dtype)
        name = {"f": "FLOAT", "i": f"SIGNED_INT{8 * kind.itemsize}", "u": f"UNSIGNED_INT{8 * kind.itemsize}"}[kind.kind]
        order = cl.channel_order.RGBA if argument.channels == 4 else cl.channel_order.R
        form = cl.ImageFormat(order, getattr(cl.channel_type, name))
        return cl.Image(self.context, flags, form, shape=argument.shape, hostbuf=data)

    def _arguments(self) -> list[Any]:
        ready: list[Any] = []
        for i, a in enumerate(self.launch.arguments):
            if isinstance(a, Buffer):
                ready.append(self.buffers[i])
            elif isinstance(a, Same):
                ready.append(self.buffers[a.index])
            elif isinstance(a, Local):
                ready.append(cl.LocalMemory(a.nbytes))
            else:
                ready.append(a)
        return ready

    def run(self, dimension: int = 0, first: int = 0, count: int | None = None) -> None:
        """Run work-groups [first, first + count) along the dimension; everything without a count."""
        launch = self.launch
        compiled = kernel(self.case, launch, self.name, count is None)
        compiled.set_args(*self._arguments())
        size, offset = list(launch.global_size), list(launch.offset or (0,) * len(launch.global_size))
        if count is not None:
            offset[dimension] += first * launch.local_size[dimension]
            size[dimension] = count * launch.local_size[dimension]
        cl.enqueue_nd_range_kernel(self.queue, compiled, size, launch.local_size, offset if any(offset) else None)

    def after(self) -> Contents:
        """What the buffers hold; releases them."""
        result = {i: np.empty_like(data) for i, data in self.before.items()}
        for i, data in result.items():
            argument = self.launch.buffers[i]
            place = {"origin": (0, 0), "region": argument.shape} if isinstance(argument, Image) else {}
            cl.enqueue_copy(self.queue, data, self.buffers[i], **place)
        self.queue.finish()
        for buffer in self.buffers.values():
            buffer.release()
        return result


def contents(launch: Launch, seed: int) -> Contents:
    """Initial contents of all buffers; those that steer the kernel are the same for every seed."""
    return {i: b.contents((0 if b.steers else seed) * 64 + i) for i, b in launch.buffers.items()}


def run_range(
    case: Case, launch: Launch, dimension: int, first: int, count: int | None, start: Contents, name: str = OCLGRIND
) -> Contents:
    """The buffers after the range ran alone on them."""
    machine = Machine(case, launch, start, name)
    machine.run(dimension, first, count)
    return machine.after()


@functools.lru_cache(maxsize=64)
def _after(case: Case, launch: Launch, dimension: int, first: int, count: int | None, seed: int, name: str) -> Contents:
    """The buffers after the range ran alone on the contents of a seed."""
    if not first and count == launch.groups[dimension] and dimension:  # all, by whichever dimension that is said
        return _after(case, launch, 0, 0, launch.groups[0], seed, name)
    return run_range(case, launch, dimension, first, count, contents(launch, seed), name)


def written(
    case: Case, launch: Launch, dimension: int, first: int, count: int, name: str = OCLGRIND, seeds: int = SENTINELS
) -> dict[int, np.ndarray]:
    """Per buffer argument a bool per byte: changed by work-groups [first, first + count), with any of the sentinels.

    A lower bound of what is written: a byte that is always overwritten with itself does not show. ``rounded`` gives
    the elements that such bytes belong to.
    """
    changed = {i: np.zeros(b.nbytes, bool) for i, b in launch.buffers.items()}
    for seed in range(1, seeds + 1):
        start = contents(launch, seed)
        after = _after(case, launch, dimension, first, count, seed, name)
        for i, mask in changed.items():
            mask |= after[i] != start[i]
    return changed


def rounded(launch: Launch, index: int, mask: np.ndarray) -> np.ndarray:
    """The mask widened to whole granules: a scalar, or what the kernel writes at once."""
    buffer = launch.buffers[index]
    piece = buffer.granule or np.dtype(buffer.dtype).itemsize
    return np.repeat(mask.reshape(-1, piece).any(axis=1), piece)


def _poisoned(launch: Launch, index: int, data: np.ndarray, keep: np.ndarray, seed: int) -> np.ndarray:
    """Other contents wherever ``keep`` is false, drawn as the buffer's own are, so that no subscript leaves its buffer.

    Where the contents were given, zeros and ones: a kernel must stay in bounds with those.
    """
    buffer = launch.buffers[index]
    if buffer.values is not None:
        kind = np.dtype(buffer.dtype)
        other = np.random.default_rng(seed).integers(0, 2, buffer.count).astype(kind).view(np.uint8)
    else:
        other = buffer.contents(seed)
    return np.where(keep, data, other)


def reads_leak(
    case: Case,
    launch: Launch,
    dimension: int,
    first: int,
    count: int,
    regions: Mapping[int, np.ndarray],
    name: str = OCLGRIND,
) -> list[int]:
    """Arguments whose contents outside of the region said to be read make a difference to what the range writes.

    ``regions`` holds a bool per byte; an argument that is missing is said not to be read.
    """
    start = contents(launch, 1)
    plain = _after(case, launch, dimension, first, count, 1, name)
    keep = {i: regions.get(i, np.zeros(b.nbytes, bool)) for i, b in launch.buffers.items()}

    def differs(poison: Sequence[int], seed: int) -> bool:
        other = {i: _poisoned(launch, i, d, keep[i], seed + i) if i in poison else d for i, d in start.items()}
        after = run_range(case, launch, dimension, first, count, other, name)
        touched = {i: (plain[i] != start[i]) | (after[i] != other[i]) for i in start}
        return any(bool(((plain[i] != after[i]) & touched[i]).any()) for i in start)

    everything = list(launch.buffers)
    leaks: set[int] = set()
    for seed in (9001, 9501):
        if differs(everything, seed):
            single = [i for i in everything if differs([i], seed)]
            leaks |= set(single or everything)
    return sorted(leaks)


def split_matches_whole(
    case: Case, launch: Launch, dimension: int, seed: int, name: str = OCLGRIND, pieces: int = 8
) -> bool:
    """Whether contiguous ranges of work-groups, one after another in a random order, give the bits of the whole."""
    random = np.random.default_rng(seed)
    groups = launch.groups[dimension]
    cuts = {0, groups}
    inner = np.arange(1, groups)
    cuts |= set(random.permutation(inner)[: pieces - 1].tolist())
    edges = sorted(cuts)
    parts = [(a, b - a) for a, b in itertools.pairwise(edges)]
    start = contents(launch, 1 + seed % 7)
    whole = _after(case, launch, 0, 0, None, 1 + seed % 7, name)
    for backwards in (False, True):
        machine = Machine(case, launch, start, name)
        order = list(reversed(parts)) if backwards else [parts[k] for k in random.permutation(len(parts))]
        for first, count in order:
            machine.run(dimension, first, count)
        after = machine.after()
        if any((after[i] != whole[i]).any() for i in whole):
            return False
    return True


def repeats(case: Case, launch: Launch, name: str = OCLGRIND) -> bool:
    """Whether the whole launch twice gives the bits of the whole launch once."""
    start = contents(launch, 1)
    machine = Machine(case, launch, start, name)
    machine.run()
    machine.run()
    twice, once = machine.after(), _after(case, launch, 0, 0, None, 1, name)
    return all(bool((twice[i] == once[i]).all()) for i in once)


def groups_conflict(case: Case, launch: Launch, dimension: int, name: str = OCLGRIND) -> bool:
    """Whether groups along the dimension are seen not to be independent.

    Two of them write one byte, or their order matters, or one reads what others write.
    """
    groups = range(launch.groups[dimension])
    writes = [written(case, launch, dimension, g, 1, name) for g in groups]
    total = {i: sum(w[i].astype(int) for w in writes) for i in launch.buffers}
    if any((times > 1).any() for times in total.values()):
        return True
    if not all(split_matches_whole(case, launch, dimension, seed, name) for seed in (1, 2)):
        return True
    of_others = [{i: (total[i] > 0) & ~writes[g][i] for i in total} for g in groups]
    return any(
        reads_leak(case, launch, dimension, g, 1, {i: ~mask for i, mask in of_others[g].items()}, name) for g in groups
    )
