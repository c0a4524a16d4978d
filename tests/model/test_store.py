"""The store: what comes back, concurrent processes, damaged and foreign files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.model.history.catalogue import entries
from manycl.model.history.history import KEEP, PRIOR, History, KernelKey, Shape
from manycl.model.history.store import NAME, VERSION, Store, StoreWarning, default_folder
from manycl.model.occupancy import RANGES, LaunchRange
from tests import environment

KEY = KernelKey("abc", "kernel", (16, 4))
SHAPE = Shape((64, 64), 2.5)
DEVICE = "cpu; model; 2 units; platform; driver"
PROCESSES, SAVES = 4, 12


def save(folder: Path, *seconds: float, key: KernelKey = KEY, shape: Shape = SHAPE, device: str = DEVICE) -> Store:
    store = Store(folder)
    history = store.history()
    for s in seconds:
        history.next_run()
        history.observe(key, shape, device, s)
    store.save(history)
    return store


def samples(store: Store, key: KernelKey = KEY, shape: Shape = SHAPE, device: str = DEVICE) -> list[float]:
    series = store.history().series(key, shape, device)
    return series.samples if series is not None else []


@given(st.lists(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=6), max_size=5))
@settings(max_examples=15)
def test_sessions_add_to_one_another(tmp_path_factory: pytest.TempPathFactory, sessions: list[list[float]]) -> None:
    folder = tmp_path_factory.mktemp("store")
    for seconds in sessions:
        save(folder, *seconds)
    assert samples(Store(folder)) == [s for seconds in sessions for s in seconds]


def test_nothing_is_written_before_there_is_something_to_keep(tmp_path: Path) -> None:
    store = Store(tmp_path / "folder")
    assert store.load(KEY.text) == []
    assert store.ratios(DEVICE) == {}
    assert store.measurements() == {}
    store.save(store.history())
    assert not (tmp_path / "folder").exists()


def test_saving_twice_saves_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    history = store.history()
    history.observe(KEY, SHAPE, DEVICE, 1.0)
    store.save(history)
    store.save(history)
    history.observe(KEY, SHAPE, DEVICE, 2.0)
    store.save(history)
    assert samples(store) == [1.0, 2.0]


def test_kernels_shapes_and_devices_are_apart(tmp_path: Path) -> None:
    other = KernelKey("abc", "kernel", None)
    save(tmp_path, 1.0)
    save(tmp_path, 2.0, key=other)
    save(tmp_path, 3.0, shape=Shape((64, 64), 3.0))
    store = save(tmp_path, 4.0, device="gpu")
    assert samples(store) == [1.0]
    assert samples(store, key=other) == [2.0]
    assert samples(store, shape=Shape((64, 64), 3.0)) == [3.0]
    assert samples(store, device="gpu") == [4.0]
    assert len(store.rows()) == 4
    assert len(store.rows(device="GPU")) == 1
    assert store.rows(kernel="other") == []
    assert store.forget(device="gpu") == 1
    assert store.forget(kernel="kernel") == 3
    assert store.rows() == []
    assert samples(store) == []


def test_the_latest_are_kept(tmp_path: Path) -> None:
    for i in range(4):
        store = save(tmp_path, *[float(i * 20 + j + 1) for j in range(20)])
    assert samples(store) == [float(i) for i in range(81 - KEEP - 1, 81)]


def test_a_device_that_stays_idle_is_remembered_as_such(tmp_path: Path) -> None:
    store = Store(tmp_path)
    save(tmp_path, 9.0)
    history = store.history()
    for _ in range(5):
        history.next_run()
        history.observe(KEY, SHAPE, "gpu", 1.0)
    store.save(history)
    again = store.history()
    again.next_run()
    again.observe(KEY, SHAPE, "gpu", 1.0)
    assert again.idle(KEY, SHAPE, DEVICE) == 6


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8), st.floats(1e-9, 1e3)), min_size=1, max_size=8))
@settings(max_examples=15)
def test_ranges_come_back_and_are_no_launches(
    tmp_path_factory: pytest.TempPathFactory, ran: list[tuple[int, int, float]]
) -> None:
    folder, expected = tmp_path_factory.mktemp("store"), dict[LaunchRange, list[float]]()
    save(folder, 1.0)
    for first, groups, seconds in ran:
        where = LaunchRange(first, groups, 16)
        expected.setdefault(where, []).append(seconds)
        save(folder, seconds, shape=SHAPE._replace(range=where))
    store = Store(folder)
    here = store.history().on(KEY, DEVICE)
    assert here is not None
    assert {s.range: series.samples for s, series in here.series.items() if s.range} == expected
    assert {where for where, _ in here.ranges(SHAPE)} == set(expected)
    assert samples(store) == [1.0]
    assert [launched.samples for launched in entries(store)[0].launches] == [(1.0,)]


def test_a_file_keeps_the_latest_ranges_and_all_launches(tmp_path: Path) -> None:
    for first in range(RANGES + 3):
        save(tmp_path, 1.0, shape=SHAPE._replace(range=LaunchRange(first, 1, 64)))
    save(tmp_path, 1.0)
    here = Store(tmp_path).history().on(KEY, DEVICE)
    assert here is not None
    assert [where.first for where, _ in here.ranges(SHAPE)] == list(range(3, RANGES + 3))
    assert list(here.launches) == [SHAPE]


@pytest.mark.parametrize("runs", [1, 4, 5, 7, KEEP])
def test_models_are_fitted_to_what_comes_back(tmp_path: Path, runs: int) -> None:
    for items in (64, 128, 256, 512):
        save(tmp_path, *[items * 1e-6] * runs, shape=Shape((items,), 1.0))
    here = Store(tmp_path).history().on(KEY, DEVICE)
    assert here is not None
    regression, interpolation = here.models()
    assert regression is not None
    assert interpolation is not None
    assert regression.seconds(1024, 1024) == pytest.approx(1024e-6)
    (entry,) = entries(Store(tmp_path))
    assert entry.model in ("regression", "interpolation")
    assert entry.error_percent == pytest.approx(0, abs=1e-6)


def test_a_list_names_the_model_that_is_believed(tmp_path: Path) -> None:
    for items in (64, 128, 256, 512):
        save(tmp_path, *[items * 1e-6] * 2, shape=Shape((items,), 1.0))
    store = Store(tmp_path)
    history = store.history()
    for model, predicted in (("regression", 2.0), ("interpolation", 1.1)):
        for _ in range(3):
            history.compare(KEY, DEVICE, model, predicted, 1.0)
    history.observe(KEY, SHAPE, DEVICE, 1.0)
    store.save(history)
    (entry,) = entries(store)
    assert entry.model == "interpolation"
    assert entry.error_percent == pytest.approx(10)
    assert entry.errors == {"regression": (pytest.approx(100), 3), "interpolation": (pytest.approx(10), 3)}


def test_comparisons_come_back(tmp_path: Path) -> None:
    store = save(tmp_path, 1.0)
    history = store.history()
    history.compare(KEY, DEVICE, PRIOR, 2.0, 1.0)
    for _ in range(3):
        history.compare(KEY, DEVICE, "regression", 1.1, 1.0)
    store.save(history)
    here = store.history().on(KEY, DEVICE)
    assert here is not None
    assert here.error("regression") == pytest.approx(0.1)
    assert here.error("interpolation") is None
    assert store.history().ratios(DEVICE) == {KEY: 0.5}


def test_measurements_of_devices(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.measured(DEVICE, {"flops": 1.0, "bandwidth": 2.0})
    store.measured(DEVICE, {"flops": 3.0})
    store.measured("gpu", {"flops": 4.0})
    assert store.measurements() == {DEVICE: {"flops": 3.0, "bandwidth": 2.0}, "gpu": {"flops": 4.0}}
    assert store.forget_measurements("GPU") == 1
    assert store.measurements() == {DEVICE: {"flops": 3.0, "bandwidth": 2.0}}


WRITER = """
from pathlib import Path
from tests.model.test_store import SAVES, save
for i in range(SAVES):
    save(Path({folder!r}), float({number} * 1000 + i + 1))
