"""manycl's own format: what is read, and that everything wrong is named by file, line and field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manycl.applications.load import load_application
from manycl.errors import SourceError, SpecificationError
from manycl.graph.graph import BufferArg, Launch, LocalArg

MISSING = object()


def launches(application: Any) -> list[Launch]:
    return [node for node in application.graph.nodes if isinstance(node, Launch)]


def test_a_plain_application(load: Any, specification: dict[str, Any]) -> None:
    app = load(specification)
    first, second, third = launches(app)
    buffers = app.graph.buffers
    assert app.name == "app"
    assert app.parameters == {"n": 64, "twice": 128}
    assert app.graph.predecessors == ((), (0,), (1,))
    assert app.warnings == ()
    assert (first.global_size, first.local_size, first.device) == ((64,), (16,), "")
    assert first.args[2] == np.int32(64).tobytes()
    assert second.args[1] == np.float32(2.5).tobytes()
    assert (second.rank, third.device, third.kernel.name, third.name) == (3.0, "gpu", "add", "third")
    assert {buffers[k].name for k in second.reads} == {buffers[k].name for k in second.writes} == {"z"}
    assert "-DSTEP=16" in first.program.options
    assert app.queues == {"gpu": 4, "cpu": 1}
    (output,) = app.outputs
    assert (output.name, output.shape, output.dtype, output.path) == ("w", (128,), "float32", "")
    for key, contents in app.contents.items():
        array = contents.create()
        assert array.nbytes == buffers[key].nbytes == contents.nbytes
        assert (array.shape, array.dtype.name) == (contents.shape, contents.dtype)
    by_name = {buffers[key].name: contents.create() for key, contents in app.contents.items()}
    assert not np.array_equal(by_name["x"], by_name["y"])
    assert np.all(by_name["w"] == 2)
    assert not by_name["z"].any()
    again = load(specification)
    assert np.array_equal(again.contents[0].create(), app.contents[0].create())


def test_parameters_from_the_command_line(load: Any, specification: dict[str, Any]) -> None:
    app = load(specification, n="2**7")
    assert app.parameters == {"n": 128, "twice": 256}
    assert launches(app)[0].global_size == (128,)
    specification["parameters"]["n"] = None
    with pytest.raises(SpecificationError, match=r"no value for n(.|\n)*-D n=\.\.\."):
        load(specification)
    assert load(specification, n=32).parameters["twice"] == 64


def test_every_kind_of_argument(load: Any, specification: dict[str, Any]) -> None:
    specification["kernels"] = [
        {
            "name": "many",
            "global": "n",
            "local": 16,
            "args": [
                {"type": "int", "shape": "n"},
                "n / 4",
                [1, "n", 0.5, -1],
                "n + 191",
                {"types": ["int", "float"], "values": ["n", 0.5]},
            ],
        }
    ]
    del specification["buffers"]
    del specification["outputs"]
    app = load(specification)
    (launch,) = launches(app)
    assert launch.args[0] == BufferArg(0)
    assert launch.args[1] == LocalArg(16 * 4)
    assert launch.args[2] == np.array([1, 64, 0.5, -1], np.float32).tobytes()
    assert launch.args[3] == bytes([255])
    assert launch.args[4] == np.int32(64).tobytes() + np.float32(0.5).tobytes()
    assert [o.name for o in app.outputs] == ["0.out"]


def test_repetition_groups_and_components(load: Any, specification: dict[str, Any]) -> None:
    specification["parameters"]["steps"] = 3
    specification["buffers"] = {
        "a{i}": {"repeat": {"i": "steps + 1"}, "type": "float", "shape": "n", "init": "random"},
        "b{i}_{j}": {"repeat": {"i": "steps", "j": [2, "n"]}, "type": "float", "shape": "n * j"},
    }
    specification["kernels"] = [
        {
            "repeat": {"i": "steps"},
            "global": "n",
            "component": "c{i}",
            "device": {"if": "i < 1", "then": "cpu", "else": "gpu"},
            "kernels": [
                {"id": "s{i}", "name": "copy", "args": ["a{i}", "a{i + 1}", "n"]},
                {
                    "id": "t{i}_{j}",
                    "repeat": {"j": [2, "n"]},
                    "name": "copy",
                    "args": ["a{i}", "b{i}_{j}", "n"],
                },
            ],
        }
    ]
    specification["outputs"] = [{"buffer": "a{i}", "repeat": {"i": "steps"}, "name": "A{i}", "save": "out{i}.npy"}]
    app = load(specification)
    assert [n.name for n in launches(app)][:4] == ["s0", "t0_2", "t0_64", "s1"]
    assert app.graph.components == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    assert [n.device for n in launches(app)] == ["cpu"] * 3 + ["gpu"] * 6
    assert 3 in app.graph.successors[0]
    assert [(o.name, o.path) for o in app.outputs] == [(f"A{i}", f"out{i}.npy") for i in range(3)]
    assert {b.nbytes for b in app.graph.buffers.values() if b.name == "b2_64"} == {64 * 64 * 4}
    for count in (0, 5):
        if count:
            assert len(load(specification, steps=count).graph) == 3 * count
        else:
            with pytest.raises(SpecificationError, match="there are no kernels"):
                load(specification, steps=0)


def edge_form(specification: dict[str, Any]) -> dict[str, Any]:
    """The paper's shape: no named buffers, edges between argument positions, kernels in any order."""
    new = {"shape": "n"}
    data = {"shape": "n", "init": "random"}
    specification["kernels"] = [
        {"id": 2, "name": "add", "global": "n", "args": [None, None, new]},
        {"id": 0, "name": "copy", "global": "n", "args": [data, new, "n"]},
        {"id": 1, "name": "copy", "global": "n", "args": [data, new, "n"]},
    ]
    specification["edges"] = ["0.1 -> 2.0", "1.dst -> 2.b"]
    specification["components"] = [[0, 2], [1]]
    del specification["buffers"]
    del specification["outputs"]
    return specification


