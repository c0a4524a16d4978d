"""What makes way is what is needed last: how often buffers come to a device, beside the fewest times that any choice of
victims could do with."""

from __future__ import annotations

import random
from functools import cache

from manycl.graph.graph import Buffer, BufferArg, Graph, Launch
from manycl.machine import Device, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.lowering.steps import Lowered, Room
from tests.run.chaos.chaos_parts import is_upload
from tests.run.chaos.test_state import FACTS, PROGRAM, Unit


def uploads(order: list[int], room: int, written: frozenset[int] = frozenset(), proved: bool = False) -> int:
    """How many transfers bring what launches read, one buffer each, to a device that has room for so many. ``written``:
    the nodes that write their buffer instead, of which all is ``proved`` to be written."""
    keys = sorted({*order})
    args = [(BufferArg(key),) for key in order]
    uses = [((), (key,)) if n in written else ((key,), ()) for n, key in enumerate(order)]
    nodes = [Launch(f"n{n}", PROGRAM, FACTS, (1,), None, args[n], *use) for n, use in enumerate(uses)]
    graph = Graph(tuple(nodes), {key: Buffer(key, 1, f"b{key}") for key in keys}, tuple(() for _ in order))
    where = Machine((Device("d", "gpu", memory=1, global_memory=room),))
    plan = Plan(tuple(Assignment(n, 0, 0, 0.0, 0.0) for n in range(len(order))), "given", ("d",), 0.0)
    directory = Directory()
    for key in keys:
        directory.define(key)
    lowered = Lowered(graph, plan, room=Room({0: room}, {}, (), dict.fromkeys(keys, 1)))
    problem = Problem(graph, where, Unit(), (1,))
    command_graph = compiled(
        Subject(problem, lowered, directory.valid, lambda node, key: proved and node in written), plan
    )
    return sum(is_upload(c) for c in command_graph.commands)


def fewest(order: list[int], room: int) -> int:
    @cache
    def after(at: int, held: frozenset[int]) -> int:
        if at == len(order):
            return 0
        if order[at] in held:
            return after(at + 1, held)
        if len(held) < room:
            return 1 + after(at + 1, held | {order[at]})
        return 1 + min(after(at + 1, held - {victim} | {order[at]}) for victim in held)

    return after(0, frozenset())


def test_hardly_more_is_brought_than_has_to_be() -> None:
    """Exactly the fewest it is not: what the last launch works on stays, for the device is not to wait for its end."""
    found = least = 0
    for seed in range(400):
        chance = random.Random(seed)
        order = [chance.randrange(6) for _ in range(chance.randint(3, 16))]
        room = chance.randint(3, 4)
        count, few = uploads(order, room), fewest(order, room)
        assert count >= few
        found, least = found + count, least + few
    assert found <= 1.07 * least


def test_where_the_last_use_is_furthest_ahead_it_goes_first() -> None:
    """What comes makes way for nothing that is needed sooner, but for what the last launch works on."""
    assert uploads([0, 1, 2, 3, 0, 1, 3, 0, 1, 3], 4) == 4
    assert uploads([0, 1, 2, 0, 3, 0, 1, 3, 0, 1, 3], 3) == 4
    assert uploads([0, 1, 2, 3, 0, 1, 3, 0, 1, 3], 3) == 5


def test_what_is_proved_to_be_overwritten_is_not_brought() -> None:
    order, written = [0, 1, 2, 0, 3], frozenset({1, 4})
    assert uploads(order, 2) == 5
    assert uploads(order, 2, written) == 5, "it may be that only a part is written"
    assert uploads(order, 2, written, True) == 3
