"""Applications that a file repeats: exchanged buffers, conditions, and what may be wrong about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manycl.applications.application import Iterate
from manycl.applications.load import load_application
from manycl.applications.runner import Runner
from manycl.cli import main
from manycl.errors import ManyclError
from tests import ROOT

SOURCE = """
kernel void relax(global const float *a, global float *b, int n) {
    int i = get_global_id(0);
    b[i] = i > 0 && i < n - 1 ? 0.25f * a[i - 1] + 0.5f * a[i] + 0.25f * a[i + 1] : a[i];
}
"""
HOST = """
import numpy as np
asked = []
def reference(inputs):
    data = inputs["old"].astype(np.float64)
    for _ in range(TIMES):
        data = np.concatenate([data[:1], 0.25 * data[:-2] + 0.5 * data[1:-1] + 0.25 * data[2:], data[-1:]])
    return {"old": data.astype(np.float32)}
def converged(now):
    asked.append(sorted(now))
    assert not any(a.flags.writeable for a in now.values())
    return len(asked) == 3
def fails(now):
    raise KeyError("x")
""".replace("TIMES", "7")


def document(**iterate: Any) -> dict[str, Any]:
    return {
        "manycl": 1,
        "parameters": {"n": 128, "times": 7},
        "source": "relax.cl",
        "buffers": {
            "old, new": {"type": "float", "shape": "n", "init": "random"},
            "short": {"type": "float", "shape": "n // 2"},
            "idle": {"type": "float", "shape": "n"},
        },
        "kernels": [
            {"name": "relax", "global": "n", "local": 16, "args": ["old", "new", "n"]},
            {"name": "relax", "global": "n // 2", "local": 16, "args": ["old", "short", "n // 2"]},
        ],
        "outputs": ["old"],
        "check": {"file": "host.py"},
        "iterate": {"times": "times", "swap": [["old", "new"]], **iterate},
    }


def written(folder: Path, what: dict[str, Any]) -> str:
    (folder / "relax.cl").write_text(SOURCE)
    (folder / "host.py").write_text(HOST)
    path = folder / "app.json"
    path.write_text(json.dumps(what))
    return str(path)


def test_it_is_read(tmp_path: Path) -> None:
    until = {"file": "host.py", "every": "times - 3", "buffers": ["new", "old"]}
    iterate = load_application(written(tmp_path, document(until=until)), {"times": "5"}).iterate
    assert iterate == Iterate(5, ((0, 1),), (str(tmp_path / "host.py"), "converged"), (1, 0), 2)
    plain = document()
    del plain["iterate"]
    assert load_application(written(tmp_path, plain)).iterate is None


@pytest.mark.parametrize(("policy", "times"), [("in_order", 7), ("auto", 1), ("adaptive", 4)])
def test_the_last_contents_have_the_first_buffers_name(tmp_path: Path, policy: str, times: int) -> None:
    (tmp_path / "host.py").unlink(missing_ok=True)
    application = load_application(written(tmp_path, document()), {"times": str(times)})
    (tmp_path / "host.py").write_text(HOST.replace("range(7)", f"range({times})"))
    with Runner(application, "cpu/2") as runner:
        for _ in range(2):
            result = runner.run(policy)
            assert result.details["iterations"] == times
            assert result.details["total_seconds"] >= result.seconds
            checks = runner.check(runner.outputs())
            assert [c.passed for c in checks] == [True, True], checks
            runner.reset()


def test_a_condition_ends_it(tmp_path: Path) -> None:
    until = {"file": "host.py", "every": 2}
    application = load_application(written(tmp_path, document(until=until)), {"times": "100"})
    (tmp_path / "host.py").write_text(HOST.replace("range(7)", "range(6)"))
    with Runner(application, "cpu/2") as runner:
        heard: list[int] = []
        assert runner.run(progress=heard.append).details["iterations"] == 6  # the third time that it is asked
        assert heard == [1, 2, 3, 4, 5, 6]
        assert [c.passed for c in runner.check(runner.outputs())] == [True, True]
    assert np.isfinite(list(application.parameters.values())).all()


@pytest.mark.parametrize(
    ("iterate", "words"),
    [
        ({"swap": [["old", "nwe"]]}, "does not exist"),
        ({"swap": [["old", "idle"]]}, "is used by no kernel"),
        ({"swap": [["old", "short"]]}, "the same size, not 512 and 256"),
        ({"swap": [["old", "old"]]}, "one other buffer"),
        ({"swap": [["old", "new"], ["new", "short"]]}, "one other buffer"),
        ({"swap": [["old"]]}, "at least 2 items"),
        ({"times": 0}, "times"),
        ({"times": 10**30}, "times.*too many"),
        ({"times": "10**9 + 1"}, "times.*too many"),
        ({"until": {"file": "none.py"}}, "there is no file"),
        ({"until": {"function": "f"}}, "'file' is missing"),
        ({"until": {"file": "host.py", "every": 0}}, "every"),
        ({"while": 1}, "unknown field"),
    ],
)
def test_what_may_be_wrong(tmp_path: Path, iterate: dict[str, Any], words: str) -> None:
    with pytest.raises(ManyclError, match=words):
        load_application(written(tmp_path, document(**iterate)))


@pytest.mark.parametrize(("function", "words"), [("fails", "fails failed: KeyError"), ("none", "no function none")])
def test_a_condition_that_fails_says_so(tmp_path: Path, function: str, words: str) -> None:
    until = {"file": "host.py", "function": function}
    application = load_application(written(tmp_path, document(until=until)))
    with Runner(application, "cpu/1") as runner, pytest.raises(ManyclError, match=words):
        runner.run()


def test_the_command_tells_how_often(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, document())
    assert main(["run", path, "--devices", "cpu/2", "--check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["iterations"] == 7
    assert len(found["seconds"]) == 1
    assert main(["run", path, "--devices", "cpu/2", "--repeat", "2"]) == 0
    assert "7 repetitions in" in capsys.readouterr().out
    assert main(["plan", path]) == 0


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    example = ROOT / "manycl" / "examples" / "heat" / "heat.json"
    assert main(["run", str(example), "-D", "n=48", "--devices", "cpu/2", "--policy", "adaptive", "--check"]) == 0
    said = capsys.readouterr().out
    assert "check against reference: equal" in said
    assert "check against one device: identical, bit for bit" in said
