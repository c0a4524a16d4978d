"""``manycl serve``: real services and clients, which end in all ways there are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.cli import main
from manycl.drivers.driver import DeviceLost, Driver, End, Source
from manycl.drivers.serve import place as place_module
from manycl.drivers.serve import pool as pool_module
from manycl.drivers.serve.client import open_served, status
from manycl.drivers.serve.server import Server
from manycl.drivers.worker import link as link_module
from manycl.drivers.worker import messages as m
from manycl.drivers.worker.messages import Channel
from manycl.errors import DeviceError
from manycl.region import Rectangle
from tests import environment
from tests.drivers.test_worker_devices import ENDLESS, PROGRAM, TEXT, until
from tests.drivers.test_worker_devices import number as little

CLIENTS = 12  # in turn
SERVE = "import sys; from manycl.cli import main; sys.exit(main(['serve', '--json']))"


class Service:
    """A service in a process of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of the test's own; sockets have short names."""
    made = tempfile.mkdtemp(prefix="manycl-serve-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", made)
    yield Path(made)
    shutil.rmtree(made)


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    made = Service()
    yield made
    if made.process.poll() is None:
        made.process.terminate()
        made.close()
        assert left_in(folder) == []


def opened(selection: str = "cpu/2#0") -> Driver:
    _, (one,) = open_served(selection)
    return one.open()


def use(driver: Driver) -> None:
    """It computes, in memory of the host and in its own, and moves bytes."""
    queue, program = driver.queue(timed=True), driver.build(Source(TEXT))
    memory, data = driver.allocate(4096), np.zeros(4096, np.uint8)
    driver.fill(queue, memory, b"\0", 0, 4096, ())
    kernel = driver.kernel(program, "add")
    kernel.set(0, memory)
    kernel.set(1, little(5))
    driver.launch(queue, kernel, (1024,), None, None, None)
    (event,) = driver.copy(queue, End(data), End(memory), (Rectangle(0, 4096),), ())
    driver.flush(queue)
    driver.wait(event)
    assert (data.view(np.uint32) == 5).all()


def processes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = status()["processes"]
    return found


def states() -> list[str]:
    return sorted(one["state"] for one in processes())


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def mappings(pid: int) -> int:
    """Of memory that another process has as well."""
    return Path(f"/proc/{pid}/maps").read_text().count("manycl-arena")


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_clients_in_turn_have_the_same_process_and_leave_nothing(service: Service) -> None:
    """No descriptor, no thread, no memory; here, in the service, or in its processes."""
    pids = set()
    first: tuple[int, ...] = ()

    def there() -> tuple[int, ...]:
        here = os.getpid(), service.process.pid, *pids
        return *map(descriptors, here), *map(threads, here), *map(mappings, pids)

    for turn in range(CLIENTS):
        driver = opened()
        use(driver)
        pids.add(driver.pid)  # type: ignore[attr-defined]
        driver.release()
        until(lambda: states() == ["idle", "idle"])
        assert len(pids) == 1
        until(lambda: not any(t.name.endswith("-process") for t in threading.enumerate()))
        if turn == 2:  # what is made once is made
            first = there()
            assert first[-1] == 0
        elif turn > 2:
            until(lambda most=first: all(now <= then for now, then in zip(there(), most, strict=True)))
    assert status()["served"] == CLIENTS


def test_clients_that_follow_at_once_have_the_same_process(service: Service) -> None:
    """Nobody waits between them: a client that is done has handed its process over."""
    pids = set()
    for _ in range(CLIENTS):
        driver = opened()
        use(driver)
        pids.add(driver.pid)  # type: ignore[attr-defined]
        driver.release()
    assert len(pids) == 1
    until(lambda: status()["settled"])
    assert states() == ["idle", "idle"]
    assert sorted(one["clients"] for one in processes()) == [0, CLIENTS]


