"""The numbers of queues, and of heads on the processor, that ``clustering`` finds: about as good as the best of all."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import pytest

from manycl.applications.load import load_application
from manycl.applications.planning import described_machine, problem_of
from manycl.plan.policies.papers.clustering import Clustering
from manycl.plan.problem import Problem
from manycl.run.simulation.simulate import simulate
from tests import ROOT


def attention(machine: str, heads: int, beta: int) -> Problem:
    where = ROOT / "manycl/examples/transformer/transformer.json"
    application = load_application(where, {"H": str(heads), "beta": str(beta)})
    return problem_of(application, described_machine(machine), {}, {"queues": "auto"})[0]


@pytest.mark.parametrize(
    ("machine", "heads", "beta"), [("pyschedcl", 2, 256), ("pyschedcl", 8, 64), ("mkmd", 8, 64), ("mkmd", 6, 256)]
)
def test_no_configuration_that_the_paper_would_try_ends_much_earlier(machine: str, heads: int, beta: int) -> None:
    asked = attention(machine, heads, beta)
    on_cpu = [d.kind == "cpu" for d in asked.machine.devices]
    found = [
        simulate(asked, Clustering((tuple(1 if c else q for c in on_cpu), tuple(h if c else inf for c in on_cpu))))
        for q, h in product((1, 2, 3, 5), (0, 1, inf))
    ]
    policy = Clustering()
    assert simulate(asked, policy).makespan <= 1.03 * min(trace.makespan for trace in found)
    known = policy.known
    assert known is not None
    assert simulate(asked, policy).makespan == simulate(asked, Clustering(known[1])).makespan
    assert policy.known is known, "of a graph that runs again it is known"


def test_where_nothing_can_be_foreseen_queues_stay() -> None:
    asked = replace(attention("mkmd", 2, 64), foresee=None)
    policy = Clustering()
    assert simulate(asked, policy) == simulate(replace(asked, options={}), Clustering())
    assert policy.known is None
