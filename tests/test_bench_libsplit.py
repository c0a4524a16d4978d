"""The applications of Libsplit's experiments: what they compute, on a device and in NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import manycl as mc
from manycl.bench.libsplit import own
from manycl.bench.libsplit.registry import APPLICATIONS
from manycl.front.runner import relative_error


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/1+1", policy="auto") as found:
        yield found


@pytest.mark.parametrize("name", APPLICATIONS)
def test_two_repetitions_are_as_in_numpy(name: str, queue: mc.Queue) -> None:
    entry = APPLICATIONS[name]
    application = entry.make(entry.small)
    assert application.name == name
    arrays = application.allocate(queue)
    contents = {k: v.copy() for k, v in application.arrays.items()}
    for turn in range(2):
        if turn and application.between is not None:
            for changed in application.between(contents, turn):
                arrays[changed].set(contents[changed])
        application.enqueue(queue, arrays)
    for key, wanted in application.expected(2).items():
        result = arrays[key].get()
        assert not np.array_equal(wanted, application.arrays[key])
        if application.tolerance == 0.0:
            assert np.array_equal(result, wanted)
        else:
            assert relative_error(result, wanted) <= application.tolerance, key


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
