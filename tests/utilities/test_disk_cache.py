"""Answers that outlive a process are right, whoever reads, writes, damages or changes what they depend on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from manycl.analysis import parse_program, service
from manycl.analysis.interpreter import interpret
from manycl.analysis.known_launch import KnownLaunch
from manycl.graph.graph import BufferArg, Launch
from manycl.plan import splitting
from manycl.plan.split import Split
from manycl.utilities import disk_cache
from manycl.utilities.disk_cache import DiskCache, DiskRecords, _states
from manycl.utilities.kept import Kept

CODE = ("manycl",)
EDGES = """kernel void edges(global const float *a, global float *b, int n) {
    int i = get_global_id(0);
    b[i] = (i > 0 ? a[i - 1] : 0.f) + (i < n - 1 ? a[i + 1] : 0.f);
}"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYCL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """What the other process is asked from here on; this one has forgotten all that it knew."""
    asked: list[object] = []
    ask = service._ask_worker

    def noted(request: object) -> object:
        asked.append(request)
        return ask(request)  # type: ignore[arg-type]

    monkeypatch.setattr(service, "_ask_worker", noted)
    for known in (service._programs, service._texts, service._units):
        monkeypatch.setattr(service, next(k for k, v in vars(service).items() if v is known), Kept(9))
    return asked


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_programs", Kept(9))
    monkeypatch.setattr(service, "_texts", Kept(9))


def test_tests_find_nothing_that_others_have_found_out_but_their_processes_do() -> None:
    assert disk_cache.cache_folder() is None
    code = "from manycl.utilities import disk_cache; print(disk_cache.cache_folder())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == os.environ["MANYCL_CACHE"]


def test_what_was_kept_is_found(folder: Path) -> None:
    assert DiskCache("words", 1 << 20, CODE).get(b"question") is None
    DiskCache("words", 1 << 20, CODE).keep(b"question", b"answer")
    again = DiskCache("words", 1 << 20, CODE)
    assert again.get(b"question") == b"answer"
    assert again.get(b"another") is None
    assert DiskCache("others", 1 << 20, CODE).get(b"question") is None
    again.keep(b"empty", b"")
    assert again.get(b"empty") == b""
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder / "words").iterdir())


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 40])
def test_what_was_damaged_is_not_believed(folder: Path, damage: bytes) -> None:
    cache = DiskCache("words", 1 << 20, CODE)
    cache.keep(b"question", b"a long answer")
    (path,) = (folder / "words").iterdir()
    path.write_bytes(path.read_bytes()[: len(damage)] if damage == b"x" else damage)
    assert cache.get(b"question") is None
    cache.keep(b"question", b"a long answer")
    assert cache.get(b"question") == b"a long answer"


def test_the_code_that_found_it_has_not_changed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "finders"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "rules.py").write_text("one = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "finders", "finders/inner"
    DiskCache("words", 1 << 20, code).keep(b"question", b"answer")
    assert DiskCache("words", 1 << 20, code).get(b"question") == b"answer"
    (package / "inner" / "rules.py").write_text("three = 3")
    assert DiskCache("words", 1 << 20, code).get(b"question") == b"answer", "this process has the code of before"
    _states.cache_clear()  # as another one begins
    assert DiskCache("words", 1 << 20, code).get(b"question") is None
    unknown = DiskCache("words", 1 << 20, ("no_such_package_at_all",))
    unknown.keep(b"question", b"answer")
    assert unknown.get(b"question") is None


def test_it_stays_within_its_bound(folder: Path) -> None:
    most = 40 * 4096
    for _ in range(3):
        cache = DiskCache("words", most, CODE)
        for n in range(100):
            cache.keep(b"%d" % n, b"x" * 1000)
    cache = DiskCache("words", most, CODE)  # looks when it keeps for the first time
    cache.keep(b"last", b"answer")
    assert cache.trimming is not None
    cache.trimming.join()
    assert sum(512 * path.stat().st_blocks for path in (folder / "words").iterdir()) <= most + 4096
    assert cache.get(b"last") == b"answer"


def test_many_at_once_find_whole_answers(folder: Path) -> None:
    def work(seed: int) -> list[bytes | None]:
        cache = DiskCache("words", 1 << 20, CODE)
        found = []
        for n in range(60):
            question = b"%d" % ((n * seed) % 7)
            cache.keep(question, question * 5000)
            found += [(cache.get(b"%d" % k), b"%d" % k * 5000) for k in range(7)]
        return [answer for answer, right in found if answer not in (None, right)]

    with ThreadPoolExecutor(6) as pool:
        assert all(not wrong for wrong in pool.map(work, range(1, 7)))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o500)
    cache = DiskCache("words", 1 << 20, CODE)
    cache.keep(b"question", b"answer")
    assert cache.get(b"question") is None


def test_what_follows_a_long_loop_is_found_by_the_next_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accesses of a launch whose loop is followed step by step are those that are found anew; of a launch that is
    followed quickly, nothing is kept."""
    program = parse_program("""kernel void f(global float *x, int n) {
        int i = get_global_id(0), m = 0; float v = x[i];
        for (int k = 0; k < 60; k++) { m = (m * 5 + k) % 64; v += x[m]; if (m == 63) m = n; }
        x[(i + n) % 64] = v;
    } kernel void g(global float *x) { x[get_global_id(0)] = 1; }""")
    launch = KnownLaunch((64,), (16,), (), {1: b"\7\0\0\0"}, {0: 256})
    known = [Kept[object, object](9) for _ in range(3)]
    found = []
    for each in known:
        monkeypatch.setattr(service, "_interpreted", each)
        found.append(service.interpreted(program, "f", launch))
        monkeypatch.setattr(interpret, "_followed", None)  # (then nothing can be followed)
    assert found[0] is not found[1]
    assert found[0] == found[1] == found[2]
    assert not found[0].failure
    monkeypatch.undo()
    assert found[0] == interpret.interpret(service._unit(program), program.kernels["f"], launch)
    assert {path.name for path in folder.iterdir()} >= {"followed"}
    before = len(list((folder / "followed").iterdir()))
    service.interpreted(program, "g", KnownLaunch((64,), (16,), (), {}, {0: 256}))
    assert len(list((folder / "followed").iterdir())) == before == 1


