"""What drivers run: every work-item, with the arguments as they are; and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from manycl.drivers.driver import (
    BuildError,
    DriverError,
    Source,
)
from manycl.graph.graph import LocalArg
from tests.drivers.conformance.suite import Desk, uint


@pytest.mark.parametrize(
    ("global_size", "local_size", "offset"),
    [
        ((7,), None, None),
        ((8,), (4,), (3,)),
        ((6, 4), (3, 2), None),
        ((6, 4), None, (5, 9)),
        ((2, 4, 6), None, (1, 0, 2)),
    ],
)
def test_kernels_run_on_the_whole_ndrange(desk: Desk, global_size: Any, local_size: Any, offset: Any) -> None:
    count = int(np.prod(global_size))
    memory = desk.there(np.zeros(8 * count, np.uint8))
    event = desk.driver.launch(desk.queue, desk.kernel("places", memory), global_size, local_size, offset, None)
    desk.end(event)
    ids = np.indices(global_size[::-1]).reshape(len(global_size), -1)[::-1]
    expected = sum((row + (offset[d] if offset else 0)) << 16 * d for d, row in enumerate(ids))
    assert (desk.look(memory, 8 * count).view(np.uint64) == expected).all()


def test_local_memory(desk: Desk) -> None:
    memory = desk.there(np.arange(64, dtype=np.uint32).view(np.uint8))
    desk.end(desk.launch(desk.kernel("turned", memory, LocalArg(32)), 64, local=8))
    expected = np.arange(64).reshape(8, 8)[:, ::-1].reshape(-1)
    assert (desk.look(memory, 256).view(np.uint32) == expected).all()


def test_a_launch_takes_its_arguments_as_they_are(desk: Desk) -> None:
    first, second = (desk.there(np.zeros(64, np.uint8)) for _ in range(2))
    kernel = desk.kernel("add", first, 1)
    desk.launch(kernel, 16)
    kernel.set(1, uint(10))
    desk.launch(kernel, 16)
    kernel.set(0, second)
    kernel.set(1, uint(100))
    desk.end(desk.launch(kernel, 16))
    assert (desk.look(first, 64).view(np.uint32) == 11).all()
    assert (desk.look(second, 64).view(np.uint32) == 100).all()


def test_two_kernels_of_a_name_are_two(desk: Desk) -> None:
    memory = desk.there(np.zeros(64, np.uint8))
    one, ten = desk.kernel("add", memory, 1), desk.kernel("add", memory, 10)
    assert one.most_items >= 1
    desk.launch(one, 16)
    desk.launch(ten, 16)
    desk.end(desk.launch(one, 16))
    assert (desk.look(memory, 64).view(np.uint32) == 12).all()


def test_programs_that_do_not_build(desk: Desk) -> None:
    with pytest.raises(BuildError) as caught:
        desk.driver.build(Source("kernel void broken(global uint *x) { x[0] = nowhere_declared; }"))
    assert caught.value.message
    with pytest.raises(DriverError):
        desk.driver.kernel(desk.program, "absent")


def test_a_launch_that_cannot_run_fails_and_the_next_runs(desk: Desk) -> None:
    memory = desk.there(np.zeros(64, np.uint8))
    kernel = desk.kernel("add", memory, 1)
    with pytest.raises(DriverError) as caught:
        desk.end(desk.launch(kernel, 1 << 24, local=1 << 24))
    assert caught.value.message
    desk.driver.finish()
    desk.end(desk.launch(kernel, 16))
    assert (desk.look(memory, 64).view(np.uint32) == 1).all()
