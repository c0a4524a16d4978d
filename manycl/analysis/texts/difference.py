"""The merges of what devices wrote in copies of a buffer of their own.

Of buffers whose written elements nothing else tells, every element of ``src`` that differs from ``old``, which is what
both copies held before, goes to ``dst`` (``copy``). An element that a device wrote with the value that it had is not
seen to be written; it also needs no merging, as long as no two devices write one element. Where that is only promised
(``checked``), an integer is set where both copies of an element have changed, to different values; where it is set,
``restore`` makes ``dst`` what ``src`` is. MKMD (section 2.2) describes
comparing as the alternative to the merge kernel (:mod:`manycl.analysis.texts.merge`).

Of buffers that devices change by commutative atomic operations only, ``src`` held the operation's neutral element
before, and goes to ``dst`` by the operation: sums are added up, bits united.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 16  # bytes that a work-item copies

_RESULTS = {
    "add": "d[i] + s[i]",
    "min": "min(d[i], s[i])",
    "max": "max(d[i], s[i])",
    "and": "d[i] & s[i]",
    "or": "d[i] | s[i]",
    "xor": "d[i] ^ s[i]",
}
OPERATIONS = ("copy", "checked", "restore", *_RESULTS)
_SIZES = {"uchar": 1, "ushort": 2, "int": 4, "uint": 4, "long": 8, "ulong": 8}
UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
"""Types of elements that are copied, by their bytes."""
_INTEGERS = ("int", "uint", "long", "ulong")  # what OpenCL C has atomics for

_COPY = """\
kernel void @K(global uchar *dst, global const uchar *src, global const uchar *old, ulong begin, ulong bytes@A) {
    ulong first = (ulong)get_global_id(0) * 16;
    if (first >= bytes@C) return;
    ulong left = bytes - first;
    first += begin;
    dst += first; src += first; old += first;
    if (left >= 16) {
        bool aligned = (((size_t)dst | (size_t)src | (size_t)old) & 15) == 0;
        @V s = aligned ? *(global const @V *)src : as_@V(vload16(0, src));
        @V o = aligned ? *(global const @V *)old : as_@V(vload16(0, old));
        if (!any(s != o)) return;
        @V d = aligned ? *(global @V *)dst : as_@V(vload16(0, dst));
@T        d = s != o ? s : d;
        if (aligned) *(global @V *)dst = d;
        else vstore16(as_uchar16(d), 0, dst);
        return;
    }
    for (uint k = 0; k < left; k++) {
        bool differs = false;
        for (uint j = k - k % @S; j < k - k % @S + @S && j < left; j++) differs |= src[j] != old[j];
@U        if (differs) dst[k] = src[k];
    }
}
"""


_TOLD = "        if (any((s != o) & (d != o) & (s != d))) *conflicts = 1;\n"
_TOLD_OF_ONE = "        if (differs && dst[k] != old[k] && src[k] != dst[k]) *conflicts = 1;\n"
_APPLY = """\
kernel void @K(global uchar *dst, global const uchar *src, ulong begin, ulong bytes) {
    ulong i = get_global_id(0);
    global @V *d = (global @V *)(dst + begin);
    global const @V *s = (global const @V *)(src + begin);
    if (i < bytes / sizeof(@V)) d[i] = @R;
}
"""


@dataclass(frozen=True, slots=True)
class DifferenceMerge:
    """An OpenCL C 1.2 program that merges two copies of a buffer, without build options.

    Its kernel ``kernel`` takes ``dst`` (buffer, read and written), ``src`` and, where the operation is ``copy``,
    ``old`` (buffers, only read), ``begin`` and ``bytes`` (ulong): from which of their bytes on to merge how many. Where
    it is ``checked`` or ``restore``, it takes the integer ``conflicts`` besides, and copies single bytes (``old`` of
    the latter is ``dst``). It runs in one dimension, with any local size and at least :meth:`work_items` work-items;
    more do nothing. The copies must not overlap. Where ``bytes`` is no multiple of the element's size, the bytes that
    are left over count as one more element of a copy; by an operation they are not merged.
    """

    source: str
    kernel: str
    operation: str
    element: str

    def work_items(self, count: int) -> int:
        """Return how many work-items merge ``count`` bytes."""
        return -(-count // (_SIZES[self.element] if self.operation in _RESULTS else BLOCK))

    @property
    def neutral(self) -> bytes:
        """The bytes of an element that the operation (not ``copy``) leaves any other one as it is with."""
        bits = 8 * _SIZES[self.element]
        least = 0 if self.element.startswith("u") else -(1 << bits - 1)
        value = {"min": least + (1 << bits) - 1, "max": least, "and": -1}.get(self.operation, 0)
        return (value % (1 << bits)).to_bytes(bits // 8, "little")


def difference_merge(operation: str = "copy", element: str = "uchar") -> DifferenceMerge:
    """The merge with one of :data:`OPERATIONS` of elements of an integer type. ``copy`` takes ``uchar``, ``ushort``,
    ``uint`` and ``ulong``, for all types of that size: an element is copied as a whole; so does ``checked``, whose
    bytes are copied one by one. The others take what OpenCL C has atomics for, ``int``, ``uint``, ``long`` and
    ``ulong``; ``add`` stands for subtractions, increments and decrements too, and wraps around. Raises ValueError for
    others."""
    if operation not in OPERATIONS:
        raise ValueError(f"no operation to merge with: {operation} (there are {', '.join(OPERATIONS)})")
    allowed = _INTEGERS if operation in _RESULTS else tuple(_SIZES)
    if element not in allowed:
        raise ValueError(f"elements of type {element} cannot be merged by {operation} (but {', '.join(allowed)} can)")
    kernel = f"manycl_difference_{operation}_{element}"
    vector = f"{element}{BLOCK // _SIZES[element]}"
    if operation == "copy":
        text = _COPY.replace("@V", vector).replace("@S", str(_SIZES[element]))
        for mark in ("@A", "@C", "@T", "@U"):
            text = text.replace(mark, "")
    elif operation not in _RESULTS:
        text = _COPY.replace("@V", f"uchar{BLOCK}").replace("@S", "1").replace("@A", ", global uint *conflicts")
        told = operation == "checked"
        text = text.replace("@C", "" if told else " || !*conflicts")
        text = text.replace("@T", _TOLD if told else "").replace("@U", _TOLD_OF_ONE if told else "")
    else:  # (signed sums must not overflow)
        vector = f"u{element}" if operation == "add" and element in ("int", "long") else element
        text = _APPLY.replace("@V", vector).replace("@R", _RESULTS[operation])
    return DifferenceMerge(text.replace("@K", kernel), kernel, operation, element)
