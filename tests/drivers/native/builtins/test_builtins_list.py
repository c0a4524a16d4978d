"""Every built-in function of OpenCL C is there for native devices, with every signature, but for a stated set.

The list is clang's own header, of the package that the analysis parses with: only declarations, which are called here.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import pytest

from manycl.analysis.reading import builtins as known
from manycl.drivers.driver import BuildError
from manycl.drivers.native import builtins
from manycl.drivers.native.builtins.prelude import source
from manycl.drivers.native.compiler.compiling import compile_kernels
from tests.drivers.native.builtins.native_calls import TYPES

NOT_HERE = re.compile(
    r"get_(global|local|group|enqueued|num|work|sub|max|default|image|pipe|fence)\w*|\w*image\w*"  # work-items, images
    r"|barrier|(work|sub)_group\w*|\w*_group_barrier|\w*pipe\w*|ctz_|printf"  # work-groups, pipes
    r"|(intel|amd|arm|cl|qcom)_\w*|to_(global|local|private)|enqueue\w*|\w*(_event|_events|user_event)\w*|capture\w*"
    r"|dot_\w*|bitfield_\w*|bit_reverse|clock_read_\w*|nd\w*|ndrange\w*|async_work_group_copy_[23]D\w*|\w*ballot\w*"
    r"|\w*shuffle_(xor|up|down)|is_valid\w*|retain_event|release_event|set_user\w*|sub_group\w*|split_\w*|block_\w*"
    r"|atomic_(half|float|double)\w*|convert_half\w*"
)
"""Those of work-items, work-groups, images, pipes, queues on devices, and of extensions that native devices lack."""
DECLARED = re.compile(r"((?:\w+\s+)+?)__ovld\s+((?:__\w+\s+)*)(\w+)\(([^()]*)\);")
SCALAR = "|".join(TYPES)
TYPE = re.compile(rf"(?:const )?(?:{SCALAR}|void|size_t|bool)(?:2|3|4|8|16)?")


@functools.cache
def declarations() -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Result and parameters of all overloads, by name."""
    place = importlib.util.find_spec("clang")
    assert place is not None
    (folder,) = place.submodule_search_locations or ()
    text = (Path(folder) / "native/resource/include/opencl-c.h").read_text()
    text = re.sub(r"//[^\n]*|/\*.*?\*/|^#[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for result, _, name, parameters in DECLARED.findall(text):
        given = tuple(" ".join(p.split()) for p in parameters.split(","))
        found.setdefault(name, []).append((" ".join(result.split()), given))
    return found


def plain(kind: str) -> str | None:
    """A type without its parameter's name, in the generic address space; None for other types than numbers."""
    words = [w for w in re.sub(r"\*", " * ", kind).split() if w not in ("volatile", "restrict", "__private", "const")]
    words = ["generic" if w == "__generic" else w for w in words]
    words = [{"unsigned": "uint"}.get(w, w) for w in words if w not in ("generic", "__global", "__local", "private")]
    pointer = "*" in words
    words = [w for w in words if w != "*"]
    spaces = [w for w in words if w == "__constant"]
    words = [w for w in words if w != "__constant"]
    if not words or (not TYPE.fullmatch(words[0]) and words[0] not in ("half", "event_t")):
        return None
    if words[0] == "half" and not pointer:
        return None
    return " ".join([*spaces, words[0]]) + (" *" if pointer else "")


def calls(name: str) -> list[str]:
    made = []
    for result, given in declarations()[name]:
        kinds, value = [plain(p) for p in given], plain(result)
        if value is None or None in kinds:
            continue
        if (name == "dot" and "char" in f"{kinds[0]}") or name == "async_work_group_strided_copy":
            continue  # an extension's; told apart by address spaces, which are left out here
        parameters = ", ".join(f"{kind} a{i}" for i, kind in enumerate(kinds))
        call = f"{name}({', '.join(f'a{i}' for i in range(len(kinds)))})"
        body = f"{call};" if value == "void" else f"{value} r = {call};"
        made.append(f"static __attribute__((overloadable)) void manycl_c_{name}({parameters}) {{ {body} }}")
    return sorted(set(made))


NAMES = sorted(n for n in declarations() if not NOT_HERE.fullmatch(n))


def test_the_list_is_the_language() -> None:
    assert {"acos", "convert_uchar16_sat_rtz", "vload16", "mad_sat", "shuffle2", "atomic_add", "native_tan"} <= set(
        NAMES
    )
    assert len(NAMES) > 600
    assert not [n for n in NAMES if source(n) is None]


@pytest.mark.parametrize("part", range(6))
def test_every_signature(part: int) -> None:
    mine = [n for n in NAMES if hash_of(n) % 6 == part]
    lines = [line for name in mine for line in calls(name)]
    assert len(lines) > 500
    compile_kernels("\n".join([*lines, "void k(void) {}"]))


def hash_of(name: str) -> int:
    return sum(name.encode())


def test_what_the_analysis_knows_is_there() -> None:
    """Each example of a pattern of effects, but for pipes, images, printf and extensions."""
    examples = [n for n in declarations() if known.effects(n, 3) is not None and not NOT_HERE.fullmatch(n)]
    assert len(examples) > 60
    assert not [n for n in examples if source(n) is None]


def test_types_and_constants() -> None:
    names = [
        "size_t",
        "uchar",
        "ulong16",
        "double3",
        "half4",
        "M_PI",
        "M_SQRT1_2_F",
        "FLT_MAX",
        "DBL_EPSILON",
        "INT_MIN",
    ]
    names += [
        "CLK_LOCAL_MEM_FENCE",
        "INFINITY",
        "NAN",
        "NULL",
        "memory_order_seq_cst",
        "memory_scope_device",
        "CHAR_MAX",
    ]
    assert not [n for n in names if source(n) is None]
    compile_kernels(
        "int k(void) { return CHAR_MAX + sizeof(ulong16) + (M_PI > M_PI_F) + (NULL == 0) + memory_order_seq_cst; }"
    )


def test_names_of_built_in_functions_are_free() -> None:
    """Programs have variables, members and functions of such names."""
    text = """typedef struct { float length, min; int2 select; } step;
      __constant float mix = 2.0f;
      float dot(float a, float b) { return a + b; }
      int pipe(int distance) { int max = distance; return max; }
      float k(step s) { float exp = s.length;
        return exp + s.min + mix + dot(1, 2) + pipe(3) + clamp(exp, 0.0f, 1.0f); }"""
    compile_kernels(text, defined=frozenset({"dot"}))
    with pytest.raises(BuildError, match="dot"):
        compile_kernels(text)


def test_macros_may_call_them() -> None:
    compile_kernels("#define F exp\n#define G(x) F(x) + \\\n sin(x)\nfloat k(float x) { return G(x); }")


def test_what_is_none_is_an_error() -> None:
    for name in ("expo", "convert_float_sat", "convert_int5", "vload5", "native_atan", "get_global_id"):
        with pytest.raises(BuildError, match=name):
            compile_kernels(f"float k(float x) {{ return {name}(x); }}")


def test_what_they_are_is_known_from_a_process_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = builtins.identity.__wrapped__
    monkeypatch.setenv("MANYCL_CACHE", "0")
    read = identity()
    monkeypatch.setenv("MANYCL_CACHE", str(tmp_path))
    assert identity() == read
    monkeypatch.delattr(builtins, "Path")  # nothing is read again
    assert identity() == read
    monkeypatch.setenv("MANYCL_CACHE", str(tmp_path / "another"))
    with pytest.raises(NameError):
        identity()
