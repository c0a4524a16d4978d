"""Sub-kernels: OpenCL C text that runs any contiguous range of the work-groups of a launch as part of the whole.

MKMD (section 2.2, figure 2b) lets every work-group start and the unwanted ones return at once. Here only the wanted
groups are launched, with a global offset: ``get_global_id`` and everything local is then right by itself. What the
device would report of the smaller launch instead of the whole one (group ids, numbers of groups, global sizes,
offsets and linear ids) is passed in hidden parameters, through every function that asks for it. The edits work on
byte extents of the expanded source, so a program that asks for none of these stays as it is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from manycl.analysis.reading.builtins import effects
from manycl.analysis.reading.directions import ASSEMBLY
from manycl.analysis.reading.options import remaining_options
from manycl.analysis.reading.tree import Function, Node, Unit, callee

#: hidden parameters in their order, each an ulong4 whose components are dimensions 0 to 2 (the last is unused)
QUANTITIES = ("first_group", "num_groups", "global_size", "global_offset")
_NEUTRAL = {"first_group": 0, "num_groups": 1, "global_size": 1, "global_offset": 0}

_QUERIES: dict[str, tuple[str, ...]] = {
    "get_group_id": ("first_group",),
    "get_num_groups": ("num_groups",),
    "get_global_size": ("global_size",),
    "get_global_offset": ("global_offset",),
    "get_global_linear_id": ("global_size", "global_offset"),
}
_PICK = "ulong @pick(uint d, ulong4 v) { return d == 0 ? v.s0 : d == 1 ? v.s1 : v.s2; }"
# beyond three dimensions devices answer differently (1 in the standard, 0 in some): theirs is kept
_HELPERS = {
    "get_group_id": (
        "size_t @get_group_id(uint d, ulong4 v) { return get_group_id(d) + (d < 3 ? (size_t)@pick(d, v) : 0); }"
    ),
    **{
        name: f"size_t @{name}(uint d, ulong4 v) {{ return d < 3 ? (size_t)@pick(d, v) : {name}(d); }}"
        for name in ("get_num_groups", "get_global_size", "get_global_offset")
    },
    "get_global_linear_id": (
        "size_t @get_global_linear_id(ulong4 s, ulong4 o) { return (size_t)(((get_global_id(2) - o.s2) * s.s1"
        " + (get_global_id(1) - o.s1)) * s.s0 + (get_global_id(0) - o.s0)); }"
    ),
}


@dataclass(frozen=True, slots=True)
class SubKernel:
    """A kernel that runs ranges of work-groups of ``kernel``. Build ``source`` with ``options``, set the kernel's own
    arguments, then one argument per name in ``hidden`` behind them, with the values that :meth:`arguments` gives, then
    one ``ulong`` for each argument in ``windows``: the byte that its buffer begins with. ``source`` and ``options`` are
    the program's own where nothing had to be edited (``edited`` is false). ``reason`` says why ranges cannot be run
    (``source`` is then empty). ``hidden`` names quantities of :data:`QUANTITIES`."""

    kernel: str
    source: str
    options: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    edited: bool = False
    reason: str = ""
    windows: tuple[int, ...] = ()

    def arguments(
        self,
        global_size: Sequence[int],
        local_size: Sequence[int],
        global_offset: Sequence[int],
        first_group: Sequence[int],
        groups: Sequence[int],
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bytes, ...]]:
        """The launch of ``groups`` work-groups from ``first_group`` on, per dimension: its global size, its global
        offset and the bytes of each hidden argument. Its local size is that of the whole launch. A last group that the
        local size does not fill belongs to the range that ends with it. Raises ValueError for sizes of different
        lengths and ranges that are empty or outside of the launch."""
        counts = {len(global_size), len(local_size), len(global_offset), len(first_group), len(groups)}
        if len(counts) != 1 or not counts <= {1, 2, 3}:
            raise ValueError("the sizes of a launch have one to three dimensions, all the same number")
        if min(local_size) < 1 or min(global_size) < 1 or min(global_offset) < 0:
            raise ValueError("sizes must be positive, offsets not negative")
        all_groups, sizes, offsets = list[int](), list[int](), list[int]()
        given = zip(global_size, local_size, global_offset, first_group, groups, strict=True)
        for whole, local, offset, first, count in given:  # a plain loop: this is asked of every range
            number = -(-whole // local)
            if first < 0 or count < 1 or first + count > number:
                raise ValueError(f"groups {first} to {first + count - 1} are no range of {number} groups")
            all_groups.append(number)
            sizes.append(min(count * local, whole - first * local))
            offsets.append(offset + first * local)
        values = {
            "first_group": first_group,
            "num_groups": all_groups,
            "global_size": global_size,
            "global_offset": global_offset,
        }
        hidden = tuple([_pack(values[name], _NEUTRAL[name]) for name in self.hidden])
        return tuple(sizes), tuple(offsets), hidden


def _pack(values: Sequence[int], neutral: int) -> bytes:
    return struct.pack("=4Q", *[*values, neutral, neutral, neutral][:3], neutral)


def sub_kernel(unit: Unit, kernel: str, source: str, options: Sequence[str], how: str = "sub_kernel") -> SubKernel:
    """A kernel of ``unit``, which was read from ``source`` with build ``options``, to be run in another way, or why
    that cannot be. Never raises for a program that was read; KeyError for a kernel that it does not have. ``how``:

    ``sub_kernel``: for ranges of its work-groups. ``windowed_kernel``: the same, all of whose arguments that may be
    windows are (below). ``shifted_kernel``: to be run as a whole, with such arguments
    moved back before anything else by what is given for them. ``guarded_kernel``: to be run as a whole, does nothing
    where the integer to which its last argument, which is hidden, points is 0."""
    given, root, moved = tuple(options), unit.kernel(kernel), tuple[int, ...]()
    plan = _Plan(unit, how in ("sub_kernel", "windowed_kernel"))
    hidden, reason = tuple(n for n in QUANTITIES if n in plan.needs[root.ref]), plan.problems.get(root.ref, "")
    if how == "sub_kernel" and not (hidden or reason):
        return SubKernel(kernel, source, given)
    if how == "guarded_kernel":
        reason = why_fixed(unit, root) or plan.closed(root)
    elif how != "sub_kernel" and not reason:
        moved, reason = movable(unit, root)
        reason = reason or plan.closed(root)
        reason = reason or ("" if moved else "it has no pointer to global memory that can be moved")
    if reason:
        return SubKernel(kernel, "", given, reason=reason)
    text = plan.text(root, moved, how == "guarded_kernel")
    return SubKernel(kernel, text, remaining_options(given, unit.version), hidden, True, windows=moved)


@dataclass(slots=True)
class _Use:
    """A reference to a query or to a function of the program: ``call`` is None when it is not called there."""

    function: int  # of whom; 0 for a variable of program scope
    callee: Node
    call: Node | None
    in_block: bool


@dataclass(slots=True)
class _Plan:
    """The edits of a program: the quantities that each function needs, and the functions that cannot get them, with
    the reason. Of kernels that run as a whole, not in ``parts``, nothing is asked for that has to be replaced."""

    unit: Unit
    parts: bool
    needs: dict[int, set[str]] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    uses: list[_Use] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.needs = {ref: set() for ref in self.unit.functions}
        if not self.parts:
            return
        for function in self.unit.functions.values():
            self.uses.extend(_uses(function.body, function.ref))
        for variable in self.unit.variables.values():
            self.uses.extend(_uses(variable, 0))
        self._spread_needs()
        self._find_problems()

    def closed(self, root: Function) -> str:
        """Why a function's parameters cannot be extended; empty: they can."""
        if all(parameters_of(self.unit, root, *place) is not None for place in signatures(self.unit, root)):
            return ""
        return f"the parameters of {root.name} in {self.unit.where(root.start)} cannot be extended"

    def is_query(self, node: Node) -> bool:
        return node.name in _QUERIES and node.type.kind == "function" and node.ref not in self.unit.declared

    def needed_by(self, use: _Use) -> set[str]:
        if self.is_query(use.callee):
            return set(_QUERIES[use.callee.name])
        return self.needs.get(use.callee.ref, set())

    def _spread_needs(self) -> None:
        growing = True
        while growing:
            growing = False
            for use in self.uses:
                missing = self.needed_by(use) - self.needs.get(use.function, set()) if use.function else set()
                if missing:
                    self.needs[use.function] |= missing
                    growing = True

    def _find_problems(self) -> None:
        outside = ""
        for ref, function in self.unit.functions.items():
            if ASSEMBLY.search(without_strings(self.unit.text[function.start : function.end])):
                reason = f"{function.name} in {self.unit.where(function.start)} has inline assembly"
                self.problems[ref] = f"{reason}, which may ask for the ids of groups"
        for use in self.uses:
            reason = self._problem_of_use(use)
            if reason and use.function:
                self.problems.setdefault(use.function, reason)
            elif reason:
                outside = reason
        for ref, function in self.unit.functions.items():
            if not self.needs[ref]:
                continue
            for start, end in signatures(self.unit, function):
                if outside:
                    self.problems.setdefault(ref, outside)
                elif parameters_of(self.unit, function, start, end) is None:
                    reason = f"the parameters of {function.name} in {self.unit.where(start)} cannot be extended"
                    self.problems.setdefault(ref, reason)
        growing = True
        while growing:
            growing = False
            for use in self.uses:
                reason = self.problems.get(use.callee.ref, "")
                if use.function and reason and use.function not in self.problems:
                    self.problems[use.function] = reason
                    growing = True

    def _problem_of_use(self, use: _Use) -> str:
        name, here = use.callee.name, self.unit.where(use.callee.start)
        declared_only = use.callee.ref in self.unit.declared and use.callee.ref not in self.unit.functions
        if name in _QUERIES and declared_only:
            return f"{here} uses a declaration of {name} of the program's own"
        if declared_only and effects(name, 0) is None:
            return f"{here} calls {name}, whose body is not here: it may ask for the ids of groups"
        if not self.needed_by(use):
            return ""
        if use.in_block:
            return f"{here} asks for {name} in a block"
        if use.call is None:
            return f"{here} takes {name} as a value"
        if not use.function:
            return f"{here} calls {name} outside of functions"
        if self.unit.words(use.callee) != name or self.unit.text[use.call.end - 1 : use.call.end] != b")":
            return f"the call of {name} in {here} is hidden by a macro"
        return ""

    def text(self, root: Function, moved: Sequence[int], is_guarded: bool) -> str:
        """The program with all edits made, the definitions of the queries' replacements in front. The arguments
        ``moved`` of kernel ``root`` are windows; it ``is_guarded``: it does nothing unless a hidden integer is set."""
        prefix = unused_prefix(self.unit.text)
        edits: list[tuple[int, int, str]] = []
        queries: set[str] = set()
        for function in self.unit.functions.values():
            needs = [f"ulong4 {name}" for name in self._names(self.needs[function.ref], prefix)]
            if function is root:
                lows = {i: f"{prefix}low{i}" for i in moved}
                needs += [f"ulong {low}" for low in lows.values()]
                first = "".join(shift(root.parameters[i], low) for i, low in lows.items())
                if is_guarded:
                    needs.append(f"global const int *{prefix}runs")
                    first = f" if (!*{prefix}runs) return;"
                edits.append((root.body.start + 1, root.body.start + 1, first))
            if function.ref in self.problems:  # of other kernels: not called here
                blank = re.sub(rb"[^\n]", b"", self.unit.text[function.body.start : function.body.end])
                empty = "{}" if function.is_kernel else ";"
                edits.append((function.body.start, function.body.end, empty + blank.decode()))
            elif needs:
                declared = ", ".join(needs)
                for start, end in signatures(self.unit, function):
                    place = parameters_of(self.unit, function, start, end)
                    assert place is not None
                    edits.append(appended(self.unit, *place, declared))
        for use in self.uses:
            needs = self._names(self.needed_by(use), prefix)
            if not needs or use.function in self.problems or use.call is None:
                continue
            if self.is_query(use.callee):
                queries.add(use.callee.name)
                edits.append((use.callee.start, use.callee.end, prefix + use.callee.name))
            edits.append(appended(self.unit, use.callee.end, use.call.end - 1, ", ".join(needs)))
        blanked = [(start, end) for start, end, words in edits if words.startswith((";", "{"))]
        edits = [e for e in edits if not any(s <= e[0] < t and e[:2] != (s, t) for s, t in blanked)]
        return _prelude(queries, prefix) + apply_edits(self.unit.text, edits).decode("utf-8", "replace")

    @staticmethod
    def _names(quantities: set[str], prefix: str) -> list[str]:
        return [prefix + name for name in QUANTITIES if name in quantities]


