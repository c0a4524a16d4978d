"""Functions of Python and sequences of kernels as versions in specifications: they leave what the kernel leaves, on all
devices; nothing of their files runs before it must; what cannot be a version is refused with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manycl.applications.load import load_application
from manycl.applications.runner import Runner
from manycl.cli import main
from manycl.errors import RunError, SpecificationError
from manycl.graph.graph import Launch, Version
from manycl.graph.versions.host_version import HostProgram
from manycl.graph.versions.sequence import SequenceProgram

N = 256
SOURCE = """
kernel void centred(global const int *x, global int *y, int n) {
  int i = get_global_id(0), s = 0;
  for (int k = 0; k < n; k++) s += x[k];
  y[i] = n * x[i] - s;
}
kernel void total(global const int *x, global int *t, int n) {
  int s = 0;
  for (int k = 0; k < n; k++) s += x[k];
  t[0] = s;
}
kernel void minus(global const int *x, global const int *t, global int *y, int n, local int *kept) {
  int i = get_global_id(0);
  kept[get_local_id(0)] = t[0] * SIGN;
  y[i] = n * x[i] - kept[get_local_id(0)];
}
kernel void spoil(global int *x) { x[get_global_id(0)] = 1; }
kernel void flags(global const int *x, global int *y, int n, int2 pair) {
  int i = get_global_id(0); if (i < n) y[i] = x[i] > pair.x; }
"""
FUNCTIONS = """
CALLED = []
def by_numpy(items, x, y, n):
    assert not x.flags.writeable and x.dtype == y.dtype == "int32" and n.dtype == "int32"
    CALLED.append(items)
    y[items] = n * x[items] - x.sum(dtype="int32")
def centred(x, y, n):
    y[:] = n * x - x.sum(dtype="int32")
def wrong(x, y, n):
    return 1 // 0