def test_edges_between_positions(load: Any, specification: dict[str, Any]) -> None:
    app = load(edge_form(specification))
    assert [n.kernel.name for n in launches(app)] == ["copy", "copy", "add"]
    assert app.graph.predecessors == ((), (), (0, 1))
    assert app.graph.components == ((0, 2), (1,))
    first, second, third = launches(app)
    assert third.reads == (first.writes[0], second.writes[0])
    assert [o.name for o in app.outputs] == ["2.c"]
    assert len(app.graph.buffers) == 5


def test_a_consumer_in_place_comes_last(load: Any, specification: dict[str, Any]) -> None:
    document = edge_form(specification)
    document["kernels"] = [
        {
            "id": "p",
            "name": "copy",
            "global": "n",
            "args": [{"shape": "n", "init": "range"}, {"shape": "n"}, "n"],
        },
        {"id": "inplace", "name": "scale", "global": "n", "args": [None, 2]},
        {"id": "reader", "name": "copy", "global": "n", "args": [None, {"shape": "n"}, "n"]},
    ]
    document["edges"] = ["p.1 -> inplace.0", "p.1 -> reader.0"]
    del document["components"]
    app = load(document)
    assert [n.name for n in launches(app)] == ["p", "reader", "inplace"]
    assert app.graph.predecessors == ((), (0,), (1,)) or app.graph.predecessors == ((), (0,), (0, 1))
    document["kernels"].append({"id": "again", "name": "scale", "global": "n", "args": [None, 2]})
    document["edges"].append("p.1 -> again.0")
    with pytest.raises(SpecificationError, match="overwrites what kernel p hands to it"):
        load(document)


def test_npy_files(load: Any, specification: dict[str, Any], tmp_path: Path) -> None:
    data = np.arange(64, dtype=np.float32)
    np.save(tmp_path / "x.npy", data)
    specification["buffers"]["x, y"] = {"init": {"kind": "file", "path": "x.npy"}}
    app = load(specification)
    assert np.array_equal(app.contents[0].create(), data)
    np.save(tmp_path / "x.npy", data.astype(np.float64))
    with pytest.raises(SpecificationError, match="holds float64"):
        app.contents[0].create()
    (tmp_path / "x.npy").write_text("no array")
    with pytest.raises(SpecificationError, match=r"buffers.*init\.path.*cannot be read as a \.npy file"):
        load(specification)
    np.save(tmp_path / "x.npy", data)
    specification["buffers"]["x, y"].update({"type": "float", "shape": 63})
    with pytest.raises(SpecificationError, match=r"holds float32 \(64,\), not float \(63,\)"):
        load(specification)


