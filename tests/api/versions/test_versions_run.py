"""Versions of a kernel on two real devices, one of which is made to count as a GPU: who runs which, and that results
are right; annotations from Python."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.analysis.annotations import AnnotationError
from manycl.applications.load import load_application
from manycl.applications.runner import Runner
from manycl.errors import LaunchError, RunError, SourceError, SpecificationError
from manycl.graph.graph import Launch
from manycl.run.graph_cache import kept_commands
from manycl.run.session import session as session_module

N = 64
PLAIN = """
kernel void affine(global const int *x, global int *y, int a, int b) {
  int i = get_global_id(0); y[i] = a * x[i] + b; }
kernel void scatter(global const int *to, global int *out, int n) {
  int i = get_global_id(0); if (i < n) out[to[i]] = i; }
kernel void other(global int *x, global int *y, int a, int b) { y[0] = x[0] + a + b; x[0] = 0; }
"""
FOURS = """
kernel void fours(global const int *x, global int *y, int a, int b) {
  for (int i = EACH * get_global_id(0); i < EACH * get_global_id(0) + EACH; i++) y[i] = a * x[i] + b; }
kernel void plane(global const int *x, global int *y, int a, int b) {
  size_t i = get_global_id(0) + get_global_id(1) * get_global_size(0); y[i] = a * x[i] + b; }
"""
# PoCL refuses kernels that are called like built-in functions, and nobody has the other function
REFUSED = {
    "opencl": """
kernel void mix(global const int *x, global int *y, int a, int b) {
  int i = get_global_id(0); y[i] = a * x[i] + b; }
""",
    "native": """
int nowhere(int x); kernel void mix(global const int *x, global int *y, int a, int b) {
  int i = get_global_id(0); y[i] = nowhere(a * x[i] + b); }
""",
}


@pytest.fixture
def two_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """``cpu/2`` is a CPU and what counts as a GPU."""
    real = session_module.opener(False)

    def opened(selection: Any) -> Any:
        machine, handles = real(selection)
        first, second = machine.devices
        return dataclasses.replace(machine, devices=(first, dataclasses.replace(second, kind="gpu"))), handles

    monkeypatch.setattr(session_module, "opener", lambda serve: opened)


@pytest.fixture
def queue(two_kinds: None) -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2", policy="heft") as queue:
        yield queue


class Refusing(NamedTuple):
    """A queue on two parts of a device, the device's name, and a source whose kernel it refuses."""

    queue: mc.Queue
    name: str
    source: str


@pytest.fixture(params=[("opencl", "cpu1"), ("native", "cpu0")], ids=["opencl", "native"])
def refusing(two_kinds: None, request: pytest.FixtureRequest) -> Iterator[Refusing]:
    kind, name = request.param
    with mc.Queue(f"{kind}/2", policy="heft") as queue:
        yield Refusing(queue, name, REFUSED[kind])


