"""Directions against what really happens: every kernel of the table that is harmless is run.

An argument whose contents changed must be reported written; changing the contents of an argument reported not
read must not change what is written anywhere. Nothing here knows how the analysis works.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from manycl.analysis import ArgumentFacts, KernelFacts, parse_program
from tests.analysis.reading.direction_corpus import CASES, Case
from tests.analysis.truth import device

cl = pytest.importorskip("pyopencl")

BYTES = 4096
ITEMS, GROUP = 64, 16
RUNNABLE = [case for case in CASES if case.runs]
ON_POCL = RUNNABLE[::6]  # compiling takes PoCL a while; Oclgrind runs them all


def launch(name: str, case: Case, facts: KernelFacts, contents: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Run the kernel on buffers with these contents; returns what they hold afterwards."""
    _, context, queue = device(name)
    program = built(name, case)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = {index: cl.Buffer(context, flags, hostbuf=data) for index, data in contents.items()}
    kernel = cl.Kernel(program, case.name)
    for argument in facts.arguments:
        kernel.set_arg(argument.index, buffers.get(argument.index) or by_value(argument))
    cl.enqueue_nd_range_kernel(queue, kernel, (ITEMS,), (GROUP,))
    after = {index: np.empty(BYTES, np.uint8) for index in contents}
    for index, data in after.items():
        cl.enqueue_copy(queue, data, buffers[index])
    queue.finish()
    for buffer in buffers.values():
        buffer.release()
    return after


@functools.lru_cache(maxsize=16)
def built(name: str, case: Case) -> Any:
    found, context, _ = device(name)
    return cl.Program(context, case.source).build(["-w"], devices=[found])


def by_value(argument: ArgumentFacts) -> Any:
    return cl.LocalMemory(256) if argument.kind == "local" else np.int32(3)


def noise(seed: int) -> np.ndarray:
    """Small numbers, whatever they are read as."""
    return np.random.default_rng(seed).integers(1, 60, BYTES // 4).astype(np.int32).view(np.uint8)


def check(name: str, case: Case) -> None:
    facts = parse_program(case.source, path="<case>").kernels[case.name]
    buffers = [argument for argument in facts.arguments if argument.kind == "buffer"]
    first = {argument.index: noise(argument.index) for argument in buffers}
    second = {a.index: first[a.index] if a.reads else noise(100 + a.index) for a in buffers}
    after_first = launch(name, case, facts, first)
    after_second = launch(name, case, facts, second)
    for argument in buffers:
        index = argument.index
        touched = (after_first[index] != first[index]) | (after_second[index] != second[index])
        if touched.any():
            assert argument.writes, f"{argument.name} changed"
        differs = (after_first[index] != after_second[index]) & touched
        assert not differs.any(), f"the result in {argument.name} depends on something reported not read"


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_oclgrind(case: Case) -> None:
    check("Oclgrind", case)


@pytest.mark.parametrize("case", ON_POCL, ids=lambda case: case.name)
def test_pocl(case: Case) -> None:
    check("Portable", case)


def test_what_is_reported_written_is_really_written() -> None:
    """The other side: what is said to be written, and not read, does change; no kernel judges in vain."""
    idle = []
    for case in RUNNABLE[::3]:
        facts = parse_program(case.source, path="<case>").kernels[case.name]
        contents = {a.index: noise(a.index) for a in facts.arguments if a.kind == "buffer"}
        after = launch("Oclgrind", case, facts, contents)
        for argument in facts.arguments:
            if argument.direction == "written" and (after[argument.index] == contents[argument.index]).all():
                idle.append(f"{case.name}.{argument.name}")
    assert not idle
