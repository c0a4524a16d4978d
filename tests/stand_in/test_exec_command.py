"""``manycl exec``: what it starts, what that sees, and what is told at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from manycl.cli import main
from manycl.stand_in.environment import SITE
from manycl.trace import Trace

PROGRAM = """
import sys
import numpy as np
import pyopencl as cl

ctx = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(ctx)
program = cl.Program(ctx, '''
__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2; }
__kernel void maybe(__global int *out, __global int *in) { out[get_global_id(0)] = in ? 1 : 2; }
__kernel void mixed(__global int *count, __global int *out) { out[atomic_inc(count)] = get_global_id(0); }
''').build()
data = np.arange(1 << 16, dtype=np.float32)
buffer = cl.Buffer(ctx, cl.mem_flags.COPY_HOST_PTR, hostbuf=data)
for _ in range(3):
    program.twice(queue, data.shape, (64,), buffer)
out = np.empty_like(data)
cl.enqueue_copy(queue, out, buffer)
assert (out == 8 * data).all()
count = cl.Buffer(ctx, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(1, np.int32))
order = cl.Buffer(ctx, cl.mem_flags.READ_WRITE, 256)
program.mixed(queue, (64,), None, count, order)
found = np.empty(64, np.int32)
cl.enqueue_copy(queue, found, order)
assert sorted(found.tolist()) == list(range(64))
program.maybe(queue, (4,), None, order, None)
print(__name__, sys.argv[1:], ctx.devices[0].platform.name)
sys.exit(int(sys.argv[1]))
"""
EXEC = [sys.executable, "-m", "manycl", "exec"]


def ran(*words: str, code: int = 0, **settings: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [*EXEC, *words], capture_output=True, text=True, timeout=200, env=os.environ | settings, check=False
    )
    assert ended.returncode == code, ended.stderr[-3000:]
    return ended


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def test_a_program_and_its_reports(script: Path, tmp_path: Path) -> None:
    """It sees its own arguments, its exit status is passed on; what it launches is divided where a policy does that."""
    trace, chart = tmp_path / "runs.jsonl", tmp_path / "runs.html"
    how = ["--devices", "cpu/2", "--policy", "tenths", "--trace", str(trace), "--gantt", str(chart), "--explain"]
    ended = ran(*how, "--", str(script), "3", "more", code=3)
    assert ended.stdout == "__main__ ['3', 'more'] manycl\n"
    seen = Trace.load(trace)
    assert {event.kernel for event in seen.kernels()} >= {"twice", "mixed"}
    assert chart.read_text(encoding="utf-8").startswith("<!")
    told = ended.stderr
    assert "divided: twice" in told
    assert "not divided: mixed" in told
    assert "on one device alone: maybe x1, line 3: only the real device takes what is given for in (NULL)" in told


def test_children_and_modules(tmp_path: Path) -> None:
    """Programs that a program starts see manycl, too, unless they are told not to; reports are of the first alone."""
    look = "import pyopencl as cl; print(sorted(p.name for p in cl.get_platforms()))"
    (tmp_path / "parent.py").write_text(
        "import os, subprocess, sys\n"
        f"ask = [sys.executable, '-c', {look!r}]\n"
        "print(sys.argv[1:], flush=True)\n"
        "for value in '10':\n"
        "    subprocess.run(ask, check=True, env=os.environ | {'MANYCL': value})\n",
        encoding="utf-8",
    )
    ended = ran("--devices", "cpu/2", "--", "-m", "parent", "x", PYTHONPATH=str(tmp_path))
    arguments, first, second = ended.stdout.splitlines()
    assert arguments == "['x']"
    assert first == "['manycl']"
    assert "manycl" not in second


def test_manycl_and_pyopencl_in_one_program(tmp_path: Path) -> None:
    """Manycl's own PyOpenCL is the real one, whichever is imported first; real platforms can be seen, too. What the
    program's own ``sitecustomize`` does is done."""
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['MINE'] = 'mine'\n", encoding="utf-8")
    program = (
        "import os; print(os.environ['MINE'])\n"
        "import manycl; print(len(manycl.devices()) > 0)\n"
        "import numpy as np, pyopencl as cl, pyopencl.array as clarray\n"
        "print([p.name for p in cl.get_platforms()][:1], len(cl.get_platforms()) > 1)\n"
        "real = cl.get_platforms()[-1]\n"
        "for device in (cl.get_platforms()[0].get_devices()[0], real.get_devices()[0]):\n"
        "    queue = cl.CommandQueue(cl.Context([device]))\n"
        "    print((clarray.to_device(queue, np.arange(3)) + 1).get().tolist())\n"
        "queue = manycl.Queue('cpu/2')\n"
        "print(queue.array(np.arange(3)).get().tolist())\n"
        "try:\n    manycl.activate()\nexcept manycl.ManyclError as error:\n    print(error.message)\n"
    )
    (tmp_path / "p.py").write_text(program, encoding="utf-8")
    ended = ran("--real", "--devices", "cpu", "--", str(tmp_path / "p.py"), PYTHONPATH=str(tmp_path))
    assert ended.stdout.splitlines() == [
        "mine",
        "True",
        "['manycl'] True",
        "[1, 2, 3]",
        "[1, 2, 3]",
        "[0, 1, 2]",
        "manycl is active already",
    ]


