"""A process that a driver ends says what ran; so does one that is killed. One that ends by itself says nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from manycl.drivers import last_words

SOURCE = """
kernel void fine(global int *x) { x[get_global_id(0)] += 1; }
kernel void far(global int *x, global const int *at) { x[at[get_global_id(0)]] = 1; }
kernel void endless(global volatile int *x) { while (x[0] == 0) ; x[1] = 5; }
"""


def command(folder: Path, kernels: list[dict[str, object]]) -> list[str]:
    (folder / "k.cl").write_text(SOURCE)
    buffer = {"type": "int", "shape": 64}
    document = {
        "manycl": 1,
        "source": "k.cl",
        "buffers": {"x": buffer, "y": buffer, "at": {**buffer, "init": {"kind": "constant", "value": 1 << 30}}},
        "kernels": kernels,
    }
    (folder / "app.json").write_text(json.dumps(document))
    return [sys.executable, "-m", "manycl", "run", str(folder / "app.json"), "--devices", "cpu/2", "--quiet"]


FINE = {"name": "fine", "global": 64, "local": 16, "args": ["y"]}
FAR = {"name": "far", "global": 64, "local": 16, "args": ["x", "at"]}
ENDLESS = {"name": "endless", "global": 1, "local": 1, "args": ["x"]}


def test_a_kernel_that_ends_the_process_is_named(tmp_path: Path) -> None:
    words = command(tmp_path, [FINE, FAR])
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100, env=environment)
    assert ended.returncode == -signal.SIGSEGV
    assert ended.stderr.count("manycl: segmentation fault (SIGSEGV) in kernel far on cpu0.") == 1
    assert "launch: global size (64,), work-groups of (16,); it ran work-groups" in ended.stderr
    assert "MANYCL_CHECK=bounds" in ended.stderr
    assert not list(tmp_path.glob("*.note"))


def test_a_killed_process_is_told_of(tmp_path: Path) -> None:
    running = subprocess.Popen(
        command(tmp_path, [FINE, ENDLESS]),
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    end = time.monotonic() + 60
    while time.monotonic() < end and not any("endless" in p.read_text() for p in tmp_path.glob("*.note")):
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    _, said = running.communicate(timeout=60)
    assert "kernel endless" in said


def test_who_ends_well_says_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(command(tmp_path, [FINE]), capture_output=True, text=True, timeout=100, env=environment)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "lost" not in ended.stderr
    assert not list(tmp_path.glob("*.note"))


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
def test_what_is_complete_is_not_named(events: list[tuple[int, bool]]) -> None:
    """Against a list for each queue."""
    lines: list[str] = []
    queues: list[list[int]] = [[], [], []]
    for token, (queue, done) in enumerate(events):
        if done and queues[queue]:
            at = len(queues[queue]) // 2
            lines.append(f"-{queues[queue][at]}")
            del queues[queue][: at + 1]
        else:
            lines.append(f"+{token}\tcpu{queue}\tkernel k{token}")
            queues[queue].append(token)
    found = last_words.read("\n".join(lines))
    assert len(found) == sum(map(bool, queues))
    for queue, waiting in enumerate(queues):
        for line in found:
            if f" on cpu{queue}" in line:
                assert all(f"kernel k{t}" in line for t in waiting[: last_words.SHOWN])
                assert line.count("kernel k") == min(len(waiting), last_words.SHOWN)