constant = 3
"""
STEPS: list[dict[str, Any]] = [
    {"name": "total", "global": 1, "args": ["x", "{temporary}", "n"]},
    {"name": "minus", "args": {"x": "x", "t": "t", "y": "y", "n": "n", "kept": 16}, "macros": {"SIGN": 1}},
]
SEQUENCE: dict[str, Any] = {
    "for": ["cpu", "gpu"],
    "buffers": {"t": {"type": "int", "shape": 1}},
    "macros": {"SIGN": 0},
    "kernels": STEPS,
}
BY_NUMPY: dict[str, Any] = {"file": "functions.py", "function": "by_numpy", "divide": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "k.cl").write_text(SOURCE)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return tmp_path


def written(folder: Path, *versions: dict[str, Any], **fields: Any) -> Path:
    kernel = {"name": "centred", "global": "n", "local": 16, "args": ["x", "y", "n"], "versions": list(versions)}
    document = {
        "manycl": 1,
        "source": "k.cl",
        "macros": {"SIGN": 1},
        "parameters": {"n": N, "temporary": 0},
        "buffers": {
            "x": {"type": "int", "shape": "n", "init": "random"},
            "y": {"type": "int", "shape": "n", "init": "undefined"},
        },
        "kernels": [kernel | fields],
    }
    text = json.dumps(document).replace('"{temporary}"', '"t"')
    (folder / "app.json").write_text(text)
    return folder / "app.json"


def only_launch(path: Path) -> Launch:
    (task,) = load_application(path).graph.nodes
    assert isinstance(task, Launch)
    return task


def ran(path: Path, devices: str, policy: str) -> tuple[list[str], dict[str, Any]]:
    """The kernels that ran, and the results."""
    with Runner(load_application(path), devices) as runner:
        result = runner.run(policy)
        names = [event.kernel for event in result.trace.kernels()]
        assert all(check.passed for check in runner.check(runner.outputs()))
        return names, runner.outputs() | {"x": runner.session.buffers.host(0).view(np.int32)}


def expected(x: Any) -> Any:
    return len(x) * x - x.sum(dtype=np.int32)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("policy", "count"), [("in_order", 1), ("balance", 2)])
def test_functions_run_and_are_divided(
    folder: Path, own: bool, policy: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0" if own else "1")
    names, found = ran(written(folder, BY_NUMPY), "native/2", policy)
    assert names == ["by_numpy"] * count
    assert (found["y"] == expected(found["x"])).all()


@pytest.mark.parametrize("devices", ["native/2", "native", "opencl/2"])
def test_several_kernels_run_in_place_of_one(folder: Path, devices: str) -> None:
    names, found = ran(written(folder, SEQUENCE), devices, "heft")
    assert names == ["total", "minus"]
    assert (found["y"] == expected(found["x"])).all()


def test_arguments_that_come_by_an_edge_are_those_of_the_versions(folder: Path) -> None:
    path = written(folder, SEQUENCE)
    document = json.loads(path.read_text())
    first = document["kernels"][0] | {"id": "a"}
    second = first | {"id": "b", "args": [None, {"shape": "n"}, "n"], "versions": [SEQUENCE | {"for": "gpu"}, BY_NUMPY]}
    text = json.dumps(document | {"kernels": [first, second], "edges": ["a.y -> b.x"]})
    path.write_text(text.replace('"{temporary}"', '"t"'))
    with Runner(load_application(path), "native/2") as runner:
        assert [e.kernel for e in runner.run("in_order").trace.kernels()] == ["total", "minus", "by_numpy"]
        (result,) = runner.outputs().values()
        assert (result == expected(expected(runner.session.buffers.host(0).view(np.int32)))).all()


def test_repeated_steps_and_symbols(folder: Path) -> None:
    steps = [{"repeat": {"i": 3}, **STEPS[0]}, STEPS[1] | {"global": "n", "local": "n // 16", "offset": [0]}]
    chosen = only_launch(written(folder, SEQUENCE | {"kernels": steps, "name": "in steps"})).versions[1]
    assert isinstance(chosen.program, SequenceProgram)
    assert [step.kernel.name for step in chosen.program.steps] == ["total"] * 3 + ["minus"]
    assert [step.local_size for step in chosen.program.steps] == [None] * 3 + [(N // 16,)]
    assert chosen.program.temporaries == (4,)
    assert (chosen.kernel.name, chosen.kinds) == ("in steps", ("cpu", "gpu"))
    assert "-DSIGN=1" in chosen.program.steps[3].program.options
    assert "-DSIGN=0" in chosen.program.steps[0].program.options


def version_of(path: Path, **given: str) -> Version:
    return next(node.versions[1] for node in load_application(path, given).graph.nodes if isinstance(node, Launch))


def test_a_function_is_named_by_its_file_and_told_apart_by_its_text(folder: Path) -> None:
    one = version_of(written(folder, BY_NUMPY))
    default = version_of(written(folder, {"file": "functions.py"}))
    assert isinstance(one.program, HostProgram)
    assert (one.kernel.name, one.kernel.line, one.program.dimension) == ("by_numpy", 3, 0)
    assert isinstance(default.program, HostProgram)
    assert (default.kernel.name, default.program.dimension) == ("centred", None)
    assert one.program.source != default.program.source
    assert version_of(written(folder, BY_NUMPY), n="64").program.source == one.program.source
    (folder / "functions.py").write_text(FUNCTIONS + "more = 1\n")
    assert version_of(written(folder, BY_NUMPY)).program.source != one.program.source


def test_nothing_of_a_file_runs_before_the_application_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "functions.py").write_text(f"open({str(folder / 'mark')!r}, 'w').close()\n{FUNCTIONS}")
    path = str(written(folder, BY_NUMPY))
    assert main(["plan", path, "--devices", "native/2"]) == 0
    assert main(["simulate", path, "--machine", "conan"]) == 0
    assert not (folder / "mark").exists()
    assert main(["run", path, "--devices", "native/2", "--quiet"]) == 0
    assert (folder / "mark").exists()


@pytest.mark.parametrize(
    ("text", "function", "words"),
    [
        ("def by_numpy(:\n", "by_numpy", "functions.py: SyntaxError"),
        (FUNCTIONS, "nowhere", "functions.py: there is no function nowhere"),
        (FUNCTIONS, "constant", "functions.py: there is no function constant"),
        ("import not_installed\n", "by_numpy", "ModuleNotFoundError: No module named 'not_installed'"),
    ],
)
def test_functions_that_are_not_there_are_told_before_anything_runs(
    folder: Path, text: str, function: str, words: str
) -> None:
    (folder / "functions.py").write_text(text)
    application = load_application(written(folder, BY_NUMPY | {"function": function}))
    with pytest.raises(RunError, match=re.escape(words)):
        Runner(application, "native/2")
    with Runner(application, "opencl/2") as runner, pytest.warns(RuntimeWarning, match="no functions of Python"):
        runner.run("in_order")  # another version runs, as nobody there would call it


def test_what_a_function_raises_is_told_with_its_line(folder: Path) -> None:
    path = written(folder, {"file": "functions.py", "function": "wrong"})
    with Runner(load_application(path), "native") as runner, pytest.raises(RunError) as caught:
        runner.run("in_order")
    assert "version wrong of kernel centred failed: ZeroDivisionError" in str(caught.value)
    assert "functions.py, line 10" in str(caught.value)


def refusals() -> Iterator[tuple[dict[str, Any], str]]:
    version = "kernels[0].versions[0]"
    yield {"function": "by_numpy"}, f"{version}: the field 'file' is missing"
    yield {"divide": 0}, f"{version}: the field 'file' is missing"
    yield {"file": "none.py"}, f"{version}.file: there is no file"
    yield BY_NUMPY | {"for": "cpu"}, f"{version}.for: a version that is a function of Python has no such field"
    yield BY_NUMPY | {"global": 1}, f"{version}.global: a version that is a function of Python has no such field"
    yield BY_NUMPY | {"divide": 1}, f"{version}.divide: is dimension 1 of an NDRange that has 1"
    yield BY_NUMPY | {"divide": -1}, f"{version}.divide: must be at least 0"
    yield {"buffers": {}}, f"{version}: the field 'kernels' is missing"
    yield SEQUENCE | {"global": 1}, f"{version}.global: a version that is several kernels has no such field"
    yield (
        SEQUENCE | {"kernels": [STEPS[0] | {"repeat": {"i": 0}}]},
        f"{version}.kernels: there are no kernels (every repetition is empty)",
    )
    yield (
        SEQUENCE | {"buffers": {"x": {"type": "int", "shape": 1}}},
        f"{version}.buffers.x: kernel centred has an argument of that name",
    )
    step = f"{version}.kernels[0]"
    for args, words in (
        (["x", "s", "n"], f"{step}.args[1]: argument 1 (t) is a buffer, and 's' is not that of an argument of"),
        (["x", None, "n"], f"{step}.args[1]: argument 1 (t) is a buffer: give the name of an argument of kernel"),
        (["x", "t", "x"], f"{step}.args[2]: argument 2 (n) takes a value of type int, not the buffer 'x'"),
        (["x", "t"], f"{step}.args: kernel total takes 3 arguments (x, t, n), got 2"),
        (["x", "x", "n"], "kernel total writes x, which the kernel does not"),
        (["y", "t", "n"], "kernel total reads y, which the kernel does not and nothing before it has written"),
    ):
        yield SEQUENCE | {"kernels": [STEPS[0] | {"args": args}]}, words
    yield SEQUENCE | {"kernels": [STEPS[0] | {"name": "nothing"}]}, f"{step}.name: k.cl has no kernel 'nothing'"
    yield (
        SEQUENCE | {"kernels": STEPS[1:]},
        "kernel minus reads a temporary array, which the kernel does not and nothing",
    )
    yield SEQUENCE | {"kernels": [STEPS[0] | {"args": ["x", "t", "n + 1"]}]}, f"{step}: kernel total"
    yield (
        SEQUENCE | {"buffers": {"t": {"type": "float", "shape": 1}}},
        f"{step}: kernel total: argument 1 (t) points to int, but the buffer holds float32",
    )


@pytest.mark.parametrize(("version", "words"), list(refusals()))
def test_what_cannot_be_a_version_is_refused(folder: Path, version: dict[str, Any], words: str) -> None:
    path = written(folder, version)
    with pytest.raises(SpecificationError) as caught:
        load_application(path)
    found = str(caught.value).replace(str(folder / "k.cl"), "k.cl")
    assert words in found
    assert "app.json" in found


def test_files_of_functions_lie_beneath_the_specification(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "k.cl").write_text(SOURCE)
    path = written(inner, BY_NUMPY | {"file": "../functions.py"})
    with pytest.raises(SpecificationError, match="a Python file outside of"):
        load_application(path)
    assert len(load_application(path, trust=True).graph) == 1
