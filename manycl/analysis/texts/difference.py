"""The difference merge: what one device changed in its copy of a buffer is brought into another copy.

For buffers whose written elements nothing else tells: every element of ``src`` that differs from ``old``, which is
what both copies held before, goes to ``dst``. With an operation other than ``copy`` it goes there as a commutative
atomic would: sums are added up, bits united. An element that a device wrote with the value that it had is not seen
to be written; it also needs no merging, as long as no two devices write one element otherwise than by the operation.
MKMD (section 2.2) describes comparing as the alternative to the merge kernel (:mod:`manycl.analysis.texts.merge`).
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 16  # bytes that a work-item merges

_RESULTS = {
    "copy": "s",
    "add": "d + (s - o)",
    "min": "min(d, s)",
    "max": "max(d, s)",
    "and": "d & s",
    "or": "d | s",
    "xor": "d ^ (s ^ o)",
}
OPERATIONS = tuple(_RESULTS)
_SIZES = {"uchar": 1, "ushort": 2, "int": 4, "uint": 4, "long": 8, "ulong": 8}
_INTEGERS = ("int", "uint", "long", "ulong")  # what OpenCL C has atomics for

_TEXT = """\
kernel void @K(global uchar *dst, global const uchar *src, global const uchar *old, ulong begin, ulong bytes) {
    ulong first = (ulong)get_global_id(0) * 16;
    if (first >= bytes) return;
    ulong left = bytes - first;
    first += begin;
    dst += first; src += first; old += first;
    bool aligned = (((size_t)dst | (size_t)src | (size_t)old) & 15) == 0;
    @V d, s, o;
    uchar rest[3][16];
    if (left >= 16 && aligned) {
        s = *(global const @V *)src; o = *(global const @V *)old;
        if (!any(s != o)) return;
        d = *(global @V *)dst;
    } else if (left >= 16) {
        d = as_@V(vload16(0, dst)); s = as_@V(vload16(0, src)); o = as_@V(vload16(0, old));
    } else {
        for (uint k = 0; k < 16; k++) {
            rest[0][k] = k < left ? dst[k] : 0; rest[1][k] = k < left ? src[k] : 0; rest[2][k] = k < left ? old[k] : 0;
        }
        d = as_@V(vload16(0, rest[0])); s = as_@V(vload16(0, rest[1])); o = as_@V(vload16(0, rest[2]));
    }
    d = s != o ? @R : d;
    if (left >= 16 && aligned) *(global @V *)dst = d;
    else if (left >= 16) vstore16(as_uchar16(d), 0, dst);
    else {
        vstore16(as_uchar16(d), 0, rest[0]);
        for (uint k = 0; k < left; k++) dst[k] = rest[0][k];
    }
}
"""


@dataclass(frozen=True, slots=True)
class DifferenceMerge:
    """An OpenCL C 1.2 program that merges two copies of a buffer, without build options.

    Its kernel ``kernel`` takes five arguments: ``dst`` (buffer, read and written), ``src`` and ``old`` (buffers, only
    read), ``begin`` and ``bytes`` (ulong): from which of their bytes on to merge how many. It runs in one dimension,
    with any local size and at least :meth:`work_items` work-items; more do nothing. The copies must not overlap.
    Where ``bytes`` is no multiple of the element's size, the bytes that are left over count as one more element.
    """

    source: str
    kernel: str
    operation: str
    element: str

    def work_items(self, count: int) -> int:
        """How many work-items merge ``count`` bytes."""
        return -(-count // BLOCK)


def difference_merge(operation: str = "copy", element: str = "uchar") -> DifferenceMerge:
    """The merge with one of :data:`OPERATIONS` of elements of an integer type.

    ``copy`` takes ``uchar``, ``ushort``, ``uint`` and ``ulong``, for all types of that size: an element is copied as
    a whole. The others take what OpenCL C has atomics for, ``int``, ``uint``, ``long`` and ``ulong``; ``add`` stands
    for subtractions, increments and decrements too, and wraps around. Raises ValueError for others.
    """
    if operation not in _RESULTS:
        raise ValueError(f"no operation to merge with: {operation} (there are {', '.join(OPERATIONS)})")
    allowed = tuple(_SIZES) if operation == "copy" else _INTEGERS
    if element not in allowed:
        raise ValueError(f"elements of type {element} cannot be merged by {operation} (but {', '.join(allowed)} can)")
    wraps = operation == "add"  # signed sums must not overflow
    vector = f"{'u' if wraps and element in ('int', 'long') else ''}{element}{BLOCK // _SIZES[element]}"
    kernel = f"manycl_difference_{operation}_{element}"
    text = _TEXT.replace("@V", vector).replace("@R", _RESULTS[operation]).replace("@K", kernel)
    return DifferenceMerge(text, kernel, operation, element)
