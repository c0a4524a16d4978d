"""Native devices in their processes: their cores, parts, threads and ends, and how they are chosen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.drivers import choice
from manycl.drivers.choice import open_devices
from manycl.drivers.driver import DriverError
from manycl.drivers.native import cores as processor
from manycl.drivers.native import devices, program
from manycl.drivers.native.compiler import library
from manycl.drivers.native.driver import NativeDriver
from manycl.errors import DeviceError, ManyclError
from manycl.machine import HOST
from tests import environment
from tests.drivers.native import native_entries

THREAD = "manycl-native"
CORES = sorted(os.sched_getaffinity(0))


def threads() -> set[int]:
    """Of this process, those that are a native device's."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            if (task / "comm").read_text().strip() == THREAD:
                found.add(int(task.name))
    return found


def open_on(cores: list[int]) -> NativeDriver:
    compiler = native_entries.compile_entries
    return NativeDriver(devices.found_with(compiler).device, cores, compiler)


def launched(driver: Any, name: str, groups: int, *args: Any) -> Any:
    kernel = driver.kernel(driver.build(native_entries.ALL), name)
    for index, value in enumerate(args):
        kernel.set(index, value)
    return driver.launch(driver.queue(timed=False), kernel, (groups,), (1,), None, None)


def until(condition: Any) -> None:
    """For what has no event: the end of a thread."""
    while not condition():
        time.sleep(0.001)


def test_work_groups_run_on_the_devices_cores() -> None:
    for cores in ([CORES[0]], [CORES[-1]], CORES):
        driver = open_on(cores)
        where = np.full(64, 1 << 30, np.uint32)
        driver.wait(launched(driver, "where", 64, driver.allocate(256, where.view(np.uint8))))
        assert set(where.tolist()) <= set(cores)
        driver.release()


def test_threads_are_pinned_and_end_when_released() -> None:
    before = threads()
    driver = open_on([CORES[0], CORES[-1]])
    driver.wait(launched(driver, "nothing", 64))
    until(lambda: len(threads() - before) == 2)
    mine = threads() - before
    allowed = [os.sched_getaffinity(thread) for thread in mine]
    assert sorted(map(sorted, allowed)) == sorted([[CORES[0]], [CORES[-1]]])
    word = np.zeros(1, np.uint32)
    event = launched(driver, "flag", 1, driver.allocate(4, word.view(np.uint8)))
    driver.release()
    driver.release()
    with pytest.raises(DriverError):
        driver.queue(timed=False)
    assert threads() & mine  # one of them has something to do
    word[0] = 1
    driver.wait(event)
    until(lambda: not threads() & mine)


def test_a_driver_that_is_dropped_ends_its_threads() -> None:
    before = threads()
    driver = open_on([-1] * 3)
    until(lambda: len(threads() - before) == 3)
    del driver
    until(lambda: threads() <= before)


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    native_entries.add(monkeypatch)
    return monkeypatch


@pytest.mark.parametrize(
    ("selection", "units"),
    [
        ("entries", [4]),
        ("entries/2", [2, 2]),
        ("entries/4#1-2", [1, 1]),
        ("entries/1+3", [1, 3]),
        ("ENTRIES/3", [1] * 3),
    ],
)
def test_it_is_chosen_by_its_name(entries: Any, selection: str, units: list[int]) -> None:
    machine, opened = open_devices(selection)
    assert [d.compute_units for d in machine.devices] == units
    assert all(d.memory == HOST and d.kind == "cpu" and d.platform == "native" for d in machine.devices)
    entries.setenv("MANYCL_ZERO_COPY", "0")
    machine, _ = open_devices(selection)
    assert [d.memory for d in machine.devices] == list(range(1, len(units) + 1))
    assert len(opened) == len(units)


def test_what_shows_a_processor_first_is_still_taken_for_it(entries: Any) -> None:
    names = [root.device.name for root in choice.survey().roots if root.driver == "entries"]
    assert len(names) == 1
    for selection in ("all", "cpu"):
        machine, _ = open_devices(selection)
        assert [d.name for d in machine.devices if d.kind == "cpu"] == ["cpu0"] != names
    machine, _ = open_devices("entries/2,cpu0")
    assert [d.name for d in machine.devices] == [f"{names[0]}.0", f"{names[0]}.1", "cpu0"]
    with pytest.raises(DeviceError):
        open_devices("entries/5")


def test_without_a_compiler_or_on_other_systems_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [found.device.platform for found in devices.look([])] == ["native"]
    with monkeypatch.context() as patch:
        patch.setenv("MANYCL_CLANG", "no-such-program")
        assert devices.look([]) == []
    with monkeypatch.context() as patch:
        patch.delattr(os, "sched_getaffinity")
        assert devices.look([]) == []
    monkeypatch.setattr(devices.platform, "machine", lambda: "riscv64")
    assert devices.look([]) == []


