"""``manycl analyze``: the table, the JSON, and messages with exit status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manycl.cli import main

SOURCE = """\
#ifdef TILE
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void blend(global float4 *out, global const float4 *restrict in, constant float *table,
           local float *scratch, float weight, read_only image2d_t picture)
{
  local float tile[TILE][TILE];
  int i = get_global_id(0);
  tile[0][0] = weight;
  barrier(CLK_LOCAL_MEM_FENCE);
  out[i].xy += in[i].zw * table[0] * tile[0][0];
}
#endif
void somewhere_else(global int *p);
kernel void odd(global int *a, global int *unused)
{
  a[0] = 1; somewhere_else(a);
}
"""

TABLE = """\
blend ({file}:3): 2 dimensions, work-group of 4 x 4 x 1 required, barriers, 64 bytes of local variables

  #   name      type            address space   direction   notes
 ─────────────────────────────────────────────────────────────────
  0   out       float4*         global          both
  1   in        const float4*   global          read
  2   table     float*          constant        read
  3   scratch   float*          local           local
  4   weight    float           private         scalar
  5   picture   image2d_t       global          unused

  reads   out[gid0].x  (line 10)
  reads   out[gid0].y  (line 10)
  writes  out[gid0].x  (line 10)
  writes  out[gid0].y  (line 10)
  reads   in[gid0].z  (line 10)
  reads   in[gid0].w  (line 10)
  reads   table[0]  (line 10)
  barriers: 1 in the source
  cost: T for T work-items
    store.local: 1
    barrier: 1
    load.global: 2
    load.constant: 1
    float.mul: 4
    load.local: 1
    float.add: 2
    store.global: 2
  features: comparison operations 0; floating point and integer compute operations 6; memory accesses 7

odd ({file}:14): 1 dimension

  #   name     type   address space   direction   notes
 ──────────────────────────────────────────────────────────────────────────────
  0   a        int*   global          both        passed to somewhere_else,
                                                  line 16
  1   unused   int*   global          unused

  writes  a[0]  (line 16)
  touches any part of a  (line 16)
  hazard: calls somewhere_else, of which nothing is known, line 16
  cost: T for T work-items
    store.global: 1
  features: comparison operations 0; floating point and integer compute operations 0; memory accesses 1

"""


LONG = "".join(f"  a[{3 * i}] = b[0];\n" for i in range(20))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "k.cl"
    path.write_text(SOURCE)
    return str(path)


def analyze(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["analyze", *words])
    return (status, *capsys.readouterr())


def test_table(file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    status, out, err = analyze(capsys, file, "-D", "TILE=4")
    assert (status, err) == (0, "")
    assert [line.rstrip() for line in out.splitlines()] == TABLE.format(file=file).splitlines()


def test_json(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = analyze(capsys, file, "-DTILE=4", "--json", "--kernel", "blend")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert set(found) == {"file", "kernels", "warnings"}
    assert found["file"] == file
    (kernel,) = found["kernels"]
    assert [a["elements"] for a in kernel.pop("symbolic")["accesses"] if a["name"] == "table"] == ["table[0]"]
    first, second = kernel.pop("arguments")[:2]
    assert kernel == {
        "name": "blend",
        "line": 3,
        "dimensions": 2,
        "required_work_group": [4, 4, 1],
        "uses_barrier": True,
        "uses_double": False,
        "prints": False,
        "local_bytes": 64,
        "sees_groups": "argument scratch is local memory",
        "sees_groups_shared": "",
        "extensions": [],
    }
    assert first == {
        "index": 0,
        "name": "out",
        "kind": "buffer",
        "element": "float4",
        "base": "float",
        "lanes": 4,
        "size": 16,
        "address_space": "global",
        "is_const": False,
        "reads": True,
        "writes": True,
        "reason": "",
        "steers": False,
        "direction": "both",
    }
    assert (second["direction"], second["is_const"]) == ("read", True)


def test_without_the_macro_there_is_one_kernel(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = analyze(capsys, file, "--json")
    assert [kernel["name"] for kernel in json.loads(out)["kernels"]] == ["odd"]


def test_build_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "t.h").write_text("typedef T item;\n")
    path = tmp_path / "k.cl"
    path.write_text('#include "t.h"\nkernel void k(global item *a) { a[0] = 1; }')
    words = (
        "-I",
        str(tmp_path / "more"),
        "--build-options",
        "-D 'T=unsigned int' -cl-std=CL2.0 -w",
        "--json",
    )
    status, out, _ = analyze(capsys, str(path), *words)
    assert status == 0
    assert json.loads(out)["kernels"][0]["arguments"][0]["element"] == "uint"


def test_a_file_without_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.cl"
    path.write_text("int f(void) { return 1; }")
    assert analyze(capsys, str(path)) == (0, f"{path}: no kernels\n", "")


def test_warnings_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.cl"
    path.write_text("kernel void k(global int *a) { a[0] == 1; }")
    assert f"{path}:1:37: warning: equality comparison" in analyze(capsys, str(path))[1]


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("kernel void k() {\n  x = 1;\n}", (), "k.cl:2:3: error: use of undeclared identifier 'x'"),
        ("kernel void k() {}", ("--kernel", "gone"), "has no kernel 'gone'\n  hint: its kernels: k"),
        ("kernel void k() {}", ("-D", "1=2"), "'1=2' defines no macro"),
        ("kernel void k() {}", ("--build-options", "'open"), "No closing quotation"),
        ("kernel void k() {}", ("--build-options", "-cl-std=CL7"), "-cl-std=CL7"),
        ("a\0b", (), "not valid text"),
        (None, (), "No such file"),
    ],
)
def test_bad_input(
    text: str | None,
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "k.cl"
    if text is not None:
        path.write_text(text)
    status, out, err = analyze(capsys, str(path), *words)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_folder_and_bytes_of_another_encoding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(capsys, str(tmp_path))[0] == 2
    path = tmp_path / "latin.cl"
    path.write_bytes(b"// caf\xe9\nkernel void k(global int *a) { a[0] = 1; }\n")
    assert analyze(capsys, str(path))[0] == 0


def test_long_lists_are_cut_unless_all_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "long.cl"
    path.write_text(f"kernel void k(global int *a, global int *b) {{\n{LONG}}}")
    short, whole = analyze(capsys, str(path))[1], analyze(capsys, str(path), "--all")[1]
    assert short.count("writes") == 8
    assert "\n  ... and 12 more\n" in short
    assert whole.count("writes") == 20
    assert "more" not in whole


def test_a_kernel_of_which_nothing_is_known_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "j.cl"
    path.write_text("kernel void k(global int *a, int n) { if (n) goto inside; while (n-- > 0) { inside: a[n] = 1; } }")
    out = analyze(capsys, str(path), "k")[1]
    assert "what it touches is not known: " in out
    assert "goto" in out
    status, out, _ = analyze(capsys, str(path), "k", "--global=64", "--local=16", "--arg=n=3", "--arg=a=10")
    assert status == 0
    assert "writes a  [0, 10)  interval, 40 B (100.0 %), at most: " in out
    assert "dimension 0 does not split\n" in out


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["analyze", "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "manycl analyze scale.cl" in out
    assert "--picture mm.png" in out