def quarter(size: tuple[int, ...], local: tuple[int, ...] | None) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    return (size[0] // 4,), (2,)


def square(size: tuple[int, ...], local: tuple[int, ...] | None) -> tuple[tuple[int, ...], None]:
    return (8, size[0] // 8), None


def with_versions() -> mc.Program:
    program, fours = mc.Program(PLAIN), mc.Program(FOURS, "-DEACH=4")
    program.affine.add_version(fours.fours, "gpu", ndrange=quarter)
    program.affine.add_version(fours.plane, ["accelerator"], ndrange=square)
    return program


def ran(queue: mc.Queue) -> dict[str, set[tuple[str, tuple[int, ...], tuple[int, ...] | None]]]:
    """By device kind: the kernels that ran there, with their NDRanges."""
    kinds = {d.name: d.kind for d in queue.session.machine.devices}
    found: dict[str, set[Any]] = {}
    for k in queue.trace.kernels():
        found.setdefault(kinds[k.device], set()).add((k.kernel, k.global_size, k.local_size))
    return found


def test_each_device_runs_the_version_for_its_kind(queue: mc.Queue) -> None:
    program = with_versions()
    x, y = queue.array(np.arange(N, dtype=np.int32)), queue.empty(N, np.int32)
    expected = np.arange(N, dtype=np.int32)
    for step in range(6):
        program.affine(queue, (N,), (16,), x, y, 2 - step, step, device=("cpu", "gpu")[step % 2])
        x, y = y, x
        expected = (2 - step) * expected + step
    assert (x.get() == expected).all()
    assert ran(queue) == {"cpu": {("affine", (N,), (16,))}, "gpu": {("fours", (N // 4,), (2,))}}


def test_a_prepared_graph_keeps_its_versions(queue: mc.Queue) -> None:
    program = with_versions()
    x, y = queue.array(np.arange(N, dtype=np.int32)), queue.zeros(N, np.int32)
    with queue.prepare() as prepared:
        program.affine(queue, (N,), None, x, y, 1, 1, device="gpu")
        program.affine(queue, (N,), None, y, x, 1, 1, device="gpu")
    for _ in range(6):
        prepared.run()
    with mock.patch.object(kept_commands, "play", wraps=kept_commands.play) as shortest:
        prepared.run()
    assert shortest.call_count == 1
    assert ran(queue) == {"gpu": {("fours", (N // 4,), (2,))}}
    assert (x.get() == np.arange(N) + 14).all()


@settings(max_examples=15)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 3),
            st.integers(-3, 3),
            st.integers(-9, 9),
            st.sampled_from(["", "cpu", "gpu"]),
        ),
        min_size=1,
        max_size=12,
    ),
    policy=st.sampled_from(["eager", "heft", "clustering", "in_order", "auto"]),
)
def test_any_graph_gives_numpys_results(session_of_two: Any, steps: list[Any], policy: str) -> None:
    session, program = session_of_two
    queue = mc.Queue(session=session, policy=policy)
    values = [np.arange(N, dtype=np.int32) + k for k in range(4)]
    arrays = [queue.array(v) for v in values]
    for source, target, a, b, device in steps:
        if source == target:
            continue
        program.affine(queue, (N,), (16,), arrays[source], arrays[target], a, b, device=device)
        values[target] = a * values[source] + b
    for array, value in zip(arrays, values, strict=True):
        assert (array.get() == value).all()


@pytest.fixture(scope="module")
def session_of_two() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        two_kinds.__wrapped__(patch)  # type: ignore[attr-defined]
        with mc.Queue("cpu/2") as queue:
            yield queue.session, with_versions()


def test_a_version_that_does_not_build_is_left_out(refusing: Refusing) -> None:
    queue, name, refused = refusing
    program = mc.Program(PLAIN)
    program.affine.add_version(mc.Program(refused, path="refused.cl").mix, "gpu")
    x, y = queue.array(np.arange(N, dtype=np.int32)), queue.empty(N, np.int32)
    program.affine(queue, (N,), None, x, y, 3, 1, device="gpu")
    words = rf"a version of affine is left out on {name}\.1: kernel mix \(refused\.cl:2\): refused\.cl.* on {name}\.1"
    with pytest.warns(RuntimeWarning, match=words):
        queue.finish()
    assert (y.get() == 3 * np.arange(N) + 1).all()
    assert {k for rows in ran(queue).values() for k, _, _ in rows} == {"affine"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        program.affine(queue, (N,), None, x, y, 4, 1, device="gpu")
        assert (y.get() == 4 * np.arange(N) + 1).all()


def test_a_general_version_takes_the_place_of_a_kernel_that_does_not_build(refusing: Refusing) -> None:
    queue, _, refused = refusing
    broken = mc.Program(refused, path="refused.cl")
    broken.mix.add_version(mc.Program(PLAIN).affine)
    x, y = queue.array(np.arange(N, dtype=np.int32)), queue.empty(N, np.int32)
    broken.mix(queue, (N,), None, x, y, 3, 1)
    with pytest.warns(RuntimeWarning, match="a version of mix is left out"):
        assert (y.get() == 3 * np.arange(N) + 1).all()


def test_no_version_that_builds_is_an_error(refusing: Refusing) -> None:
    queue, name, refused = refusing
    broken = mc.Program(refused, path="refused.cl")
    broken.mix.add_version(mc.Program("\n" + refused, path="again.cl").mix, "gpu")
    x, y = queue.array(np.arange(N, dtype=np.int32)), queue.empty(N, np.int32)
    broken.mix(queue, (N,), None, x, y, 3, 1, device="gpu")
    with pytest.raises((SourceError, RunError)) as caught:
        queue.finish()
    message = str(caught.value)
    assert f"no version of mix can run on {name}.1" in message
    assert message.index("kernel mix (again.cl:3)") < message.index("kernel mix (refused.cl:2)")


def test_work_groups_that_are_too_large_for_a_device(queue: mc.Queue) -> None:
    limit = max(d.max_work_group for d in queue.session.machine.devices)
    program = mc.Program(PLAIN)
    program.affine.add_version(program.affine, "gpu", ndrange=lambda size, local: (size, size))
    items = 2 * limit
    x, y = queue.array(np.arange(items, dtype=np.int32)), queue.empty(items, np.int32)
    program.affine(queue, (items,), (64,), x, y, 1, 2, device="gpu")
    assert (y.get() == np.arange(items) + 2).all()
    assert ran(queue) == {"gpu": {("affine", (items,), (64,))}}


def test_what_is_refused_at_once(queue: mc.Queue) -> None:
    program = mc.Program(PLAIN)
    with pytest.raises(
        LaunchError, match=r"argument 0 \(x\): read in kernel affine .*, read and written in kernel other"
    ):
        program.affine.add_version(program.other)
    with pytest.raises(LaunchError, match="'gpus' is no kind of device"):
        program.affine.add_version(program.affine, "gpus")
    x, y = queue.zeros(N, np.int32), queue.empty(N, np.int32)
    program.affine.add_version(program.affine, "gpu", ndrange=lambda size, local: ((*size, 1), None))
    with pytest.raises(LaunchError, match=r"global offset \(1,\) does not fit the global size \(64, 1\)"):
        program.affine(queue, (N,), None, x, y, 1, 1, global_offset=(1,))
    program.affine.add_version(program.affine, "gpu", ndrange=lambda size, local: (size, (7,)))
    with pytest.raises(LaunchError, match="not divisible by its work-group"):
        program.affine(queue, (N,), None, x, y, 1, 1)
    assert len(queue) == 0


# annotations from Python


def test_annotations_reach_the_launch(queue: mc.Queue) -> None:
    program = mc.Program(PLAIN)
    program.scatter.annotate("to", values=("0", "n"))
    program.annotate("scatter", "to", distinct=True)
    program.annotate("scatter", "out", within={"writes": (0, "len(out)")})
    permutation = np.random.default_rng(1).permutation(N).astype(np.int32)
    to, out = queue.array(permutation), queue.empty(N, np.int32)
    with queue.prepare() as prepared:
        program.scatter(queue, (N,), None, to, out, N)
    launch = prepared.graph.nodes[0]
    assert isinstance(launch, Launch)
    assert json.loads(json.dumps([a.to_json() for a in launch.annotations])) == [
        {"argument": 0, "name": "to", "values": ["0", "n"], "distinct": True},
        {"argument": 1, "name": "out", "within": {"writes": ["0", "len(out)"]}},
    ]
    program.scatter(queue, (N,), None, to, out, N)  # they change nothing of what runs
    assert (out.get()[permutation] == np.arange(N)).all()
    with pytest.raises(AnnotationError, match=r"kernel scatter has no argument 'too' \(did you mean 'to'\?\)"):
        program.annotate("scatter", "too", distinct=True)
    with pytest.raises(LaunchError, match="no kernel 'scater'"):
        program.annotate("scater", "to", distinct=True)


# from the specification


@pytest.fixture
def specify(tmp_path: Path) -> Callable[..., Any]:
    (tmp_path / "plain.cl").write_text(PLAIN)
    (tmp_path / "fours.cl").write_text(FOURS)

    def load(**fields: Any) -> Any:
        kernel = {
            "repeat": {"s": 4},
            "id": "step{s}",
            "name": "affine",
            "global": "n",
            "local": 16,
            "device": {"if": "s % 2", "then": "gpu", "else": "cpu"},
            "args": ["v{s}", "v{s + 1}", 2, "s"],
            **fields,
        }
        document = {
            "manycl": 1,
            "parameters": {"n": N, "each": 4},
            "source": "plain.cl",
            "macros": {"EACH": 2},
            "buffers": {"v{k}": {"repeat": {"k": 5}, "type": "int", "shape": "n", "init": "range"}},
            "kernels": [kernel],
        }
        path = tmp_path / "app.json"
        path.write_text(json.dumps(document, indent=1))
        return load_application(path)

    return load


FOURS_ON_GPU = {
    "for": "gpu",
    "name": "fours",
    "source": "fours.cl",
    "macros": {"EACH": "each"},
    "global": "n // each",
}


def test_versions_of_a_specification(specify: Callable[..., Any], two_kinds: None) -> None:
    app = specify(versions=[FOURS_ON_GPU, {"for": ["accelerator"], "local": 8}])
    own, fours, eights = app.graph.nodes[0].versions
    assert (own.kernel.name, own.local_size, own.kinds) == ("affine", (16,), ())
    assert (fours.kernel.name, fours.global_size, fours.local_size, fours.kinds) == ("fours", (16,), None, ("gpu",))
    assert [o for o in fours.program.options if "EACH" in o] == ["-DEACH=4"]
    assert (eights.program, eights.local_size, eights.kinds) == (own.program, (8,), ("accelerator",))
    with Runner(app, "cpu/2") as runner:
        for _ in range(2):
            runner.reset()
            result = runner.run("heft")
            expected = np.arange(N, dtype=np.int32)
            for s in range(4):
                expected = 2 * expected + s
            assert (runner.outputs()["v4"] == expected).all()
            sizes = sorted((k.node, k.kernel, k.global_size) for k in result.trace.kernels())
            assert sizes == [(0, "affine", (64,)), (1, "fours", (16,)), (2, "affine", (64,)), (3, "fours", (16,))]


def test_annotations_of_a_specification(specify: Callable[..., Any]) -> None:
    app = specify(
        repeat={"s": 2},
        name="scatter",
        args={"to": "v{s}", "out": "v{s + 1}", "n": "n"},
        annotations={
            "to": {"values": [0, "n - s"], "distinct": True},
            "out": {"within": ["each * grp0", "each * grp0 + 16"]},
        },
        versions=[
            {"for": "gpu", "local": 8, "annotations": {"out": {"within": {"writes": ["8 * grp0", "8 * grp0 + 8"]}}}},
            {"for": "cpu", "local": 4},
        ],
    )
    for s, launch in enumerate(app.graph.nodes):
        to = {"argument": 0, "name": "to", "values": ["0", f"n - {s}"], "distinct": True}  # n is the kernel's, s not
        out = {"argument": 1, "name": "out"}
        assert [[a.to_json() for a in v.annotations] for v in launch.versions] == [
            [to, {**out, "within": {"writes": ["4 * grp0", "4 * grp0 + 16"]}}],
            [to, {**out, "within": {"writes": ["8 * grp0", "8 * grp0 + 8"]}}],
            [to],
        ]
        assert launch.annotations == launch.versions[0].annotations


ERRORS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"versions": [FOURS_ON_GPU, {"name": "other"}]},
        "kernels[0].versions[1]",
        "versions of one step differ in argument 0 (x): read in kernel affine ({}/plain.cl:2),"
        " read and written in kernel other ({}/plain.cl:6)",
    ),
    ({"versions": [{"name": "afine"}]}, "kernels[0].versions[0].name", "has no kernel 'afine'"),
    ({"versions": [{"source": "no.cl"}]}, "kernels[0].versions[0].source", "there is no file 'no.cl'"),
    ({"versions": [{"for": "gpus"}]}, "kernels[0].versions[0].for", "must be one of cpu, gpu, accelerator"),
    ({"versions": [{"for": []}]}, "kernels[0].versions[0].for", "must not be an empty list"),
    ({"versions": [{"four": "gpu"}]}, "kernels[0].versions[0].four", "unknown field (did you mean 'for'?)"),
    ({"versions": [{"local": 7}]}, "kernels[0].versions[0].local", "not divisible by its work-group (7,)"),
    ({"versions": []}, "kernels[0].versions", "must not be an empty list"),
    (
        {"versions": [{"global": [8, 8]}], "offset": [0]},
        "kernels[0]",
        "global offset (0,) does not fit the global size (8, 8)",
    ),
    (
        {"annotations": {"xx": {"distinct": True}}},
        "kernels[0].annotations.xx",
        "kernel affine has no argument 'xx'",
    ),
    (
        {"annotations": {"x": {"values": ["0", "gid0"]}}},
        "kernels[0].annotations.x.values[1]",
        "'gid0' differs between work-items, the values of an array do not",
    ),
    (
        {"annotations": {"y": {"within": {"writes": ["gid0", "gid1 + m"]}}}},
        "kernels[0].annotations.y.within.writes[1]",
        "unknown symbol 'm' (in 'gid1 + m')",
    ),
    (
        {"annotations": {"y": {"within": {"reads": ["gid0", "n"]}}}},
        "kernels[0].annotations.y.within.reads",
        "kernel affine, argument 1 (y) is never read by the kernel",
    ),
    ({"annotations": {"x": {"values": ["0"]}}}, "kernels[0].annotations.x.values", "must have at least 2 items"),
    (
        {"annotations": {"x": {"values": [0, 1, 2]}}},
        "kernels[0].annotations.x.values",
        "must have at most 2 items, not 3",
    ),
    ({"annotations": {"x": {"distinct": False}}}, "kernels[0].annotations.x.distinct", "must be true, not false"),
    ({"annotations": {"x": {}}}, "kernels[0].annotations.x", "must not be an empty object"),
    (
        {"versions": [{"annotations": {"x": {"values": [3, 3]}}}]},
        "kernels[0].versions[0].annotations.x.values",
        "there is no integer from 3 to below 3",
    ),
]


@pytest.mark.parametrize(("fields", "field", "words"), ERRORS, ids=[f"{e[1]}: {e[2]}"[:80] for e in ERRORS])
def test_what_is_wrong_is_named(
    specify: Callable[..., Any], tmp_path: Path, fields: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(SpecificationError) as caught:
        specify(**fields)
    error = caught.value
    assert error.field == field
    assert words.replace("{}", str(tmp_path)) in error.problem
    assert str(error).startswith(f"{tmp_path / 'app.json'}:{error.line}: {field}: ")


def test_the_line_is_named(specify: Callable[..., Any], tmp_path: Path) -> None:
    for fields, text in (
        ({"annotations": {"x": {"values": ["0", "gid0"]}}}, '"gid0"'),
        ({"versions": [FOURS_ON_GPU, {"name": "affine", "local": 7}]}, '"local": 7'),
    ):
        with pytest.raises(SpecificationError) as caught:
            specify(**fields)
        assert (tmp_path / "app.json").read_text().splitlines()[caught.value.line - 1].strip() == text


def test_groups_have_neither(specify: Callable[..., Any], tmp_path: Path) -> None:
    specify()
    document = json.loads((tmp_path / "app.json").read_text())
    for name, value in (("versions", [{"local": 8}]), ("annotations", {"x": {"distinct": True}})):
        (tmp_path / "group.json").write_text(
            json.dumps({**document, "kernels": [{"kernels": document["kernels"], name: value}]})
        )
        with pytest.raises(SpecificationError, match=rf"kernels\[0\].{name}: a group of kernels has no such field"):
            load_application(tmp_path / "group.json")