def signatures(unit: Unit, function: Function) -> Iterator[tuple[int, int]]:
    """Start and end of each text that declares a function: its definition up to the body, and all prototypes."""
    yield function.start, function.body.start
    inner = (node for each in unit.functions.values() for node in each.nodes if node.kind == "FUNCTION_DECL")
    for node in (*unit.prototypes, *inner):
        if node.ref == function.ref:
            yield node.start, node.end


def parameters_of(unit: Unit, function: Function, start: int, end: int) -> tuple[int, int] | None:
    """Offsets of the parentheses around a function's parameters, or None where they are not to be found."""
    text = without_strings(unit.text[start:end])
    found = []
    for match in re.finditer(rb"(?<![\w$])" + re.escape(function.name.encode()) + rb"(?![\w$])[\s)]*\(", text):
        opening = match.end() - 1
        end_of_list = closing(text, opening)
        if end_of_list is not None and _count(text[opening + 1 : end_of_list]) == len(function.parameters):
            found.append((start + opening, start + end_of_list))
    return found[0] if len(found) == 1 else None


def appended(unit: Unit, opening: int, end: int, words: str) -> tuple[int, int, str]:
    """The edit that appends to a list in parentheses; ``opening`` may lie before the parenthesis."""
    inner = unit.text[opening:end].strip()
    inner = inner.removeprefix(b"(").strip()
    if inner == b"void":
        start = unit.text.index(b"void", opening)
        return start, start + 4, words
    return end, end, f", {words}" if inner else words


