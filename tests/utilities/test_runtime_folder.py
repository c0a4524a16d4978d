"""All processes of a user find one folder, which is theirs alone."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from manycl.errors import ManyclError
from manycl.utilities import runtime_folder as module
from manycl.utilities.runtime_folder import existing, location, runtime_folder


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    return path


def test_it_is_made_for_the_user_alone(base: Path) -> None:
    assert existing() is None
    before = os.umask(0)
    try:
        made = runtime_folder()
    finally:
        os.umask(before)
    assert made.parent == base
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert runtime_folder() == made
    assert existing() == str(made)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_enter_is_refused(base: Path, mode: int) -> None:
    (base / "manycl").mkdir()
    (base / "manycl").chmod(mode)
    assert existing() is None
    with pytest.raises(ManyclError, match="0700"):
        runtime_folder()


def test_what_is_no_folder_is_refused(base: Path) -> None:
    other = base / "other"
    other.mkdir(mode=0o700)
    (base / "manycl").symlink_to(other)
    assert existing() is None
    with pytest.raises(ManyclError, match="0700"):
        runtime_folder()


def test_a_folder_of_another_user_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime_folder()
    user = os.geteuid()
    monkeypatch.setattr(module, "location", lambda: str(base / "manycl"))
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert existing() is None
    with pytest.raises(ManyclError, match="this user's alone"):
        runtime_folder()


@pytest.mark.parametrize("named", ["", "relative", "/there/is/none", "/", "nul\0"])
def test_what_is_no_runtime_folder_is_passed_over(named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module.flags, "runtime", lambda: named)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    login = Path(f"/run/user/{os.geteuid()}")
    expected = {str(login / "manycl"), str(tmp_path / f"manycl-{os.geteuid()}")}
    if named == "/" and os.geteuid() == 0:
        expected.add("/manycl")
    assert location() in expected


def test_two_processes_find_the_same(base: Path) -> None:
    code = "from manycl.utilities.runtime_folder import runtime_folder; print(runtime_folder())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(runtime_folder())


def test_users_without_a_home_have_folders_that_last_as_long_as_the_machine_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in containers, where nothing is known of the user, and HOME is not set."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert module.lasting_folder("cache") == runtime_folder() / "cache"
    assert module.lasting_folder("data") == runtime_folder() / "data"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path in module.lasting_folder("cache").parents
