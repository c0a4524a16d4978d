"""Objects that are kept for other processes are whole, bounded, and nobody else's."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from manycl.drivers.native.objects import KeptObject, Objects, own_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert own_folder(tmp_path / "objects")
    return tmp_path / "objects"


def test_what_is_kept_is_found_with_its_text(folder: Path) -> None:
    objects = Objects(folder, 1 << 20)
    assert objects.get(b"a") is None
    made = objects.keep(b"a", b"\x7fELF" * 100, 'text with "ü"')
    assert made.path.read_bytes().startswith(b"\x7fELF" * 100)
    assert Objects(folder, 1 << 20).get(b"a") == made == KeptObject(made.path, 'text with "ü"')
    assert objects.get(b"b") is None
    assert objects.keep(b"", b"").text == ""
    assert objects.get(b"") is not None


def test_what_is_damaged_is_not_believed(folder: Path) -> None:
    objects = Objects(folder, 1 << 20)
    made = objects.keep(b"a", bytes(range(200)), "text")
    whole = made.path.read_bytes()
    for i in range(0, len(whole), 7):
        made.path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        assert objects.get(b"a") is None
        made.path.write_bytes(whole[:i])
        assert objects.get(b"a") is None
    made.path.write_bytes(whole)
    assert objects.get(b"a") == made


def test_the_oldest_go(folder: Path) -> None:
    objects = Objects(folder, 40 << 12)
    for i in range(30):
        made = objects.keep(b"%d" % i, bytes(4000))
        os.utime(made.path, (i, i))
    objects.get(b"0")  # asked for now: the youngest
    left_over = folder / "tmpabc"
    left_over.write_bytes(bytes(4000))
    os.utime(left_over, (0, 0))
    objects = Objects(folder, 20 << 12)
    objects.keep(b"new", bytes(4000))
    assert objects.get(b"0") is not None
    assert objects.get(b"new") is not None
    assert objects.get(b"29") is not None
    assert objects.get(b"3") is None
    assert not left_over.exists()
    assert len(list(folder.iterdir())) <= 21


def test_many_write_the_same(folder: Path) -> None:
    def keep(i: int) -> KeptObject | None:
        Objects(folder, 1 << 20).keep(b"same", b"content" * 1000, "text")
        return Objects(folder, 1 << 20).get(b"same")

    with ThreadPoolExecutor(8) as pool:
        kept = set(pool.map(keep, range(64)))
    assert len(kept) == 1
    assert None not in kept
    assert len(list(folder.iterdir())) == 1


def test_nothing_is_left_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Objects(tmp_path / "nowhere", 1 << 20).keep(b"a", b"b")


def test_own_folders(tmp_path: Path) -> None:
    assert own_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    assert not own_folder(tmp_path / "file")
    assert not own_folder(tmp_path / "file" / "below")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert not own_folder(tmp_path / "link")
    (tmp_path / "a").chmod(0o770)
    assert not own_folder(tmp_path / "a")