def test_a_file_in_its_place_is_no_reason_to_fail(folder: Path) -> None:
    folder.write_text("not a folder")
    cache = DiskCache("words", 1 << 20, CODE)
    cache.keep(b"question", b"answer")
    assert cache.get(b"question") is None
    assert parse_program("kernel void f(global int *x) { x[0] = 71; }").kernels


def test_nothing_is_read_that_somebody_else_could_have_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in folders that others may write, nor files of others, nor the user's own answer to another question."""
    cache = DiskCache("words", 1 << 20, CODE)
    cache.note(b"question", ("answer",))
    (path,) = (folder / "words").iterdir()
    for mode in (0o777, 0o770, 0o702):
        (folder / "words").chmod(mode)
        disk_cache._tell.cache_clear()
        assert cache.recall(b"question") is None
        assert "others can write there" in caplog.messages[-1]
        cache.note(b"another", ("answer",))
        assert list((folder / "words").iterdir()) == [path]
    (folder / "words").chmod(0o755)
    assert cache.recall(b"question") == ("answer",)
    (folder / "words").rename(folder / "real")
    (folder / "words").symlink_to(folder / "real")
    assert cache.recall(b"question") is None
    (folder / "words").unlink()
    (folder / "real").rename(folder / "words")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert cache.recall(b"question") is None
    monkeypatch.setattr(disk_cache, "is_own", lambda state, others: True)
    assert cache.recall(b"question") is None
    monkeypatch.setattr(os, "geteuid", lambda: me)
    assert cache.recall(b"question") == ("answer",)
    cache.note(b"another", ("other",))
    (other,) = set((folder / "words").iterdir()) - {path}
    path.replace(other)
    assert cache.recall(b"another") is None


