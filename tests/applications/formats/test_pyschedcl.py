"""PySchedCL's files: read as they are, judged by the graphs they must give."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manycl.applications.application import Application
from manycl.applications.load import load_application
from manycl.errors import ManyclError, SpecificationError
from manycl.graph.graph import LocalArg
from manycl.machine import Device, Machine, queue_counts

KERNELS = """\
__kernel void combine(__global float *left, __global float *right, __global float *sum, int n,
                      __local float *tmp) {
    int i = get_global_id(0);
    tmp[get_local_id(0)] = left[i];
    if (i < n) sum[i] = tmp[get_local_id(0)] + right[i] * FACTOR;
}
__kernel void twist(__global int *data, char4 v, __global uchar *flags) {
    data[get_global_id(1) * get_global_size(0) + get_global_id(0)] += v.x + flags[0];
}
"""


def combine(**changes: Any) -> dict[str, Any]:
    return {
        "name": "combine",
        "src": "two.cl",
        "workDimension": 1,
        "globalWorkSize": "[partition_round(n1, size_percent)]",
        "localWorkSize": "[n1 / 5]",
        "partition": 10,
        "inputBuffers": [
            {"pos": 0, "type": "float", "size": "n1 * 2 / 2", "break": 1},
            {"pos": 1, "type": "float", "size": "n1", "break": 0},
        ],
        "outputBuffers": [{"pos": 2, "type": "float", "size": "n1", "break": 1}],
        "varArguments": [{"pos": 3, "type": "int", "value": "n1"}],
        "localArguments": [{"pos": 4, "type": "float", "size": "n1 / 5"}],
        "macros_values": {"FACTOR": "n1 / 3"},
        **changes,
    }


def twist(**changes: Any) -> dict[str, Any]:
    return {
        "name": "twist",
        "src": "two.cl",
        "workDimension": None,
        "globalWorkSize": [8, 4],
        "ioBuffers": [{"pos": 0, "type": "int", "size": 32, "break": 1}],
        "inputBuffers": [{"pos": 2, "type": "", "size": "2 ** 3", "break": 0}],
        "varArguments": [{"pos": 1, "type": "char4", "value": [1, 2, "3", -4]}],
        "macros_values": {"FACTOR": 1},
        "symbolicVariables": {},
        **changes,
    }


def load_list(folder: Path, kernels: Any, **parameters: object) -> Application:
    (folder / "kernels").mkdir(exist_ok=True)
    (folder / "kernels" / "two.cl").write_text(KERNELS)
    path = folder / "list.json"
    path.write_text(json.dumps(kernels, indent=1))
    return load_application(path, {name: str(value) for name, value in parameters.items()})


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A folder in the graph form: info/ beside dag.graph, the sources in ../src."""
    folder = tmp_path / "diamond"
    (folder / "info").mkdir(parents=True)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "two.cl").write_text(KERNELS)
    (folder / "info" / "combine.json").write_text(json.dumps(combine(localWorkSize=None)))
    (folder / "dag.graph").write_text(
        '3 combine.json {"n1": 50, "partition": 10}\n'
        '0 combine.json {"n1": 50, "partition": 0}\n'
        '1 combine.json {"n1":50,"partition":5, "localWorkSize": 5}\n'
        '2 combine.json {"n1":50}\n---\n0 2->1 0\n0 2->2 1\n1 2->3 0\n2 2 -> 3 1\n---\n'
    )
    return folder


def test_the_graph_form(graph: Path) -> None:
    app = load_application(graph)
    assert app.name == "diamond"
    nodes = app.graph.nodes
    assert [n.name for n in nodes] == ["combine#0", "combine#1", "combine#2", "combine#3"]
    assert app.graph.predecessors == ((), (0,), (0,), (1, 2))
    assert [n.device for n in nodes] == ["cpu", "", "gpu", "gpu"]  # type: ignore[union-attr]
    assert [n.local_size for n in nodes] == [None, (5,), None, None]  # type: ignore[union-attr]
    assert [o.name for o in app.outputs] == ["3.sum"]
    assert app.graph.components == ()
    assert app.warnings == ()
    options = nodes[0].program.options  # type: ignore[union-attr]
    assert options == ("-cl-mad-enable", "-DFACTOR=16")  # 50 / 3 in Python 2
    same = load_application(graph / "dag.graph", {"n1": "60"})
    assert [n.global_size for n in same.graph.nodes] == [(60,)] * 4  # type: ignore[union-attr]