def _uses(root: Node, function: int) -> Iterator[_Use]:
    """Every reference to a function below a node."""
    pending: list[tuple[Node, bool]] = [(root, False)]
    called: set[int] = set()
    while pending:
        node, in_block = pending.pop()
        in_block = in_block or node.kind == "BLOCK_EXPR"
        if (name := callee(node)).name:
            called.add(id(name))
            yield _Use(function, name, node, in_block)
        if node.kind == "DECL_REF_EXPR" and node.type.kind == "function" and id(node) not in called:
            yield _Use(function, node, None, in_block)
        pending.extend((child, in_block) for child in node.children)


def without_strings(text: bytes) -> bytes:
    """The text with the contents of string and character constants blanked, of the same length."""
    return re.sub(rb'"(\\.|[^"\\])*"|' + rb"'(\\.|[^'\\])*'", lambda m: b" " * len(m.group()), text, flags=re.DOTALL)


def closing(text: bytes, opening: int) -> int | None:
    depth = 0
    for position in range(opening, len(text)):
        depth += {b"(": 1, b")": -1}.get(text[position : position + 1], 0)
        if depth == 0:
            return position
    return None


def _count(inner: bytes) -> int:
    """Return how many parameters a list declares; -1 for a list that also takes others."""
    if inner.strip() in (b"", b"void"):
        return 0
    if b"..." in inner:
        return -1
    depth, commas = 0, 0
    for position in range(len(inner)):
        depth += {b"(": 1, b"[": 1, b"{": 1, b")": -1, b"]": -1, b"}": -1}.get(inner[position : position + 1], 0)
        commas += depth == 0 and inner[position : position + 1] == b","
    return commas + 1


