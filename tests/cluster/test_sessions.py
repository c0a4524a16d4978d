"""Sessions on a cluster: what they are refused, what they leave behind, and the command line."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.cli import main
from manycl.cluster import exchange
from manycl.cluster.commands import NodeCommands
from manycl.cluster.opening import _warn_of_openness
from manycl.errors import DeviceError
from manycl.trace import Trace
from tests.cluster.counting import Even
from tests.cluster.test_programs import GROUP, PROGRAM, N

SESSIONS = 6
FIRST = 24
"""Runs after which there is all that a loop needs."""
RUNS = int(os.environ.get("MANYCL_TEST_RUNS", "40"))
"""Runs after which there is no more than that."""
EXAMPLE = Path(mc.__file__).parent / "examples" / "matrix_equation" / "matrix_equation.json"


def left_behind(dask_worker: Any) -> tuple[int, int, int]:
    """Sessions, threads of manycl's and open files of a worker."""
    sessions = len(dask_worker.plugins["manycl"].sessions)
    threads = sum(thread.name.startswith("manycl-node") for thread in threading.enumerate())
    return sessions, threads, len(os.listdir("/proc/self/fd"))


def sweeps(queue: mc.Queue) -> np.ndarray:
    u, v = (queue.array(np.ones((N, N), np.float32)) for _ in range(2))
    for _ in range(3):
        PROGRAM.sweep(queue, (N, N), (16, GROUP), u, v, N)
        u, v = v, u
    return u.get()


def test_sessions_leave_nothing_behind(client: Any) -> None:
    def one() -> None:
        with mc.Queue(client, policy=Even()) as queue:
            sweeps(queue)

    one()
    before, mine = client.run(left_behind), threading.active_count()
    for _ in range(SESSIONS):
        one()
    after = client.run(left_behind)
    assert [found[:2] for found in after.values()] == [(0, 0)] * len(after)
    # (Dask opens and closes connections when it likes, and not one in each session)
    assert all(after[worker][2] < before[worker][2] + SESSIONS for worker in before)
    assert threading.active_count() <= mine


def test_two_sessions_at_a_time(client: Any) -> None:
    with mc.Queue(client, policy=Even()) as one, mc.Queue(client, policy=Even()) as other:
        assert sweeps(one).tobytes() == sweeps(other).tobytes()
    with pytest.raises(DeviceError, match="closed"):
        one.empty(4)


def test_what_a_client_is_refused() -> None:
    with pytest.raises(mc.ManyclError, match="asynchronous"):
        mc.Queue(client_of("tcp://127.0.0.1:8786", asynchronous=True))


def client_of(address: str, asynchronous: bool = False) -> Any:
    nothing = dict.fromkeys(("security", "loop", "sync", "run", "register_plugin", "persist", "who_has"), print)
    return SimpleNamespace(scheduler=SimpleNamespace(address=address), asynchronous=asynchronous, **nothing)


