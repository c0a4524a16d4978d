"""PySchedCL's files where its repositories have them, its lists of tasks, and its division in tenths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manycl.applications.application import Application
from manycl.applications.load import load_application
from manycl.applications.runner import Runner
from manycl.cli import main
from manycl.errors import SpecificationError
from manycl.graph.graph import Launch

TURN = """\
kernel void turn(global float *out, global const float *in, int first, int width, int height) {
    int column = get_global_id(0) + first, row = get_global_id(1);
    if (column < width && row < height) out[(column - first) * height + row] = in[row * width + column];
}
"""


def turn(**changes: Any) -> dict[str, Any]:
    """The kernel as it is published: its first column is that of the device's share."""
    return {
        "name": "turn",
        "src": "turn.cl",
        "workDimension": 2,
        "globalWorkSize": "[dataset,dataset]",
        "partition": 10,
        "inputBuffers": [{"pos": 1, "type": "float", "size": "dataset*dataset", "break": 0}],
        "outputBuffers": [{"pos": 0, "type": "float", "size": "dataset*dataset", "break": 1}],
        "varArguments": [
            {"pos": 2, "type": "int", "value": "partition_round(dataset, offset_percent)"},
            {"pos": 3, "type": "int", "value": "partition_round(dataset, size_percent)"},
            {"pos": 4, "type": "int", "value": "dataset"},
        ],
        **changes,
    }


def launches(app: Application) -> list[Launch]:
    return [node for node in app.graph.nodes if isinstance(node, Launch)]


@pytest.mark.parametrize("size", [16, 33])
def test_a_whole_launch_has_all_of_the_dataset(tmp_path: Path, size: int) -> None:
    (tmp_path / "turn.cl").write_text(TURN)
    (tmp_path / "app.json").write_text(json.dumps([turn()]))
    app = load_application(tmp_path / "app.json", {"dataset": str(size)})
    with Runner(app, "cpu/2") as runner:
        runner.run("in_order")
        (result,) = runner.outputs().values()
    given = next(c for c in app.contents.values() if c.kind == "random").create()
    assert (result.reshape(size, size) == given.reshape(size, size).T).all()


@pytest.mark.parametrize(
    ("info", "sources"), [("info", "kernel_src"), ("database/info", "database/kernels"), ("info", "kernels")]
)
def test_the_repositories_folders(tmp_path: Path, info: str, sources: str) -> None:
    dag = tmp_path / "dag_info" / "dag_one"
    for folder in (tmp_path / info, tmp_path / sources, dag):
        folder.mkdir(parents=True)
    (tmp_path / info / "turn.json").write_text(json.dumps(turn()))
    (tmp_path / sources / "turn.cl").write_text(TURN)
    # symbols as Python writes them, one of them twice, as published
    (dag / "dag.graph").write_text("0 turn.json {'dataset': 8, 'n_chunks':1, 'n_chunks':1, 'partition': 0}\n---\n---\n")
    (node,) = launches(load_application(dag))
    assert (node.global_size, node.device) == ((8, 8), "cpu")


def test_a_second_folder_of_information(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "turn.cl").write_text(TURN)
    (tmp_path / "dag.graph").write_text('0 turn.json {"dataset": 8}\n---\n---\n')
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "turn.json").write_text(json.dumps(turn()))
    command = ["plan", str(tmp_path), "--devices", "cpu/2"]
    assert main(command) == 2
    assert "--info DIR adds a folder" in capsys.readouterr().err
    assert main([*command, "--info", str(other)]) == 0


def test_a_list_of_tasks(tmp_path: Path) -> None:
    (tmp_path / "info").mkdir()
    (tmp_path / "kernel_src").mkdir()
    (tmp_path / "kernel_src" / "turn.cl").write_text(TURN)
    (tmp_path / "info" / "turn.json").write_text(json.dumps(turn(id=3, depends=[7])))
    path = tmp_path / "info" / "sample.task"
    path.write_text("turn.json 10 8\nturn.json 0 16\n\nturn.json 4 8\n")
    app = load_application(path)
    nodes = launches(app)
    assert [n.global_size[0] for n in nodes] == [8, 16, 8]
    assert [(n.device, n.partition) for n in nodes] == [("gpu", None), ("cpu", None), ("", 4)]
    assert app.graph.predecessors == ((), (), ())
    path.write_text("turn.json 10 8\nturn.json x 16\n")
    with pytest.raises(SpecificationError, match=r"sample\.task:2: .* is not a task"):
        load_application(path)
    path.write_text("turn.json 11 8\n")
    with pytest.raises(SpecificationError, match="from 0 to 10, not 11"):
        load_application(path)


def test_components_are_not_divided(tmp_path: Path) -> None:
    (tmp_path / "turn.cl").write_text(TURN)
    kernels = [turn(id=i, task=task, partition=5) for i, task in enumerate((0, 0, 1))]
    (tmp_path / "app.json").write_text(json.dumps(kernels))
    app = load_application(tmp_path / "app.json", {"dataset": "8"})
    assert [n.partition for n in launches(app)] == [None, None, 5]


def own(tmp_path: Path, **fields: Any) -> Application:
    (tmp_path / "turn.cl").write_text(TURN)
    square = {"type": "float", "shape": [8, 8]}
    document = {
        "manycl": 1,
        "source": "turn.cl",
        "parameters": {"p": 3},
        "buffers": {"a": {**square, "init": "random"}, "b": square},
        "kernels": [{"name": "turn", "global": [8, 8], "args": ["b", "a", 0, 8, 8], **fields}],
    }
    (tmp_path / "app.json").write_text(json.dumps(document))
    return load_application(tmp_path / "app.json")


def test_tenths_in_specifications(tmp_path: Path) -> None:
    said = {p: launches(own(tmp_path, partition=p))[0] for p in (0, 10, "2 * p")}
    assert [(n.device, n.partition) for n in said.values()] == [("cpu", None), ("gpu", None), ("", 6)]
    for fields, words in (
        ({"partition": 11}, "from 0 to 10, not 11"),
        ({"partition": 3, "device": "cpu"}, "a device or a partition, not both"),
    ):
        with pytest.raises(SpecificationError, match=words) as caught:
            own(tmp_path, **fields)
        assert caught.value.field == "kernels[0].partition"
