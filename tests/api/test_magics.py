"""``%load_ext manycl``: in a shell that does what IPython's does, and, where it is installed, in IPython's own."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.api.magics import MagicError

CELL = """kernel void scale(global float *x) {
  x[get_global_id(0)] *= FACTOR;
}
kernel void none(global float *x) {}
"""


class Shell:
    """What the extension asks of IPython's InteractiveShell."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.execution_count = 7
        self.magics: dict[tuple[str, str], Callable[..., Any]] = {}
        self.next: list[str] = []

    def register_magic_function(self, function: Callable[..., Any], magic_kind: str, magic_name: str) -> None:
        self.magics[magic_kind, magic_name] = function

    def set_next_input(self, text: str) -> None:
        self.next.append(text)


@pytest.fixture
def shell() -> Shell:
    shell = Shell()
    mc.load_ipython_extension(shell)  # type: ignore[attr-defined]
    assert set(shell.magics) == {("cell", "cl"), ("line", "cl_load")}
    return shell


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2") as queue:
        yield queue


def test_kernels_of_a_cell_become_names(shell: Shell, queue: mc.Queue) -> None:
    shell.magics["cell", "cl"]('-o "-D FACTOR=3.0f -cl-fast-relaxed-math"', CELL)
    assert set(shell.user_ns) == {"scale", "none"}
    x = queue.array(np.ones(8, np.float32))
    shell.user_ns["scale"](queue, (8,), None, x)
    assert x.get().tolist() == [3.0] * 8
    assert shell.user_ns["scale"].program.options == ("-D", "FACTOR=3.0f", "-cl-fast-relaxed-math")
    shell.magics["cell", "cl"]("-o -DFACTOR=1 -o -w", CELL)  # they may be replaced
    assert shell.user_ns["scale"].program.options == ("-DFACTOR=1", "-w")


def test_errors_are_words_with_the_cells_lines(shell: Shell) -> None:
    with pytest.raises(MagicError) as caught:
        shell.magics["cell", "cl"]("", CELL)
    (shown,) = caught.value._render_traceback_()
    assert shown.startswith("manycl: ")
    assert "<cell 7>:3:" in shown
    assert "FACTOR" in shown
    assert shell.user_ns == {}
    for line, words in (
        ("-x", "option -x not recognized"),
        ("what", "what is 'what'"),
        ('-o "', "No closing quotation"),
    ):
        with pytest.raises(MagicError, match=words):
            shell.magics["cell", "cl"](line, CELL)


def test_files(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "two words.cl"
    (tmp_path / "factor.h").write_text("#define FACTOR 2\n")
    path.write_text(f'#include "factor.h"\n{CELL}')
    load = shell.magics["line", "cl_load"]
    load(f"'{path}'")
    assert set(shell.user_ns) == {"scale", "none"}
    assert shell.user_ns["scale"].program.path == str(path)
    assert shell.next == []
    load(f"-e -o '-D A=\"b c\" -w' '{path}'")
    magic, _, text = shell.next[0].partition("\n")
    assert text == path.read_text()
    shell.magics["cell", "cl"](magic.removeprefix("%%cl "), "kernel void other(global int *x) {}")
    assert shell.user_ns["other"].program.options == ("-D", "A=b c", "-w")
    for line, words in (("none.cl", "No such file"), ("", "one file"), ("a.cl b.cl", "one file")):
        with pytest.raises(MagicError, match=words):
            load(line)


def test_in_ipythons_shell(queue: mc.Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config(
        {"HistoryManager": {"enabled": False}, "InteractiveShell": {"colors": "nocolor", "ipython_dir": str(tmp_path)}}
    )
    shell = InteractiveShell(config=config)
    try:
        shell.run_cell("%load_ext manycl").raise_error()
        shell.run_cell(f'%%cl -o "-D FACTOR=5.0f"\n{CELL}').raise_error()
        shell.user_ns["queue"], shell.user_ns["x"] = queue, queue.array(np.ones(8, np.float32))
        assert shell.run_cell("scale(queue, (8,), None, x)\nx.get().tolist()").result == [5.0] * 8
        capsys.readouterr()
        failed = shell.run_cell(f"%%cl\n{CELL}")
        assert isinstance(failed.error_in_exec, MagicError)
        said = "".join(capsys.readouterr())
        assert "FACTOR" in said
        assert "Traceback" not in said
        shown = shell.run_cell("queue").result
        data, _ = shell.display_formatter.format(shown)
        assert data["text/plain"] == repr(queue)
        assert data["text/html"] == queue._repr_html_()
    finally:
        shell.atexit_operations()
        atexit.unregister(shell.atexit_operations)