def test_a_disk_without_room_is_no_reason_to_fail(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, with its cause, and nothing is left half written."""
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(tempfile, "mkstemp", lambda **where: (os.dup(full), os.path.join(where["dir"], "half written")))
    disk_cache._tell.cache_clear()
    cache = DiskCache("words", 1 << 20, CODE)
    for n in range(3):
        cache.keep(b"%d" % n, bytes(10_000))
    assert cache.get(b"0") is None
    assert list((folder / "words").iterdir()) == []
    assert [m for m in caplog.messages if "No space left on device" in m] == [
        f"nothing is kept in {folder}: No space left on device"
    ]
    os.close(full)


def test_nothing_is_kept_if_that_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_CACHE", "0")
    cache = DiskCache("words", 1 << 20, CODE)
    cache.keep(b"question", b"answer")
    assert cache.get(b"question") is None
    assert not folder.exists()


def test_answers_about_one_subject_are_one_file_that_is_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "_TOGETHER", 3)
    first, second = (DiskRecords("words", 1 << 20, CODE) for _ in range(2))
    assert not first.of(b"subject")
    assert not second.of(b"subject")
    for records, question, answer in ((first, "a", 1), (second, ("b",), 2), (first, "c", 3)):
        records.add(b"subject", question, answer)
    first.add(b"other", "a", 4)
    assert len(list((folder / "words").iterdir())) == 2
    assert first.of(b"subject") == {"a": 1, "c": 3}
    assert DiskRecords("words", 1 << 20, CODE).of(b"subject") == {"a": 1, ("b",): 2, "c": 3}
    first.add(b"subject", "d", 5)
    assert DiskRecords("words", 1 << 20, CODE).of(b"subject") == {("b",): 2, "c": 3, "d": 5}, "the oldest goes"
    second.add(b"subject", "e", 6, later=True)
    assert "e" not in DiskRecords("words", 1 << 20, CODE).of(b"subject")
    second._end()
    assert "e" in DiskRecords("words", 1 << 20, CODE).of(b"subject")
    for path in (folder / "words").iterdir():
        path.write_bytes(b"x")
    assert not DiskRecords("words", 1 << 20, CODE).of(b"subject")


def test_a_source_is_analysed_once(folder: Path, unasked: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    first = parse_program(EDGES, options=["-DX=1"])
    divided = service.sub_kernel(first, "edges")
    assert len(unasked) == 2
    forget(monkeypatch)
    again = parse_program(EDGES, options=["-DX=1"])
    assert len(unasked) == 2
    assert again == first
    assert again is not first
    assert service.sub_kernel(again, "edges") == divided
    assert len(unasked) == 2
    other = parse_program(EDGES, options=["-DX=2"])
    assert len(unasked) == 3
    assert other.options == ("-DX=2",)


def test_files_that_are_included_may_change(
    folder: Path, unasked: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = '#include "part.h"\nkernel void f(global int *x) { x[0] = VALUE; }'
    for value, turn in (("x[1]", 1), ("7", 2)):
        (tmp_path / "part.h").write_text(f"#define VALUE {value}")
        facts = parse_program(source)
        assert facts.kernels["f"].arguments[0].reads == (value == "x[1]")
        assert len(unasked) == turn


PROCESS = """
import json, os, sys
import numpy as np
import manycl as mc
from manycl.analysis import service
from manycl.errors import LaunchError
n, size, opened = int(sys.argv[2]), int(sys.argv[3]), []
def note(event, args):
    if event == "open" and isinstance(args[0], str) and args[0].startswith(os.environ["MANYCL_CACHE"]):
        opened.append(args[0])
with mc.Queue("cpu") as queue:
    x = queue.array(np.arange(size, dtype=np.float32)); y = queue.zeros(size, np.float32)
    program = mc.Program(sys.argv[1]).build()
    words = ""
    sys.addaudithook(note)
    try:
        program.edges(queue, (n,), (1,), x, y, np.int32(n))
        result = y.get().tolist()
    except LaunchError as error:
        words, result = error.message, []
print(json.dumps([result, words, service._current is not None, "islpy" in sys.modules, opened]))
"""


def test_the_next_process_neither_parses_nor_looks_whether_launches_stay_inside(folder: Path) -> None:
    """Nor does it count what the kernel computes, whose times are known; and its first launch opens no file for
    that."""
    environment = {**os.environ, "MANYCL_MODELS": "1", "MANYCL_DATA": str(folder / "data")}

    def run(n: int, size: int) -> tuple[list[float], str, bool, bool, bool]:
        command = [sys.executable, "-c", PROCESS, EDGES, str(n), str(size)]
        told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        result, words, has_parsed, has_looked, opened = json.loads(told)
        return result, words, has_parsed, has_looked, bool(opened)

    right = [1.0, 2.0, 4.0, 2.0]
    assert run(4, 4) == (right, "", True, True, True)
    assert run(4, 4) == (right, "", False, False, False)
    assert run(8, 16)[3:] == (False, True)
    assert run(8, 16)[3:] == (False, False)
    for _ in range(2):  # what is refused is told each time
        result, words, _, has_looked, _ = run(40, 4)
        assert has_looked
        assert "would write outside of a buffer" in words or "would read outside of a buffer" in words
        assert not result


NUMBERS = """
import json, sys
import numpy as np
import manycl as mc
with mc.Queue("cpu") as queue:
    x = queue.zeros(64, np.int32)
    program = mc.Program("kernel void f(global int *x, int add, int to) { x[(get_global_id(0) + to) % 64] += add; }")
    for i in range(40):
        program.f(queue, (64,), (64,), x, i, i % 3)
    result = x.get().tolist()
print(json.dumps([result, "manycl.analysis.interpreter.interpret" in sys.modules]))
"""


def test_the_next_process_knows_on_which_numbers_it_depends_what_is_accessed(folder: Path) -> None:
    """And does not load what finds that out."""
    environment = {**os.environ, "MANYCL_MODELS": "1", "MANYCL_DATA": str(folder / "data")}
    command = [sys.executable, "-c", NUMBERS]
    for has_loaded in (True, False):
        told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        assert json.loads(told) == [[sum(range(40))] * 64, has_loaded]


def test_how_launches_may_be_split_is_found_out_once(
    folder: Path, unasked: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the keys of its buffers are."""

    def split(keys: tuple[int, int]) -> Split | str:
        facts = parse_program(EDGES)
        args = (*(BufferArg(key) for key in keys), (64).to_bytes(4, "little"))
        task = Launch("edges", facts, facts.kernels["edges"], (64,), (8,), args, keys[:1], keys[1:])
        return splitting.split_of(task, dict.fromkeys(keys, 256))

    first = split((3, 5))
    assert isinstance(first, Split)
    assert set(first.regions) == {3, 5}
    looked: list[object] = []
    monkeypatch.setattr(splitting, "_best", lambda *args: looked.append(args))
    assert split((9, 2)) == replace(first, regions={9: first.regions[3], 2: first.regions[5]})
    monkeypatch.setattr(splitting, "_known", type(splitting._known)(8))
    assert split((0, 1)) == replace(first, regions={0: first.regions[3], 1: first.regions[5]})
    assert not looked
