"""The applications of Libsplit's experiments: what they compute, on a device and in NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache

import numpy as np
import pytest

import manycl as mc
from manycl.applications.runner import relative_error
from manycl.graph.graph import Graph
from manycl.plan.policies.adaptive import Adaptive
from manycl.plan.policy import Timed
from manycl_bench.libsplit import own
from manycl_bench.libsplit.application import Application
from manycl_bench.libsplit.registry import APPLICATIONS

REPETITIONS = 3
LONG_COMPILED = ("AESEncrypt",)
"""What the compiler of native devices takes a quarter of a minute for: vectors of whole rounds of look-ups."""


class Skewed(Adaptive):
    """Is told that one device is three times as slow as another, so that what follows the first execution of a kernel,
    which is even, is not."""

    def observe(self, graph: Graph, durations: Iterable[Timed], waits: Iterable[Timed] | None = None) -> None:
        slow = random.Random(graph.name).sample([1.0, 1.7, 3.0], 3)
        shares = self.shares(graph)
        super().observe(graph, [(n, d, c * slow[d]) for n, of in shares.items() for d, c in of.items()])


@pytest.fixture(scope="module")
def queues() -> Iterator[Callable[[str], tuple[mc.Queue, mc.Queue]]]:
    """Of three devices, and of one of them, by which they are: they are opened once."""
    options = {"first": "uniform"}
    with ExitStack() as stack:

        @cache
        def opened(devices: str) -> tuple[mc.Queue, mc.Queue]:
            three = stack.enter_context(mc.Queue(devices, policy=Skewed(), options=options))
            return three, stack.enter_context(mc.Queue(f"{devices}#0", policy="in_order"))

        yield opened


def run(application: Application, queue: mc.Queue) -> tuple[dict[str, np.ndarray], set[tuple[int, ...]]]:
    """The results, and how many groups the ranges of the last kernel had, each time."""
    arrays = application.allocate(queue)
    contents = {k: v.copy() for k, v in application.arrays.items()}
    with queue.prepare() as prepared:
        application.enqueue(queue, arrays)
    divisions: set[tuple[int, ...]] = set()
    for turn in range(REPETITIONS):
        if turn and application.between is not None:
            for changed in application.between(contents, turn):
                arrays[changed].set(contents[changed])
        result = prepared.run()
        divisions.add(tuple(m.step.groups for m in result.ranges(len(prepared.graph) - 1)))
    return {key: arrays[key].get() for key in application.results}, divisions


@pytest.mark.parametrize("name", APPLICATIONS)
def test_results_are_numpys_and_bit_for_bit_one_devices(
    name: str, queues: Callable[[str], tuple[mc.Queue, mc.Queue]]
) -> None:
    entry = APPLICATIONS[name]
    three, one = queues("opencl/3" if name in LONG_COMPILED else "cpu/3")
    application = entry.make(entry.small)
    assert application.name == name
    found, divisions = run(application, three)
    alone, _ = run(application, one)
    assert any(max(groups) - min(groups) > 1 for groups in divisions if groups)
    for key, wanted in application.expected(REPETITIONS).items():
        assert not np.array_equal(wanted, application.arrays[key])
        assert np.array_equal(found[key], alone[key]), key
        assert relative_error(found[key], wanted) <= application.tolerance, key


def test_aes_is_the_standards() -> None:
    """FIPS 197, Appendix C.1."""
    contents = {
        "plain": np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff"), np.uint8),
        "keys": own.round_keys(np.arange(16, dtype=np.uint8)),
        "sbox": own.sbox(),
    }
    own._encrypt(contents)
    assert contents["cipher"].tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_the_crowd_moves_and_stays_sorted() -> None:
    application = own.nbody(2000)
    contents = {k: v.copy() for k, v in application.arrays.items()}
    assert application.between is not None
    before = contents["body"][np.flatnonzero(contents["number"] == 0)[0], 0]
    for turn in range(1, 40):
        work = (contents["last"] - contents["first"]).reshape(4, -1).sum(1)
        assert work.max() > 2 * work.min()  # the paper: up to a factor of three between quarters
        application.between(contents, turn)
        assert np.all(np.diff(contents["body"][:, 0]) >= 0)
        assert sorted(contents["number"]) == list(range(2000))
    after = contents["body"][np.flatnonzero(contents["number"] == 0)[0], 0]
    assert (after - before) % 1.0 == pytest.approx(39 * own.DT * 0.5, abs=1e-4)
