"""``manycl doctor``: what each kind of kernel comes to, on every device."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from manycl.cli import main

SOURCE = """
typedef struct { float a; int b; } pair;
kernel void gather(global const int *at, global float *y, pair s, int n) {
  int i = get_global_id(0); y[i] = at[at[i]] + s.a + n + GIVEN;
}
kernel void dies(global int *y, int n) { y[get_global_id(0)] = 1; global int *p = (global int *)(n - 1L); *p = 1; }
kernel void pixels(read_only image2d_t image, global float *y) { y[0] = get_image_width(image); }
"""


Doctor = Callable[..., CompletedProcess[str]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The command, in this process: it runs kernels in others."""

    def done(*words: str) -> CompletedProcess[str]:
        code = main(["doctor", *words])
        return CompletedProcess(words, code, *capsys.readouterr())

    return done


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "odd.cl"
    path.write_text(SOURCE)
    return str(path)


def test_a_row_for_each_kernel(file: str, doctor: Doctor) -> None:
    """Also for one that ends its process, and one that does not run."""
    done = doctor(file, "-DGIVEN=3", "--devices", "cpu0,cpu1", "--json", "--size", "256")
    rows = json.loads(done.stdout)["kernels"]
    assert done.returncode == 1
    found = {column: rows["gather"][column] for column in ("launch", "divides", "cpu0", "cpu1", "cpu/2")}
    assert found == {"launch": "256", "divides": "along 0", "cpu0": "runs", "cpu1": "same", "cpu/2": "same"}
    assert "SIGSEGV" in rows["dies"]["cpu0"]
    assert rows["pixels"] == {"divides": "not run: argument image is of kind image"}


def test_a_table_to_paste_and_long_words_below_it(file: str, doctor: Doctor) -> None:
    done = doctor(file, "gather", "pixels", "-DGIVEN=3", "--devices", "cpu0")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("manycl ")
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    assert list(rows) == ["kernel", "gather", "pixels"]
    assert len({len(row) for row in rows.values()}) == 1
    assert lines[-1] == "(1) not run: argument image is of kind image"


def test_results_that_differ_are_told(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from manycl.analysis import parse_program
    from manycl.cli.kernel_files import doctor as module

    kernel = parse_program(SOURCE, options=["-DGIVEN=3"]).kernels["dies"]
    first, other = np.arange(4, dtype=np.float32), np.array([0, 1, 2.5, 3], np.float32)
    assert module._difference(kernel, {"a0": first}, {"a0": first.copy()}) == "same"
    assert module._difference(kernel, {"a0": first}, {"a0": other}) == "DIFFERS: 1 of 4; y[2] is 2.5, not 2.0"
    nan = np.full(4, np.nan, np.float32)
    assert module._difference(kernel, {"a0": nan}, {"a0": nan.copy()}) == "same"


def test_what_is_no_kernel_or_size_is_refused(file: str, doctor: Doctor) -> None:
    assert "has no kernel nothing" in doctor(file, "nothing", "-DGIVEN=1").stderr
    assert "--size 0" in doctor(file, "--size", "0", "-DGIVEN=1").stderr
    assert "undeclared identifier 'GIVEN'" in doctor(file).stderr
    assert "--build-options" in doctor(file, "--build-options", '"').stderr.splitlines()[0]
