"""``peft``: the device where a kernel ends early and its successors can end early, too. H. Arabnejad and J. G. Barbosa,
"List scheduling algorithm for heterogeneous systems by an optimistic cost table", IEEE TPDS 25(3), 2014 (Predict
Earliest Finish Time), with insertion into gaps."""

from __future__ import annotations

from manycl.plan.options import Options
from manycl.plan.plan import Plan
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.insertion import CONTENTION, Setting, ready_order, setting
from manycl.plan.timeline.delays import Delays, after
from manycl.plan.timeline.timeline import Schedule


def schedule(given: Setting) -> Schedule:
    """Return PEFT's schedule."""
    view = given.view
    table = optimistic_costs(view)
    rank = [sum(row[d] for d in places) / len(places) for places, row in zip(view.places, table, strict=True)]
    board = given.board()
    for node in ready_order(given, rank):
        board.put(node, view.places[node], table[node])
    return board.schedule()


def optimistic_costs(view: Delays) -> list[list[float]]:
    """Return the optimistic cost table: ``[n][d]``, seconds from the end of node n on device d to the end of the graph,
    were every successor free to take its best device (Eq. 4 there; delays are means where the device changes)."""
    following = after(view)
    width = len(view.seconds[0]) if view.seconds else 0
    table = [[0.0] * width for _ in view.before]
    for node in range(len(table) - 1, -1, -1):
        for s, matrix in following[node]:
            delay = view.mean(node, s, matrix)
            costs = {q: table[s][q] + view.seconds[s][q] for q in view.places[s]}
            elsewhere = min(costs.values()) + delay
            for d in view.places[node]:
                table[node][d] = max(table[node][d], min(costs.get(d, elsewhere), elsewhere))
    return table


@register("peft")
class Peft:
    """Predict earliest finish time; option ``contention``."""

    options = Options("peft", CONTENTION)

    def plan(self, problem: Problem) -> Plan:
        given = setting(problem, "peft", self.options.read(problem.options)[CONTENTION])
        return given.plan("peft", schedule(given))