@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
        ("inproc://192.168.1.2/1/1", False),
        ("tls://192.168.1.2:8786", False),
        ("tcp://192.168.1.2:8786", True),
        ("tcp://scheduler:8786", True),
        ("ws://192.168.1.2:8786", True),
    ],
)
def test_open_schedulers_are_warned_of(address: str, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        _warn_of_openness(client_of(address))
    assert [address in str(w.message) for w in found] == [True] * warned


def test_the_command_line(client: Any, capsys: pytest.CaptureFixture[str]) -> None:
    address = client.scheduler.address
    assert main(["run", str(EXAMPLE), "--cluster", address, "--check", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [check["passed"] for check in record["checks"]] == [True, True]
    assert {device["name"] for device in record["devices"]} == {"node0", "node1"}


def test_the_command_line_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(EXAMPLE), "--cluster", "tcp://127.0.0.1:1", "--devices", "cpu"]) == 2
    assert "devices of their own" in capsys.readouterr().err


def leave_room_for(nbytes: int) -> int:
    """Have this worker send no more at a time; return what it had sent at most before."""
    before, exchange.MOST_IN_FLIGHT = exchange.MOST_IN_FLIGHT, nbytes
    return before


def under_way(dask_worker: Any) -> list[Any]:
    """What a worker's sessions have received and nobody has taken, and what is still to arrive elsewhere."""
    found: list[Any] = []
    for session in dask_worker.plugins["manycl"].sessions.values():
        found += [*session.arbiter._there, *session._outbox._waiting, *session._outbox._tasks]
        found += [*filter(None, (*session.arbiter._held.values(), *session._outbox._in_flight.values()))]
    return found


def held(dask_worker: Any) -> dict[str, Any]:
    """What a worker has: of the session's things, memory, files and threads."""
    (commands,) = [found for found in gc.get_objects() if isinstance(found, NodeCommands)]
    tables = [commands._memory, commands._programs, commands._kernels, commands._timed, commands._spans]
    devices: Any = commands.device
    return {
        "things": [*map(len, tables)],
        "bytes": {name: sum(use) for name, use in devices._queue.session.memory().items()},
        "descriptors": len(os.listdir("/proc/self/fd")),
        "files": sorted(str(path) for path in Path(dask_worker.local_directory).rglob("*")),
        "threads": threading.active_count(),
    }


def mine(queue: mc.Queue) -> dict[str, Any]:
    """What this process has."""
    session = queue.session
    links = [lanes.driver.link for lanes in session.backend.lanes]  # type: ignore[attr-defined]
    return {
        "commands": [[*link._under_way, *link._answers, *link._commands, *link._frames] for link in links],
        "bytes": {name: sum(use) for name, use in session.memory().items()},
        "buffers": [len(session.backend.memory._stored), len(session.directory.valid)],
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


@pytest.mark.parametrize("checkpoint", [0, 4])
def test_nothing_is_left_of_runs_and_little_is_under_way_at_a_time(client: Any, checkpoint: int) -> None:
    before = client.run(leave_room_for, 0)
    try:
        with mc.Queue(client, policy=Even(), checkpoint=checkpoint) as queue:
            expected = sweeps(queue)

            def some(count: int) -> tuple[Any, Any]:
                for _ in range(count):
                    assert sweeps(queue).tobytes() == expected.tobytes()
                end = time.monotonic() + 10  # the last message may have come, and its sender not know it yet
                while any(left := client.run(under_way).values()) and time.monotonic() < end:
                    time.sleep(0.01)
                assert [*left] == [[] for _ in before]
                return mine(queue), client.run(held)

            first = some(FIRST)
            assert some(RUNS) == first
    finally:
        for worker, nbytes in before.items():
            client.run(leave_room_for, nbytes, workers=[worker])


PYOPENCL = """
import numpy as np
import pyopencl as cl

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
product = cl.Program(context, '''
kernel void product(global const float *a, global const float *b, global float *c, long n) {
    long x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (long k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}
''').build().product
n = 192
start = np.random.default_rng(1).random((n, n), np.float32) / n
a, b = (cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=start) for _ in range(2))
c = cl.Buffer(context, cl.mem_flags.READ_WRITE, start.nbytes)
for _ in range(4):
    product(queue, (n, n), (16, 4), a, b, c, np.int64(n))
    a, c = c, a
found = np.empty_like(start)
cl.enqueue_copy(queue, found, a)
print(found.tobytes().hex())
"""


def test_an_unmodified_program(client: Any, tmp_path: Path) -> None:
    program, trace = tmp_path / "program.py", tmp_path / "runs.jsonl"
    program.write_text(PYOPENCL, encoding="utf-8")
    told = []
    for how in (["--cluster", client.scheduler.address, "--trace", str(trace)], ["--devices", "cpu"]):
        words = [sys.executable, "-m", "manycl", "exec", "--policy", "balance", *how, "--", str(program)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=200, check=True)
        told.append(ended.stdout)
    assert told[0] == told[1] != ""
    assert {kernel.device for kernel in Trace.load(trace).kernels()} == {"node0", "node1"}


def test_the_command_line_of_programs_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--cluster", "tcp://127.0.0.1:1", "--devices", "cpu", "--", "true"]) == 2
    assert "devices of their own" in capsys.readouterr().err
