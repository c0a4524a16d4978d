"""Kernels with checks: every access outside of an array is named, with the array, the index, its size and the line."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manycl.drivers.native.compiler import checks, compiling

HEAD = """struct S { int a; int b[4]; int c; };
constant int table[5] = {1, 2, 3, 4, 5};
void put(global int *p, int i) { p[i] = 7; }
int get(const int *p, int i) { return p[i]; }
kernel void k(global int *x, local int *l, local int *l2, global struct S *s, global int *out,
              global const int *at, int n) {
  int i = get_global_id(0);
"""
MINE = "int mine[6] = {\n1, 2, 3,\n4, 5, 6};\n for (int j = 0; j < 6; j++) mine[j] += i; "
SYNC = "barrier(CLK_LOCAL_MEM_FENCE); "
COPY = "event_t e = async_work_group_copy(l, x, n + 1, 0); wait_group_events(1, &e); out[i] = l[0];"
CASES = [  # a body, the array, its elements, the line
    ("x[n] = 7;", "x", 64, 8),
    ("out[i] = x[n];", "x", 64, 8),
    ("out[i] = table[n];", "table", 5, 8),
    (MINE + "mine[n] = i; out[i] = mine[2];", "mine", 6, 11),
    (MINE + SYNC + "\n  out[i] = mine[n] + mine[2];", "mine", 6, 12),
    (MINE + SYNC + "out[i] = get(mine, n);", "mine", 6, 4),
    ("local int tile[8]; tile[i] = i; " + SYNC + "out[i] = tile[n];", "tile", 8, 8),
    ("local int tile[2][4]; tile[i & 1][i / 2] = i; " + SYNC + "out[i] = (&tile[0][0])[n];", "tile", 8, 8),
    ("l[i] = i; " + SYNC + "\n\n  out[i] = l[n];", "l", 8, 10),
    ("l[i] = i;\n" + SYNC + "if (l[n] > -1)\n " + SYNC + "out[i] = l[i];", "l", 8, 9),
    ("l2[n] = l[i] = i; out[i] = l[i];", "l2", 16, 8),
    ("atomic_add(x + n, 1);", "x", 64, 8),
    ("local int count[3]; count[i % 3] = 0; " + SYNC + "atomic_inc(&count[n]); out[i] = count[0];", "count", 3, 8),
    ("put(x, n);", "x", 64, 3),
    ("put(x + n, 0);", "x", 64, 3),
    ("s[i & 1].b[n] = 4;", "an array in s", 4, 8),
    ("out[i] = x[at[n]];", "at", 8, 8),
    ("struct S v = s[n]; out[i] = v.a + v.b[1];", "s", 4, 8),
    ("out[i] = s[n].c;", "s", 4, 8),
    ("((global int4 *)x)[n].z = 3;", "x", 16, 8),
    ("global int *p = x + i; " + SYNC + "p[n - i] = 7;", "x", 64, 8),
    ("const global int *p = i >= 0 ? x : at; out[i] = p[n];", "x", 64, 8),
    ("int a = 1, b[2] = {2, 3}, *p = i > 8 ? &a : b; out[i] = p[n];", "b", 2, 8),
    (COPY, "l", 8, 8),
    ("out[i] = vload4(0, x + n).y + vload4(n, x).x;", "x", 0, 8),
]
RUN = """
import json, sys
import numpy as np
import manycl as mc

said = []
with mc.Queue("native", policy="in_order") as queue:
    for text, places in json.load(sys.stdin):
        kernel = mc.Program(text).k
        for n in places:
            x, s, out, at = (queue.zeros(size, np.int32) for size in (64, 24, 8, 8))
            try:
                kernel(queue, (8,), (8,), x, mc.LocalMemory(32), mc.LocalMemory(64), s, out, at, np.int32(n))
                queue.finish()
                said.append("")
            except mc.ManyclError as error:
                said.append(str(error).splitlines()[0])
print(json.dumps(said))
"""


def ran(script: str, given: object = "", *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a program in Python says that runs with checks."""
    variables = {**os.environ, "MANYCL_CHECK": "bounds", "MANYCL_BOUNDS": "off", "MANYCL_MODELS": "0", **environment}
    command = [sys.executable, "-c", script, *arguments]
    ended = subprocess.run(
        command, input=json.dumps(given), env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended


def test_every_access_outside_is_named() -> None:
    asked = [
        (f"{HEAD}  {body}\n}}\n", [0, (size or 16) - 1, size or 64, 1 << 20, -1] if size else [0, 64, -1])
        for body, _, size, _ in CASES
    ]
    ended = ran(RUN, asked)
    assert not ended.stderr
    said = iter(json.loads(ended.stdout))
    for (body, name, size, line), (_, places) in zip(CASES, asked, strict=True):
        for place in places:
            message = next(said)
            if 0 <= place < (size or 64) or (body == COPY and place < 0):
                assert not message, (body, place, message)
                continue
            assert f" of {name}, which has {size or 64} elements, in line {line}" in message, (body, place, message)
            if size:
                first = size if body == COPY else place
                assert f"element {first} of" in message, (body, place, message)
                writes = (
                    body.startswith(("x[", "l2", "put", "s[i", "atomic_add", "event", "global")) or "mine[n] =" in body
                )
                assert f"it {'writes' if writes else 'reads'} " in message, (body, message)


SIZES = {"x": 9, "l": 7, "tile": 5, "mine": 6, "table": 4}
RANDOM = """
import json, sys
import numpy as np
import manycl as mc

said = []
with mc.Queue("native", policy="in_order") as queue:
    for text, places in json.load(sys.stdin):
        x, at = queue.array(np.arange(9, dtype=np.int32)), queue.array(np.array(places, np.int32))
        try:
            mc.Program(text).k(queue, (1,), (1,), x, mc.LocalMemory(28), at)
            said.append(x.get().tolist())
        except mc.ManyclError as error:
            said.append(str(error).splitlines()[0])
print(json.dumps(said))
"""


def made_up(seed: int, outside: float) -> tuple[str, list[int], Any]:
    """A program, the places it accesses, and what it leaves in its array, or says."""
    chance = random.Random(seed)
    held = {name: list(range(size)) for name, size in SIZES.items()}
    held["table"] = [3, 1, 4, 1]
    lines = [
        "constant int table[4] = {3, 1, 4, 1};",
        "void put(int *p, int v) { *p = v; }",
        "kernel void k(global int *x, local int *l, global const int *at) {",
        "int mine[6], t = 1; local int tile[5];",
        "for (int i = 0; i < 7; i++) { l[i] = i; if (i < 6) mine[i] = i; if (i < 5) tile[i] = i; }",
    ]
    places: list[int] = []
    value, told = 1, ""
    for _ in range(12):
        name = chance.choice(list(SIZES))
        size = SIZES[name]
        far = chance.choice([-1, size, size + 3, -50, 9000, chance.randrange(size, 1 << 20)])
        place = far if chance.random() < outside else chance.randrange(size)
        way, index, line = chance.randrange(4), f"at[{len(places)}]", len(lines) + 1
        does = "reads" if name == "table" or way < 2 else "writes"
        if does == "reads":
            lines.append(f"t += {name}[{index}];" if way % 2 else f"t = t * 3 + *({name} + {index});")
        elif way == 2:
            lines.append(f"{name}[{index}] = t;")
        else:
            space = "(int *)" if name in ("x", "l", "tile") else ""
            lines.append(f"put({space}({name} + {index}), t);")
            line = 2
        if chance.random() < 0.3:
            lines.append("barrier(CLK_LOCAL_MEM_FENCE);")
        places.append(place)
        if told:
            continue
        if not 0 <= place < size:
            told = f"it {does} element {place} of {name}, which has {size} elements, in line {line}"
        elif does == "writes":
            held[name][place] = value
        else:
            value = value + held[name][place] if way % 2 else value * 3 + held[name][place]
    lines.append("for (int i = 0; i < 5; i++) x[i] += t + mine[i] + tile[i] + l[i]; }")
    for i in range(5):
        held["x"][i] += value + held["mine"][i] + held["tile"][i] + held["l"][i]
    bits = [(v + (1 << 31)) % (1 << 32) - (1 << 31) for v in held["x"]]
    return "\n".join(lines), places, told or bits


@pytest.mark.parametrize("outside", [0.0, 0.1])
def test_random_kernels(outside: float) -> None:
    """Those that stay inside say nothing, and compute what they compute without checks."""
    seed = random.SystemRandom().randrange(1 << 30)
    programs = [made_up(seed + number, outside) for number in range(4)]
    asked = [program[:2] for program in programs]
    found = json.loads(ran(RANDOM, asked).stdout)
    if not outside:
        assert found == json.loads(ran(RANDOM, asked, MANYCL_CHECK="off").stdout)
    for (text, places, expected), said in zip(programs, found, strict=True):
        matches = expected in said if isinstance(expected, str) and isinstance(said, str) else expected == said
        assert matches, (seed, text, places, expected, said)


DIVIDED = """
import sys
import numpy as np
import manycl as mc

TEXT = "kernel void k(global float *x, global const int *at) { int i = get_global_id(0); x[i] = at[at[i]]; }"
with mc.Queue(sys.argv[1], policy="tenths") as queue:
    program = mc.Program(TEXT)
    for place in (1 << 16, 5):
        places = np.arange(1 << 16, dtype=np.int32)
        places[50000] = place
        x, at = queue.zeros(1 << 16, np.float32), queue.array(places)
        try:
            program.k(queue, (1 << 16,), (64,), x, at)
            queue.finish()
            print("right" if (x.get() == places[places]).all() else "wrong")
        except mc.ManyclError as error:
            print(str(error).splitlines()[0])
"""


@pytest.mark.parametrize("device", ["native/2", "native/2@process"])
@pytest.mark.parametrize(
    "own", [{"MANYCL_ZERO_COPY": "1"}, {"MANYCL_ZERO_COPY": "0", "MANYCL_DEVICE_MEMORY": "400000"}]
)
def test_divided_launches_say_the_whole_buffers_index(device: str, own: dict[str, str]) -> None:
    """Also where a device's memory has room for a part of it."""
    said = ran(DIVIDED, "", device, **own).stdout.splitlines()
    assert said[0].endswith("it reads element 65536 of at, which has 65536 elements, in line 1")
    assert said[1] == "right"


ONE = """
import sys
import numpy as np
import manycl as mc
from manycl.drivers.native.compiler import clang

def wrong(*given):
    raise clang.BuildError("not this one")

if sys.argv[2:]:
    from manycl.drivers.native.compiler import checks
    checks.TEXT += "\\n// of a test"
    checks.Checks = wrong
with mc.Queue(sys.argv[1]) as queue:
    x = queue.zeros(8, np.int32)
    mc.Program("kernel void k(global int *x) { x[get_global_id(0)] = 7; }").k(queue, (8,), (8,), x)
    assert (x.get() == 7).all()
print("manycl.drivers.native.compiler.checks" in sys.modules)
"""


def test_what_cannot_be_checked_runs_and_says_so() -> None:
    ended = ran(ONE, "", "native", "broken")
    assert "manycl: kernel k is not compiled with checks" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_drivers_without_checks_say_so() -> None:
    pytest.importorskip("pyopencl")
    ended = ran(ONE, "", "pocl")
    assert "looks only at red zones" in ended.stderr


def test_runs_without_checks_load_none() -> None:
    assert ran(ONE, "", "native", MANYCL_CHECK="off").stdout == "False\n"


def test_checked_code_is_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    monkeypatch.setattr(compiling._objects, "get", lambda key: keys.append(key) or b"found")
    monkeypatch.setattr(compiling._made, "get", lambda key: None)
    for value, text in (("off", ""), ("bounds", ""), ("bounds", "// changed"), ("off", "// changed")):
        monkeypatch.setenv("MANYCL_CHECK", value)
        monkeypatch.setattr(checks, "TEXT", checks.TEXT + text)
        compiling.compile_kernels("void f(void) {}")
    assert keys[0] == keys[3]
    assert len(set(keys)) == 3


EXEC = """
import numpy as np, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
whole = cl.Buffer(context, cl.mem_flags.READ_WRITE, 8192)
part = whole.get_sub_region(4096, 32)
program = cl.Program(context, "kernel void k(global int *x, int n) {{ x[get_global_id(0) * n] = 1; }}").build()
program.k(queue, (8,), None, part, np.int32({wrong} + 1))
queue.finish()
"""


@pytest.mark.parametrize("wrong", [0, 1])
def test_exec_ends_with_an_error(wrong: int, tmp_path: Path) -> None:
    """Of a part of a buffer, behind which there is more."""
    pytest.importorskip("pyopencl")
    program = tmp_path / "program.py"
    program.write_text(EXEC.format(wrong=wrong))
    command = [sys.executable, "-m", "manycl", "exec", "--devices", "native", "--check-bounds", "--", str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (ended.returncode != 0) == bool(wrong), ended.stderr
    assert ("element 8 of x, which has 8 elements, in line 1" in ended.stderr) == bool(wrong), ended.stderr
