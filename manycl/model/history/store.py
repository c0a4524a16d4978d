"""The store: measurements that outlive a session, in one SQLite file in the user's data folder. Samples are only ever
added, so processes that save at the same time lose nothing of each other's; SQLite's write-ahead log lets others read
meanwhile. A damaged file is moved aside, not deleted, and a new one begun; a file of another version is left alone, and
nothing is stored."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from manycl import flags
from manycl.model.history import store_rows
from manycl.model.history.history import KEEP, PRIOR, SHAPES, Comparison, History, KernelKey, OnDevice, Shape
from manycl.model.history.store_rows import KernelSeries as KernelSeries
from manycl.model.occupancy import RANGES
from manycl.utilities.runtime_folder import lasting_folder

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
VERSION = 1  # version of the tables below
NAME = "models.sqlite"
_WAIT = 10.0  # seconds that a process waits for others to finish writing; our own choice
_TABLES = """
CREATE TABLE kernel (
    id INTEGER PRIMARY KEY, text TEXT NOT NULL, name TEXT NOT NULL, local TEXT NOT NULL, UNIQUE (text, name, local));
CREATE TABLE series (
    id INTEGER PRIMARY KEY, kernel INTEGER NOT NULL REFERENCES kernel ON DELETE CASCADE, device TEXT NOT NULL,
    global TEXT NOT NULL, f REAL NOT NULL, idle INTEGER NOT NULL DEFAULT 0, UNIQUE (kernel, device, global, f));
CREATE TABLE sample (
    id INTEGER PRIMARY KEY AUTOINCREMENT, series INTEGER NOT NULL REFERENCES series ON DELETE CASCADE,
    seconds REAL NOT NULL, at REAL NOT NULL);
CREATE INDEX sample_of ON sample (series);
CREATE TABLE comparison (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kernel INTEGER NOT NULL REFERENCES kernel ON DELETE CASCADE,
    device TEXT NOT NULL, model TEXT NOT NULL, predicted REAL NOT NULL, measured REAL NOT NULL, at REAL NOT NULL);
CREATE INDEX comparison_of ON comparison (kernel, device);
CREATE TABLE machine (
    subject TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL, at REAL NOT NULL, PRIMARY KEY (subject, name));