DAG: dict[str, Any] = {
    "kernels": [
        {"id": 0, "name": "combine.json", "dev": "gpu", "n1": 50},
        {"id": "other", "name": "combine.json", "dev": "cpu", "n1": 50},
        {"id": 2, "name": "combine.json", "dev": "gpu", "n1": 50, "localWorkSize": [10]},
    ],
    "tc": [[0, 2], ["other"]],
    "cq": {"r1": 4, "r2": 2, "cpu1": 3},
    "edges": ["0,2 -> 2,0", "other,2->2,1"],
}


def test_the_papers_form(graph: Path) -> None:
    (graph / "dag.json").write_text(json.dumps(DAG))
    app = load_application(graph / "dag.json")
    nodes = app.graph.nodes
    assert [n.name for n in nodes] == ["combine#0", "combine#other", "combine#2"]
    assert app.graph.predecessors == ((), (), (0, 1))
    assert [n.device for n in nodes] == ["gpu", "cpu", "gpu"]  # type: ignore[union-attr]
    assert [n.local_size for n in nodes] == [None, None, (10,)]  # type: ignore[union-attr]
    assert [set(members) for members in app.graph.components] == [{0, 2}, {1}]
    devices = [
        Device(name, kind) for name, kind in (("gpu0", "gpu"), ("cpu0", "cpu"), ("cpu1", "cpu"), ("cpu2", "cpu"))
    ]
    assert queue_counts(Machine(tuple(devices)), app.queues) == (4, 2, 3, devices[3].queues)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tc": [[0, 2, "other"]]}, "kernel other has another device than its component"),
        ({"tc": [[0], [0]]}, "kernel 0 is in two components"),
        ({"tc": [[7]]}, "no kernel with the id '7'"),
        ({"edges": ["0 2 -> 2 0"]}, "is not an edge"),
        ({"edges": ["0,2 -> 9,0"]}, "no kernel with the id '9'"),
        ({"cq": {"r1": 0}}, "cq"),
        ({"kernels": [{**DAG["kernels"][0], "dev": "npu"}]}, "dev"),
        ({"kernels": [{**DAG["kernels"][0], "n1": "many"}]}, "the symbol 'n1' must be a number"),
    ],
)
def test_what_is_wrong_in_the_papers_form_is_named(graph: Path, change: dict[str, Any], words: str) -> None:
    (graph / "dag.json").write_text(json.dumps({**DAG, **change}))
    with pytest.raises(SpecificationError, match=words):
        load_application(graph / "dag.json")


def test_the_list_form(tmp_path: Path) -> None:
    kernels = [
        combine(id=7, task=0),
        combine(
            id="8",
            task=0,
            partition=0,
            depends=[7],
            inputBuffers=[
                {"pos": 0, "type": "float", "size": "n1", "break": 1, "from": {"kernel": "7", "pos": 2}},
                {"pos": 1, "type": "float", "size": "n1", "break": 0},
            ],
        ),
        twist(id=9, depends=[8], task="other"),
    ]
    app = load_list(tmp_path, kernels, n1=60)
    first, second, third = app.graph.nodes
    assert app.graph.predecessors == ((), (0,), (1,))
    assert app.graph.components == ((0, 1), (2,))
    assert [n.device for n in app.graph.nodes] == ["gpu", "gpu", ""]  # type: ignore[union-attr]
    assert second.reads[0] == first.writes[0]
    assert first.args[4] == LocalArg(12 * 4)
    assert third.args[1] == np.array([1, 2, 3, -4], np.int8).tobytes()
    assert third.global_size == (8, 4)  # type: ignore[union-attr]
    by_name = {app.graph.buffers[k].name: c for k, c in app.contents.items()}
    flags, data = by_name["9.flags"].create(), by_name["9.data"].create()
    assert (flags.dtype.name, flags.shape) == ("uint8", (8,))
    assert flags.max() <= 127
    assert (data.dtype.name, data.shape) == ("int32", (32,))
    assert 127 < data.max() <= 4095
    left = by_name["7.left"].create()
    assert (left.min() >= 0, left.max() < 1, left.std() > 0.1) == (True, True, True)
    assert not by_name["7.sum"].create().any()
    assert {o.name for o in app.outputs} == {"8.sum", "9.data"}
    assert load_list(tmp_path, twist(macros_values={"FACTOR": 1, "T": "float"})).graph.nodes[0].name == "twist#0"


