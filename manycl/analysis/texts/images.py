"""Kernels whose images are arrays: OpenCL C in which a two-dimensional image is a pointer to its pixels, its width and
its height, and reads and writes of it are subscripts. So the analysis follows what a launch of it touches, launches
are divided by rows, and devices need no images. (Libsplit, section 4.1, has "images could be added".)

What is read and written is what OpenCL C (3.0, sections 6.15.15 and 8) says, where it leaves no choice: addressing
modes, filters, border colours, conversions between normalized integers and numbers. Where it leaves coordinates
outside of an image undefined, the pixel at the edge is read, and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from manycl.analysis.reading.options import remaining_options
from manycl.analysis.reading.tree import Function, Node, Unit, callee, stripped
from manycl.analysis.texts.rewrite import (
    SubKernel,
    appended,
    apply_edits,
    parameters_of,
    signatures,
    unused_prefix,
    without_strings,
)

_BUILTIN = re.compile(r"(read|write)_image(f|i|ui)|get_image_(width|height|dim)")
_WORD = re.compile(rb"(?<![\w$])(?:sampler_t|CLK_[A-Z_]+)(?![\w$])")
SAMPLER = {
    "NORMALIZED_COORDS_FALSE": 0, "NORMALIZED_COORDS_TRUE": 1, "FILTER_NEAREST": 16, "FILTER_LINEAR": 32,
    "ADDRESS_NONE": 0, "ADDRESS_CLAMP_TO_EDGE": 2, "ADDRESS_CLAMP": 4, "ADDRESS_REPEAT": 6,
    "ADDRESS_MIRRORED_REPEAT": 8,
}  # fmt: skip
"""The numbers that samplers are made of here: compilers have numbers, or types, of their own."""
_WORDS = {f"CLK_{name}": str(number) for name, number in SAMPLER.items()} | {"sampler_t": "uint"}
_SCALES = {"uchar": 255, "char": 127, "ushort": 65535, "short": 32767}  # of what a number of 1 is stored as
_TYPES = {
    "f": ("float", (*_SCALES, "half", "float")),
    "i": ("int", ("char", "short", "int")),
    "ui": ("uint", ("uchar", "ushort", "uint")),
}
_PLACES = """
float @scaled(float u, int n, uint s) {
    uint mode = s & 14;
    return mode == 6 ? (u - floor(u)) * n : mode == 8 ? fabs(u - 2.0f * rint(0.5f * u)) * n : (s & 1) ? u * n : u;
}
int @wrapped(int i, int n, uint s) {
    uint mode = s & 14;
    return mode == 6 ? (i < 0 ? i + n : i < n ? i : i - n) : mode == 8 ? clamp(i, 0, n - 1) : i;
}
"""
_READ = """
VECTOR @read_IMAGE_i(global const POINTED *p, int w, int h, uint s, int2 c) {
    if ((s & 14) == 4 && (c.x < 0 || c.x >= w || c.y < 0 || c.y >= h)) return (VECTOR)(0, 0, 0, BORDER);
    int i = clamp(c.y, 0, h - 1) * w + clamp(c.x, 0, w - 1);
    return (VECTOR)(LOADED);
}
"""
_READ_AT = """
VECTOR @read_IMAGE_f(global const POINTED *p, int w, int h, uint s, float2 c) {
    float x = @scaled(c.x, w, s), y = @scaled(c.y, h, s);
    if (FILTERS && (s & 32)) { x -= 0.5f; y -= 0.5f; }
    int i = convert_int_sat_rtn(x), j = convert_int_sat_rtn(y);
    int2 low = (int2)(@wrapped(i, w, s), @wrapped(j, h, s));
    VECTOR found = @read_IMAGE_i(p, w, h, s, low);
    if (!FILTERS || !(s & 32)) return found;
    int2 high = (int2)(@wrapped(add_sat(i, 1), w, s), @wrapped(add_sat(j, 1), h, s));
    TYPE a = x - floor(x), b = y - floor(y);
    return (1 - a) * (1 - b) * found + a * (1 - b) * @read_IMAGE_i(p, w, h, s, (int2)(high.x, low.y))
        + (1 - a) * b * @read_IMAGE_i(p, w, h, s, (int2)(low.x, high.y)) + a * b * @read_IMAGE_i(p, w, h, s, high);
}
"""
_WRITE = """
void @write_IMAGE_i(global POINTED *p, int w, int h, int2 c, VECTOR v) {
    if (c.x >= 0 && c.x < w && c.y >= 0 && c.y < h) { int i = c.y * w + c.x; STORED; }
}
"""


def image_kernel(unit: Unit, kernel: str, options: Sequence[str], pixels: Sequence[str]) -> SubKernel:
    """The kernel with arrays in place of its images, alone in its program. ``pixels``: by argument, the type of the
    image's pixels, ``uchar4``, of one, two or four channels (empty: it is no image). Where the kernel has an image,
    this one has a pointer to pixels, row after row; where it has a sampler, a ``uint`` (:data:`SAMPLER`). Behind its
    arguments it has the width and the height of each image (``int``). ``reason`` says why there is none. Raises
    KeyError for a kernel that the program does not have."""
    try:
        text = _Text(unit).edited(unit.kernel(kernel), list(filter(None, pixels)))
    except ValueError as why:
        return SubKernel(kernel, "", tuple(options), reason=str(why))
    return SubKernel(kernel, text, remaining_options(tuple(options), unit.version), edited=True)


@dataclass
class _Text:
    """A kernel's text, and its edits. ``pixels``: by images' references; ``helpers``: definitions in front."""

    unit: Unit
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    pixels: dict[int, str] = field(default_factory=dict)
    helpers: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prefix = unused_prefix(self.unit.text)

    def edited(self, root: Function, pixels: list[str]) -> str:
        """Raises ValueError with the reason why an image cannot be an array."""
        unit, kept = self.unit, {function.ref for function in self.unit.reachable(root)}
        self._give(root, pixels, root.start)
        for match in _WORD.finditer(without_strings(unit.text)):
            if (word := match[0].decode()) in _WORDS:
                self.edits.append((match.start(), match.end(), _WORDS[word]))
        for start in {v.start for v in unit.variables.values() if v.type.kind == "sampler"}:
            if b"constant" not in unit.text[start:].split(b"sampler_t", 1)[0]:
                self.edits.append((start, start, "constant "))
        declared: list[Function | Node] = [*unit.functions.values(), *unit.prototypes]
        gone = [(each.start, each.end) for each in declared if each.ref not in kept]
        edits = [e for e in self.edits if not any(start <= e[0] < end for start, end in gone)]
        for start, end in gone:
            edits.append((start, end, "\n" * unit.text.count(b"\n", start, end)))
        text = apply_edits(unit.text, edits).decode("utf-8", "replace")
        return "".join(self.helpers).replace("@", self.prefix) + "\n#line 1\n" + text

    def _give(self, function: Function, pixels: list[str], place: int) -> None:
        """A function's images have pixels of these types; so have those of what it calls with them."""
        unit, images = self.unit, [p for p in function.parameters if p.type.kind == "image"]
        given = {image.ref: type_ for image, type_ in zip(images, pixels, strict=False)}
        if self.pixels.items() >= given.items():
            return
        if self.pixels.keys() & given.keys():
            raise ValueError(f"{unit.where(place)} calls {function.name} with images of several types of pixels")
        self.pixels |= given
        parameters = parameters_of(unit, function, function.start, function.body.start)
        is_usual = all(image.name and image.type.name == "image2d_t" and image.ref in given for image in images)
        if parameters is None or len(list(signatures(unit, function))) > 1 or not is_usual:
            where = f"{function.name} in {unit.where(function.start)}"
            raise ValueError(f"{where} has images that are no arrays of two dimensions, or is declared more than once")
        for image in images:
            const = "const " if image.type.access == "read_only" else ""
            words = f"global {const}{_pointed(given[image.ref])} *{image.name}"
            self.edits.append((image.start, image.end, words))
        self.edits.append(appended(unit, *parameters, self._sizes(images, "int ")))
        left = sum(node.kind == "DECL_REF_EXPR" and node.type.kind == "image" for node in function.nodes)
        for node in function.nodes:
            used = [stripped(child) for child in node.children[1:] if child.type.kind == "image"]
            if node.kind == "CALL_EXPR" and used:
                self._call(node, used)
                left -= len(used)
        if left:
            raise ValueError(f"{function.name} does with an image what no array can")

    def _call(self, node: Node, images: list[Node]) -> None:
        """A call with images among its arguments."""
        unit, called, where = self.unit, callee(node), self.unit.where(node.start)
        are_names = all(image.ref in self.pixels and unit.words(image) == image.name for image in images)
        if not are_names or unit.text[node.end - 1 : node.end] != b")":
            raise ValueError(f"{where} uses an image that is no parameter")
        target, pixels = unit.functions.get(called.ref), [self.pixels[image.ref] for image in images]
        match, sizes = _BUILTIN.fullmatch(called.name), self._sizes(images)
        if target is not None:
            self._give(target, pixels, node.start)
            self.edits.append(appended(unit, called.end, node.end - 1, sizes))
        elif called.ref in unit.declared or match is None:
            raise ValueError(f"{where} calls {called.name or 'a function'}, which knows no arrays")
        elif match[3]:
            size = {"width": sizes.split(", ")[0], "height": sizes.split(", ")[1], "dim": f"(int2)({sizes})"}
            self.edits.append((node.start, node.end, f"({size[match[3]]})"))
        else:
            coordinates, count = node.children[2 if match[1] == "write" else -1].type, len(node.children)
            if coordinates.lanes != 2 or count > 4:
                raise ValueError(f"{where} uses an image that has not two dimensions")
            name = self._access(match[1], match[2], pixels[0], "f" if coordinates.base == "float" else "i")
            edge = f", {SAMPLER['ADDRESS_CLAMP_TO_EDGE']}u" if match[1] == "read" and count == 3 else ""
            self.edits.append((called.start, called.end, self.prefix + name))
            self.edits.append((images[0].end, images[0].end, f", {sizes}{edge}"))

    def _access(self, what: str, kind: str, pixel: str, coordinates: str) -> str:
        """The name of the helper that reads or writes pixels, as ``float4`` (f), ``int4`` (i) or ``uint4`` (ui)."""
        base, lanes = pixel.rstrip("24"), pixel.lstrip("abcdefghijklmnopqrstuvwxyz")
        scalar, bases = _TYPES[kind]
        if base not in bases:
            raise ValueError(f"{what}_image{kind} is not for pixels of type {base}")
        value, loaded = {"": "v.x", "2": "v.xy", "4": "v"}[lanes], f"convert_{scalar}{lanes}(p[i])"
        stored = f"p[i] = {value}" if base == scalar else f"p[i] = convert_{pixel}_sat({value})"
        if base == "half":
            loaded, stored = f"vload_half{lanes}(i, p)", f"vstore_half{lanes}({value}, i, p)"
        elif kind == "f" and base in _SCALES:
            loaded = f"fmax({loaded} * (1.0f / {_SCALES[base]}), -1.0f)"
            stored = f"p[i] = convert_{pixel}_sat_rte({value} * {_SCALES[base]}.0f)"
        words = {
            "IMAGE": f"{kind}_{pixel}", "POINTED": _pointed(pixel), "VECTOR": f"{scalar}4", "TYPE": scalar,
            "BORDER": str(int(lanes != "4")), "FILTERS": str(int(kind == "f")), "STORED": stored,
            "LOADED": loaded + {"": ", 0, 0, 1", "2": ", 0, 1", "4": ""}[lanes],
        }  # fmt: skip
        for text in [_WRITE] if what == "write" else [_PLACES, _READ, _READ_AT] if coordinates == "f" else [_READ]:
            self.helpers[re.sub("|".join(words), lambda m: words[m[0]], text)] = None
        return f"{what}_{kind}_{pixel}_{coordinates}"

    def _sizes(self, images: Sequence[Node], type_: str = "") -> str:
        names = (f"{type_}{self.prefix}{what}_{image.name}" for image in images for what in ("width", "height"))
        return ", ".join(names)


def _pointed(pixel: str) -> str:
    """Return what a pointer to pixels points to: vectors of ``half`` are an extension."""
    return "half" if pixel.startswith("half") else pixel
