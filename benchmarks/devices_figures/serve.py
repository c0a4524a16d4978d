"""What clients of `manycl serve` leave behind, and what becomes of them when it is killed.

clients: whole programs (a queue with serve=True on both halves of the processor, a loop of kernels, results that are
compared), one after another; a part of them in processes of their own (own_processes), the others several to a process.
client_ms: the median of a program's time, from its queue to the end of that; process_ms: of a process with one.
What is left when all are gone, compared with what there was after the first --settle clients, each time when the
service has settled (it says so: nobody is a client, and nothing will change before somebody comes): descriptors_left
(and threads_left), of the service and its processes; files_left, in the runtime folder, the temporary folder and (its
own) in /dev/shm; bytes_left, of memory that only the service and its processes have (more than that is shared);
slope_bytes, of the same per client, by the medians of the last quarter and the one before it. processes: the service
and its own; processes_more, than after the first; processes_replaced: of the first, those that are not there any more.
together_most: processes, when three processes have had clients at the same time, and together_more, than before that
once the service has settled.

killed_rounds: the service is killed (SIGKILL) at a random time, while three processes run graphs. killed_finished: of
these, the processes that ended with the right results; killed_clear: with an error that says that the service has
ended, or that there is none; killed_other: with another one; killed_wrong; killed_hung. restarts_stale: rounds after
which a process of the old service was still there when its clients were gone, or a new service did not begin, or had
anything of the old one in its folder, or did not serve.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import numpy as np

SOURCE = """
kernel void scale(global float *y, global const float *x, float by) { y[get_global_id(0)] = x[get_global_id(0)] * by; }
kernel void smooth(global float *x, global const float *y, int n) {
    int i = get_global_id(0);
    x[i] = 0.5f * (y[max(i - 1, 0)] + y[min(i + 1, n - 1)]);
}
"""
N, TURNS, EACH = 1 << 14, 4, 14
LONG = 200  # runs of a client during which the service may be killed
SERVICE = "import sys; from manycl.cli import main; sys.exit(main(['serve', '--json']))"
PATIENCE = 120.0  # seconds
ITSELF = (sys.executable, str(Path(__file__).parents[1] / "devices.py"), "serve")
CLEAR = ("no service of manycl's runs", "the service of manycl's has ended")


def expected(x0: Any) -> Any:
    """By NumPy; powers of two, so that every order of operations gives the same bits."""
    x = x0.copy()
    for _ in range(TURNS):
        y = x * np.float32(0.5)
        x = np.float32(0.5) * (np.concatenate([y[:1], y[:-1]]) + np.concatenate([y[1:], y[-1:]]))
    return x


def program(devices: str, runs: int) -> bool:
    """One client: whether all of its results are right."""
    import manycl as mc

    made, x0 = mc.Program(SOURCE), (np.arange(N) % 1024).astype(np.float32)
    right = expected(x0)
    with mc.Queue(devices, serve=True) as queue:
        for _ in range(runs):
            x, y = queue.array(x0), queue.zeros(N, np.float32)
            for _ in range(TURNS):
                made.scale(queue, (N,), (64,), y, x, np.float32(0.5))
                made.smooth(queue, (N,), (64,), x, y, np.int32(N))
            if not (x.get() == right).all():
                return False
    return True


def clients(devices: str, count: int) -> None:
    """Of a process: clients in turn, each of which says how long it took."""
    for _ in range(count):
        began = time.perf_counter()
        assert program(devices, 1), "a result is wrong"
        print(1e3 * (time.perf_counter() - began), flush=True)


def insistent(devices: str) -> None:
    """Of a process: clients in turn until there is no service; what became of that."""
    from manycl.errors import ManyclError

    program(devices, 1)
    print("begun", flush=True)
    try:
        while True:
            if not program(devices, LONG):
                print("wrong", flush=True)
                return
            if os.path.exists(sys.argv[3]):  # the service was killed while it ran, and it has finished
                print("finished", flush=True)
                return
    except ManyclError as error:
        print(("clear " if any(words in str(error) for words in CLEAR) else "other ") + str(error), flush=True)


class Service:
    """One that runs, in a process of its own."""

    def __init__(self) -> None:
        words = [sys.executable, "-c", SERVICE]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.is_ready = bool(line) and os.path.exists(json.loads(line)["socket"])

    @property
    def processes(self) -> list[int]:
        from manycl.drivers.serve.client import status

        return [one["pid"] for one in status()["processes"]]

    @contextmanager
    def settled(self) -> Iterator[list[int]]:
        """Its process and those of its own, with one connection to it (of this process) in the block: whatever others
        it had before that one, it has heard that they are closed when it answers."""
        from manycl.drivers.serve.place import connected
        from manycl.drivers.worker import messages as m
        from manycl.drivers.worker.messages import Channel

        began, channel = time.monotonic(), Channel(connected())
        try:
            while True:
                channel.call("status", 1, m.VERSION)
                ((_, _, found, *_),) = channel.receive()
                if found["settled"]:
                    break
                assert time.monotonic() - began < PATIENCE, "its processes do not come to rest"
                time.sleep(0.01)
            yield [self.process.pid, *(one["pid"] for one in found["processes"])]
        finally:
            channel.close()

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def until(holds: Callable[[], bool]) -> bool:
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > PATIENCE:
            return False
        time.sleep(0.01)
    return True


def private(pid: int) -> int:
    """Bytes of memory that a process alone has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def there(service: Service, folders: list[Path]) -> dict[str, Any]:
    """What there is now that nobody is a client."""
    with service.settled() as pids:
        return {
            "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
            "threads": sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids),
            "files": sum(len(left_in(folder)) for folder in folders)
            + sum(name.startswith(f"manycl-{pid}-") for pid in pids for name in os.listdir("/dev/shm")),
            "bytes": sum(map(private, pids)),
            "processes": pids,
        }


