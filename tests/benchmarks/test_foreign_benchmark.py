"""``benchmarks/foreign.py`` runs programs with both, and tells what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

PROGRAM = """
import sys
import numpy as np
import pyopencl as cl
device = next(p for p in cl.get_platforms() if "Oclgrind" not in p.name).get_devices()[0]
ctx = cl.Context([device])
queue = cl.CommandQueue(ctx)
a = np.random.default_rng().random(64).astype(np.float32)
buffer = cl.Buffer(ctx, cl.mem_flags.COPY_HOST_PTR, hostbuf=a)
text = "__kernel void f(__global float *a) { a[get_global_id(0)] += 1; }"
cl.Program(ctx, text).build().f(queue, (64,), None, buffer)
cl.enqueue_copy(queue, a, buffer)
open("found.txt", "w").write(repr(float(a.sum())))
print(sys.argv[1], a[0], input())
print("platform", device.platform.name)
"""
NEAR = """
import sys
import numpy as np
import pyopencl as cl
device = next(p for p in cl.get_platforms() if "Oclgrind" not in p.name).get_devices()[0]
ctx = cl.Context([device])
rounded = 1 + 2.0**-22 if device.platform.name == "manycl" else 1.0
a = np.array([rounded, 2, np.inf], np.float32)
buffer = cl.Buffer(ctx, cl.mem_flags.COPY_HOST_PTR, hostbuf=a)
cl.enqueue_copy(cl.CommandQueue(ctx), a, buffer)
print("first", rounded, "of", a[1])
"""
FALSE = 'import pyopencl as cl\nprint(len({p.name for p in cl.get_platforms()} & {"manycl"}))\n'


def test_programs_are_compared(tmp_path: Path) -> None:
    (tmp_path / "theirs-1.0").mkdir()
    (tmp_path / "theirs-1.0" / "add.py").write_text(PROGRAM)
    (tmp_path / "theirs-1.0" / "asks.py").write_text(FALSE)
    (tmp_path / "theirs-1.0" / "near.py").write_text(NEAR)
    entries = [
        {"source": "theirs-1.0", "name": "add.py", "args": ["x"], "input": "y\n"},
        {"source": "theirs-1.0", "name": "asks.py"},
        {"source": "theirs-1.0", "name": "near.py", "close": 1e-6},
        {"source": "theirs-1.0", "name": "near.py", "close": 1e-7},
        {"source": "theirs-1.0", "name": "near.py", "unfixed": "for the test"},
        {"source": "not-here-1.0", "name": "add.py"},
    ]
    catalogue = tmp_path / "programs.json"
    catalogue.write_text(json.dumps({"environment": {}, "drop": ["^platform"], "programs": entries}))
    benchmark = [sys.executable, str(ROOT / "benchmarks" / "foreign.py"), str(tmp_path), "--programs", str(catalogue)]
    done = subprocess.run([*benchmark, "--json", "--repeats", "1"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["programs"], figures["same"], figures["different"]) == (5, 3, 2), figures
    assert figures["exact"] == 1
    add, asks, near, far, unfixed = figures["rows"]
    assert (near["result"], near["apart"]) == ("same", 2.0**-23)
    assert far["result"].startswith("different: results: #0 of 1")
    assert unfixed["result"] == "same"
    assert {"results", "output"} <= set(unfixed["undetermined"])
    assert add["result"] == "same"
    assert add["lines"] == len(PROGRAM.splitlines())
    assert min(*add["first"], *add["second"], figures["second_worst"]) > 0
    assert asks["result"] == "different: output: #0 of 1: ['0'] and ['1']"


@pytest.mark.parametrize("name", ["foreign.json"])
def test_each_program_has_a_source(name: str) -> None:
    catalogue = json.loads((ROOT / "benchmarks" / name).read_text(encoding="utf-8"))
    sources = catalogue["sources"]
    assert {program["source"] for program in catalogue["programs"]} == sources.keys()
    assert all(("git" in s and len(s["commit"]) == 40) or "==" in s["pypi"] for s in sources.values())
