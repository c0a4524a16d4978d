"""The examples: their size, their graphs, and that graph and reference mean the same."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

from manycl.applications.application import Application
from manycl.applications.load import load_application
from manycl.graph.graph import BufferArg, Launch
from tests import ROOT
from tests.graph.graph_judge import verify

EXAMPLES = ROOT / "manycl" / "examples"


NUMPY = {"int": np.int32, "float": np.float32}


def interpret(app: Application) -> dict[str, np.ndarray]:
    """Runs the graph node by node, with each kernel's meaning in NumPy."""
    arrays = {key: contents.create() for key, contents in app.contents.items()}
    for node in app.graph.nodes:
        assert isinstance(node, Launch)
        values: list[Any] = [
            arrays[a.key] if isinstance(a, BufferArg) else np.frombuffer(a, NUMPY[facts.base])[0]  # type: ignore[arg-type]
            for a, facts in zip(node.args, node.kernel.arguments, strict=True)
        ]
        match node.kernel.name:
            case "gemm" | "matmul":
                a, b, c, m, n, k = values
                c[...] = a.reshape(m, k) @ b.reshape(k, n)
            case "transpose":
                source, target, m, n = values
                target[...] = source.reshape(m, n).T
            case "softmax":
                source, target, m, n, scale = values
                e = np.exp(scale * source.reshape(m, n).astype(np.float64))
                target[...] = e / e.sum(axis=1, keepdims=True)
    return {o.name: arrays[o.buffer] for o in app.outputs}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("transformer", {"beta": "24"}),
        ("transformer", {"beta": "16", "H": "3"}),
        ("matrix_equation", {"n": "24", "m": "40"}),
    ],
)
def test_graph_and_reference_agree(name: str, parameters: dict[str, str]) -> None:
    app = load_application(EXAMPLES / name / f"{name}.json", parameters)
    verify(app.graph)
    assert app.warnings == ()
    assert app.reference is not None
    spec = importlib.util.spec_from_file_location("reference", app.reference[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs = {
        app.graph.buffers[key].name: contents.create()
        for key, contents in app.contents.items()
        if contents.kind != "undefined"
    }
    expected = getattr(module, app.reference[1])(inputs)
    results = interpret(app)
    assert set(results) == set(expected)
    for key, value in expected.items():
        assert results[key].shape == value.shape
        error = np.abs(results[key] - value).max() / np.abs(value).max()
        assert error < app.tolerance
        assert np.abs(value).max() > 1e-3


@pytest.mark.parametrize("heads", [1, 2, 16])
def test_heads_of_the_transformer(heads: int) -> None:
    app = load_application(EXAMPLES / "transformer" / "transformer.json", {"H": str(heads), "H_CPU": "1"})
    graph = app.graph
    assert len(graph) == 8 * heads
    assert graph.components == tuple(tuple(range(8 * h, 8 * h + 8)) for h in range(heads))
    # X is shared; per head three products from X, the transpose, and four more in a line.
    edges = {(p, n) for p, n in graph.edges}
    assert len(edges) == 7 * heads
    assert {(p % 8, n % 8) for p, n in edges} == {(0, 4), (1, 3), (2, 6), (3, 4), (4, 5), (5, 6), (6, 7)}
    assert all(p // 8 == n // 8 for p, n in edges)
    assert [node.device for node in graph.nodes] == ["cpu"] * 8 + [""] * (8 * heads - 8)  # type: ignore[union-attr]
    assert [o.name for o in app.outputs] == [f"Z{h}" for h in range(heads)]


def test_the_matrix_equation_is_the_papers_graph() -> None:
    graph = load_application(EXAMPLES / "matrix_equation" / "matrix_equation.json").graph
    assert [node.name for node in graph.nodes] == ["k1", "k2", "k3", "k4", "k5", "k6"]
    assert set(graph.edges) == {(1, 2), (0, 3), (2, 3), (3, 5), (4, 5)}


def test_examples_are_short() -> None:
    lines = (EXAMPLES / "transformer" / "transformer.json").read_text().splitlines()
    assert len(lines) <= 25
    for path in EXAMPLES.glob("*/*.json"):
        assert max(len(line) for line in path.read_text().splitlines()) <= 160
        json.loads(path.read_text())