def test_parts_have_cores_of_their_own() -> None:
    handle = devices.NativeHandle(range(8), lambda: native_entries.compile_entries)
    for division, sizes in (((3,), [2, 2, 2]), ((1, 4, 3), [1, 4, 3]), ((8,), [1] * 8)):
        parts = handle.divide(division)
        assert [part.compute_units for part in parts] == sizes
        cores = [core for part in parts for core in part._cores]  # type: ignore[attr-defined]
        assert len(cores) == len(set(cores)) <= 8
    for division in ((9,), (4, 5)):
        with pytest.raises(DriverError):
            handle.divide(division)


def test_a_part_does_not_wait_for_another(entries: Any) -> None:
    _, (first, second) = open_devices("entries/2")
    busy, free = first.open(), second.open()
    words = np.zeros(64, np.uint32)
    event = launched(busy, "flag", 2, busy.allocate(256, words.view(np.uint8)))  # both of its threads
    free.wait(launched(free, "add", 64, free.allocate(256, words.view(np.uint8)), (1).to_bytes(4, "little")))
    busy.wait(event)
    for driver in (busy, free):
        driver.release()


def test_cores_in_the_order_of_nodes_packages_and_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of two cores, of which each has two threads that are far apart by number."""
    for core in range(8):
        topology = tmp_path / f"cpu{core}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{core % 2}\n")
        (topology / "core_id").write_text(f"{core % 4 // 2}\n")
        (tmp_path / f"cpu{core}" / f"node{core % 2}").mkdir()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    assert list(processor.cores(0, tmp_path)) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert list(processor.cores(3, tmp_path)) == [0, 4, 2]
    assert list(processor.cores(9, tmp_path)) == [-1] * 9
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 6})
    assert list(processor.cores(0, tmp_path)) == [6, 1]
    assert list(processor.cores(0, tmp_path / "absent")) == [1, 6]


@pytest.mark.parametrize(
    ("flags", "lanes"), [("sse2 sse4_1", 4), ("sse2 avx avx2", 8), ("sse2 avx avx2 avx512f", 16), ("", 4)]
)
def test_vectors_are_as_wide_as_the_processors(flags: str, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device is taken to compute at once, and what kernels are compiled for."""
    monkeypatch.setattr(processor, "_cpuinfo", lambda: f"processor : 0\nflags\t\t: fpu {flags}\nbugs\t: none\n")
    assert processor.lanes() == lanes
    compiler = SimpleNamespace(features=tuple(f"+{flag}" for flag in flags.split()))
    monkeypatch.setattr(program.clang, "find", lambda: compiler)
    assert program.lanes() == lanes


def test_numbers_of_threads_that_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("-1", "two", "1e3", "99999"):
        monkeypatch.setenv("MANYCL_THREADS", value)
        with pytest.raises(ManyclError):
            mc.flags.check()


def test_what_is_described_is_there(entries: Any) -> None:
    (device,) = open_devices("entries")[0].devices
    assert device.model
    assert device.clock > 1e8
    assert 1 << 20 < device.max_allocation <= device.global_memory
    assert device.max_work_group == native_entries.MOST_ITEMS


@pytest.mark.parametrize("number", range(len(library.compilers())))
def test_every_compiler_makes_the_runtime(number: int, tmp_path: Path) -> None:
    target = tmp_path / "runtime.so"
    library.compile_shared(library.compilers()[number], library.RUNTIME, target)
    made = library.Library(str(target))
    cores = (library.ctypes.c_int * 2)(-1, -1)
    device = made.open(library.ctypes.addressof(cores), 2, 0)
    queue, word = made.queue(device), library.ctypes.create_string_buffer(64)
    number = made.fill(queue, library.ctypes.addressof(word), b"ab", 2, 64, None, 0)
    while made.wait(queue, number):
        pass
    assert word.raw == b"ab" * 32
    made.free_queue(queue)
    made.close(device)


def test_a_compiler_that_fails(tmp_path: Path) -> None:
    source = tmp_path / "broken.c"
    source.write_text("int f(void) { return nowhere_declared; }\n")
    for compiler in library.compilers():
        with pytest.raises(DriverError, match="nowhere_declared"):
            library.compile_shared(compiler, source, tmp_path / "broken.so")
    with pytest.raises(DriverError):
        library.compile_shared(library.Compiler((str(tmp_path / "absent"),)), source, tmp_path / "broken.so")


START = """
import os, signal, sys, threading, time
import numpy as np
from tests.drivers.native import native_entries
from manycl.drivers.driver import DriverError, End, RecordedLaunch
from manycl.drivers.native.devices import found_with
from manycl.drivers.native.driver import NativeDriver
from manycl.region import Rectangle
compiler = native_entries.compile_entries
driver = NativeDriver(found_with(compiler).device, (-1, -1), compiler)
program = driver.build(native_entries.ALL)
queue = driver.queue(True)
def kernel(name, *args):
    made = driver.kernel(program, name)
    for index, value in enumerate(args):
        made.set(index, value)
    return made
def shared(array):
    return driver.allocate(array.nbytes, array.view(np.uint8))
def launch(*args, groups=1):
    return driver.launch(queue, kernel(*args), (groups,), (1,), None, None)
word, one = np.zeros(1, np.uint32), bytes((1, 0, 0, 0))
"""


