"""How processes end by signals: of a kernel that faults all is told that is known, in every kind of program and on one
device and four; signals from outside end programs as they always do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.c_programs.c_toolchain import by_manycl, compiled, needs_c

SOURCE = """
kernel void far(global int *x, long at) { x[x[get_global_id(0)] + at] = 1; }
kernel void endless(global volatile int *x, long at) { while (x[0] == 0) ; }
kernel void deep(global int *x, long at) {
    int t[6000000], sum = 0;
    for (int i = 0; i < 6000000; i += 512) t[i] = x[i & 63] * i;
    for (int i = 0; i < at; i++) sum += t[(x[i & 63] + i * 7919) % 6000000 & ~511];
    x[get_global_id(0)] = sum;
}
kernel void own(global int *x, long at) {
    int t[4];
    int n = at + x[0];
    for (int i = 0; i < n; i++) t[i] = x[i];
    x[get_global_id(0)] = t[0] + t[n - 1];
}
"""
BEGIN = """
import ctypes, os, platform, signal, sys, time
import numpy as np
word, at, device, number = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
source = open(sys.argv[5]).read()
"""
END = """
print("enqueued", flush=True)
def running():
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/stat") as file:
                name, state = file.read().rsplit(")", 1)
        except OSError:  # a thread that has ended
            continue
        if "manycl-native" in name and int(state.split()[11]) >= 5:  # ticks of computing: it is in the kernel
            return int(task)
while number and (task := running()) is None:
    time.sleep(0.01)
call = {"x86_64": 234, "aarch64": 131}[platform.machine()]
while number:  # as the kernel's instruction would get it, again where a handler (LLVM has one) goes on behind it
    ctypes.CDLL(None).syscall(call, os.getpid(), task, number)
    time.sleep(0.2)
