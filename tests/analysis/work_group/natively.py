"""Launches of the corpus on a native device: the same bytes as on the implementations that are the truth."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from manycl.drivers.choice import open_devices
from manycl.drivers.driver import Driver, Source
from manycl.drivers.native.compiler import clang
from manycl.graph.graph import LocalArg
from tests.analysis import truth
from tests.analysis.corpus_case import Buffer, Case, Launch, Local, Same
from tests.analysis.generated.generator import Generated, touched_by


@functools.cache
def device() -> Driver:
    if not clang.is_there():
        pytest.skip("no clang here")
    _, opened = open_devices("native")
    return opened[0].handle.open(opened[0].device)


def run(case: Case, launch: Launch, start: truth.Contents) -> truth.Contents:
    """The buffers after a launch on them. Raises DriverError for kernels that are not compiled natively."""
    driver = device()
    kernel = driver.kernel(driver.build(Source(case.source, case.options)), case.name)
    memory = {i: driver.allocate(max(data.nbytes, 1)) for i, data in start.items()}
    queue = driver.queue(False)
    for index, argument in enumerate(launch.arguments):
        if isinstance(argument, Buffer):
            view(memory[index])[:] = start[index]
            kernel.set(index, memory[index])
        elif isinstance(argument, Same):
            kernel.set(index, memory[argument.index])
        elif isinstance(argument, Local):
            kernel.set(index, LocalArg(argument.nbytes))
        else:
            kernel.set(index, argument.tobytes())
    kernel.shape(launch.global_size, launch.local_size, launch.offset or None)  # type: ignore[attr-defined]
    driver.wait(driver.launch(queue, kernel, launch.global_size, launch.local_size, launch.offset or None, None))
    return {i: view(memory[i])[: data.nbytes].copy() for i, data in start.items()}


def view(memory: object) -> np.ndarray:
    data: np.ndarray = memory.kept  # type: ignore[attr-defined]
    return data.view(np.uint8).reshape(-1)


def races(case: Generated, launch: Launch) -> bool:
    """Whether a work-item of a random kernel touches what another one writes: then its result is anybody's guess."""
    found = touched_by(case, launch)
    count = found.state.count
    read, written = ({i: np.zeros((count, b.nbytes), bool) for i, b in launch.buffers.items()} for _ in range(2))
    atomic = {i: np.zeros(b.nbytes, bool) for i, b in launch.buffers.items()}
    for kind, argument, items, at, size in found.events:
        for byte in range(size):
            if kind in ("write", "update"):
                written[argument][items, at + byte] = True
            if kind in ("read", "update"):
                read[argument][items, at + byte] = True
            if kind == "atomic":
                atomic[argument][at + byte] = True
    for i in launch.buffers:
        writers = written[i].sum(0)
        others_read = (read[i] & ~written[i]).any(0)
        if (writers > 1).any() or ((writers > 0) & others_read).any():
            return True
        if (atomic[i] & ((writers > 0) | read[i].any(0))).any():
            return True
    return False
