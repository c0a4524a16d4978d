"""The store in trouble: locked, full, killed in the middle, replaced by others; and one bad sample among good ones."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.machine import Device, Machine
from manycl.model.estimate import ModelEstimates
from manycl.model.history import store as module
from manycl.model.history.history import History, KernelKey, Shape
from manycl.model.history.learning import learn
from manycl.model.history.store import NAME, Store, StoreWarning
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from tests import environment

KEY = KernelKey("abc", "kernel", None)
SHAPE = Shape((64,), 1.0)


def learned(*seconds: float) -> History:
    history = History()
    for s in seconds:
        history.observe(KEY, SHAPE, "cpu", s)
    return history


def samples(folder: Path) -> list[float]:
    series = Store(folder).history().series(KEY, SHAPE, "cpu")
    return series.samples if series is not None else []


def test_a_file_that_somebody_keeps_locked_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path).save(learned(1.0))
    monkeypatch.setattr(module, "_WAIT", 0.05)
    other = sqlite3.connect(tmp_path / NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store, history = Store(tmp_path), learned(2.0)
    assert samples(tmp_path) == [1.0]  # who reads need not wait
    with pytest.warns(StoreWarning, match=r"locked.*neither read nor kept"):
        store.save(history)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        store.save(history)
        assert store.history().series(KEY, SHAPE, "cpu") is None
    other.execute("COMMIT")
    other.close()
    Store(tmp_path).save(history)  # nothing of what was learned is lost
    assert samples(tmp_path) == [1.0, 2.0]


def test_something_else_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    store = Store(tmp_path)
    with pytest.warns(StoreWarning, match="unable to open"):
        assert store.load(KEY.text) == []
    assert store.measurements() == {}
    store.save(learned(1.0))
    assert (tmp_path / NAME).is_dir()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path).save(learned(1.0))
    is_known = Store._is_known

    def small(self: Store, db: sqlite3.Connection) -> bool:
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        return is_known(self, db)

    monkeypatch.setattr(Store, "_is_known", small)
    history = History()
    for i in range(300):
        history.observe(KernelKey(f"text {i}" * 20, "kernel", None), SHAPE, "cpu", 1.0)
    with pytest.warns(StoreWarning, match="full"):
        Store(tmp_path).save(history)
    monkeypatch.undo()
    assert samples(tmp_path) == [1.0]
    assert len(Store(tmp_path).rows()) == 1  # all or nothing


KILLED = """
import sys
from pathlib import Path
from tests.model.test_store_trouble import learned
from manycl.model.history import store
def stop(*_):
    print("in the middle", flush=True)
    sys.stdin.read()
store._trim = stop
store.Store(Path({folder!r})).save(learned(*[9.0] * 20))
"""


def test_a_process_that_is_killed_while_it_saves_leaves_no_trace(tmp_path: Path) -> None:
    Store(tmp_path).save(learned(1.0))
    program = KILLED.format(folder=str(tmp_path))
    running = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "in the middle\n"
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert samples(tmp_path) == [1.0]
    Store(tmp_path).save(learned(2.0))
    assert samples(tmp_path) == [1.0, 2.0]


REPLACERS = """
import sys, warnings
from pathlib import Path
from tests.model.test_store_trouble import learned
from manycl.model.history.store import Store
sys.stdin.readline()
for i in range(5):
    Store(Path({folder!r})).save(learned({number} * 100.0 + i))