def test_contents_by_kind(load: Any, specification: dict[str, Any]) -> None:
    def contents(node: dict[str, Any]) -> np.ndarray:
        specification["buffers"]["x, y"] = node
        return load(specification).contents[0].create()  # type: ignore[no-any-return]

    bounds = contents({"type": "float", "shape": "n", "init": {"kind": "random", "low": -3, "high": "-n / 32"}})
    assert bounds.min() >= -3
    assert bounds.max() < -2
    assert np.array_equal(contents({"type": "float", "shape": [8, 8], "init": "range"}), np.arange(64).reshape(8, 8))
    assert contents({"type": "float4", "shape": 16, "init": "undefined"}).shape == (16, 4)
    assert contents({"type": "float3", "shape": 16}).shape == (16, 4)


def test_warnings(load: Any, specification: dict[str, Any]) -> None:
    specification["buffers"]["idle"] = {"type": "int", "shape": 3}
    del specification["buffers"]["x, y"]["init"]
    unread, unset, unused = load(specification).warnings
    assert "buffer x is read by first before anything is written to it" in unread
    assert "buffer y is read by third" in unset
    assert "buffer idle is not used" in unused
    assert re.match(r".*app\.json:\d+: buffers\.idle", unused)


ERRORS: list[tuple[str, list[str | int], object, str, str]] = [
    # what, the place to change, the new value (MISSING deletes), the field and the words of the message
    ("unknown field", ["kernal"], 1, "kernal", "unknown field .did you mean 'kernels'"),
    ("unknown kernel field", ["kernels", 0, "globals"], 1, "kernels[0].globals", "did you mean 'global'"),
    ("version", ["manycl"], 2, "manycl", "must be 1, not 2"),
    ("no kernels field", ["kernels"], MISSING, "", "the field 'kernels' is missing"),
    ("no kernels", ["kernels"], [], "kernels", "must not be an empty list"),
    ("no global size", ["kernels", 0, "global"], MISSING, "kernels[0]", "the field 'global' is missing"),
    ("wrong JSON type", ["kernels", 0, "name"], 3, "kernels[0].name", "must be a string, not 3"),
    (
        "boolean",
        ["kernels", 0, "global"],
        True,
        "kernels[0].global",
        "must be a number or a string or a list",
    ),
    ("unknown symbol", ["kernels", 0, "global"], "k * 2", "kernels[0].global", "unknown symbol 'k'"),
    (
        "unknown symbol in shape",
        ["buffers", "z", "shape", 0],
        "nn",
        "buffers.z.shape[0]",
        "unknown symbol 'nn'",
    ),
    (
        "unknown symbol in a name",
        ["kernels", 0, "args", 0],
        "x{h}",
        "kernels[0].args[0]",
        "unknown symbol 'h'",
    ),
    ("bad parameter", ["parameters", "twice"], "2 *", "parameters.twice", "not an arithmetic expression"),
    ("missing source", ["source"], "none.cl", "source", "there is no file 'none.cl'"),
    ("no source", ["source"], MISSING, "kernels[0]", "the field 'source' is missing"),
    ("source name", ["source"], "a\0b", "source", "there is no file"),
    ("unknown kernel", ["kernels", 1, "name"], "scalar", "kernels[1].name", "has no kernel 'scalar'"),
    ("macro", ["macros", "STEP"], "float", "macros.STEP", "unknown symbol 'float'"),
    ("size", ["buffers", "z", "shape", 0], 0, "buffers.z.shape[0]", "must be at least 1, not 0"),
    ("fraction", ["buffers", "z", "shape", 0], "n / 3", "buffers.z.shape[0]", "not a whole number"),
    ("huge size", ["buffers", "z", "shape", 0], "2**62", "buffers.z.shape", "bytes are too many"),
    ("type", ["buffers", "z", "type"], "flot", "buffers.z.type", "did you mean 'float'"),
    (
        "type of the argument",
        ["buffers", "z", "type"],
        "double",
        "kernels[0]",
        "points to float, but the buffer holds float64",
    ),
    ("no type", ["buffers", "z", "type"], MISSING, "buffers.z", "the field 'type' is missing"),
    ("no shape", ["buffers", "z", "shape"], MISSING, "buffers.z", "the field 'shape' is missing"),
    ("kind", ["buffers", "z", "init"], "ones", "buffers.z.init", "must be one of random"),
    ("seed", ["buffers", "z", "init"], {"kind": "random", "seed": -1}, "buffers.z.init.seed", "at least 0"),
    (
        "bounds",
        ["buffers", "z", "init"],
        {"kind": "random", "low": 2},
        "buffers.z.init",
        "low must be less than high",
    ),
    (
        "field of kind",
        ["buffers", "z", "init"],
        {"kind": "zeros", "seed": 1},
        "buffers.z.init.seed",
        "no such field",
    ),
    ("no path", ["buffers", "z", "init"], {"kind": "file"}, "buffers.z.init", "need the field 'path'"),
    (
        "missing npy",
        ["buffers", "z", "init"],
        {"kind": "file", "path": "no.npy"},
        "buffers.z.init.path",
        "No such file",
    ),
    (
        "buffer twice",
        ["buffers", "z, x"],
        {"type": "int", "shape": 1},
        'buffers["z, x"]',
        "two buffers called 'z'",
    ),
    (
        "argument count",
        ["kernels", 0, "args"],
        ["x", "z"],
        "kernels[0].args",
        r"takes 3 arguments \(src, dst, n\), got 2",
    ),
    (
        "too many",
        ["kernels", 1, "args"],
        ["x", 1, 2],
        "kernels[1].args",
        "takes 2 arguments .data, factor., got 3",
    ),
    ("argument name", ["kernels", 1, "args", "fact"], 1, "kernels[1].args.fact", "did you mean 'factor'"),
    ("argument left out", ["kernels", 1, "args", "data"], MISSING, "kernels[1].args", "takes 2 arguments"),
    (
        "unknown buffer",
        ["kernels", 2, "args", 0],
        "zz",
        "kernels[2].args[0]",
        "argument 0 .a. is a buffer, and .* is not that of a buffer",
    ),
    ("number for buffer", ["kernels", 2, "args", 0], 4, "kernels[2].args[0]", "argument 0 .a. is a buffer"),
    (
        "buffer for scalar",
        ["kernels", 0, "args", 2],
        "x",
        "kernels[0].args[2]",
        "argument 2 .n. takes a value of type int",
    ),
    (
        "float for int",
        ["kernels", 0, "args", 2],
        1.5,
        "kernels[0].args[2]",
        "argument 2 .n. needs an integer",
    ),
    ("range of int", ["kernels", 0, "args", 2], "2**31", "kernels[0].args[2]", "out of range"),
    ("null", ["kernels", 0, "args", 0], None, "kernels[0].args", "no edge leads to it"),
    (
        "local does not divide",
        ["kernels", 0, "local"],
        24,
        "kernels[0].local",
        "not divisible by its work-group",
    ),
    ("local dimensions", ["kernels", 0, "local"], [8, 2], "kernels[0].local", "has 2 dimensions"),
    ("four dimensions", ["kernels", 0, "global"], [1, 1, 1, 1], "kernels[0].global", "at most 3 items"),
    ("negative size", ["kernels", 0, "global"], "-n", "kernels[0].global", "must be at least 1, not -64"),
    ("id twice", ["kernels", 1, "id"], "first", "kernels[1].id", "two kernels with the id 'first'"),
    ("offset", ["kernels", 1, "offset"], [0, 0], "kernels[1].offset", "has 2 dimensions"),
    ("repeat symbol", ["kernels", 1, "repeat"], {"n": 2}, "kernels[1].repeat.n", "has a value already"),
    ("repeat count", ["kernels", 1, "repeat"], {"h": 10**9}, "kernels[1].repeat.h", "too many"),
    ("negative count", ["kernels", 1, "repeat"], {"h": -1}, "kernels[1].repeat.h", "must be at least 0"),
    (
        "group field",
        ["kernels", 1, "kernels"],
        [{"name": "x"}],
        "kernels[1].id",
        "a group of kernels has no such field",
    ),
    ("queues", ["queues", "gpu"], 0, "queues.gpu", "must be at least 1"),
    ("output", ["outputs"], ["ww"], "outputs[0]", "does not exist"),
    ("output twice", ["outputs"], ["w", "w"], "outputs[1]", "two outputs called 'w'"),
    ("edge", ["edges"], ["0 -> 1"], "edges[0]", "is not an edge"),
    ("edge kernel", ["edges"], ["firs.0 -> second.0"], "edges[0]", "did you mean 'first'"),
    ("edge argument", ["edges"], ["first.3 -> second.0"], "edges[0]", "has no argument 3"),
    (
        "edge of scalar",
        ["edges"],
        ["first.2 -> second.0"],
        "edges[0]",
        "argument 2 of kernel first is no buffer",
    ),
    ("edge joins", ["edges"], ["first.0 -> second.0"], "edges[0]", "joins two buffers, x and z"),
    (
        "edge twice",
        ["edges"],
        ["first.1 -> second.0", "first.dst -> second.data"],
        "edges[1]",
        "has an edge already",
    ),
    (
        "cycle",
        ["edges"],
        ["first.1 -> second.0", "second.0 -> first.1"],
        "edges[1]",
        "cycle: first -> second -> first",
    ),
    ("self", ["edges"], ["second.0 -> second.0"], "edges[0]", "cycle: second -> second"),
    ("component", ["components"], [["first"], ["first"]], "components[1][0]", "in a component already"),
    ("component id", ["components"], [["fourth"]], "components[0][0]", "no kernel with the id 'fourth'"),
    ("component devices", ["components"], [["second", "third"]], "kernels[2]", "prefer different devices"),
    ("reference", ["check"], {"file": "none.py"}, "check.file", "there is no file"),
    ("tolerance", ["check"], {"file": "k.cl", "tolerance": 0}, "check.tolerance", "must be more than 0"),
]


