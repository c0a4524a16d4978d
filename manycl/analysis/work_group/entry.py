"""A work-group function's loops over work-items, and the function that is called for ranges of work-groups."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

from manycl.analysis.reading.tree import Function, Node, Unit
from manycl.analysis.work_group.group_function import MOST_OWN
from manycl.analysis.work_group.queries import Unlocked
from manycl.analysis.work_group.syntax import NoGroupFunctionError, parameter_text
from manycl.analysis.work_group.texts import AT, AT_TURNED
from manycl.errors import a

T = TypeVar("T")
MOST_UNROLLED = 32
"""Vectors of work-items in a tile whose loops are unrolled, so that what they keep is kept in registers."""


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """``tile``: the most work-items that are run together, in each dimension: a work-group where its kernel is
    ``sized``, else any part of the NDRange. ``kept``: they have context arrays. ``cut``: the kernel's body is in
    several parts. ``lanes``: 4-byte values in a vector. ``put_away``: what tiles keep that are run in strips
    (``blocking``), as members of a structure. ``dimension``: along which vectors run, 0 or 1; neighbours in it are
    neighbours in context arrays. ``unlocked``: what it does with atomic operations that need not be."""

    unit: Unit
    kernel: Function
    tile: tuple[int, int, int]
    sized: bool
    kept: bool
    cut: bool
    lanes: int
    put_away: str = ""
    dimension: int = 0
    unlocked: Unlocked | None = None

    def text(self, body: str) -> str:
        """The group function, for full tiles with sizes that are constants and for others, and the entry."""
        if self.dimension:
            body = body.replace(AT, AT_TURNED)
        texts = [parameter_text(self.unit, parameter) for parameter in self.kernel.parameters]
        parameters = "".join(f"{specifiers}{declarator}, " for specifiers, declarator in texts)
        signature = f"({parameters}const struct @group @w, const ushort @n0, const ushort @n1, const ushort @n2)"
        found = [
            "#define @END }\n#define @IN_STRIPS 0\n",
            self._extent(self.tile),
            self._macros("@n0", "@n1", "@n2", False),
        ]
        # whatever is not full is rare where work-groups are run: it is kept out of the way
        found.append(
            f"static {'__attribute__((noinline)) ' if self.sized else ''}void @part{signature} {{\n{body}\n}}\n"
        )
        if self.put_away:
            _, rows, depth = self._turned(*self.tile)
            found += self._full("@slim", self._turned(self.lanes, rows, depth), "void", signature, body)
            found += ["#undef @IN_STRIPS\n#define @IN_STRIPS 1\n", self._extent(self.tile)]
            found.append(f"struct @tile {{ {self.put_away} }} __attribute__((aligned(64)));\n")
            signature = signature[:-1] + ", struct @tile *@t)"
            found += self._full("@full", self.tile, "__attribute__((noinline)) int", signature, body)
        elif self._has_full:
            found += self._full("@full", self.tile, "void", signature, body)
        structs = (f"struct @a{i} {{ {words[0]}{words[1]}; }};\n" for i, words in enumerate(texts))
        return "".join((*found, *structs, self._entry()))

    def _turned(self, x: T, y: T, z: T) -> tuple[T, T, T]:
        """Return what belongs to the dimensions, first that along which vectors run."""
        return (y, x, z) if self.dimension else (x, y, z)

    def _extent(self, tile: tuple[int, int, int]) -> str:
        extent = "[{2}][{1}][{0}]".format(*self._turned(*tile)) if self.kept else ""
        return f"#undef @EXTENT\n#define @EXTENT {extent}\n"

    def _full(self, name: str, tile: tuple[int, int, int], result: str, signature: str, body: str) -> list[str]:
        """A function for tiles of one size."""
        x, y, z = map(str, tile)
        macros = "#undef @ITEMS\n#undef @ITEMS_CHECKED\n#undef @ALL\n" + self._macros(x, y, z, True)
        return [self._extent(tile), macros, f"static {result} {name}{signature} {{\n{body}\n}}\n"]

    @property
    def _has_full(self) -> bool:
        return self.sized or self.kept

    def _macros(self, x: str, y: str, z: str, full: bool) -> str:
        """The loops over work-items."""
        _, height, depth = self._turned(*self.tile)
        across, down, deep = self._turned(x, y, z)
        item, row = ("@y", "@x") if self.dimension else ("@x", "@y")
        blocked = full and self.cut and self.kept and int(across) % self.lanes == 0
        unrolled = blocked and int(across) // self.lanes * height * depth <= MOST_UNROLLED
        outer = '_Pragma("clang loop unroll(full)") ' if unrolled else ""
        above = f"{outer}for (int @z = 0; @z < {deep if depth > 1 else 1}; @z++) "
        above += f"{outer}for (int {row} = 0; {row} < {down if height > 1 else 1}; {row}++) "
        inner, hints = f"for (int {item} = 0; {item} < {across}; {item}++) {{", "vectorize(assume_safety)"
        if blocked:  # a vector at a time: compilers unroll short loops before they make vectors of them
            above += f"{outer}for (int @X = 0; @X < {across}; @X += {self.lanes}) "
            inner = f"for (int {item} = @X; {item} < @X + {self.lanes}; {item}++) {{"
            hints += (
                f" vectorize_width({self.lanes}) unroll(disable)"  # of wide types, too: then nothing is left to loop
            )
        return (
            f'#define @ITEMS {above}_Pragma("clang loop {hints}") {inner}\n#define @ITEMS_CHECKED {above}{inner}\n'
            f"#define @ALL ((uint)({x}) * (uint)({y}) * (uint)({z}))\n"
        )

    def _entry(self) -> str:
        values = ""
        unlocked = self.unlocked
        counted = {c.argument: number for number, c in enumerate(unlocked.counted)} if unlocked is not None else {}
        for index, parameter in enumerate(self.kernel.parameters):
            value, given = f"((const struct @a{index} *)args[{index}])->", f"(const ulong *)args[{index}]"
            value += parameter.name
            if index in counted:
                value = f"own{counted[index]}"
            elif is_local(parameter):
                value = f"(__typeof__({value}))(frame + *({given}))"
            if parameter.type.kind == "pointer":
                value = f'manycl_given(({value}), ({given})[1], "{parameter.name}")'
            values += f"{value}, "
        x, y, z = self.tile
        whole = f"if (n0 == {x} && n1 == {y} && n2 == {z}) @full({values}w, {x}, {y}, {z});\n          else "
        whole = whole if self._has_full else ""
        texts = {
            "VALUES": values,
            "V": str(self.dimension),
            "LX": str(x),
            "LY": str(y),
            "LZ": str(z),
            "NX": str(self.lanes),
            "PART": f"{whole}@part({values}w, n0, n1, n2);",
            "BEFORE": unlocked.before(len(self.kernel.parameters)) if unlocked is not None else "",
            "BEHIND": unlocked.behind() if unlocked is not None else "",
            "OWN": str(MOST_OWN if counted else 0),
        }
        template = _SIZED if self.sized else _BLOCKS if self.put_away else _TILES + _ANY if self.kept else _ANY
        return _written(_written(template, _BLOCK_ORDERS[self.dimension]), texts)


def _written(template: str, texts: dict[str, str]) -> str:
    return re.sub("|".join(rf"\b{name}\b" for name in texts), lambda m: texts[m.group()], template)


def is_local(parameter: Node) -> bool:
    """Return whether a parameter is local memory. Raises NoGroupFunctionError for what only OpenCL has."""
    type_ = parameter.type
    if type_.kind in ("image", "sampler", "pipe", "opaque", "block", "other"):
        raise NoGroupFunctionError(f"its argument {parameter.name} is {a(type_.kind)}")
    return type_.kind == "pointer" and type_.target is not None and type_.target.address_space == "local"


_HEAD = """
void manycl_entry(const void *const *args, const struct @range *r, ulong first, ulong end, char *frame) {
  struct @group w;
  w.r = r;
BEFORE"""
_SIZED = (
    _HEAD
    + """  for (ulong g = first; g < end; g++) {
    const ulong g0 = g % r->groups[0], rest = g / r->groups[0], g1 = rest % r->groups[1], g2 = rest / r->groups[1];
    const ulong left0 = r->global_size[0] - g0 * LX, left1 = r->global_size[1] - g1 * LY;
    const ulong left2 = r->global_size[2] - g2 * LZ;
    const int n0 = left0 < LX ? left0 : LX, n1 = left1 < LY ? left1 : LY, n2 = left2 < LZ ? left2 : LZ;
    w.group[0] = g0; w.group[1] = g1; w.group[2] = g2;
    w.base[0] = r->offset[0] + g0 * LX; w.base[1] = r->offset[1] + g1 * LY; w.base[2] = r->offset[2] + g2 * LZ;
    if (n0 == LX && n1 == LY && n2 == LZ) {
      w.items[0] = LX; w.items[1] = LY; w.items[2] = LZ;
      @full(VALUES w, LX, LY, LZ);
    } else {
      w.items[0] = n0; w.items[1] = n1; w.items[2] = n2;
      @part(VALUES w, n0, n1, n2);
    }
  }
BEHIND}
"""
)
_LEAST = """
static inline __attribute__((always_inline)) ulong @least(ulong a, ulong b) { return a < b ? a : b; }
"""
_TILES = "\nconst uint manycl_tile[5] = {LX, LY, 0, V, NX};\n"
_ANY = _LEAST + (
    _HEAD
    + """  const ulong *l = r->local_size;
  w.group[0] = w.group[1] = w.group[2] = 0;
  w.items[0] = w.items[1] = w.items[2] = 1;
  for (ulong g = first; g < end;) {
    const ulong g0 = g % r->groups[0], rest = g / r->groups[0], g1 = rest % r->groups[1], g2 = rest / r->groups[1];
    ulong across = r->groups[0] - g0, rows = 1;
    if (across > end - g) across = end - g;
    else if (g0 == 0) {
      rows = (end - g) / r->groups[0];
      if (rows > r->groups[1] - g1) rows = r->groups[1] - g1;
    }
    g += across * rows;
    const ulong end0 = @least((g0 + across) * l[0], r->global_size[0]);
    const ulong end1 = @least((g1 + rows) * l[1], r->global_size[1]);
    const ulong end2 = @least((g2 + 1) * l[2], r->global_size[2]);
    for (ulong z = g2 * l[2]; z < end2; z += LZ)
      for (ulong y = g1 * l[1]; y < end1; y += LY)
        for (ulong x = g0 * l[0]; x < end0; x += LX) {
          const int n0 = @least(LX, end0 - x), n1 = @least(LY, end1 - y), n2 = @least(LZ, end2 - z);
          w.base[0] = r->offset[0] + x; w.base[1] = r->offset[1] + y; w.base[2] = r->offset[2] + z;
          PART
        }
  }
