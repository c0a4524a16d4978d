"""What dynamic policies are told of kernels: against what it says in words."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.plan.problem import Problem
from manycl.run.engine.assign import Ask
from tests.run.chaos.test_state import Anyhow, Unit, launch, machine

MEMORIES = [0, 1, 2, 2]


class Apart(Unit):
    """Times that show which launch, bytes and memories they are of."""

    def launch(self, node: int, device: int) -> float:
        return 1000.0 * (node + 1) + device

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else nbytes * (1 + source + 10 * target) / 1024


@given(st.lists(st.integers(0, 7), min_size=1, max_size=4), st.data())
def test_a_kernel_takes_its_time_and_that_of_bringing_what_a_device_lacks(masks: list[int], data: Any) -> None:
    """From the first memory that has it; what nobody has defined is not brought."""
    builder = GraphBuilder()
    keys = [builder.buffer(1 << i) for i in range(len(masks))]
    some = st.sets(st.sampled_from(keys)).map(tuple)
    for n in range(data.draw(st.integers(1, 3))):
        builder.add(launch(f"n{n}", data.draw(some), ()))
    graph, times = builder.build(), Apart()
    valid = {key: mask for key, mask in zip(keys, masks, strict=True) if mask}
    asked = Ask(Problem(graph, machine(MEMORIES), times, (2,) * len(MEMORIES)), Anyhow([]), valid)
    for n, node in enumerate(graph.nodes):
        for device, memory in enumerate(MEMORIES):
            seconds = times.launch(n, device)
            for key in node.reads:
                places = [m for m in range(3) if valid.get(key, 0) >> m & 1]
                if places and memory not in places:
                    seconds += times.transfer(1 << key, places[0], memory)
            assert asked._seconds((n,), device) == seconds
