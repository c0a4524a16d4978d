"""``manycl analyze`` with a launch: regions and verdicts in words and as JSON, and errors that say what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from matplotlib.image import imread

from manycl.cli import main
from tests import ROOT

CORPUS = ROOT / "tests" / "analysis" / "corpus"

SOURCE = """\
typedef struct { int x; float y; } pair;
kernel void mm(global float *c, global const float *a, global const float *b, int n)
{
  int j = get_global_id(0), i = get_global_id(1);
  if (i >= n || j >= n) return;
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
  c[i * n + j] = sum;
}
kernel void shift(global float *d, global const float *s) { int i = get_global_id(0); d[i] = s[i + 1]; }
kernel void count(global uint *bins, global const int *s, float unused, uint2 at, pair p, local int *l)
{ atomic_inc(bins + s[get_global_id(0)]); }
kernel __attribute__((reqd_work_group_size(8, 1, 1))) void fixed(global int *d, int by)
{ d[get_group_id(0) * 16 + get_local_id(0) - by] = 1; }
"""

MM = """\
launch of 8 x 8 work-items in 4 x 2 work-groups of 2 x 4
  n = 8
  c: 64 elements, 256 B (the smallest size that holds its accesses)
  a: 64 elements, 256 B (given)
  b: 100 elements, 400 B (given)

work-groups 1 to 2 of 4 along dimension 0
  writes c  [2, 6) x 8 rows every 8  rectangle, 128 B (50.0 %), exact
  reads  a  [0, 64)  interval, 256 B (100.0 %), exact
  reads  b  [2, 6) x 8 rows every 8  rectangle, 128 B (32.0 %), exact

dimension 0 splits
dimension 1 splits
running it twice is running it once (idempotent)
sub-kernels run the source as it is
"""

HISTOGRAM = """\
launch of 64 work-items in 4 work-groups of 16
  bins: 16 elements, 64 B (the smallest size that holds its accesses)
  s: 64 elements, 64 B (the smallest size that holds its accesses)

work-groups 0 to 1 of 4 along dimension 0
  reads  bins  [0, 16)  interval, 64 B (100.0 %), at most: contents of s read in line 99
  writes bins  [0, 16)  interval, 64 B (100.0 %), at most: contents of s read in line 99
  reads  s  [0, 32)  interval, 32 B (50.0 %), exact

dimension 0 splits if copies are merged: bins by add
running it twice differs from running it once
    bins: line 99 changes what it reads
sub-kernels run the source as it is
"""

SEIDEL = """\
launch of 8 work-items in 4 work-groups of 2
  n = 10
  d: 10 elements, 40 B (given)

work-groups 0 to 1 of 4 along dimension 0
  reads  d  [0, 6)  interval, 24 B (60.0 %), exact
  writes d  [1, 5)  interval, 16 B (40.0 %), exact

dimension 0 does not split
    d: line 46 reads elements that line 46 writes of other groups
running it twice differs from running it once
    d: line 46 reads what line 46 writes
sub-kernels run the source as it is
"""

TWICE = """\
launch of 8 work-items in 4 work-groups of 2
  n = 8
  d: 16 elements, 64 B (the smallest size that holds its accesses)

work-group 1 of 4 along dimension 0
  writes d  2 pieces, 16 B (25.0 %), exact
      [2, 4)
      [10, 12)

dimension 0 splits
running it twice is running it once (idempotent)
sub-kernels run the source as it is
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "k.cl"
    path.write_text(SOURCE)
    return str(path)


def analyze(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["analyze", *words])
    return (status, *capsys.readouterr())


def launch_of(out: str) -> str:
    return out[out.index("launch of") : out.index("cost of these")].rstrip() + "\n"


