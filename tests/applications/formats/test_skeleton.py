"""``manycl spec``: what it writes loads as soon as the parameters it leaves open are given."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from manycl.applications.formats.fields import DOCUMENT
from manycl.applications.formats.kinds import json_schema
from manycl.applications.load import load_application
from manycl.cli import main
from manycl.errors import SpecificationError
from manycl.graph.graph import Launch
from tests import ROOT
from tests.applications.sample_application import KERNELS

EXAMPLES = ROOT / "manycl" / "examples"


def fill(path: Path) -> dict[str, str]:
    """A value for every open parameter: NDRanges that required work-groups divide, small scalars."""
    names = json.loads(path.read_text())["parameters"]
    return {name: "32" if "global" in name or "elements" in name else "1" for name in names}


def test_the_result_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "k.cl").write_text(KERNELS)
    out = tmp_path / "app.json"
    assert main(["spec", str(tmp_path / "src" / "k.cl"), "-D", "STEP=3", "-o", str(out)]) == 0
    assert capsys.readouterr().out == ""
    document = json.loads(out.read_text())
    jsonschema.validate(document, json_schema(DOCUMENT, "specification"))
    assert document["source"] == "src/k.cl"
    with pytest.raises(SpecificationError, match="no value for copy_global_0"):
        load_application(out)
    app = load_application(out, fill(out))
    nodes = [n for n in app.graph.nodes if isinstance(n, Launch)]
    assert [n.kernel.name for n in nodes] == ["copy", "scale", "add", "many", "tile"]
    assert nodes[-1].local_size == (8, 4)
    assert nodes[-1].global_size == (32, 32)
    assert len(nodes[3].args[4]) == 8  # type: ignore[arg-type]
    assert {b.name for b in app.graph.buffers.values()} == {"src", "dst", "data", "a", "b", "c", "out", "t"}
    assert app.contents[0].kind == "random"
    assert app.contents[1].kind == "zeros"
    assert app.warnings == ()


@pytest.mark.parametrize("name", ["transformer", "matrix_equation"])
def test_the_examples_sources(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", str(EXAMPLES / name / f"{name}.cl")]) == 0
    text = capsys.readouterr().out
    document = json.loads(text)
    document["source"] = str(EXAMPLES / name / f"{name}.cl")
    path = tmp_path / "app.json"
    path.write_text(json.dumps(document))
    assert len(load_application(path, fill(path)).graph) == len(document["kernels"])


def test_what_cannot_be_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.cl"
    path.write_text("__kernel void f(read_only image2d_t im, __global float *p) { p[0] = get_image_width(im); }\n")
    assert main(["spec", str(path)]) == 2
    assert "only kernels with images" in capsys.readouterr().err
    path.write_text(
        path.read_text() + "__kernel void g(__global float *p, __global float (*q)[4]) { p[0] = q[0][1]; }\n"
    )
    assert main(["spec", str(path)]) == 0
    captured = capsys.readouterr()
    assert "kernel f is left out" in captured.err
    assert [k["name"] for k in json.loads(captured.out)["kernels"]] == ["g"]
    path.write_text("int helper(int x) { return x; }\n")
    assert main(["spec", str(path)]) == 2
    assert main(["spec", str(tmp_path / "none.cl")]) == 2
    assert main(["spec", str(path), "-o", str(tmp_path / "none" / "x.json")]) == 2
    capsys.readouterr()


def test_the_schema_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spec", "--schema", "-o", str(tmp_path / "schema.json")]) == 0
    schema = json.loads((tmp_path / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["kernels"]["description"]
    assert main(["spec"]) == 2
    assert "give FILE.cl, or --schema" in capsys.readouterr().err
