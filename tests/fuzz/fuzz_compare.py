"""Kernels run by every implementation that is here, and what their results differ in.

Oclgrind and PoCL are asked for what is right; manycl's native compiler has to agree without and with optimisation, and
so does a launch that is cut at random and run by four devices with memories of their own.
"""

from __future__ import annotations

import functools
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from manycl.analysis import parse_program
from manycl.analysis.service import launched
from manycl.drivers.driver import DriverError
from manycl.drivers.native.compiler import clang
from manycl.errors import ManyclError
from manycl.run.session.session import Session
from tests.analysis import truth
from tests.analysis.corpus_case import Case, Launch
from tests.analysis.corpus_launch import launch_of
from tests.analysis.divided import divided, load
from tests.analysis.work_group import natively
from tests.fuzz.fuzz_types import KNOWN_FAULTS

Run = Callable[[Case, Launch, truth.Contents], truth.Contents]


class NotComparedError(Exception):
    """An implementation cannot run this kernel, and says so."""


class EndedError(Exception):
    """A process has ended without an answer."""


@dataclass(frozen=True)
class Difference:
    """``who`` left other bytes than ``than``, or refused what is valid (``told``)."""

    name: str
    who: str
    than: str
    told: str

    def __str__(self) -> str:
        return f"{self.name}: {self.who} against {self.than}: {self.told}"


KNOWN_REFUSALS = {words: words for words in ("its groups do not run apart", "there is no GPU")} | {
    "INVALID_KERNEL_NAME": "PoCL finds no kernel in a program that another process of its has built and cached"
}
"""Words of errors, and why that is so."""


@functools.cache
def _compilers() -> dict[str, tuple[clang.Clang, tuple[str, ...]]]:
    """The compiler, and how kernels are compiled, without and with optimisation."""
    found = {"-O3": (clang.find(), clang.KERNELS)}
    with optimised_as("-O0"):
        found["-O0"] = (clang._probed(found["-O3"][0].compiler, found["-O3"][0].linker), clang.KERNELS)
    return found


@contextmanager
def optimised_as(level: str) -> Iterator[None]:
    usual = clang.KERNELS
    clang.KERNELS = tuple(level if word == "-O3" else word for word in usual)
    try:
        yield
    finally:
        clang.KERNELS = usual


def _native(level: str, case: Case, launch: Launch, start: truth.Contents) -> truth.Contents:
    natively.device()
    compiler, words = _compilers()[level]
    usual, find = clang.KERNELS, clang.find
    clang.KERNELS, clang.find = words, lambda: compiler
    try:
        return natively.run(case, launch, start)
    except DriverError as error:
        raise NotComparedError(str(error)) from None
    finally:
        clang.KERNELS, clang.find = usual, find


def _plain(name: str, case: Case, launch: Launch, start: truth.Contents) -> truth.Contents:
    try:
        return truth.run_range(case, launch, 0, 0, None, start, name)
    except truth.cl.Error as error:
        raise NotComparedError(str(error)) from None


@functools.cache
def _gpu() -> str:
    """The first platform with a GPU; empty where there is none."""
    platforms = [p for p in truth.cl.get_platforms() if truth.OCLGRIND not in p.name]  # which is of every type
    names = [p.name for p in platforms if p.get_devices(device_type=truth.cl.device_type.GPU)]
    return names[0] if names else ""


def _on_gpu(case: Case, launch: Launch, start: truth.Contents) -> truth.Contents:
    if not _gpu():
        raise NotComparedError("there is no GPU")
    exact = replace(case, options=(*case.options, "-cl-fp32-correctly-rounded-divide-sqrt"))
    return _plain(_gpu(), exact, launch, start)


@functools.cache
def _session() -> Session:
    return Session("cpu/4", remember=False)  # with MANYCL_ZERO_COPY=0


def _divided(case: Case, launch: Launch, start: truth.Contents) -> truth.Contents:
    """Cut at random, along every dimension in which its groups may run apart."""
    try:
        facts = launched(parse_program(case.source, options=case.options), case.name, launch_of(launch))
        wanted = [d for d, n in enumerate(launch.groups) if n > 1 and facts.split(d).mergeable]
        if not wanted:
            raise NotComparedError("its groups do not run apart")
        chance = random.Random(case.name)
        loaded = load(_session(), case, launch)
        dimension = chance.choice(wanted)
        plan = divided(loaded, dimension, launch.groups[dimension], chance.randint(2, 4), chance)
        found = loaded.run(plan, start)
        for key in loaded.keys.values():
            _session().buffers.discard(key)
    except ManyclError as error:
        raise NotComparedError(str(error)) from None
    return {index: np.asarray(data) for index, data in found.items()}