"""


def test_processes_that_find_the_file_damaged_at_once_move_it_once(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"this is no database" * 100)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", REPLACERS.format(folder=str(tmp_path), number=n)],
            env=environment(),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in (1, 2, 3)
    ]
    errors = []
    for process in running:  # all are loaded before any begins
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in running:
        errors.append(process.communicate(timeout=60)[1])
        assert process.returncode == 0, errors[-1]
    assert [p.name for p in tmp_path.glob("*.damaged-*")] == [f"{NAME}.damaged-1"]
    assert sum("damaged" in e for e in errors) >= 1
    assert sorted(samples(tmp_path)) == sorted(100.0 * n + i for n in (1, 2, 3) for i in range(5))


FACTS = KernelFacts("k", 1, ())
PROGRAM = ProgramFacts("k", (), {"k": FACTS})
TWINS = Machine(tuple(Device(f"cpu{i}", "cpu", launch_overhead=1e-6) for i in range(2)))


def many(count: int) -> Graph:
    """Kernels that may all run at the same time."""
    builder = GraphBuilder()
    for _ in range(count):
        key = builder.buffer(64)
        builder.add(Launch("k", PROGRAM, FACTS, (1 << 20,), None, (BufferArg(key),), (), (key,)))
    return builder.build()


@pytest.mark.parametrize("bad", [20.0, 1e4])
def test_one_bad_sample_does_not_idle_a_device(bad: float) -> None:
    """Whatever a device was seen to do once, ``auto`` gives it work again, and half of it soon."""
    graph, history = many(8), History()
    learn(history, graph, replace(TWINS, devices=TWINS.devices[1:]), [(0, 0, 0.01 * bad)])
    policy = find("auto")
    assert isinstance(policy, StaticPolicy)
    shares = []
    for _ in range(40):
        problem = Problem(graph, TWINS, ModelEstimates(graph, TWINS, history), (1, 1))
        used = [(a.node, a.device) for a in policy.plan(problem).assignments]
        shares.append(sum(d for _, d in used))
        learn(history, graph, TWINS, [(n, d, 0.01) for n, d in used])
    assert shares[-1] == 4
    assert shares.index(4) < 30
    assert set(shares[shares.index(4) :]) == {4}  # and never loses it again


def test_rows_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    history = learned(1.0, 2.0)
    history.observe(KernelKey("abc", "kernel", (16,)), SHAPE, "cpu", 4.0)
    Store(tmp_path).save(history)
    Store(tmp_path).measured("cpu", {"latency": 1e-6, "bandwidth": 1e9})
    damages = (
        ("UPDATE kernel SET local = '[1' WHERE local != ''", [1.0, 2.0], 2),
        ("UPDATE kernel SET local = '{}' WHERE local != ''", [1.0, 2.0], 2),
        ("UPDATE sample SET seconds = 'x' WHERE seconds = 2.0", [1.0], 2),
        ("UPDATE sample SET seconds = -1 WHERE seconds = 2.0", [1.0], 2),
        ("UPDATE series SET global = 'null' WHERE kernel = 1", None, 2),
        ("UPDATE series SET f = 'x' WHERE kernel = 1", None, 2),
        ("UPDATE series SET global = '[[64], [-1, 2, 4]]' WHERE kernel = 1", None, 2),
        ("UPDATE series SET global = '[[64], [0, 2, 0]]' WHERE kernel = 1", None, 2),
        ("UPDATE series SET global = '[[64], [0, 2]]' WHERE kernel = 1", None, 2),
        ("UPDATE series SET global = '[[64], 2]' WHERE kernel = 1", None, 2),
        ("UPDATE series SET global = '[[64' WHERE kernel = 1", None, 2),
        ("UPDATE machine SET value = 'x' WHERE name = 'latency'", [1.0, 2.0], 1),
    )
    good = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for damage, left, numbers in damages:
        for name, data in good.items():
            (tmp_path / name).write_bytes(data)
        db = sqlite3.connect(tmp_path / NAME, isolation_level=None)
        assert db.execute(damage).rowcount == 1
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        store = Store(tmp_path)
        with pytest.warns(StoreWarning, match="make no sense are ignored"):
            rows, measured = store.rows(), store.measurements()
        assert [list(r.stored.samples) for r in rows if r.key == KEY] == ([] if left is None else [left])
        assert len(measured["cpu"]) == numbers
        assert not list(tmp_path.glob("*.damaged*"))
