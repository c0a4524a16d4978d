"""What every estimate can be asked, and that who wraps others forgets nothing of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import pytest

from manycl.analysis import parse_program
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.machine import Device, Link, Machine
from manycl.model import estimate, predictor
from manycl.model.counts import Counts
from manycl.model.estimate import History, ModelEstimates
from manycl.model.estimates import Ends, Estimates, Slowed, Wrapped
from manycl.model.history.history import Shape, identity, kernel_key
from manycl.model.occupancy import LaunchRange, RangeCosts, Waves
from manycl.model.predictor import Predictor
from manycl.model.transfer import TransferModel
from manycl.model.work import work_of
from manycl.utilities.unforeseen import UnforeseenWarning

PROGRAM = parse_program("kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }")
MACHINE = Machine(
    (Device("cpu0", "cpu", compute_units=4), Device("gpu0", "gpu", memory=1, compute_units=10)),
    (Link(0, 1, 1e-5, 1e10), Link(1, 0, 1e-5, 1e10)),
)
ENTRIES = (
    *((Predictor, name) for name in ("__init__", "row", "traffic", "alone")),
    (predictor, "prior"),
    *((Counts, name) for name in ("__init__", "work")),
    *((TransferModel, name) for name in ("__init__", "seconds", "slowdowns", "contended")),
    *((Waves, "length"), (RangeCosts, "part"), (RangeCosts, "relative")),
    *(
        (estimate, name)
        for name in ("launch_kind", "buffer_bytes", "waves_of", "learned", "local_bytes", "first_slice")
    ),
)


def asked() -> set[str]:
    """Everything that estimates may be asked."""
    return {name for name in vars(Estimates) if not name.startswith("_")}


class Odd(Estimates):
    """Answers that nobody else gives."""

    contended = True

    is_counted = True

    def launch(self, node: int, device: int) -> float:
        return 1.5

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 2.5

    def groups(self, node: int, device: int, count: int, of: int) -> float | None:
        return 3.5

    def together(self, nodes: Sequence[int], device: int) -> float:
        return 8.5

    def uncounted(self) -> Estimates:
        return self

    def for_graph(self, graph: Graph) -> None:
        return None

    def version(self, node: int, device: int) -> int:
        return 4

    def doubt(self, node: int, devices: Sequence[int]) -> float:
        return 5.5

    def is_measured(self, node: int, device: int) -> bool:
        return False

    def off(self, node: int, devices: Sequence[int]) -> float:
        return 9.5

    def relative(self, node: int, device: int, where: LaunchRange) -> float:
        return 11.5

    def waves(self, node: int, device: int, of: int) -> float:
        return 12.5

    def first_slice(self, node: int, device: int) -> float | None:
        return 10.5

    def traffic(self, node: int, device: int) -> float:
        return 6.5

    def slowdowns(self, ends: Sequence[Ends], most: Sequence[float]) -> list[float]:
        return [7.5] * len(ends)


ARGUMENTS = {
    "node": 0,
    "device": 0,
    "count": 1,
    "of": 2,
    "where": LaunchRange(0, 1, 2),
    "nbytes": 8,
    "source": 0,
    "target": 1,
    "devices": [0, 1],
    "nodes": [0, 1],
    "graph": Graph((), {}, ()),
}


def answers(estimates: Estimates, device: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in asked():
        what = getattr(estimates, name)
        if callable(what):
            known = {**ARGUMENTS, "ends": [(0, 1), (1, 0)], "most": [math.inf] * 2, "device": device}
            what = what(*(known[p] for p in inspect.signature(what).parameters))
        found[name] = what
    return found


def test_who_wraps_estimates_keeps_all_that_they_say() -> None:
    class Mine(Wrapped):
        def launch(self, node: int, device: int) -> float:
            return 9.0

    wrapped, mine = Wrapped(Odd()), Mine(Odd())
    given = answers(Odd())
    assert asked() <= set(vars(Odd)), "a new question: give Odd an answer of its own"
    assert answers(wrapped) == {**given, "uncounted": wrapped}, "as it is, where nothing is counted"
    assert answers(mine) == {**given, "uncounted": mine, "launch": 9.0}


def test_who_wraps_estimates_that_count_keeps_what_it_adds_without_counting() -> None:
    counted = model(History())
    rough, slowed = counted.uncounted(), Slowed(counted, {1: 3.0})
    assert [rough.launch(0, d) for d in (0, 1)] != [counted.launch(0, d) for d in (0, 1)]
    found = slowed.uncounted()
    assert [found.launch(0, d) for d in (0, 1)] == [rough.launch(0, 0), 3.0 * rough.launch(0, 1)]
    assert [slowed.launch(0, d) for d in (0, 1)] == [counted.launch(0, 0), 3.0 * counted.launch(0, 1)]


def model(history: History) -> ModelEstimates:
    """The estimates for two launches."""
    builder = GraphBuilder()
    builder.buffer(1 << 22)
    builder.add(launch())
    builder.add(launch())
    return ModelEstimates(builder.build(), MACHINE, history)


def launch() -> Launch:
    return Launch("twice", PROGRAM, PROGRAM.kernels["twice"], (1 << 20,), (64,), (BufferArg(0),), (0,), (0,))


@pytest.mark.parametrize(("owner", "name"), ENTRIES, ids=[f"{o.__name__}.{n}" for o, n in ENTRIES])
def test_where_models_fail_every_question_has_an_answer(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("at a loss")

    known, task = History(), launch()
    shape = Shape(task.global_size, work_of(task, task).f, ARGUMENTS["where"])
    known.observe(kernel_key(task), shape, identity(MACHINE.devices[1]), 1e-3)
    monkeypatch.setattr(owner, name, fails)
    with pytest.warns(UnforeseenWarning, match="at a loss"):
        found = [answers(model(history), device) for history in (known, History()) for device in (0, 1)]
    assert all(answer["launch"] > 0.0 for answer in found)


def test_what_nobody_knows() -> None:
    class Least(Estimates):
        def launch(self, node: int, device: int) -> float:
            return 1.0

        def transfer(self, nbytes: int, source: int, target: int) -> float:
            return 0.0

    found = answers(Least())
    assert [found[name] for name in ("groups", "together", "version", "doubt", "traffic")] == [None, 2.0, 0, 0.0, 0.0]
    assert (found["slowdowns"], found["contended"]) == ([1.0, 1.0], False)