"""
PYTHON = f"""{BEGIN}
import manycl as mc
queue = mc.Queue(device)
x = queue.zeros(64, np.int32)
getattr(mc.Program(source), word)(queue, (64,), (16,), x, at)
queue.flush()
{END}
x.get()
"""
EXEC = f"""{BEGIN}
import pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
x = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(64, np.int32))
getattr(cl.Program(context, source).build(), word)(queue, (64,), (16,), x, np.int64(at))
queue.flush()
{END}
queue.finish()
"""
NAMES = {
    signal.SIGSEGV: "segmentation fault (SIGSEGV)",
    signal.SIGBUS: "bus error (SIGBUS)",
    signal.SIGILL: "illegal instruction (SIGILL)",
    signal.SIGFPE: "arithmetic exception (SIGFPE)",
    signal.SIGABRT: "abort (SIGABRT)",
}


def started(
    how: str, folder: Path, word: str, at: int = 0, device: str = "cpu0", number: int = 0
) -> subprocess.Popen[str]:
    """A program of a kind that launches a kernel."""
    (folder / "k.cl").write_text(SOURCE)
    (folder / "program.py").write_text(PYTHON if how == "python" else EXEC)
    words = [sys.executable, str(folder / "program.py"), word, str(at), device, str(number), str(folder / "k.cl")]
    settings = os.environ | {"TMPDIR": str(folder)}
    settings.pop("PYTHONFAULTHANDLER", None)
    if how == "exec":
        words = [sys.executable, "-m", "manycl", "exec", "--devices", device, "--", *words]
    elif how == "c":
        words, settings = by_manycl(compiled("deaths.c", folder), "--devices", device)
        words.append(word)
    elif how == "run":
        kernel = {"name": word, "global": 64, "local": 16, "args": ["x", at]}
        buffers = {"x": {"type": "int", "shape": 64}}
        application = {"manycl": 1, "source": "k.cl", "buffers": buffers, "kernels": [kernel]}
        (folder / "app.json").write_text(json.dumps(application))
        words = [sys.executable, "-m", "manycl", "run", str(folder / "app.json"), "--devices", device, "--quiet"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    limited = ["sh", "-c", 'ulimit -t 60; exec "$@"', "sh", *words]  # no kernel is endless for good, whoever is ended
    return subprocess.Popen(limited, env=settings, cwd=folder, **pipes)


def words_of(child: subprocess.Popen[str]) -> str:
    """What it says on stderr until it ends, which it does."""
    try:
        return child.communicate(timeout=100)[1]
    except subprocess.TimeoutExpired:
        child.kill()
        raise AssertionError(f"it does not end: {child.communicate()[1]}") from None


def has_begun(how: str, folder: Path, child: subprocess.Popen[str]) -> None:
    """Its kernel has been enqueued, and there has been some time for it to begin."""
    if how == "run":
        while child.poll() is None and not any("endless" in note.read_text() for note in folder.glob("*.note")):
            time.sleep(0.05)
    else:
        assert child.stdout is not None
        if child.stdout.readline() != "enqueued\n":
            raise AssertionError(words_of(child))
    time.sleep(0.1)


@pytest.mark.parametrize(
    ("how", "device", "number"),
    [
        ("python", "cpu0", signal.SIGSEGV),
        ("python", "cpu0", signal.SIGBUS),
        ("python", "cpu0", signal.SIGABRT),
        ("python", "cpu/4", signal.SIGILL),
        ("exec", "cpu0", signal.SIGFPE),
        ("exec", "cpu/4", signal.SIGSEGV),
        pytest.param("c", "cpu0", signal.SIGSEGV, marks=needs_c),
        pytest.param("c", "cpu/4", signal.SIGSEGV, marks=needs_c),
        ("run", "cpu0", signal.SIGSEGV),
        ("run", "cpu/4", signal.SIGSEGV),
    ],
)
def test_the_last_words_of_a_kernel(how: str, device: str, number: signal.Signals, tmp_path: Path) -> None:
    """Said once; the process dies by its signal. An array that a kernel writes behind is seen by an abort."""
    kernel, at = {signal.SIGSEGV: ("far", 1 << 40), signal.SIGABRT: ("own", 6)}.get(number, ("endless", 0))
    child = started(how, tmp_path, kernel, at, device, number if kernel == "endless" else 0)
    said = words_of(child)
    assert child.returncode == -number, said
    name = "cpu0" if device == "cpu0" else "cpu0."
    assert said.count(f"manycl: {NAMES[number]} in kernel {kernel} on {name}") == said.count("manycl: ") == 1, said
    assert "launch: global size (64,), work-groups of (" in said
    assert "it ran work-groups " in said
    assert ("address: 0x" in said) == (kernel == "far")
    assert ("of the kernel's own" in said) == (number == signal.SIGABRT)
    assert "MANYCL_CHECK=bounds" in said


NEAR = """
import ctypes, mmap, sys
from dataclasses import replace
import numpy as np
from manycl.drivers.driver import Source
from manycl.drivers.native import program
from manycl.drivers.native.devices import found_with
at, page = int(sys.argv[1]), mmap.PAGESIZE
pages = mmap.mmap(-1, 3 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
for guard in (start, start + 2 * page):
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0)
found = found_with(program.build)
driver = found.handle.open(replace(found.device, name="cpu0"))
text = "kernel void near(long at, global char *velocity) { velocity[at + get_global_id(0)] = 1; }"
kernel = driver.kernel(driver.build(Source(text)), "near")
kernel.set(0, (page + at if at >= 0 else at).to_bytes(8, "little", signed=True))
kernel.set(1, driver.allocate(page, np.frombuffer(pages, np.uint8, page, page)))
driver.wait(driver.launch(driver.queue(False), kernel, (1,), (1,), None, None))
"""


@pytest.mark.parametrize(
    ("at", "words"), [(24, "24 bytes behind the end of velocity ("), (-8, "8 bytes before the beginning of velocity (")]
)
def test_the_array_that_an_address_is_near(at: int, words: str) -> None:
    """Of memory with pages on both sides that are not there."""
    ended = subprocess.run([sys.executable, "-c", NEAR, str(at)], capture_output=True, text=True, timeout=100)
    assert ended.returncode == -signal.SIGSEGV, ended.stderr
    assert f", {words}{os.sysconf('SC_PAGE_SIZE')} bytes)\n" in ended.stderr


def test_work_items_that_need_more_stack_than_there_is(tmp_path: Path) -> None:
    """Told on another stack."""
    child = started("python", tmp_path, "deep", 50)
    said = words_of(child)
    assert child.returncode == -signal.SIGSEGV
    assert "in kernel deep on cpu0" in said
    assert said.endswith("private memory than the thread's stack has: choose a smaller work-group\n")


def test_a_worker_process_tells_its_parent(tmp_path: Path) -> None:
    child = started("python", tmp_path, "own", 6, "cpu/2@process")
    said = words_of(child)
    assert child.returncode == 1
    assert "was ended by SIGABRT: abort (SIGABRT) in kernel own on cpu0." in said
    assert "launch: global size (64,), work-groups of (" in said


def test_a_fault_of_another_driver_s_thread_names_what_ran(tmp_path: Path) -> None:
    child = started("python", tmp_path, "far", 1 << 40, "pocl")
    said = words_of(child)
    assert child.returncode == -signal.SIGSEGV
    assert (
        "manycl: segmentation fault (SIGSEGV) in a thread that is not manycl's, while this ran:\n  kernel far" in said
    )


def test_faults_that_are_no_kernel_s_are_as_ever(tmp_path: Path) -> None:
    """Nothing is said of them, and what handled them before and afterwards still does."""
    program = tmp_path / "program.py"
    program.write_text("""