def unused_prefix(text: bytes) -> str:
    """A prefix that no name of the program has."""
    prefix, number = "manycl_", 1
    while prefix.encode() in text:
        number += 1
        prefix = f"manycl{number}_"
    return prefix


def _prelude(queries: set[str], prefix: str) -> str:
    helpers = [_HELPERS[name] for name in _QUERIES if name in queries]
    if any("@pick" in helper for helper in helpers):
        helpers.insert(0, _PICK)
    return "\n".join(helpers).replace("@", prefix) + "\n#line 1\n"


def apply_edits(text: bytes, edits: Sequence[tuple[int, int, str]]) -> bytes:
    """Replace the extents, which must not overlap, by the words; edits at one place apply in the order given."""
    parts, position = [], 0
    for start, end, words in sorted(edits, key=lambda edit: edit[:2]):
        parts += [text[position:start], words.encode()]
        position = end
    return b"".join((*parts, text[position:]))


_STATEMENTS = ("COMPOUND_STMT", "DECL_STMT", "LABEL_STMT", "CASE_STMT", "DEFAULT_STMT", "SWITCH_STMT")
_FOLLOWS = ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR", "VAR_DECL")
_TESTS = ("IF_STMT", "WHILE_STMT", "DO_STMT", "FOR_STMT")


