"""Runs that try a plan and go on by another one, under chaos: results stay what they are."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.graph import Graph
from manycl.machine import Machine
from manycl.run.engine import run_history
from manycl.run.engine.trial import Fallback, TrialProgress
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.losses import AnyPlan, Loss
from tests.run.chaos.test_divided_chaos import graphs, plans, small_chunks
from tests.run.chaos.test_events_chaos import EXAMPLES, kept_anyhow
from tests.run.chaos.test_state import machines
from tests.run.chaos.transitions import validated

__all__ = ["kept_anyhow", "small_chunks", "validated"]  # fixtures of the module

SEEN = {"runs": 0, "given up": 0}


@settings(max_examples=EXAMPLES)
@given(data=st.data(), graph=graphs(), where=machines(), seed=st.integers(0, 2**32))
def test_trials_that_are_given_up_change_no_result(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    """They are at any time."""
    loss = Loss(data, graph, where)
    backend = ChaosBackend(where, seed, happening=loss.happening(data, data.draw(st.integers(0, 2))))
    plan, other = data.draw(plans(graph, where)), data.draw(plans(graph, where))
    loss.fallback, chance = Fallback(other, 1.0), random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_DETERMINISTIC", "0")
        patch.setattr(TrialProgress, "is_losing", lambda *_: chance.random() < 0.2)
        result = loss.run(AnyPlan(plan, seed), backend)
    assert not result.lost
    assert result.playback is not None
    assert result.playback.complete == len(result.playback.graph)
    SEEN["runs"] += 1
    SEEN["given up"] += any("as by" in told["changed"] for told in result.details.get(run_history.REPLANNED, ()))


def test_some_trials_were_given_up() -> None:
    if SEEN["runs"] >= EXAMPLES:  # and not in another process
        assert SEEN["given up"] > SEEN["runs"] / 20
