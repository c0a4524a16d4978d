"""docs/specification.md: its example loads, its reference is that of the fields' table, and it names every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manycl.applications.formats.fields import DOCUMENT, TABLES
from manycl.applications.formats.kinds import json_schema, reference
from manycl.applications.load import load_application
from manycl.expressions import FUNCTIONS
from tests import ROOT

DOCUMENTATION = (ROOT / "docs" / "specification.md").read_text()

KERNELS = """\
__kernel void smooth(__global const float *in, __global float *out, int n, __local float *cache) {
    int x = get_global_id(0), y = get_global_id(1);
    cache[get_local_id(1) * TILE + get_local_id(0)] = in[y * n + x];
    out[y * n + x] = cache[get_local_id(1) * TILE + get_local_id(0)] * WEIGHT;
}
__kernel void accumulate(__global const float *from, __global float *sum, float factor) {
    sum[get_global_id(0)] += factor * from[get_global_id(0)];
}
"""


def test_the_example_loads(tmp_path: Path) -> None:
    match = re.search(r"```json\n(.*?)```", DOCUMENTATION, re.DOTALL)
    assert match is not None
    (tmp_path / "app.json").write_text(match[1])
    (tmp_path / "smooth.cl").write_text(KERNELS)
    (tmp_path / "smooth_reference.py").write_text("")
    app = load_application(tmp_path / "app.json")
    assert app.warnings == ()
    assert len(app.graph) == 8
    assert app.graph.components == ((0, 1, 2), (3, 4, 5), (6,), (7,))
    assert app.graph.predecessors == ((), (0,), (1,), (), (3,), (4,), (2,), (5, 6))
    assert [(o.name, o.path) for o in app.outputs] == [("total", "total.npy")]
    assert len(load_application(tmp_path / "app.json", {"F": "4", "steps": "5"}).graph) == 24


@pytest.mark.parametrize("name", ["document", "buffer", "kernel", "annotation", "iterate"])
def test_the_reference_is_that_of_the_fields(name: str) -> None:
    assert reference(TABLES[name]) in DOCUMENTATION


def test_every_field_and_function_is_described() -> None:
    found = json_schema(DOCUMENT, "specification")
    fields = set(found["properties"]).union(*(node["properties"] for node in found["$defs"].values()))
    words = set(re.findall(r"[$\w]+", DOCUMENTATION))
    assert len(fields) > 30
    assert fields - words == set()
    assert set(FUNCTIONS) - words == set()
