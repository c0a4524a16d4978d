"""What tests of runs share: a run by one's own plan, host code between runs, small windows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

import manycl as mc
from manycl.graph.graph import Graph
from manycl.plan.plan import Plan
from manycl.run.engine.result import Result

Numbers = npt.NDArray[np.int32]


def run_by(prepared: mc.Prepared, plan_for: Callable[[Graph], Plan]) -> Result:
    """Run a graph by one's own plan."""
    return prepared.queue.session.run(prepared.graph, plan_for(prepared.graph))


def host_code_between_runs(
    queue: mc.Queue,
    count: int,
    chance: random.Random,
    data: st.DataObject,
    run: Callable[[mc.Array, mc.Array, Numbers, Numbers], Any],
) -> None:
    """One to four times: run something on two of three arrays, or write to one (whole, or in place), or read one. Every
    array holds what NumPy says.

    ``run(a, b, x, y)`` runs on arrays a and b, whose contents are x and y, and does the same to x and y.
    """
    names = ("x", "y", "z")
    arrays = {n: queue.array(np.full(count, i, np.int32), name=n) for i, n in enumerate(names)}
    expected = {n: np.full(count, i, np.int32) for i, n in enumerate(names)}
    for _ in range(data.draw(st.integers(1, 4))):
        a, b = chance.sample(names, 2)
        what = data.draw(st.sampled_from(["run", "run", "set", "map", "get"]))
        if what == "set":
            expected[a][:] = chance.randrange(100)
            arrays[a].set(expected[a])
        elif what == "map":
            with arrays[a].map() as host:
                assert (host == expected[a]).all()
                host[5:9] = expected[a][5:9] = 7
        elif what == "get":
            assert (arrays[b].get() == expected[b]).all()
        else:
            run(arrays[a], arrays[b], expected[a], expected[b])
        queue.session.directory.validate(queue.session.machine.memories)
    for n in names:
        assert (arrays[n].get() == expected[n]).all(), n


def small_windows(more: Mapping[str, int]) -> Any:
    """A fixture for all tests of a module: windows also of a few bytes, and more numbers of ``manycl.run``."""
    numbers = {"tiling.windows.PAGE": 4, "tiling.windows.ELEMENT": 4, "tiling.windows.SMALL": 8, **more}

    @pytest.fixture(scope="module", autouse=True)
    def patched() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in numbers.items():
                patch.setattr(f"manycl.run.{name}", value)
            yield

    return patched