BEHIND}
"""
)
_X, _Y = "for (ulong x = x0; x < end0; x += LX)", "for (ulong y = y0; y < end1; y += LY)"
_BLOCK_ORDERS = (
    {"ACROSS": _X, "DOWN": _Y, "nV": "n0", "nD": "n1", "LD": "LY", "SLIM": "NX, LY", "REST": "n0 - done, n1"},
    {"ACROSS": _Y, "DOWN": _X, "nV": "n1", "nD": "n0", "LD": "LX", "SLIM": "LX, NX", "REST": "n0, n1 - done"},
)
"""By the dimension along which vectors run. Tiles of a block are run down them first: what tiles that are neighbours in
the other dimension read alike stays in the cache."""
_BLOCKS = (
    _LEAST
    + """
const uint manycl_tile[5] = {LX, LY, sizeof(struct @tile), V, NX};
"""
    + _HEAD
    + """  const ulong *l = r->local_size;
  w.group[0] = w.group[1] = w.group[2] = 0;
  w.items[0] = w.items[1] = w.items[2] = 1;
  for (ulong g = first; g < end; g++) {
    const ulong g0 = g % r->groups[0], rest = g / r->groups[0], g1 = rest % r->groups[1], g2 = rest / r->groups[1];
    const ulong x0 = g0 * l[0], y0 = g1 * l[1], end0 = @least(x0 + l[0], r->global_size[0]);
    const ulong end1 = @least(y0 + l[1], r->global_size[1]), end2 = @least((g2 + 1) * l[2], r->global_size[2]);
    for (ulong z = g2 * l[2]; z < end2; z++)
      for (ulong turn = 0, left = 1; left; turn++) {
        struct @tile *tile = (struct @tile *)(frame + OWN);
        left = 0;
        ACROSS
          DOWN {
            const int n0 = @least(LX, end0 - x), n1 = @least(LY, end1 - y), full = n0 == LX && n1 == LY;
            w.base[0] = r->offset[0] + x; w.base[1] = r->offset[1] + y; w.base[2] = r->offset[2] + z;
            if (full) {
              if (!turn) tile->at = 0;
              if (!turn || tile->at) left += @full(VALUES w, LX, LY, 1, tile);
              tile++;
            } else if (!turn) {
              int done = 0;
              for (; nD == LD && nV - done >= NX; done += NX, w.base[V] += NX) @slim(VALUES w, SLIM, 1);
              if (done < nV) @part(VALUES w, REST, 1);
            }
          }
      }
  }
BEHIND}
"""
)