def why_fixed(unit: Unit, root: Function) -> str:
    """Why a kernel cannot be given a parameter and a first statement more; empty: it can."""
    for function in unit.functions.values():
        if any(n.kind == "DECL_REF_EXPR" and n.ref == root.ref for n in function.nodes):
            return f"{function.name} calls it"
    return "" if unit.text[root.body.start : root.body.start + 1] == b"{" else "its body does not begin with a brace"


def movable(unit: Unit, root: Function) -> tuple[tuple[int, ...], str]:
    """The arguments of a kernel (indices) that may be windows, and why none or not all of them may."""
    if reason := why_fixed(unit, root):
        return (), reason
    for function in unit.reachable(root):
        for node in function.nodes:
            if reason := _exposes(unit, function, node):
                path, line = unit.place(node.start)
                return (), f"{path}:{line} {reason}"
    found = [i for i, p in enumerate(root.parameters) if _is_global(p)]
    return tuple(found), ""


def _is_global(parameter: Node) -> bool:
    """A named pointer variable to global memory that may be assigned to."""
    type_ = parameter.type
    target = type_.target
    return (
        type_.kind == "pointer"
        and not type_.const
        and target is not None
        and target.address_space == "global"
        and re.fullmatch(r"[A-Za-z_]\w*", parameter.name) is not None
    )


def _exposes(unit: Unit, function: Function, node: Node) -> str:
    """Return the words for how a node may let a program see a pointer's address; empty if it does not."""
    if node.kind == "BLOCK_EXPR":
        return "has a block"
    operands = node.children[1:] if node.kind == "CALL_EXPR" else node.children
    if all(child.type.kind != "pointer" for child in operands):
        return ""
    if node.kind == "CALL_EXPR":
        called = callee(node)
        if called.ref in unit.functions:
            return ""
        known = called.ref not in unit.declared and effects(called.name, len(node.children) - 1) is not None
        return "" if known and called.name != "printf" else f"hands an address to {called.name or 'a function'}"
    if node.kind in _STATEMENTS or node.kind in _FOLLOWS:
        return ""
    if node.kind == "RETURN_STMT":
        return "" if function.result.kind == "pointer" else "returns an address as a number"
    if node.kind == "UNARY_OPERATOR" and node.op in "*&":
        return "takes the address of a pointer" if node.op == "&" else ""
    if node.kind in _TESTS or node.type.kind != "pointer":
        return "compares an address, or turns it into a number"
    if node.kind == "CONDITIONAL_OPERATOR":
        return "compares an address" if node.children[0].type.kind == "pointer" else ""
    if node.kind == "BINARY_OPERATOR" and node.op == "=" and node.children[0].kind != "DECL_REF_EXPR":
        return "stores an address"
    return ""


def shift(parameter: Node, hidden: str) -> str:
    """The statement that moves a pointer back by what the hidden parameter says."""
    return f" {parameter.name} = (global void *)((size_t){parameter.name} - (size_t){hidden});"