@pytest.mark.parametrize(
    ("file_name", "words", "expected"),
    [
        ("", "mm --global 8,8 --local 2x4 --arg n=8 --arg a=n*n --arg b=400B --groups 0:1:2", MM),
        ("groups.cl", "histogram_global --global 64 --local 16", HISTOGRAM),
        ("traps.cl", "gauss_seidel --global 8 --local 2 --arg n=10 --arg d=10", SEIDEL),
        ("traps.cl", "twice_apart --global 8 --local 2 --arg n=8 --groups 0:1:1", TWICE),
    ],
)
def test_a_launch_in_words(
    file_name: str, words: str, expected: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = analyze(capsys, str(CORPUS / file_name) if file_name else file, *words.split())
    assert (status, err) == (0, "")
    assert re.sub(r"line \d+", "line N", launch_of(out)) == re.sub(r"line \d+", "line N", expected)


def launched(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    status, out, err = analyze(capsys, *words, "--json")
    assert (status, err) == (0, "")
    (kernel,) = json.loads(out)["kernels"]
    found = kernel["launch"]
    assert isinstance(found, dict)
    return found


def test_a_launch_as_json(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = "mm --global 8,8 --local 2,4 --arg n=8 --groups 1:0:1 --offset 0,0"
    found = launched(capsys, file, *words.split())
    assert found.pop("buffers") == [
        {"argument": i, "name": name, "bytes": 256, "size_from": "accesses"} for i, name in enumerate("cab")
    ]
    cost = found.pop("cost")
    regions = found.pop("regions")
    assert isinstance(regions, list)
    touched = {(r["name"], r["kind"]): r for r in regions if r["boxes"]}
    assert len(regions) == 6
    assert touched["c", "write"] == {
        "argument": 0,
        "name": "c",
        "kind": "write",
        "shape": "interval",
        "boxes": [{"offset": 0, "width": 128, "pitch": 0, "rows": 1, "slice_pitch": 0, "slices": 1}],
        "bytes": 128,
        "tight": True,
        "exact": True,
        "reason": "",
    }
    assert touched.keys() == {("c", "write"), ("a", "read"), ("b", "read")}
    assert found == {
        "global_size": [8, 8],
        "local_size": [2, 4],
        "offset": [0, 0],
        "groups": [4, 2],
        "scalars": {"n": "8"},
        "failure": "",
        "range": {"dimension": 1, "first": 0, "count": 1},
        "splits": [
            {"dimension": d, "splittable": True, "merges": {}, "reasons": [], "promisable": False} for d in (0, 1)
        ],
        "idempotent": True,
        "not_idempotent": [],
        "out_of_bounds": [],
        "sub_kernel": {"possible": True, "byte_identical": True, "hidden": [], "reason": ""},
    }

    assert isinstance(cost, dict)
    assert cost.keys() == {"range", "launch", "features"}
    for part, items in (("range", 32), ("launch", 64)):
        work = cost[part]
        assert (work["work_items"], work["f"], work["cost"]) == (items, 8, 8 * items)
        assert work["operations"]["load.global"] == 2 * 8 * items
        assert work["operations"]["store.global"] == items
        assert (work["global_bytes"], work["exact"], work["reason"]) == (4 * 17 * items, True, "")


def test_costs_in_words(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = analyze(capsys, file, *["mm", "--global", "8,8", "--local", "2,4", "--arg", "n=8", "--groups", "1:0:1"])[1]
    assert "cost of these work-groups: 32 work-items, f = 8, T f = 256\n" in out
    assert re.search(r"load\.global +512  16 per work-item\n", out)
    assert "  global memory: 2.18 kB, local memory: 0 B\n" in out
    words = ["count", "--global", "64", "--local", "16", "--arg", "bins=8", "--arg", "at=1,2"]
    assert "estimated" not in analyze(capsys, file, *words)[1]


def test_the_symbolic_form_as_json(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = analyze(capsys, file, "--json")
    kernels = {kernel["name"]: kernel["symbolic"] for kernel in json.loads(out)["kernels"]}
    assert set(kernels) == {"mm", "shift", "count", "fixed"}
    for found in kernels.values():
        assert set(found) == {
            *("failure", "accesses", "unknowns", "hazards", "barriers", "cost"),
        }
    write = next(a for a in kernels["mm"]["accesses"] if a["kind"] == "write")
    assert write == {
        "argument": 0,
        "name": "c",
        "kind": "write",
        "operation": "",
        "used": False,
        "elements": "c[gid1*n + gid0]",
        "offset": write["offset"],
        "size": 4,
        "condition": "gid1 < n && gid0 < n",
        "loops": [],
        "line": 8,
        "file": file,
    }
    assert "4*gid1*n + 4*gid0" in write["offset"]
    (loop,) = next(a for a in kernels["mm"]["accesses"] if a["name"] == "a")["loops"]
    assert loop == {"name": "k", "below": "n", "exact": True, "reason": "", "line": 7}


def test_one_buffer_for_two_arguments(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    apart = launched(capsys, file, *["shift", "--global", "64", "--local", "16"])
    shared = launched(capsys, file, *["shift", "--global", "64", "--local", "16", "--arg", "s=d"])
    assert [s["splittable"] for s in apart["splits"]] == [True]  # type: ignore[attr-defined]
    assert [s["splittable"] for s in shared["splits"]] == [False]  # type: ignore[attr-defined]
    assert [b["size_from"] for b in shared["buffers"]] == ["accesses", "same as d"]  # type: ignore[attr-defined]
    assert [b["bytes"] for b in shared["buffers"]] == [260, 260]  # type: ignore[attr-defined]


def test_accesses_outside_are_told(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = analyze(
        capsys, file, *["shift", "--global", "64", "--local", "16", "--arg", "s=64", "--arg", "d=64"]
    )
    assert status == 0
    assert "out of bounds\n    line 10 reads s outside of its 256 bytes (at bytes 256 to 256)" in out


def test_hidden_arguments_and_the_required_work_group(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = launched(capsys, file, *["fixed", "--global", "64", "--arg", "by=0"])
    assert found["local_size"] == [8]
    assert found["sub_kernel"] == {"possible": True, "byte_identical": False, "hidden": ["first_group"], "reason": ""}


def test_values_of_all_kinds(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = "count --global 64 --local 16 --arg bins=1KiB --arg at=1,0x2 --arg p=0x0100000000000000 --arg unused=2.5"
    found = launched(capsys, file, *words.split(), "--arg", "l=64")
    assert found["scalars"] == {"unused": "2.5", "at": "1,0x2", "p": "0x0100000000000000"}
    (bins, _) = found["buffers"]  # type: ignore[misc]
    assert bins == {"argument": 0, "name": "bins", "bytes": 1024, "size_from": "given"}


def test_a_small_last_work_group(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = "shift --global 60 --local 16 --groups 0:3:1 --build-options -cl-std=CL2.0"
    found = launched(capsys, file, *words.split())
    write = next(r for r in found["regions"] if r["name"] == "d" and r["kind"] == "write")  # type: ignore[attr-defined]
    assert (write["boxes"][0]["offset"], write["bytes"]) == (48 * 4, 12 * 4)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_picture_is_written(kind: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"mm.{kind}"
    words = "mm --global 8,8 --local 2,4 --arg n=8 --picture"
    assert analyze(capsys, file, *words.split(), str(path))[0] == 0
    data = path.read_bytes()
    assert data.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])
    if kind == "png":
        assert imread(path).shape[1] > 600


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mmm", "has no kernel 'mmm' (did you mean 'mm'?)\n  hint: its kernels: mm, shift, count, fixed"),
        ("mm --arg n=8", "--arg belongs to a launch\n  hint: give --global, too"),
        ("mm --picture a.png", "--picture belongs to a launch"),
        ("--global 8 --local 8", "a launch is of one kernel; which?\n  hint: its kernels: mm, shift, count, fixed"),
        ("mm --global 8,8", "--global is given without --local"),
        ("mm --global 8,8 --local 4", "--local has 1 dimensions, --global 2"),
        ("mm --global 8 --local 4 --arg n=8", "asks for ids of 2 dimensions, --global has 1"),
        ("mm --global 8,x --local 4", "--global 8,x: expected one to three integers from 1 on"),
        ("mm --global 8,9 --local 4,4", "--global 9 is no multiple of --local 4 in dimension 1\n  hint: 12 is"),
        ("mm --global 8,8 --local 4,4", "argument n (int) of kernel mm needs a value\n  hint: --arg n=1024"),
        ("mm --global 8,8 --local 4,4 --arg m=8", "has no argument 'm'"),
        ("mm --global 8,8 --local 4,4 --arg n=many", "--arg n=many: "),
        ("mm --global 8,8 --local 4,4 --arg n=4294967296", "--arg n=4294967296: argument 3 (n) is out of range"),
        ("mm --global 8,8 --local 4,4 --arg n=8 --arg a=0", "a buffer has at least one element"),
        ("mm --global 8,8 --local 4,4 --arg n=8 --arg a=q", "hint: a number of elements, or bytes with a unit"),
        ("mm --global 8,8 --local 4,4 --arg n=8 --arg a=a", "they are the same buffer anyway"),
        ("mm --global 8,8 --local 4,4 --arg n=8 --groups 0:1", "--groups 0:1: expected DIM:FIRST:COUNT"),
        ("mm --global 8,8 --local 4,4 --arg n=8 --groups 2:0:1", "the launch has 2 dimensions"),
        ("mm --global 8,8 --local 4,4 --arg n=8 --groups 0:1:2", "there are 2 work-groups along dimension 0"),
        ("mm --global 8,8 --local 4,4 --arg n=8 --picture a.gif", "expected a file that ends in .png, .svg or .pdf"),
        ("mm --global 8,8 --local 4,4 --arg n=8 --picture no/a.png", "there is no folder"),
        ("fixed --global 8 --local 4 --arg by=1", "kernel fixed requires work-groups of 8\n  hint: --local 8"),
        ("count --global 8 --local 4 --arg at=1", "(at) needs 2 numbers, got [1]"),
        ("count --global 8 --local 4 --arg at=1,2 --arg p=00", "(p) has 8 bytes, got 1"),
        ("count --global 8 --local 4 --arg at=1,2 --arg p=z", "hint: bytes in hexadecimal"),
        (
            "count --global 8 --local 4 --arg at=1,2",
            "the size of bins does not follow from the other sizes: contents of s read in line 12\n"
            "  hint: --arg bins=1024 (elements of uint) or bins=64MiB",
        ),
    ],
)
def test_errors_say_what_to_do(words: str, message: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = analyze(capsys, file, *words.split())
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_sizes_of_slices_are_shown_for_a_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 1024 work-items that read 4096 and write 4096 bytes, a quarter stays in 2 KiB."""
    (tmp_path / "k.cl").write_text(SOURCE)
    words = ["analyze", str(tmp_path / "k.cl"), "shift", "--global", "1024", "--local", "64", "--cache"]
    assert main([*words, "2KiB"]) == 0
    assert "256 (their data stay in 2.05 kB)" in capsys.readouterr().out
    assert main([*words, "64KiB", "--json"]) == 0
    slices = json.loads(capsys.readouterr().out)["kernels"][0]["launch"]["cost"]["slices"]
    assert slices["cached"] == 1024
    assert all(1 <= points <= 1024 for points in slices["predicted"].values())
    for wrong in ("0 B", "many"):
        assert main([*words, wrong]) == 2
        assert "--cache" in capsys.readouterr().err
