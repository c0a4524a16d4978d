"""What a run that does not fit asks of its devices, against a model that knows only commands and reports: random graphs
of pieces, windows and limits, in any legal order of events. Nothing makes way, moves or waits without need, nothing
that somebody needs is lost, and what could be enqueued is not held back."""

from __future__ import annotations

import pytest
from little_room_cases import Case
from little_room_model import Model, alone, begun, check

from manycl.errors import ResultError
from manycl.plan.plan import ON_HOST

SEEDS = 600
NBYTES = 4  # of a piece
Place = tuple[int, int]  # a device and one of its stores
ON_THE_HOST = ON_HOST, 0


def run(case: Case, seed: int) -> None:
    state, backend, directory = begun(case, seed)
    model = Model(case)
    for commands in (state.start(0.0), state.handle()):
        state.validate()
        model.perform(commands)
        backend.perform(commands)
    while not state.finished:
        model.judge()
        reports = backend.wait()
        model.heard(reports)
        commands = state.handle(*reports)
        state.validate()
        model.perform(commands)
        backend.perform(commands)
    backend.finish()
    state.close()
    assert directory.valid == model.end()
    check(case, directory, backend, alone(case, range(len(case.graph))))


@pytest.mark.parametrize("nodes", [8, 30])
def test_in_little_room_nothing_makes_way_moves_or_waits_without_need(nodes: int) -> None:
    for seed in range(SEEDS if nodes < 20 else SEEDS // 4):
        try:
            run(Case(seed, nodes), seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_of_a_run_that_is_stopped_nothing_is_lost_that_is_known_to_be_there() -> None:
    for seed in range(SEEDS // 2):
        try:
            stopped(Case(seed, 12), seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def stopped(case: Case, seed: int) -> None:
    """Whatever has been enqueued still runs; what has not been reported is not counted on."""
    state, backend, directory = begun(case, seed)
    model, left = Model(case), seed % 7
    for commands in (state.start(0.0), state.handle()):
        model.perform(commands)
        backend.perform(commands)
    while not state.finished and left:
        left -= 1
        reports = backend.wait()
        model.heard(reports)
        commands = state.handle(*reports)
        model.perform(commands)
        backend.perform(commands)
    for key, memory in state.unfinished_copies():
        directory.drop(key, memory)
    for key in state.unfinished_writes():
        directory.lose(key, "it was stopped")
    state.close()
    backend.finish()
    unknown = {
        p for n in model.given if n < len(case.graph) and n not in model.known for p in case.graph.nodes[n].writes
    }
    for p in case.whole:
        known = model.known_places(p) if p not in unknown else 0
        assert directory.valid.get(p, 0) == known, f"piece {p}"
        if p not in case.own and not known and (p in case.valid or p in model.writer):
            gone = "before a kernel had overwritten"
            reason = f"stopped|{gone}" if p in unknown else gone if p in model.gone else "come back"
            with pytest.raises(ResultError, match=reason):
                directory.check(p)
        elif known:
            directory.check(p)
    check(case, directory, backend, alone(case, [n for n in range(len(case.graph)) if n in model.given]))