def together(devices: str, each: int) -> None:
    """Three processes with so many clients in turn."""
    words = [*ITSELF, "--clients", devices, str(each)]
    began = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(3)]
    for process in began:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


@contextmanager
def own_folders() -> Iterator[list[Path]]:
    """A runtime folder, and a temporary one, for all that runs here."""
    made = Path(tempfile.mkdtemp(prefix="manycl-bench-"))
    for name in ("run", "tmp"):
        (made / name).mkdir(mode=0o700)
    os.environ |= {"XDG_RUNTIME_DIR": str(made / "run"), "TMPDIR": str(made / "tmp"), "MANYCL_MODELS": "0"}
    try:
        yield [made / "run", made / "tmp"]
    finally:
        shutil.rmtree(made)


def in_turn(devices: str, count: int, own: int, settle: int, folders: list[Path]) -> dict[str, Any]:
    """Clients one after another."""
    service, r = Service(), random.Random(count)
    groups = [1] * own + [EACH] * ((count - own) // EACH)
    groups += [count - sum(groups)] if count > sum(groups) else []
    r.shuffle(groups)
    times: list[float] = []
    alone: list[float] = []
    first: dict[str, Any] = {}
    grown: list[tuple[int, int]] = []
    for number in groups:
        began = time.perf_counter()
        words = [*ITSELF, "--clients", devices, str(number)]
        said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE).stdout
        if number == 1:
            alone.append(1e3 * (time.perf_counter() - began))
        times += map(float, said.split())
        if len(times) >= settle:
            now = there(service, folders)
            first = first or now
            grown.append((len(times), now["bytes"]))
        if len(times) % 100 < number:
            common.progress(f"{len(times)} clients")
    last = there(service, folders)
    together(devices, min(EACH, count))
    most = len(service.processes) + 1
    after_all = there(service, folders)
    service.end(signal.SIGTERM)
    half, quarter = len(grown) // 2, max(len(grown) // 4, 1)
    before, after = grown[half : half + quarter] or grown, grown[-quarter:]
    middle = [statistics.median(count for count, _ in part) for part in (before, after)]
    much = [statistics.median(nbytes for _, nbytes in part) for part in (before, after)]
    return {
        "clients": len(times),
        "own_processes": len(alone),
        "client_ms": statistics.median(times),
        "process_ms": statistics.median(alone) if alone else 0.0,
        **{f"{name}_left": last[name] - first[name] for name in ("descriptors", "threads", "files", "bytes")},
        "slope_bytes": (much[1] - much[0]) / max(middle[1] - middle[0], 1),
        "processes": len(last["processes"]),
        "processes_more": len(last["processes"]) - len(first["processes"]),
        "processes_replaced": len(set(first["processes"]) - set(last["processes"])),
        "together_most": most,
        "together_more": len(after_all["processes"]) - len(last["processes"]),
        "folder_left": len(left_in(folders[0])),
    }