"""


def test_processes_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER.format(folder=str(tmp_path), number=n)],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(PROCESSES)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    found = samples(Store(tmp_path))
    total = PROCESSES * SAVES
    assert len(found) == min(total, KEEP + 1)
    for n in range(PROCESSES):
        own = [s for s in found if n * 1000 < s <= n * 1000 + SAVES]
        assert own == sorted(own)
    with sqlite3.connect(tmp_path / NAME) as db:
        assert db.execute("SELECT max(id) FROM sample").fetchone()[0] == total  # every one was written once
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    db.close()


@pytest.mark.parametrize("contents", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_kept_aside_and_a_new_one_begun(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / NAME).write_bytes(contents)
    store = Store(tmp_path)
    with pytest.warns(StoreWarning, match=r"damaged.*kept as models\.sqlite\.damaged-1"):
        assert store.load(KEY.text) == []
    assert (tmp_path / f"{NAME}.damaged-1").read_bytes() == contents
    save(tmp_path, 1.0)
    assert samples(store) == [1.0]


def test_damage_in_the_middle_is_noticed_and_an_earlier_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.damaged-1").write_text("earlier")
    for i in range(40):
        save(tmp_path, *[1.0] * 20, key=KernelKey(f"text {i}", "kernel", None))
    with sqlite3.connect(tmp_path / NAME) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    data = bytearray((tmp_path / NAME).read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 100] = b"\xaa" * 100
    (tmp_path / NAME).write_bytes(bytes(data))
    with pytest.warns(StoreWarning, match="damaged-2"):
        save(tmp_path, 1.0)
    assert (tmp_path / f"{NAME}.damaged-1").read_text() == "earlier"
    assert (tmp_path / f"{NAME}.damaged-2").read_bytes() == bytes(data)
    save(tmp_path, 2.0)
    assert samples(Store(tmp_path))[-1] == 2.0


def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    save(tmp_path, 1.0)
    with sqlite3.connect(tmp_path / NAME) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = (tmp_path / NAME).read_bytes()
    store = Store(tmp_path)
    with pytest.warns(StoreWarning, match="another version"):
        assert store.load(KEY.text) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        history = History()
        history.observe(KEY, SHAPE, DEVICE, 1.0)
        store.save(history)
    assert (tmp_path / NAME).read_bytes() == before


def test_where_nothing_can_be_written_everything_else_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = Store(tmp_path / "file")
    history = store.history()
    history.observe(KEY, SHAPE, DEVICE, 1.0)
    with pytest.warns(StoreWarning, match="not kept"):
        store.save(history)
    store.save(history)


def test_the_folder_is_the_environments_else_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.setenv("MANYCL_DATA", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert default_folder().name == "manycl"
