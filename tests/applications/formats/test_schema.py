"""The published schema and the reader agree, and nothing but a manycl error ever comes out of reading."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manycl.applications.formats.fields import DOCUMENT
from manycl.applications.formats.kinds import check, json_schema
from manycl.applications.load import load_application
from manycl.errors import ManyclError, SpecificationError
from manycl.utilities.json_lines import Location
from tests import ROOT
from tests.applications.sample_application import KERNELS, SPECIFICATION

SCHEMA = json_schema(DOCUMENT, "specification")
JUDGE = jsonschema.Draft202012Validator(SCHEMA)

RICH: dict[str, Any] = {
    **SPECIFICATION,
    "buffers": {
        **SPECIFICATION["buffers"],
        "r{i}": {
            "repeat": {"i": "n / 32"},
            "type": "float",
            "shape": "n",
            "init": {"kind": "random", "seed": 3, "low": -1},
        },
    },
    "kernels": [
        *SPECIFICATION["kernels"],
        {
            "repeat": {"i": [0, 1]},
            "component": "c{i}",
            "kernels": [{"id": "k{i}", "name": "copy", "global": ["n"], "args": ["r{i}", {"shape": "n"}, "n"]}],
        },
        {
            "id": "e",
            "name": "copy",
            "global": "n",
            "offset": [0],
            "args": [None, {"shape": "n", "type": "float"}, "n"],
            "versions": [
                {"for": "gpu", "macros": {"WIDE": "n / 2"}, "local": 8},
                {"for": ["cpu", "gpu"], "name": "copy", "annotations": {"dst": {"within": [0, "n"]}}},
                {"file": "reference.py", "function": "f", "divide": 0},
                {
                    "for": "cpu",
                    "name": "twice",
                    "macros": {"WIDE": 1},
                    "buffers": {"t": {"type": "float", "shape": "n"}},
                    "kernels": [
                        {"name": "copy", "args": ["src", "t", "n"], "repeat": {"j": 2}},
                        {"name": "copy", "global": "n", "offset": [0], "args": {"src": "t", "dst": "dst", "n": "n"}},
                    ],
                },
            ],
            "annotations": {"src": {"within": {"reads": ["gid0", "gid0 + 1"]}}},
        },
    ],
    "edges": ["k0.1 -> e.0", {"repeat": {"i": 2}, "edges": ["k{i}.1 -> e.0"][:0]}],
    "outputs": ["w", {"buffer": "r{i}", "repeat": {"i": 2}, "save": "r{i}.npy"}],
    "check": {"file": "reference.py", "tolerance": 0.1},
}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.text(max_size=3),
    st.sampled_from(
        ["n", "n / 3", "x", "z", "{n}", "first.1 -> second.0", "float4", "random", "copy", "k.cl", "n * *"]
    ),
)
WORDS = sorted({word for definition in SCHEMA["$defs"].values() for word in definition.get("properties", ())})
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def containers(value: Any) -> list[Any]:
    found = [value] if isinstance(value, (dict, list)) else []
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += containers(inner)
    return found


@st.composite
def mutations(draw: st.DrawFn) -> Any:
    """A valid specification with one to three places changed, removed, added or moved."""
    document = copy.deepcopy(draw(st.sampled_from([SPECIFICATION, RICH])))
    for _ in range(draw(st.integers(1, 3))):
        places = containers(document)
        node = places[draw(st.integers(0, len(places) - 1))]
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        action = draw(st.sampled_from(["change", "remove", "add", "move"]))
        if action == "add" or not keys:
            if isinstance(node, dict):
                node[draw(st.sampled_from(WORDS) | st.text(max_size=3))] = draw(VALUES)
            else:
                node.append(draw(VALUES))
            continue
        key = draw(st.sampled_from(keys))
        if action == "remove":
            del node[key]
        elif action == "change":
            node[key] = draw(VALUES)
        else:
            node[key] = copy.deepcopy(places[draw(st.integers(0, len(places) - 1))])
    return document


def accepted(document: Any) -> bool:
    try:
        check(document, DOCUMENT, Location("f", json.dumps(document)))
    except SpecificationError:
        return False
    return True


def test_the_schema_is_one_and_takes_the_examples() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    examples = sorted((ROOT / "manycl" / "examples").glob("*/*.json"))
    assert len(examples) >= 2
    for document in (SPECIFICATION, RICH, *(json.loads(path.read_text()) for path in examples)):
        JUDGE.validate(document)
        assert accepted(document)


@settings(max_examples=200, deadline=None)
@given(mutations() | VALUES)
def test_reader_and_schema_agree(document: Any) -> None:
    assert accepted(document) == JUDGE.is_valid(document)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz")
    (path / "k.cl").write_text(KERNELS)
    (path / "reference.py").write_text("")
    return path


def load_text(folder: Path, text: str) -> None:
    path = folder / "app.json"
    path.write_text(text, "utf-8", errors="surrogatepass")
    try:
        application = load_application(path)
    except ManyclError:
        return
    assert len(application.graph) > 0
    for key, contents in application.contents.items():
        assert contents.nbytes == application.graph.buffers[key].nbytes


def test_the_rich_one_loads(folder: Path) -> None:
    (folder / "rich.json").write_text(json.dumps(RICH))
    assert len(load_application(folder / "rich.json").graph) == 6


FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(document=mutations())
def test_mutated_specifications(folder: Path, document: Any) -> None:
    load_text(folder, json.dumps(document))


@FUZZ
@given(
    document=VALUES,
    name=st.sampled_from(["kernels", "buffers", "edges", "parameters", "outputs", "components"]),
)
def test_random_values_in_place(folder: Path, document: Any, name: str) -> None:
    load_text(folder, json.dumps({**RICH, name: document}))


@FUZZ
@given(data=st.data())
def test_broken_texts(folder: Path, data: st.DataObject) -> None:
    text = json.dumps(RICH, indent=data.draw(st.sampled_from([None, 1])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(st.integers(0, 3)) :]
    load_text(folder, text)
