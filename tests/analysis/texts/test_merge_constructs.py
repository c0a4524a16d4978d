"""Merge kernels: stores of every kind, what goes and what stays, and what is refused."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

from manycl.analysis import parse_program, service
from manycl.analysis.texts.merge import MergeKernel
from tests.analysis import truth
from tests.analysis.corpus_case import Case, Local, f32, index, launch, out
from tests.analysis.texts.test_merge import check, copied, merging

FOLDER = Path(__file__).parent / "merge_corpus"
STORES, SEVERAL, NEWER, LINEAR = ((FOLDER / f"{n}.cl").read_text() for n in ("stores", "several", "newer", "linear"))
KERNELS = re.findall(r"^kernel void (\w+)\(", STORES, re.M)
NDRANGE = launch(16, 4, out(160, "i4"), index(160, 1000), f32(160))

INTEGERS = functools.partial(out, dtype="i4")
OF_MORE = {
    "either": launch(16, 4, INTEGERS(40), INTEGERS(40), index(16, 1000)),
    "of_three": launch(16, 4, INTEGERS(48), INTEGERS(48), INTEGERS(48), 2),
    "swapped": launch(16, 4, out(80), out(80), f32(16)),
    "in_local": launch(16, 4, INTEGERS(16), index(16, 1000), Local(16)),
    "calls": launch(16, 4, INTEGERS(60), INTEGERS(60), index(16, 1000)),
}


def of_bodies(name: str) -> Case:
    return Case(name, "", (NDRANGE,), (True,), text=STORES)


def of_more(name: str) -> Case:
    return Case(name, "", (OF_MORE[name],), (True,), text=SEVERAL)


def checked(case: Case, name: str) -> MergeKernel:
    merge = merging(case)
    assert not merge.reason
    for ndrange in case.launches:
        check(case, merge, ndrange, 0, name)
    return merge


@pytest.mark.parametrize("kernel", KERNELS)
def test_stores_on_oclgrind(kernel: str, capfd: pytest.CaptureFixture[str]) -> None:
    checked(of_bodies(kernel), truth.OCLGRIND)
    complaints = capfd.readouterr()
    assert "Invalid" not in complaints.err + complaints.out


@pytest.mark.parametrize("kernel", KERNELS[::6])
def test_stores_on_pocl(kernel: str) -> None:
    checked(of_bodies(kernel), truth.POCL)


@pytest.mark.parametrize("kernel", OF_MORE)
def test_several_arguments(kernel: str) -> None:
    merge = checked(of_more(kernel), truth.OCLGRIND)
    shared = kernel != "in_local"
    assert [h.kind for h in merge.hidden] == (["copy", "bytes"] if shared else ["copy"]) * len(merge.written)


def newer(name: str, text: str = NEWER) -> Case:
    return Case(
        name, "", (launch(16, 4, INTEGERS(64), index(16, 1000)),), (True,), text=text, options=("-cl-std=CL3.0",)
    )


def test_linear_ids_on_pocl() -> None:
    case = newer("linear", LINEAR)
    merge = merging(case)
    found = copied(case, merge, case.launches[0], 0, 1, 2, truth.POCL)[0]
    assert sorted(set(np.flatnonzero(found) // 4)) == [2 * i + 4 for i in range(4, 12)]


def test_generic_pointers_and_group_functions_are_followed() -> None:
    """No device here compiles them; that the result does compile is part of making it."""
    found = {name: merging(newer(name)) for name in ("by_helper", "through_generic", "group_sum")}
    assert all(merge.written == (0,) and not merge.reason for merge in found.values())
    assert [merge.reads for merge in found.values()] == [(), (), (1,)]


def body(merge: MergeKernel) -> str:
    found = re.search(rf"kernel void {merge.kernel}\(.*", merge.source, re.S)
    assert found is not None
    return found[0].split("kernel void", 2)[1]


@pytest.mark.parametrize(
    "kernel", ["dead_loop", "dead_cases", "through_prototype", "local_dropped", "vector_cast", "nested_calls"]
)
def test_inputs_of_stored_values_only_are_not_read(kernel: str) -> None:
    merge = merging(of_bodies(kernel))
    assert merge.reads == ()
    left = body(merge)
    assert not [words for words in ("f[", "s[", "for", "switch", "barrier") if words in left]


def test_inputs_that_steer_are_read() -> None:
    assert merging(of_bodies("break_on_input")).reads == (1,)
    assert merging(of_bodies("switch_falls_through")).reads == (1,)
    assert merging(of_more("in_local")).reads == (1,)
    assert "barrier" in body(merging(of_more("in_local")))


@pytest.mark.parametrize(
    ("values", "reads"), [("{[1] = i, [0] = s[i] & 7}", (1,)), ("{get_local_id(0), (d + i, 2), d[2] = 3}", ())]
)
def test_values_of_tables_are_kept_where_they_steer(values: str, reads: tuple[int, ...]) -> None:
    parameters = "global int *d, global const int *s"
    text = f"kernel void k({parameters}) {{ int i = get_global_id(0), t[3] = {values}; d[t[0] * 8 + i] = t[1]; }}"
    merge = merging(Case("k", "", (), (), text=text))
    assert (merge.reason, merge.reads) == ("", reads)


def test_a_kernel_without_stores_copies_nothing() -> None:
    merge = merging(of_bodies("absent"))
    assert (merge.reason, merge.written, merge.hidden, merge.reads) == ("", (), (), ())


REFUSED = {
    "d[d[i]] = 1;": "decides with the contents of d, which the kernel writes",
    "if (s[i] > 3) { d[i] = 1; if (d[i + 1] > 2) d[i + 2] = 1; }": "decides with the contents of d",
    "int k = d[i] & 7; for (int j = 0; j < k; j++) d[i + j] = 1;": "decides with the contents of d",
    "int v = d[i]++; d[v & 7] = 1;": "uses the result|decides with|uses what it stores",
    "atomic_add(d, s[i]);": "an atomic operation on an argument",
    "local int n; n = 0; d[atomic_inc(&n)] = 1;": "uses the result of an atomic operation",
    "local int n; n = 0; atomic_xchg(&n, i); d[n] = 1;": "depends on the order",
    "*(global int *)(size_t)(i * 4) = 1;": "stores where it is not known",
    "long n = s[i]; global int *p = d + i; if (i == 3) p = n; *p = 1;": "stores where it is not known",
    "if ((size_t)d & 8) d[i] = 1;": "computes with the number of an address",
    "unknown(d, i);": "whose body is not here",
    "global Bits *b = (global Bits *)d; b[i].n = 1;": "a bit field is stored to",
    "write_imagef(m, (int2)(i, 0), 1.0f);": "writes an image",
    "global Holder *h = (global Holder *)d; *h->p = 1;": "loaded from memory|taken for something else",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words: str) -> None:
    head = "#pragma OPENCL EXTENSION __cl_clang_bitfields : enable\n"
    head += "typedef struct { int n : 3; } Bits; typedef struct { global int *p; } Holder;\n"
    head += "void unknown(global int *p, int i);\n"
    arguments = "global int *d, global const int *s, write_only image2d_t m"
    text = f"{head}kernel void k({arguments}) {{ int i = get_global_id(0); {words} }}"
    merge = merging(Case("k", "", (), (), text=text))
    assert re.search(REFUSED[words], merge.reason)
    assert (merge.source, merge.hidden) == ("", ())


def test_a_store_to_an_argument_or_own_memory_is_refused() -> None:
    merge = merging(newer("mixed"))
    assert "stores to an argument or to other memory" in merge.reason


def test_the_service_answers() -> None:
    program = parse_program(STORES)
    merge = service.merge_kernel(program, "compound")
    assert merge == merging(of_bodies("compound"))
    with pytest.raises(KeyError):
        service.merge_kernel(program, "none")