def left_in(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names]


def killed(devices: str, round_: int, folders: list[Path]) -> dict[str, int]:
    """The service is killed while three processes run graphs."""
    r, found = random.Random(round_), dict.fromkeys(("finished", "clear", "other", "wrong", "hung", "stale"), 0)
    service, mark = Service(), folders[1] / "killed"
    words = [*ITSELF, "--insistent", devices, str(mark)]
    began = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in began:
        assert process.stdout is not None
        process.stdout.readline()
    time.sleep(r.uniform(0.0, 2.0))
    pids = service.processes
    service.end(signal.SIGKILL)
    mark.touch()
    for process in began:
        try:
            said, _ = process.communicate(timeout=PATIENCE)
            what = said.split()[0] if said else "other"
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            said, what = "", "hung"
        found[what] += 1
        if what in ("other", "hung", "wrong"):
            common.progress(f"round {round_}: {what} {said}")
    is_gone = until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    mark.unlink()
    anew = Service()
    try:
        is_served = anew.is_ready and program(devices, 1)
        is_clean = set(left_in(folders[0])) <= {"serve.socket", "serve.lock"} | _own_files(folders[0])
    finally:
        anew.end(signal.SIGTERM)
    is_clean = is_clean and not [n for n in left_in(folders[0]) if n.startswith("serve.")]
    found["stale"] = not (is_gone and is_served and is_clean)
    if found["stale"]:
        common.progress(f"round {round_}: gone {is_gone} served {is_served} clean {is_clean} {left_in(folders[0])}")
    return found


def _own_files(folder: Path) -> set[str]:
    """Of this process, by which it hears of reservations."""
    return {name for name in left_in(folder) if name.startswith(f"{os.getpid()}") or name.endswith(".listener")}


def main() -> None:
    if sys.argv[1:2] == ["--clients"]:
        clients(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["--insistent"]:
        insistent(sys.argv[2])
    else:
        measure()


def measure() -> None:
    made = common.parser(__doc__)
    made.add_argument("--devices", default="cpu/2")
    made.add_argument("--count", type=int, help="of clients in turn (default: 143 times --repeats, about 1,000)")
    made.add_argument("--own", type=int, help="of these, in processes of their own (default: three in ten)")
    made.add_argument("--settle", type=int, default=50, help="clients until what is made once is made (default: 50)")
    made.add_argument("--rounds", type=int, help="in which the service is killed (default: 3 times --repeats - 1)")
    args = made.parse_args()
    count = args.count or 143 * args.repeats
    own = args.own if args.own is not None else 3 * count // 10
    rounds = args.rounds if args.rounds is not None else 3 * args.repeats - 1
    with own_folders() as folders:
        figures = in_turn(args.devices, count, own, min(args.settle, count // 2), folders)
        ends = [killed(args.devices, n, folders) for n in range(rounds)]
    figures["killed_rounds"] = rounds
    for name in ("finished", "clear", "other", "wrong", "hung"):
        figures[f"killed_{name}"] = sum(end[name] for end in ends)
    figures["restarts_stale"] = sum(end["stale"] for end in ends)
    common.report(args, figures)