def test_the_kernel_decides(tmp_path: Path) -> None:
    wrong = combine(
        inputBuffers=[{"pos": p, "type": "float", "size": 60} for p in (0, 2)],
        outputBuffers=[{"pos": 1, "type": "int", "size": 60}],
    )
    app = load_list(tmp_path, [wrong], n1=60)
    (node,) = app.graph.nodes
    names = app.graph.buffers
    assert {names[k].name for k in node.reads} == {"0.left", "0.right"}
    assert {names[k].name for k in node.writes} == {"0.sum"}
    text = "\n".join(app.warnings)
    assert "sum is declared in inputBuffers, but in the kernel it is written" in text
    assert "right is declared in outputBuffers, but in the kernel it is read" in text
    assert "right is declared int, but the kernel has float" in text
    assert text.count("list.json:") == 3


def test_kernel_folders_come_first(graph: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "two.cl").write_text(KERNELS.replace("tmp[get_local_id(0)] + right[i]", "right[i]"))
    app = load_application(graph, kernel_folders=[other])
    assert app.graph.nodes[0].program.path == str(other / "two.cl")  # type: ignore[union-attr]


BAD_LISTS: list[tuple[str, Any, str, str]] = [
    ("no kernel", [3], "[0]", "must be an object, not 3"),
    ("no name", [combine(name="")], "[0].name", "must not be empty"),
    ("no source", [combine(src="no.cl", macros_values=None)], "[0].src", "there is no file 'no.cl'"),
    ("kernel missing", [combine(name="gone")], "[0].name", "has no kernel 'gone'"),
    ("symbol", [combine(globalWorkSize="[n2]")], "[0].globalWorkSize", "unknown symbol 'n2'"),
    ("size", [combine(globalWorkSize="[n1 - 60]")], "[0].globalWorkSize", "must be at least 1, not 0"),
    ("no size", [combine(globalWorkSize=None)], "[0]", "'globalWorkSize' is missing"),
    ("divisible", [combine(localWorkSize=7)], "[0].localWorkSize", "not divisible by its work-group"),
    ("position", [combine(varArguments=[{"pos": 9, "value": 1}])], "[0].varArguments[0].pos", "none at 9"),
    ("position type", [combine(varArguments=[{"pos": "3"}])], "[0].varArguments[0].pos", "must be a number, not"),
    (
        "twice",
        [combine(ioBuffers=[{"pos": 3, "type": "int", "size": 1}])],
        "[0].ioBuffers[0]",
        "is no buffer",
    ),
    ("given twice", [combine(ioBuffers=[{"pos": 2, "size": 60}])], "[0].ioBuffers[0]", "given twice"),
    ("missing", [combine(varArguments=[])], "[0]", "not given: 3 .n."),
    ("no list", [combine(varArguments={})], "[0].varArguments", "must be a list"),
    (
        "float",
        [combine(varArguments=[{"pos": 3, "value": 0.5}])],
        "[0].varArguments[0].value",
        "needs an integer",
    ),
    (
        "no value",
        [combine(varArguments=[{"pos": 3}])],
        "[0].varArguments[0]",
        "the field 'value' is missing",
    ),
    ("local", [combine(localArguments=[{"pos": 4, "size": 0}])], "[0].localArguments[0].size", "at least 1"),
    (
        "type",
        [combine(outputBuffers=[{"pos": 2, "type": "real", "size": 60}])],
        "[0].outputBuffers[0].type",
        "'real'",
    ),
    ("macro", [combine(macros_values={"FACTOR": "n9"})], "[0].macros_values.FACTOR", "unknown symbol 'n9'"),
    (
        "from",
        [combine(outputBuffers=[{"pos": 2, "size": 60, "from": {"kernel": 4, "pos": 0}}])],
        "[0].outputBuffers[0].from",
        "no kernel with the id '4'",
    ),
    ("depends", [combine(depends=["4"])], "[0].depends", "no kernel with the id '4'"),
    ("cycle", [combine(id=0, depends=[1]), combine(id=1, depends=[0])], "[0].depends", "cycle: 0 -> 1 -> 0"),
    ("ids", [combine(id=1), combine(id="1")], "[1]", "two kernels with the id '1'"),
    ("task", [combine(task=[1])], "[0].task", "must be a number or a string"),
]