_EXEC = ("-m", "manycl", "exec", "--devices", "cpu/2")


@functools.cache
def _process(*words: str) -> subprocess.Popen[bytes]:
    script = str(Path(__file__).with_name("fuzz_exec.py"))
    return subprocess.Popen([sys.executable, *words, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _apart(platform: str, words: tuple[str, ...], case: Case, launch: Launch, start: truth.Contents) -> truth.Contents:
    """By a process of its own, which goes on for the next case."""
    process = _process(*words)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump((platform, case, launch, start), process.stdin)
        process.stdin.flush()
        found = pickle.load(process.stdout)
    except (EOFError, OSError):
        _process.cache_clear()
        raise EndedError(f"it ends its process with status {process.wait()}") from None
    if isinstance(found, str):
        raise NotComparedError(found)
    return found


def _pocl(case: Case, launch: Launch, start: truth.Contents) -> truth.Contents:
    try:
        return _apart(truth.POCL, (), case, launch, start)
    except EndedError as error:
        raise NotComparedError(f"known: PoCL: {error}") from None


def _executed(case: Case, launch: Launch, start: truth.Contents) -> truth.Contents:
    """As a program that ``manycl exec`` started."""
    try:
        return _apart("manycl", _EXEC, case, launch, start)
    except EndedError as error:
        raise NotComparedError(str(error)) from None


IMPLEMENTATIONS: dict[str, Run] = {
    "Oclgrind": functools.partial(_plain, truth.OCLGRIND),
    "PoCL": _pocl,
    "native -O0": functools.partial(_native, "-O0"),
    "native -O3": functools.partial(_native, "-O3"),
    "divided": _divided,
    "exec": _executed,
    "GPU": _on_gpu,
}


FOREIGN = ("Oclgrind", "PoCL", "GPU")


def first_difference(launch: Launch, want: truth.Contents, found: truth.Contents) -> str:
    """The first element that differs, in words; empty where none does."""
    for index, buffer in launch.buffers.items():
        kind = np.dtype(buffer.dtype)
        a, b = want[index].view(np.uint8), found[index].view(np.uint8)
        if not np.array_equal(a, b):
            a, b = a.view(kind), b.view(kind)
            wrong = np.flatnonzero(a.view(f"u{kind.itemsize}") != b.view(f"u{kind.itemsize}"))
            at = int(wrong[0])
            return f"{len(wrong)} elements of argument {index}, [{at}] is {b[at]!r}, not {a[at]!r}"
    return ""


@dataclass
class Compared:
    """What came of one kernel: who was compared, who could not run it and why, the differences."""

    name: str
    ran: list[str]
    refused: dict[str, str]
    differences: list[Difference]


def compare(
    case: Case, called: frozenset[str] = frozenset(), whom: tuple[str, ...] = tuple(IMPLEMENTATIONS)
) -> Compared:
    """Run a case's first launch by all, and compare: what most have left is taken to be right. ``called``: the built-in
    functions that it calls."""
    launch = case.launches[0]
    start = truth.contents(launch, 1)
    results: dict[str, truth.Contents] = {}
    refused: dict[str, str] = {}
    differences: list[Difference] = []
    for name in whom:
        faults = KNOWN_FAULTS.get(name, {})
        if known := sorted(called & faults.keys()):
            refused[name] = f"known: {known[0]}: {faults[known[0]]}"
            continue
        try:
            results[name] = IMPLEMENTATIONS[name](case, launch, start)
        except NotComparedError as error:
            refused[name] = next(
                (f"known: {why}" for words, why in KNOWN_REFUSALS.items() if words in str(error)), str(error)
            )
    if not results and "native -O3" in refused:
        refused = dict.fromkeys(refused, "known: nobody takes it")
    alike = {n: sum(not first_difference(launch, results[n], other) for other in results.values()) for n in results}
    if results:
        best = max(results, key=lambda n: alike[n])
        for name, found in results.items():
            told = first_difference(launch, results[best], found)
            if told and name in FOREIGN and first_difference(launch, found, IMPLEMENTATIONS[name](case, launch, start)):
                refused[name] = "known: it leaves something else each time"
            elif told:
                differences.append(Difference(case.file or case.name, name, best, told))
    return Compared(case.file or case.name, list(results), refused, differences)