def test_a_process_that_does_not_answer_a_goodbye_keeps_nobody(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_GOODBYE", 0.05)
    driver = opened()
    use(driver)
    os.kill(driver.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
    try:
        driver.release()
        assert "busy" in states()
    finally:
        os.kill(driver.pid, signal.SIGCONT)  # type: ignore[attr-defined]
    until(lambda: status()["settled"])
    assert states() == ["idle", "idle"]


def test_what_clients_at_the_same_time_needed_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without them: each device is open once, and one process waits with none."""
    monkeypatch.setattr(pool_module, "LINGER", 3600.0)
    server = Server()
    running = threading.Thread(target=server.run)
    running.start()
    try:
        drivers = [opened(selection) for selection in ("cpu/2#0", "cpu/2#0", "cpu/2#0", "cpu/2#1")]
        for driver in drivers:
            use(driver)
        assert not status()["settled"]
        for driver in drivers:
            driver.release()
        until(lambda: set(states()) == {"idle"})
        before = {one["pid"]: sorted(one["devices"]) for one in processes()}
        assert sorted(before.values())[-4:] == [["cpu0/2#0"]] * 3 + [["cpu0/2#1"]]
        assert not status()["settled"]
        monkeypatch.setattr(pool_module, "LINGER", 0.01)
        until(lambda: status()["settled"])  # (which is also asked for: the service does not wait for an hour)
        after = {one["pid"]: sorted(one["devices"]) for one in processes()}
        assert sorted(after.values()) == [[], ["cpu0/2#0"], ["cpu0/2#1"]]
        assert after.items() <= before.items()
        gone = before.keys() - after.keys()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in gone)
        driver = opened()
        use(driver)
        assert driver.pid in after  # type: ignore[attr-defined]
        driver.release()
        until(lambda: status()["settled"])
        assert {one["pid"] for one in processes()} == after.keys()
    finally:
        assert main(["serve", "--stop"]) == 0
        running.join()


WAITING = st.lists(st.tuples(st.frozensets(st.sampled_from("abc")), st.integers(0, 5)), max_size=8)


def at_once(members: list[pool_module.ServedProcess]) -> int:
    """Different devices that can be had at the same time, by trying all ways."""
    most = 0
    for devices in range(1, 4):
        for some in permutations(members, devices):
            for names in combinations("abc", devices):
                if all(name in one.devices for name, one in zip(names, some, strict=True)):
                    most = devices
    return most


@given(WAITING)
def test_nothing_is_lost_with_the_surplus(waiting: list[tuple[frozenset[str], int]]) -> None:
    """As many devices are open, and can be had at the same time, without it; and no more can go."""
    pool = pool_module.ProcessPool()
    for devices, since in waiting:
        member = object.__new__(pool_module.ServedProcess)
        member.state, member.devices, member.since = "idle", sorted(devices), since
        pool.members.append(member)
    surplus = pool.surplus()
    assert [one.since for one in surplus] == sorted(one.since for one in surplus)
    left = [one for one in pool.members if one not in surplus]
    assert {d for one in left for d in one.devices} == {d for one in pool.members for d in one.devices}
    assert at_once(left) == at_once(pool.members) == sum(bool(one.devices) for one in left)
    assert sum(not one.devices for one in left) == min(sum(not devices for devices, _ in waiting), pool_module.SPARE)
    pool.members = left
    assert not pool.surplus()


def test_it_is_its_users_alone(service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(service.ready["socket"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    monkeypatch.setattr(place_module, "location", lambda: str(path.parent))
    with pytest.raises(DeviceError, match="another user"):
        place_module.connected()


def test_there_is_one(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 2
    assert "runs already" in capsys.readouterr().err
    assert main(["serve", "--status", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["running"]
    assert told["pid"] == service.process.pid
    assert main(["serve", "--status"]) == 0
    assert f"process {service.process.pid} serves" in capsys.readouterr().out
    assert main(["serve", "--stop", "--json"]) == 0
    service.close()
    assert service.process.returncode == 0
    assert main(["serve", "--status"]) == 2
    assert "hint: start it: manycl serve" in capsys.readouterr().err
    assert main(["serve", "--status", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["running"] is False


def test_nonsense_ends_the_connection_and_nothing_else(service: Service) -> None:
    nonsense = (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        m.HEAD.pack(2) + b"{}",
        m.HEAD.pack(3) + b"\xff[]",
        m.HEAD.pack(200_000) + b"[" * 200_000,
        m.encode("bye"),
        m.encode("memory", 1, 2, 3, None),
        m.encode("machine", 1, m.VERSION, []),
    )
    for frames in nonsense:
        with place_module.connected() as connection:
            connection.sendall(frames)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    with place_module.connected() as connection:
        channel = Channel(connection)
        channel.call("status", 1, m.VERSION + 1, descriptors=[0, 0])
        ((*_, error, _),) = channel.receive()
        assert "version" in error
    with place_module.connected() as connection:
        connection.sendall(m.encode("worker", 1, m.VERSION, "cpu0/2#0"))  # and does not wait for it
    with pytest.raises(DeviceError, match="no_such_thing"):
        opened("no_such_thing")
    until(lambda: "busy" not in states())
    use(opened())


@pytest.mark.parametrize("at_work", [True, False])
def test_a_client_that_is_killed_leaves_nothing(service: Service, at_work: bool) -> None:
    """A process whose device was at work for it goes as well; one whose device was not has other clients."""
    code = (
        "import sys; from tests.drivers import test_serve as t\n"
        "d = t.opened(); q = d.queue(False); m = d.allocate(64); k = d.kernel(d.build(t.Source(t.TEXT)), 'spin')\n"
        "k.set(0, m); k.set(1, t.little(t.ENDLESS if int(sys.argv[1]) else 1, 8))\n"
        "e = d.launch(q, k, (16,), None, None, None); d.flush(q)\n"
        "if not int(sys.argv[1]): d.wait(e)\n"
        "print(d.pid, flush=True); import time; time.sleep(1000)"
    )
    words = [sys.executable, "-c", code, str(int(at_work))]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        assert states() == ["busy", "idle"] or "starting" in states()
        client.kill()
    until(lambda: states() in (["idle"], ["idle", "idle"]))
    assert (pid in [one["pid"] for one in processes()]) is not at_work
    use(opened())


def test_clients_outlive_a_service_that_is_killed(service: Service, folder: Path) -> None:
    """Three at work finish, right; a new service is not hindered by what the old one has left."""
    _, devices = open_served("cpu/4")
    drivers = [one.open() for one in devices[:3]]
    work = []
    for driver in drivers:
        queue, memory = driver.queue(timed=False), driver.allocate(64)
        driver.fill(queue, memory, b"\1", 0, 64, ())
        kernel = driver.kernel(driver.build(Source(TEXT)), "spin")
        kernel.set(0, memory)
        kernel.set(1, little(30_000_000, 8))
        driver.launch(queue, kernel, (16,), None, None, None)
        data = np.zeros(64, np.uint8)
        (event,) = driver.copy(queue, End(data), End(memory), (Rectangle(0, 64),), ())
        driver.flush(queue)
        work.append((driver, event, data))
    service.kill()
    with pytest.raises(DeviceError, match="no service"):
        devices[3].open()
    anew = Service()
    for driver, event, _ in work:
        driver.wait(event)
        use(driver)
    assert all((data == work[0][2]).all() for _, _, data in work)
    assert (work[0][2] != 1).any()
    pids = [driver.pid for driver in drivers]  # type: ignore[attr-defined]
    for driver in drivers:
        driver.release()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    use(opened())
    anew.process.terminate()
    anew.close()
    assert left_in(folder) == []


def test_a_process_that_is_killed_is_a_lost_device(service: Service) -> None:
    driver = opened()
    queue, memory = driver.queue(timed=False), driver.allocate(64)
    kernel = driver.kernel(driver.build(Source(TEXT)), "spin")
    kernel.set(0, memory)
    kernel.set(1, little(ENDLESS, 8))
    event = driver.launch(queue, kernel, (16,), None, None, None)
    driver.flush(queue)
    os.kill(driver.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(DeviceLost, match=r"cpu\d\.0 is lost: its process \d+, of manycl serve, has ended"):
        driver.wait(event)
    until(lambda: states() in (["idle"], ["idle", "idle"]))
    use(opened())


@pytest.mark.filterwarnings("ignore:.*does not work any more:RuntimeWarning")
def left_in(folder: Path) -> list[str]:
    """What is there but for the sockets by which processes of the user hear of reservations."""
    return [name for name in os.listdir(folder / "manycl") if not name.endswith(".listener")]


@pytest.mark.filterwarnings("ignore:.*does not work any more:RuntimeWarning")
def test_queues_use_it(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the results of one process, and without devices of this one; a kernel that ends its process ends no more."""
    program, n = mc.Program(PROGRAM), 1 << 12
    x0 = np.random.default_rng(5).random(n, np.float32)

    def run(queue: mc.Queue) -> Any:
        x, y = queue.array(x0), queue.zeros(n, np.float32)
        for turn in range(3):
            program.scale(queue, (n,), (64,), y, x, np.float32(turn))
            program.smooth(queue, (n,), (64,), x, y, np.int32(n))
        return x.get()

    with mc.Queue("cpu/2") as queue:
        expected = run(queue).copy()
    monkeypatch.setenv("MANYCL_SERVE", "1")
    monkeypatch.setenv("MANYCL_BOUNDS", "off")
    for _ in range(2):
        with mc.Queue("cpu/2") as queue:
            assert (run(queue) == expected).all()
    assert sum(one["clients"] for one in processes()) == 4
    with mc.Queue("cpu/2", serve=True) as queue:
        bad = queue.zeros(n, np.float32)
        program.fall(queue, (n,), (64,), bad, np.uint64(1 << 44))
        with pytest.raises(mc.ManyclError, match="of manycl serve, has ended"):
            bad.get()
        (name,) = queue.excluded
        assert (run(queue) == expected).all()
        queue.admit(name)
        assert (run(queue) == expected).all()
    with mc.Queue("cpu/2", serve=False) as queue:
        assert not queue.session.backend.drivers[0].may_be_lost


def test_applications_use_it(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "heat"]) == 0
    assert main(["run", "heat.json", "-D", "n=64", "--devices", "cpu/2", "--serve", "--check", "--quiet"]) == 0
    assert status()["served"] == 2


def test_without_a_service_it_says_what_to_do(folder: Path) -> None:
    with pytest.raises(DeviceError) as caught:
        mc.Queue("cpu", serve=True)
    assert caught.value.hint == "start it: manycl serve"
    assert os.listdir(folder) == []


def test_a_place_is_left_as_it_was_found(folder: Path) -> None:
    """A socket that one that was killed has left is taken over; two cannot be there at once."""
    first = place_module.ServicePlace()
    with pytest.raises(DeviceError, match="runs already"):
        place_module.ServicePlace()
    place_module.connected().close()
    os.close(first._lock)  # as the kernel does
    first.listener.close()
    with pytest.raises(DeviceError, match="no service"):
        place_module.connected()
    second = place_module.ServicePlace()
    place_module.connected().close()
    second.leave()
    assert left_in(folder) == []


def test_processes_that_cannot_begin_are_not_started_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manycl.drivers.worker.handle._START", "raise SystemExit({1} * 0 + 3)")
    server = Server()
    running = threading.Thread(target=server.run)
    running.start()
    try:
        with pytest.raises(DeviceError, match=r"\d processes in a row"):
            open_served("cpu")
        with pytest.raises(DeviceError, match=r"\d processes in a row"):
            open_served("cpu/2")
        assert processes() == []
    finally:
        assert main(["serve", "--stop"]) == 0
        running.join()


def test_more_clients_than_processes_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one that is free again."""
    monkeypatch.setattr(pool_module, "MOST", 1)
    server = Server()
    running = threading.Thread(target=server.run)
    running.start()
    try:
        first = opened()
        pids = [first.pid]  # type: ignore[attr-defined]

        def second() -> None:
            driver = opened()
            use(driver)
            pids.append(driver.pid)  # type: ignore[attr-defined]
            driver.release()

        waiting = threading.Thread(target=second)
        waiting.start()
        until(lambda: status()["waiting"] == 1)
        use(first)
        first.release()
        waiting.join()
        assert len(set(pids)) == 1
        until(lambda: states() == ["idle"])
    finally:
        assert main(["serve", "--stop"]) == 0
        running.join()