@pytest.mark.parametrize(("what", "path", "value", "field", "words"), ERRORS, ids=[e[0] for e in ERRORS])
def test_what_is_wrong_is_named(
    load: Any,
    specification: dict[str, Any],
    tmp_path: Path,
    what: str,
    path: list[Any],
    value: object,
    field: str,
    words: str,
) -> None:
    node: Any = specification
    for key in path[:-1]:
        node = node[key]
    if value is MISSING:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    with pytest.raises(SpecificationError, match=words) as caught:
        load(specification)
    error = caught.value
    assert error.field == field, what
    assert error.path == str(tmp_path / "app.json")
    lines = (tmp_path / "app.json").read_text().splitlines()
    last = re.findall(r"\w+|\"[^\"]*\"", field)[-1:] or [""]
    named = [part for part in path if isinstance(part, str)][-1]
    assert 1 <= error.line <= len(lines)
    if last[0] and not last[0].isdigit() and not field.endswith("]"):
        assert lines[error.line - 1].strip().startswith(json.dumps(last[0])), (field, named)


def test_wrong_parameters_on_the_command_line(load: Any, specification: dict[str, Any]) -> None:
    with pytest.raises(SpecificationError, match="-D m: there is no such parameter"):
        load(specification, m=3)
    with pytest.raises(SpecificationError, match=r"parameters\.n: -D n=1\+: .*not an arithmetic"):
        load(specification, n="1+")
    with pytest.raises(SpecificationError, match="unknown symbol 'twice'"):
        load(specification, n="twice")


