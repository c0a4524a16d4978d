"""Environment variables, folders, and mistakes on the command line: told in one message, or worked around and said."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl import flags
from manycl.cli import COMMANDS, main
from manycl.drivers.opencl import icd
from manycl.errors import ManyclError

VALUES = {
    "MANYCL_DEBUG": (flags.debug, {"0": 0, "4": 4, "5": 5, "": 0, " 1 ": 1}),
    "MANYCL_MODELS": (flags.learning, {"0": False, "1": True, "": True}),
    "MANYCL_ZERO_COPY": (flags.zero_copy, {"0": False, "1": True, "": True}),
    "MANYCL_DETERMINISTIC": (flags.deterministic, {"1": True, "0": False, "": True}),
    "MANYCL_MERGING": (flags.merging, {"each": "each", "last": "last", "": "automatic"}),
    "MANYCL_APART": (flags.apart, {"1": True, "0": False, "": False}),
    "MANYCL_PROMPT": (flags.prompt, {"1": True, "0": False, "": True}),
    "MANYCL_RESERVED": (flags.heeds_reservations, {"ignore": False, "leave": True, "": True}),
    "MANYCL_BOUNDS": (flags.bounds, {"off": False, "on": True, "": True}),
    "MANYCL_CHECK": (flags.checks_bounds, {"bounds": True, "off": False, "": False}),
    "MANYCL_DEVICE_MEMORY": (
        flags.device_memory,
        {"65536": 65536, "16GiB": 16 << 30, "16 GB": 16 * 10**9, "3k": 3000, "2 MiB": 2 << 20, "7 B": 7, "": 1 << 62},
    ),
}

MEMORY = r"0*[1-9]\d*\s*([KMGT]i?B?|B?)"


@pytest.mark.parametrize("name", VALUES)
@given(text=st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=6))
def test_values_mean_something_or_are_refused(name: str, text: str) -> None:
    read, known = VALUES[name]
    with pytest.MonkeyPatch.context() as patch:
        for value, meaning in known.items():
            patch.setenv(name, value)
            assert read() == meaning
        patch.setenv(name, text)
        right = MEMORY if name == "MANYCL_DEVICE_MEMORY" else "[0-5]" if name == "MANYCL_DEBUG" else "[01]|on|off"
        if text.strip() in known or re.fullmatch(right, text.strip(), re.IGNORECASE):
            return
        with pytest.raises(ManyclError, match=name) as caught:
            read()
        assert "it is" in caught.value.hint
        with pytest.raises(ManyclError):
            flags.check()


def test_every_command_refuses_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "yes")
    for words in (["devices"], ["plan", "none.json"], ["models", "list"]):
        assert main(words) == 2
        assert capsys.readouterr().err == "manycl: MANYCL_ZERO_COPY is 'yes'\n  hint: it is one of 1, 0\n"


@pytest.mark.parametrize(("word", "meant"), [("rnu", "run"), ("analyse", "analyze"), ("xyz", "")])
def test_commands_that_there_are_not(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"there is no command {word!r}" in said
    assert (f"did you mean {meant!r}?" in said) == bool(meant)
    assert all(command in said for command in COMMANDS)


RUN = """
import numpy as np, manycl as mc
with mc.Queue("cpu/2") as queue:
    a = queue.zeros(64, np.int32)
    mc.Program("kernel void inc(global int *x) { x[get_global_id(0)] += 1; }").inc(queue, (64,), (16,), a)
    assert (a.get() == 1).all()
"""


def test_homes_that_cannot_be_written(tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if k not in ("POCL_CACHE_DIR", "MANYCL_DATA", "MANYCL_MODELS")}
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"), "/proc/nowhere")
    environment = {**kept, **nowhere, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert "the cache folder /proc/nowhere (XDG_CACHE_HOME) cannot be used" in ended.stderr
    assert "/proc/nowhere/manycl cannot be made" in ended.stderr
    assert not list(tmp_path.iterdir()), "the temporary folder goes with the process"


def test_full_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = tmp_path / "cache"
    monkeypatch.setenv("POCL_CACHE_DIR", str(cache))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        icd._usable_cache()
    assert os.environ["POCL_CACHE_DIR"] == str(cache)
    monkeypatch.setattr(
        icd.tempfile, "TemporaryFile", lambda **words: Full() if words["dir"] == cache else io.BytesIO()
    )
    with pytest.warns(icd.CacheWarning, match=r"cache \(POCL_CACHE_DIR\) cannot be used: No space left on device"):
        icd._usable_cache()
    assert os.environ["POCL_CACHE_DIR"] != str(cache)
    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path)
