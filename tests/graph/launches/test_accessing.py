"""Launches that differ only in scalars on which it does not depend what they access are looked at once."""

from __future__ import annotations

import numpy as np
import pytest

from manycl.analysis import parse_program, service
from manycl.analysis.regions import enclosure
from manycl.graph.division import Division
from manycl.graph.graph import BufferArg, BufferKey, Launch
from manycl.plan import splitting
from manycl.utilities.kept import Kept

PROGRAM = parse_program("""
kernel void add(global int *x, int by, float f) { x[get_global_id(0)] += by * f; }
kernel void shifted(global int *x, int at, int by) { x[get_global_id(0) + at] = by; }
kernel void guarded(global int *x, int n, int by) { if (get_global_id(0) < n) x[get_global_id(0)] = by; }
kernel void tile(global int *x, int at, int n) { int i = get_global_id(0) + at; if (i < n) x[i] = at; }
kernel void looped(global int *x, int n, int by) {
    for (int k = 0; k < n; k++) x[get_global_id(0) * 4 + k] = by;
}
kernel void left(global int *x, int by) { if (by > 3) return; x[get_global_id(0)] = by; }
""")
ITEMS, GROUP, X = 64, 16, BufferKey(0)
SIZES = {X: 4 * 4 * ITEMS}


def launch(name: str, *scalars: np.generic) -> Launch:
    args = BufferArg(X), *(s.tobytes() for s in scalars)
    return Launch(name, PROGRAM, PROGRAM.kernels[name], (ITEMS,), (GROUP,), args, (X,), (X,))


@pytest.mark.parametrize(
    ("name", "scalars", "decide"),
    [
        ("add", (np.int32(1), np.float32(2)), set()),
        ("shifted", (np.int32(1), np.int32(2)), {1}),
        ("guarded", (np.int32(1), np.int32(2)), {1}),
        ("looped", (np.int32(1), np.int32(2)), {1}),
        ("left", (np.int32(1),), {1}),
    ],
)
def test_what_is_known_of_one_is_known_of_all_that_access_the_same(
    name: str, scalars: tuple[np.generic, ...], decide: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Division(launch(name, *scalars), 0, SIZES)
    for i, value in enumerate(scalars):
        other = *scalars[:i], type(value)(3), *scalars[i + 1 :]
        with monkeypatch.context() as patched:
            patched.setattr(service, "_families", Kept(1))  # launches that access the same moved are others' tests
            second = Division(launch(name, *other), 0, SIZES)
        assert (second.facts is first.facts) == (i + 1 not in decide), (name, i)
        assert second.launch.args[i + 1] == other[i].tobytes()


def test_the_scalars_that_decide_are_looked_at_each() -> None:
    divisions = [Division(launch("shifted", np.int32(at), np.int32(5)), 0, SIZES) for at in (0, 4)]
    found = [division.access(division.range(1, 1))[X].writes.intervals for division in divisions]
    assert [list(map(tuple, f)) for f in found] == [[(64, 128)], [(80, 144)]]


def test_guards_that_all_work_items_pass_move_with_a_launch() -> None:
    """The last one of a loop over tiles stops in its middle: it is looked at for itself."""
    given = [launch("tile", np.int32(at), np.int32(4 * ITEMS)) for at in (0, 64, 128, 192, 200, 300)]
    divisions = [Division(one, 0, SIZES) for one in given]
    assert [d.facts is divisions[0].facts for d in divisions] == [True, True, True, True, False, False]
    written = [d.access(d.range(1, 3))[X].writes.intervals for d in divisions]
    assert [list(map(tuple, w)) for w in written[:5]] == [
        [(4 * at + 64, min(4 * at + 256, 1024))] for at in (0, 64, 128, 192, 200)
    ]
    assert not list(written[5])


def test_few_launches_of_a_loop_are_looked_at_whether_they_stay_in_their_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, stays = list[int](), enclosure.stays
    monkeypatch.setattr(enclosure, "stays", lambda *of: looked.append(1) or stays(*of))
    monkeypatch.setattr(service, "_families", Kept(1))
    divisions = [Division(launch("shifted", np.int32(at), np.int32(5)), 0, SIZES) for at in range(200)]
    facts = [d.facts is divisions[0].facts for d in divisions]
    assert facts == [at <= 3 * ITEMS for at in range(200)], "the last ones leave the buffer"
    assert len(looked) < 40


def test_a_loop_with_a_counter_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    launched = service.launched

    def counted(program: object, kernel: str, known: object) -> object:
        asked.append(repr(known.key))  # type: ignore[attr-defined]
        return launched(program, kernel, known)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "launched", counted)
    found = [splitting.split_of(launch("add", np.int32(n), np.float32(n)), SIZES) for n in range(100, 120)]
    assert len({repr(f) for f in found}) == 1
    assert not isinstance(found[0], str)
    assert len(set(asked)) <= 1