def test_what_a_compiler_says_is_a_warning_where_it_warns(tmp_path: Path) -> None:
    program = (
        "import pyopencl as cl, types\n"
        "context = cl.Context(cl.get_platforms()[0].get_devices())\n"
        "made = cl.Program(context, 'kernel void f(global int *x) { x[0] = 1; }').build()._get_prg()\n"
        "made._later, said = None, types.SimpleNamespace()\n"
        "made._real = types.SimpleNamespace(get_build_info=lambda device, param: said.text)\n"
        "for said.text in ('ptxas info : 0 bytes gmem', 'line 3: warning: unused'):\n"
        "    print(repr(made.get_build_info(context.devices[0], cl.program_build_info.LOG)))\n"
    )
    (tmp_path / "p.py").write_text(program, encoding="utf-8")
    ended = ran("--devices", "cpu", "--", str(tmp_path / "p.py"))
    assert ended.stdout.splitlines() == ["''", "'line 3: warning: unused'"]


def test_activated_by_a_call_or_a_notebook() -> None:
    program = (
        "import manycl.stand_in as extension; extension.load_ipython_extension(None)\n"
        "import pyopencl as cl; print([p.name for p in cl.get_platforms()])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)
    assert ended.stdout == "['manycl']\n", ended.stderr
    late = "import pyopencl, manycl\ntry:\n    manycl.activate()\nexcept manycl.ManyclError as e:\n    print(e.hint)"
    ended = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, check=False, timeout=100)
    assert ended.stdout == "activate manycl before that\n", ended.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has nothing."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return str(folder / "bin" / "python")


@pytest.mark.parametrize("has_manycl", [True, False])
def test_a_python_without_pyopencl_is_told_in_a_sentence(bare: str, has_manycl: bool, tmp_path: Path) -> None:
    """What to install, and where; programs that see to it themselves do, and others have no part in it."""
    environment = {**os.environ, "MANYCL": "1", "PYTHONPATH": str(SITE)}
    words = [*EXEC, "--", bare] if has_manycl else [bare]
    sentence = (
        f"manycl: {bare} has no PyOpenCL, which programs need on manycl: {bare} -m pip install . in manycl's checkout\n"
    )
    ways = {
        "import pyopencl": (1, sentence),
        "try: import pyopencl\nexcept ModuleNotFoundError: print('without')": (0, ""),
        "1 / 0": (1, None),
    }
    for number, (text, (code, told)) in enumerate(ways.items()):
        script = tmp_path / f"{number}.py"
        script.write_text(text, encoding="utf-8")
        ended = subprocess.run([*words, str(script)], capture_output=True, text=True, env=environment, check=False)
        assert ended.returncode == code, ended.stderr
        assert ended.stderr == told if told is not None else "ZeroDivisionError" in ended.stderr
        assert ended.stdout == ("without\n" if "without" in text else "")


def test_a_python_without_manycl_runs_programs_as_they_are(bare: str, tmp_path: Path) -> None:
    """It is said, and only where a program uses PyOpenCL."""
    (tmp_path / "pyopencl.py").write_text("print('its own')", encoding="utf-8")
    environment = {**os.environ, "MANYCL": "1", "PYTHONPATH": os.pathsep.join([str(SITE), str(tmp_path)])}
    for text, out, told in (
        ("import pyopencl", "its own\n", f"manycl: not active: {bare} has no manycl, "),
        ("print(1)", "1\n", ""),
    ):
        ended = subprocess.run([bare, "-c", text], capture_output=True, text=True, env=environment, check=True)
        assert ended.stdout == out
        assert ended.stderr.startswith(told)
        assert ended.stderr.count("\n") == bool(told)


def test_what_is_set_for_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--env", "--devices", "cpu/2", "--policy", "eager", "--explain"]) == 0
    lines = dict(line.removeprefix("export ").split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["MANYCL"] == "1"
    assert lines["MANYCL_DEVICES"] == "cpu/2"
    assert lines["MANYCL_POLICY"] == "eager"
    assert json.loads(lines["MANYCL_REPORTS"].strip("'")) == {"files": [], "explain": True}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["exec"], "no program is given"),
        (["exec", "--devices", "cpu//2", "--", "x.py"], "cpu//2"),
        (["exec", "--policy", "best", "--", "x.py"], "best"),
        (["exec", "--gantt", "chart.doc", "--", "x.py"], "chart.doc"),
        (["exec", "--trace", "trace.txt", "--", "x.py"], "JSON lines"),
        (["exec", "--", "no-such-program-anywhere"], "no-such-program-anywhere"),
    ],
)
def test_mistakes(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err