"""


class StoreWarning(UserWarning):
    """The warning that measurements cannot be read or kept; everything else works."""


class Store:
    """The store in a folder (None: :func:`default_folder`). Every call opens the file anew."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder if folder is not None else default_folder()) / NAME
        self._off = False  # set after a failure that trying again does not cure
        self._told = False  # whether it was said that rows are damaged

    # for sessions

    def load(self, text: str) -> list[KernelSeries]:
        """Return all series of a program's kernels, for :class:`manycl.model.history.history.History`. ``text``: the
        hash of the program's text."""
        return self._rows("WHERE kernel.text = ?", (text,))

    def ratios(self, device: str) -> dict[KernelKey, float]:
        """Return measured time over first guess for every kernel that ran on a device."""
        query = """SELECT text, name, local, measured / predicted FROM comparison JOIN kernel ON kernel.id = kernel
                   WHERE device = ? AND model = ? ORDER BY comparison.id"""
        return dict(self._found(store_rows.ratio, query, (device, PRIOR)))

    def history(self) -> History:
        """Return a history that reads from this store as it is needed."""
        return History(self.load, self.ratios)

    def save(self, history: History) -> None:
        """Add what a history has learned since it was last saved. File errors never raise."""
        new = {key for key, _, here in history.items() if here.unsaved or any(s.unsaved for s in here.series.values())}
        # also launches that did not run: that they were idle
        changed = [(key, device, here) for key, device, here in history.items() if key in new]
        if not changed:
            return
        if not self._write(lambda db: _save(db, history, changed), False):
            return
        for _, _, here in changed:
            here.unsaved.clear()
            for series in here.series.values():
                series.unsaved.clear()

    # devices and links

    def measurements(self) -> dict[str, dict[str, float]]:
        """Return the measurements of devices and links: by subject (a device's identity, or a subject of
        ``manycl devices --measure``), by name, in the units of :mod:`manycl.machine`."""
        out: dict[str, dict[str, float]] = {}
        for subject, name, value in self._found(store_rows.measured, "SELECT subject, name, value FROM machine"):
            out.setdefault(subject, {})[name] = value
        return out

    def last_measured(self) -> dict[str, float]:
        """Return when the latest number of each subject was measured, by ``time.time``."""
        query = "SELECT subject, '', max(at) FROM machine GROUP BY subject"
        return {subject: at for subject, _, at in self._found(store_rows.measured, query)}

    def measured(self, subject: str, values: Mapping[str, float]) -> None:
        """Replace these numbers of a device or link."""
        rows = [(subject, name, value, time.time()) for name, value in values.items()]
        query = "INSERT OR REPLACE INTO machine (subject, name, value, at) VALUES (?, ?, ?, ?)"
        self._write(lambda db: db.executemany(query, rows).rowcount, 0)

    # for `manycl models`

    def rows(self, kernel: str = "", device: str = "") -> list[KernelSeries]:
        """Return all series, or those of the kernels of a name and of the devices whose identity contains a text."""
        where = "WHERE (? = '' OR kernel.name = ?) AND instr(lower(series.device), lower(?)) > 0"
        return self._rows(where, (kernel, kernel, device))

    def forget(self, kernel: str = "", device: str = "") -> int:
        """Delete the series (and comparisons) that :meth:`rows` would list; return how many."""
        chosen = "instr(lower(device), lower(?)) > 0 AND kernel IN (SELECT id FROM kernel WHERE ? = '' OR name = ?)"
        values = (device, kernel, kernel)

        def delete(db: sqlite3.Connection) -> int:
            count = db.execute(f"DELETE FROM series WHERE {chosen}", values).rowcount
            db.execute(f"DELETE FROM comparison WHERE {chosen}", values)
            db.execute("DELETE FROM kernel WHERE id NOT IN (SELECT kernel FROM series)")
            return count

        return self._write(delete, 0)

    def forget_measurements(self, subject: str = "") -> int:
        """Delete the measurements of the devices and links whose subject contains a text; return how many numbers."""
        query = "DELETE FROM machine WHERE instr(lower(subject), lower(?)) > 0"
        return self._write(lambda db: db.execute(query, (subject,)).rowcount, 0)

    # the file

    def _rows(self, where: str, values: tuple[str, ...]) -> list[KernelSeries]:
        query = f"""SELECT text, kernel.name, local, series.device, global, f, idle, series.id, kernel.id
                    FROM series JOIN kernel ON kernel.id = series.kernel {where}
                    ORDER BY kernel.name, text, local, series.device, series.id"""

        def rows(db: sqlite3.Connection) -> list[KernelSeries]:
            out: list[KernelSeries] = []
            begun: set[tuple[int, str]] = set()
            compared = "SELECT model, predicted, measured FROM comparison WHERE kernel = ? AND device = ? ORDER BY id"
            for *key, device, size, f, idle, series, kernel in db.execute(query, values).fetchall():
                told: tuple[tuple[str, Comparison], ...] = ()
                if (kernel, device) not in begun:
                    begun.add((kernel, device))
                    told = tuple(self._sound(db.execute(compared, (kernel, device)), store_rows.comparison))
                samples = db.execute("SELECT seconds FROM sample WHERE series = ? ORDER BY id", (series,))
                taken = tuple(self._sound(samples, store_rows.seconds))
                row = (key, device, size, f, idle, taken, told)
                out += self._sound([row], store_rows.series)
            return out

        return self._read(rows, [])

    def _found(self, read: Callable[[Any], T], query: str, values: tuple[str, ...] = ()) -> Iterator[T]:
        """Return the values of the rows that a query gives."""
        none: list[Any] = []
        return self._sound(self._read(lambda db: db.execute(query, values).fetchall(), none), read)

    def _read(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Return what ``work`` finds in the file; ``otherwise`` where there is no file, or none that can be read."""
        return self._do(work, otherwise) if not self._off and self.path.exists() else otherwise

    def _write(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Do the same in a transaction that excludes other writers, all or nothing."""

        def transaction(db: sqlite3.Connection) -> T:
            db.execute("BEGIN IMMEDIATE")
            found = work(db)
            db.execute("COMMIT")
            return found

        if self._off:
            return otherwise
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._give_up(f"{self.path.parent} cannot be made ({error.strerror}): measurements are not kept")
            return otherwise
        return self._do(transaction, otherwise)

    def _do(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Call ``work`` with the open file, again with a new one for a damaged one. A file error becomes a warning."""
        import sqlite3

        for _ in range(3):
            try:
                with closing(sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)) as db:
                    return work(db) if self._is_known(db) else otherwise
            except sqlite3.OperationalError as error:  # locked too long, read-only, disk full: not the contents' fault
                self._give_up(f"{self.path}: {error}: measurements are neither read nor kept")
                return otherwise
            except sqlite3.DatabaseError as error:
                self._replace(str(error))
                if self._off:
                    return otherwise
        return otherwise

    def _is_known(self, db: sqlite3.Connection) -> bool:
        """Return whether the file has this version's tables, which are made in a new one."""
        db.execute("PRAGMA foreign_keys = ON")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            _create(db)
        elif version != VERSION:
            self._give_up(
                f"{self.path} was written by another version of manycl (tables {version}, here {VERSION}): "
                "measurements are neither read nor kept; set MANYCL_DATA to another folder to keep them"
            )
            return False
        return True

    def _replace(self, problem: str) -> None:
        """Move a damaged file aside, unless another process has done so already."""
        import sqlite3

        guard = sqlite3.connect(self.path.with_name("recovery.sqlite"), timeout=_WAIT, isolation_level=None)
        try:
            guard.execute("BEGIN EXCLUSIVE")
            if _damaged(self.path):
                number = 1
                while (kept := self.path.with_name(f"{NAME}.damaged-{number}")).exists():
                    number += 1
                for suffix in ("", "-wal", "-shm"):
                    part = self.path.with_name(NAME + suffix)
                    if part.exists():
                        part.rename(kept.with_name(kept.name + suffix))
                warnings.warn(
                    f"the measurements in {self.path} are damaged ({problem}); the file is kept as {kept.name}, and a "
                    "new one is begun",
                    StoreWarning,
                    stacklevel=2,
                )
            guard.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._give_up(f"{self.path} is damaged ({problem}) and cannot be moved aside: {error}")
        finally:
            guard.close()

    def _sound(self, rows: Iterable[Any], read: Callable[[Any], T]) -> Iterator[T]:
        """Yield the values of rows. Rows that make no sense are left out, with one warning."""
        for row in rows:
            try:
                yield read(row)
            except (ValueError, TypeError, RecursionError) as error:
                if not self._told:
                    self._told = True
                    words = f"{self.path}: measurements that make no sense are ignored ({error})"
                    warnings.warn(words, StoreWarning, stacklevel=2)

    def _give_up(self, text: str) -> None:
        self._off = True
        warnings.warn(text, StoreWarning, stacklevel=2)


def _save(db: sqlite3.Connection, history: History, changed: Iterable[tuple[KernelKey, str, OnDevice]]) -> bool:
    """Add the unsaved measurements of these kernels on these devices."""
    now = time.time()
    for key, device, here in changed:
        kernel = _kernel_id(db, key)
        for shape, series in here.series.items():
            number = _series_id(db, kernel, device, shape, history.idle(key, shape, device))
            db.executemany(
                "INSERT INTO sample (series, seconds, at) VALUES (?, ?, ?)",
                [(number, s, now) for s in series.unsaved[-KEEP - 1 :]],
            )
            _trim(db, "sample", "series = ?", (number,), KEEP + 1)
        db.executemany(
            "INSERT INTO comparison (kernel, device, model, predicted, measured, at) VALUES (?, ?, ?, ?, ?, ?)",
            [(kernel, device, model, c.predicted, c.measured, now) for model, c in here.unsaved],
        )
        for what, most in (("NOT LIKE", SHAPES), ("LIKE", RANGES)):
            _trim(db, "series", f"kernel = ? AND device = ? AND global {what} '[[%'", (kernel, device), most)
        for model in {m for m, _ in here.unsaved}:
            where = "kernel = ? AND device = ? AND model = ?"
            _trim(db, "comparison", where, (kernel, device, model), 1 if model == PRIOR else KEEP)
    return True


def default_folder() -> Path:
    """Return MANYCL_DATA, else the user's data folder of the operating system."""
    if folder := flags.data():
        return Path(folder)
    return lasting_folder("data")


def _create(db: sqlite3.Connection) -> None:
    """Make the tables, unless another process has made them."""
    import sqlite3

    end = time.monotonic() + _WAIT
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:  # SQLite does not wait for others here
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
    db.execute("BEGIN IMMEDIATE")
    if db.execute("PRAGMA user_version").fetchone()[0] == 0:
        for statement in _TABLES.split(";"):
            if statement.strip():
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


def _damaged(path: Path) -> bool:
    """Return whether a file is not an intact database of this store. One that is being begun is intact."""
    import sqlite3

    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT)) as db:
            sound = db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            version = db.execute("PRAGMA user_version").fetchone()[0]
            tables = {n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.OperationalError:  # locked, for example: another process works with it
        return False
    except sqlite3.DatabaseError:
        return True
    return not sound or (version == VERSION and not tables >= {"kernel", "series", "sample", "comparison", "machine"})


def _sizes(sizes: tuple[int, ...] | None) -> str:
    return json.dumps(sizes) if sizes is not None else ""


def _kernel_id(db: sqlite3.Connection, key: KernelKey) -> int:
    values = (key.text, key.kernel, _sizes(key.local_size))
    db.execute("INSERT OR IGNORE INTO kernel (text, name, local) VALUES (?, ?, ?)", values)
    found = db.execute("SELECT id FROM kernel WHERE text = ? AND name = ? AND local = ?", values)
    return int(found.fetchone()[0])


def _series_id(db: sqlite3.Connection, kernel: int, device: str, shape: Shape, idle: int) -> int:
    size = [shape.global_size, shape.range] if shape.range else shape.global_size
    values = (kernel, device, json.dumps(size), shape.f)
    db.execute(
        """INSERT INTO series (kernel, device, global, f, idle) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT (kernel, device, global, f) DO UPDATE SET idle = excluded.idle""",
        (*values, idle),
    )
    found = db.execute("SELECT id FROM series WHERE kernel = ? AND device = ? AND global = ? AND f = ?", values)
    return int(found.fetchone()[0])


def _trim(db: sqlite3.Connection, table: str, where: str, values: tuple[Any, ...], keep: int) -> None:
    """Keep the latest rows of those that ``where`` chooses."""
    db.execute(
        f"DELETE FROM {table} WHERE {where} AND id NOT IN"
        f" (SELECT id FROM {table} WHERE {where} ORDER BY id DESC LIMIT {keep})",
        (*values, *values),
    )