import ctypes, faulthandler, os, signal, sys
import numpy as np, manycl as mc
if sys.argv[1] == "before": faulthandler.enable()
queue = mc.Queue("cpu0")
x = queue.zeros(64, np.int32); x += 1; print(x.get()[0], flush=True)
if sys.argv[1] == "after": faulthandler.enable()
while sys.argv[1] == "sent":  # (the first may be lost to a handler that LLVM has)
    os.kill(os.getpid(), signal.SIGSEGV)
ctypes.string_at(0)
""")
    for when in ("sent", "before", "after", "never"):
        ended = subprocess.run([sys.executable, str(program), when], capture_output=True, text=True, timeout=100)
        assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "1\n")
        assert ended.stderr.count("Fatal Python error: Segmentation fault") == (when in ("before", "after"))
        assert "manycl: " not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE])
@pytest.mark.parametrize("how", ["python", "exec", "run", pytest.param("c", marks=needs_c)])
def test_signals_from_outside(how: str, number: signal.Signals, tmp_path: Path) -> None:
    """A kernel that never ends does not keep a process from ending: by its signal, without a word of faults. Python
    ignores SIGPIPE; of Ctrl-C it is said what is waited for, and the next one leaves it."""
    device = "cpu/4" if number in (signal.SIGINT, signal.SIGHUP) else "cpu0"
    child = started(how, tmp_path, "endless", device=device)
    try:
        has_begun(how, tmp_path, child)
        child.send_signal(number)
        if number == signal.SIGPIPE and how != "c":
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.3)
            child.send_signal(signal.SIGTERM)
        while number == signal.SIGINT and how != "c":
            try:
                child.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                child.send_signal(number)
        said = words_of(child)
    finally:
        child.kill()
    expected = -signal.SIGTERM if number == signal.SIGPIPE and how != "c" else -number
    ends = {expected}
    if number == signal.SIGINT and how != "c":  # (1: where Python is interrupted in ending, too)
        ends |= {130 if how == "run" else 1}
    assert child.returncode in ends, said
    assert "Ctrl-C again" not in said
    assert not any(f"{name} in " in said for name in NAMES.values())
    if how == "run" and number != signal.SIGINT:
        assert "the process was lost while this ran:\n  kernel endless" in said
    if how == "run" and number == signal.SIGINT:
        assert "manycl: interrupted" in said