def in_process(code: str) -> str:
    command = [sys.executable, "-c", START + code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_ends_while_commands_run() -> None:
    code = """
result = np.zeros(1 << 20, np.uint8)
event = launch("flag", shared(word))
driver.copy(queue, End(result), End(np.ones(1 << 20, np.uint8)), (Rectangle(0, 1 << 20),), ())
del result, event
print("ends")
"""
    assert in_process(code) == "ends"
    assert in_process(code + "del driver, queue\nprint('ends')") == "ends\nends"


def test_ctrl_c_ends_a_wait_and_the_driver_goes_on() -> None:
    code = """
event = launch("flag", shared(word))
threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,)).start()
try:
    driver.wait(event)
    print("waited")
except KeyboardInterrupt:
    print("interrupted")
word[0] = 1
driver.wait(event)
x = np.zeros(8, np.uint32)
driver.wait(launch("add", shared(x), one, groups=8))
print(x.sum())
"""
    code = code.replace("signal.raise_signal, (signal.SIGINT,)", "os.kill, (os.getpid(), signal.SIGINT)")
    assert in_process(code).split() == ["interrupted", "8"]


def test_a_process_that_was_forked_is_told() -> None:
    """The parent's commands are under way meanwhile, and end."""
    code = """
event = launch("flag", shared(word))
host = np.zeros(4, np.uint8)
memory = driver.allocate(4)
pid = os.fork()
if not pid:
    asked = (
        lambda: driver.done(event), lambda: driver.wait(event), lambda: driver.queue(True),
        lambda: launch("add", shared(word), one),
        lambda: driver.copy(queue, End(memory), End(host), (Rectangle(0, 4),), ()),
        lambda: driver.fill(queue, memory, one, 0, 4, ()),
    )
    told = 0
    for ask in asked:
        try:
            ask()
        except DriverError as error:
            told += "fork" in error.message
    driver.finish()
    driver.release()
    told += not driver.succeeded([event])
    del queue, event
    sys.exit(told)
_, status = os.waitpid(pid, 0)
word[0] = 1
driver.wait(event)
print(os.waitstatus_to_exitcode(status))
"""
    assert in_process(code) == "7"


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_launch_without_memory_for_its_frame_fails_and_others_run(is_recorded: bool) -> None:
    """Where the address space is short."""
    code = (
        f"is_recorded = {is_recorded}"
        + """
import resource
x = np.zeros(8, np.uint32)
run, little = kernel("huge", shared(x), one), kernel("add", shared(x), one)
other = driver.queue(True)
driver.wait(driver.launch(queue, little, (8,), (1,), None, None))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20), resource.RLIM_INFINITY))
if is_recorded:
    commands = [RecordedLaunch(queue, (), of, (0, 1), (8,), (1,), None) for of in (little, run, little)]
    table, events = [shared(x), one], []
    driver.play(driver.bind(driver.record(commands, table), table), events)
    first, failed, last = events
else:
    first, failed, last = [driver.launch(queue, of, (8,), (1,), None, None) for of in (little, run, little)]
beside = driver.launch(other, little, (8,), (1,), None, [failed])
driver.finish()
for event in (first, failed, last, beside):
    try:
        assert driver.done(event)
        driver.wait(event)
        print("ran")
    except DriverError as error:
        print("failed" if "memory" in error.message else error.message)
print(driver.succeeded([first, last]), driver.succeeded([first, failed]))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
driver.wait(driver.launch(queue, run, (8,), (1,), None, None))
print(x.tolist())
"""
    )
    *outcomes, both, values = in_process(code).splitlines()
    assert outcomes == ["ran", "failed", "ran", "ran"]
    assert both == "True False"
    assert values == str([5] * 8)


@pytest.mark.parametrize("zero_copy", ["1", "0"])
def test_an_application_runs_on_it(entries: Any, zero_copy: str) -> None:
    """One whose kernels nobody has to rewrite: on one device, with and without a memory of its own."""
    program = mc.Program("kernel void add(global uint *x, uint by) { x[get_global_id(0)] += by; }")
    entries.setenv("MANYCL_ZERO_COPY", zero_copy)
    a, b = np.arange(4096, dtype=np.uint32), np.zeros(4096, np.uint32)
    with mc.Queue("entries", profile=True) as queue:
        x, y = queue.array(a), queue.array(b)
        for turn in range(6):
            for by in range(20):
                event = program.add(queue, (4096,), (64,), x, np.uint32(by))
                program.add(queue, (4096,), None, y, np.uint32(turn))
                a, b = a + np.uint32(by), b + np.uint32(turn)
            if turn == 2:
                queue.copy(y, x)
                b = a
            elif turn == 4:
                queue.fill(x[1024:2048], 7)
                a[1024:2048] = 7
            if turn % 2:
                assert (x.get() == a).all()
        assert (y.get() == b).all()
        assert event.start < event.end
        assert isinstance(queue.session.backend.drivers[0], NativeDriver)