def test_required_work_group(load: Any, specification: dict[str, Any]) -> None:
    tile = {"name": "tile", "global": [16, 8], "args": [{"shape": 128}]}
    specification["kernels"].append(tile)
    assert launches(load(specification))[-1].local_size == (8, 4)
    tile["local"] = [4, 8]
    with pytest.raises(SpecificationError, match=r"kernels\[3\]\.local: kernel tile requires work-groups"):
        load(specification)


def test_a_source_that_does_not_compile(load: Any, specification: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "bad.cl").write_text("__kernel void f(__global int *p) {\n  p[0] = undeclared;\n}\n")
    specification["source"] = "bad.cl"
    with pytest.raises(SourceError, match=r"bad\.cl:2:\d+.*undeclared"):
        load(specification)


def test_files_that_are_no_specifications(tmp_path: Path) -> None:
    cases = {
        "a.json": ("", "not valid JSON"),
        "b.json": ("3", "must be an object"),
        "c.json": ("[]", "no kernels"),
    }
    for name, (text, words) in cases.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(SpecificationError, match=words):
            load_application(tmp_path / name)
    for missing in (tmp_path / "none.json", "a\0b"):
        with pytest.raises(SpecificationError):
            load_application(missing)
    with pytest.raises(SpecificationError):
        load_application(tmp_path)
