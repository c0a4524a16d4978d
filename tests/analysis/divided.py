"""Launches of the corpus on the devices of a session, whole and divided."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from manycl.analysis import parse_program
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Argument, BufferArg, Graph, Launch, LocalArg
from manycl.plan.plan import Assignment, Plan
from manycl.run.session.session import Session
from tests.analysis import truth
from tests.analysis.corpus_case import Buffer, Case, Local, Same
from tests.analysis.corpus_case import Launch as CaseLaunch


@dataclass
class Loaded:
    """A launch of the corpus in a session: its graph, and its buffers by argument."""

    session: Session
    graph: Graph
    keys: dict[int, int]

    def run(self, assignments: list[Assignment], contents: truth.Contents) -> dict[int, Any]:
        """The buffers after a plan, from these contents on."""
        session = self.session
        for index, key in self.keys.items():
            session.buffers.overwrite(key)[:] = contents[index]
        names = tuple(d.name for d in session.machine.devices)
        session.run(self.graph, Plan(tuple(assignments), "test", names, 0.0))
        session.directory.validate(session.machine.memories)
        return {index: session.buffers.host(key).copy() for index, key in self.keys.items()}


def load(session: Session, case: Case, ndrange: CaseLaunch) -> Loaded:
    program = parse_program(case.source, options=case.options)
    facts = program.kernels[case.name]
    builder = GraphBuilder()
    keys: dict[int, int] = {}
    args: list[Argument] = []
    for index, argument in enumerate(ndrange.arguments):
        if isinstance(argument, Buffer):
            buffer = session.buffers.new(argument.nbytes, facts.arguments[index].name).buffer
            builder.adopt(buffer)
            keys[index] = buffer.key
            args.append(BufferArg(buffer.key))
        elif isinstance(argument, Same):
            args.append(BufferArg(keys[argument.index]))
        else:
            args.append(LocalArg(argument.nbytes) if isinstance(argument, Local) else np.asarray(argument).tobytes())
    of = [(a.key, facts.arguments[i]) for i, a in enumerate(args) if isinstance(a, BufferArg)]
    reads = tuple(dict.fromkeys(k for k, f in of if f.reads))
    writes = tuple(dict.fromkeys(k for k, f in of if f.writes))
    builder.add(
        Launch(
            case.name,
            program,
            facts,
            ndrange.global_size,
            ndrange.local_size,
            tuple(args),
            reads,
            writes,
            ndrange.offset or None,
        )
    )
    return Loaded(session, builder.build(), keys)


def divided(loaded: Loaded, dimension: int, groups: int, devices: int, chance: random.Random) -> list[Assignment]:
    count = min(groups, chance.randint(2, devices + 1))
    cuts = [0, *sorted(chance.sample(range(1, groups), count - 1)), groups]
    ranges = list(itertools.pairwise(cuts))
    chance.shuffle(ranges)
    return [Assignment(0, chance.randrange(devices), 0, 0.0, 0.0, dimension, a, b - a) for a, b in ranges]