@pytest.mark.parametrize(("what", "kernels", "field", "words"), BAD_LISTS, ids=[b[0] for b in BAD_LISTS])
def test_what_is_wrong_is_named(tmp_path: Path, what: str, kernels: Any, field: str, words: str) -> None:
    parameters = {"n1": 60} if what not in ("no kernel", "no name", "no source") else {}
    with pytest.raises(SpecificationError, match=words) as caught:
        load_list(tmp_path, kernels, **parameters)
    assert caught.value.field == field
    assert caught.value.path == str(tmp_path / "list.json")
    assert caught.value.line > 0


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("2 combine.json", "2 gone.json", 4, "there is no file 'gone.json'"),
        ('{"n1":50}', '{"n1":50', 4, "symbols of kernel 2|is not a kernel"),
        ('{"n1":50}', '{"n1":"big"}', 4, "the symbol 'n1' must be a number"),
        ("0 2->1 0", "0 2=>1 0", 6, "is not an edge"),
        ("0 2->1 0", "5 2->1 0", 6, "no kernel with the id '5'"),
        ("0 2->1 0", "0 8->1 0", 6, "has no argument 8"),
        ("0 2->1 0", "0 2->1 3", 6, "argument 3 of kernel 1 is no buffer"),
        ("0 2->1 0", "3 2->0 0", 6, "cycle"),
        ("0 2->2 1", "0 2->1 0", 7, "has an edge already"),
        ('2 combine.json {"n1":50}', '2 combine.json {"n1":70}', 7, "has 280 bytes, but 0.sum"),
    ],
)
def test_wrong_graphs(graph: Path, old: str, new: str, line: int, words: str) -> None:
    path = graph / "dag.graph"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(SpecificationError, match=words) as caught:
        load_application(graph)
    assert caught.value.path == str(path)
    assert caught.value.line == line or "cycle" in words


def test_broken_information_file(graph: Path) -> None:
    (graph / "info" / "combine.json").write_text('{"name": "combine",\n "src": }')
    with pytest.raises(SpecificationError, match=r"combine\.json:2: not valid JSON"):
        load_application(graph)


def test_parameters_that_no_kernel_uses(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=r"-D n11: no kernel uses it .did you mean 'n1'"):
        load_list(tmp_path, [combine()], n1=60, n11=3)
    with pytest.raises(SpecificationError, match="not the name of a parameter"):
        load_list(tmp_path, [combine()], n1=60, size_percent=3)


FUZZ = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(
    seed=st.integers(0, 2**32),
    value=st.none() | st.integers(-2, 99) | st.text(max_size=3) | st.just([]) | st.just({}),
)
def test_mutated_lists(tmp_path: Path, seed: int, value: Any) -> None:
    """One place of a valid list replaced by anything: only manycl's own errors come out."""
    document = json.loads(json.dumps([combine(id=0), combine(id=1, depends=[0]), twist()]))
    choose = random.Random(seed)
    node: Any = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = choose.choice(keys)
        if not isinstance(node[key], (dict, list)) or not node[key] or choose.random() < 0.2:
            break
        node = node[key]
    node[key] = value
    with contextlib.suppress(ManyclError):
        assert len(load_list(tmp_path, document, n1=60).graph) >= 2


@FUZZ
@given(at=st.integers(0, 250), cut=st.integers(0, 4), text=st.text(max_size=4))
def test_mutated_graphs(graph: Path, at: int, cut: int, text: str) -> None:
    path = graph / "dag.graph"
    original = path.read_bytes()
    changed = original.decode()
    path.write_text(changed[:at] + text + changed[at + cut :], "utf-8", errors="surrogatepass")
    with contextlib.suppress(ManyclError):
        load_application(graph)
    path.write_bytes(original)
