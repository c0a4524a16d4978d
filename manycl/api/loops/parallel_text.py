"""OpenCL C for ``parallel_for``: the body of a loop becomes a kernel, or one of a reduction. Pure: text to text.

The last index of an iteration space is dimension 0 of the NDRange, so that neighbours in memory are neighbours in a
work-group. Sizes are rounded up to work-groups; points beyond the space do nothing. A reduction runs its body for
blocks of points, of GROUP work-items with EACH points of the last index, whose results are reduced in local memory;
blocks do not depend on how the work is divided, so results are the same bits on devices of one kind.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import NamedTuple

from manycl.errors import LaunchError
from manycl.group_range import GROUP

EACH = 16
"""Points of the last index that each work-item of such a group runs; our own choice."""
HIDDEN = "mcpf_"
"""The beginning of all generated names."""
PATH = "<parallel_for>"
OPERATORS = ("+", "*", "min", "max", "&", "|", "^")

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_NO_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_NOT_BLANK = re.compile(r"[^\n]")
_GROUPS = re.compile(
    r"\b(?:barrier|work_group_\w+|get_(?:local|global|group)_\w+|get_(?:num_groups|work_dim|enqueued_local_size)"
    r"|(?:mem|read_mem|write_mem)_fence|async_work_group_\w+)\s*\("
)
_LOCAL = re.compile(r"\b(?:__)?local\b")
_ALIKE = dict.fromkeys(("min", "max"), ("a", "b")) | {"clamp": ("a", "b", "c")}
"""Functions of operands of one type and their operands. Indices are long: macros convert operands as ``+`` does."""
_BATCH = re.compile(r"\bget_(?:iteration|batch_(?:iteration|size))\s*\(")
"""The paper's functions: the point along the first index, its batch, and the points of a batch."""
_LEAVES = re.compile(r"\b(?:break|continue)\b")
_LARGEST = {"char": 2**7, "short": 2**15, "int": 2**31, "long": 2**63}


class Reduced(NamedTuple):
    """A variable into which all points are reduced by an operator; ``element``: its type in C."""

    name: str
    operator: str
    element: str


class BodyForm(NamedTuple):
    """Everything that the text of a kernel depends on. ``arrays`` and ``scalars``: names and types in C; ``constants``:
    names and their text; ``is_plain``: each index begins at 0 and goes on by 1; ``batch``: points of a batch where the
    body asks for them; ``grouped``: it is told of its work-groups, all of whose points are in the space; ``structs``:
    the types of structures."""

    name: str
    body: str
    functions: str
    indices: tuple[str, ...]
    arrays: tuple[tuple[str, str], ...]
    scalars: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...]
    reduced: tuple[Reduced, ...]
    is_plain: bool
    batch: int = 0
    grouped: bool = False
    structs: tuple[str, ...] = ()


def source(form: BodyForm) -> str:
    """Return the text of the kernel. Its arguments: arrays, scalars, for each index its count (and, where not plain,
    its start and step), and for each reduced variable an array with a result for each block. Raises LaunchError for
    text that cannot be the body of a loop whose points are independent."""
    check_body(form)
    declared = [f"global {element} *{name}" for name, element in form.arrays]
    declared += [f"{element} {name}" for name, element in form.scalars]
    for name in form.indices:
        words = ("n",) if form.is_plain else ("n", "start", "step")
        declared += [f"long {HIDDEN}{word}_{name}" for word in words]
    declared += [f"global {r.element} *{HIDDEN}out_{r.name}" for r in form.reduced]
    types = " ".join([*declared, *form.structs, *(r.element for r in form.reduced), form.functions, form.body])
    head = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] * bool(re.search(r"\bdouble\d*\b", types))
    head += [*form.structs, *(f"#define {name} {text}" for name, text in form.constants)]
    if form.batch:
        head += [f"#define get_iteration() {form.indices[0]}", f"#define get_batch_size() {form.batch}L"]
        head += [f"#define get_batch_iteration() ({HIDDEN}at_{form.indices[0]} / {form.batch}L)"]
    own = {name for name, _ in form.constants}
    names = [n for n in _ALIKE if n not in own and re.search(rf"\b{n}\s*\(", form.functions + form.body)]
    for name in names:
        of = _ALIKE[name]
        common = f"__typeof__({' + '.join(f'({a})' for a in of)})"
        head.append(f"#define {HIDDEN}{name}({', '.join(of)}) {name}({', '.join(f'({common})({a})' for a in of)})")
    alike = re.compile(rf"\b({'|'.join(names) or '$.'})(?=\s*\()")
    functions = _lines("<functions>", alike.sub(rf"{HIDDEN}\1", form.functions)) if form.functions else []
    opened, closed = _around_reduction(form) if form.reduced else _around(form)
    begin = [f"kernel void {form.name}({', '.join(declared)}) {{", *opened]
    body = _lines("<body>", alike.sub(rf"{HIDDEN}\1", form.body))
    if form.grouped:  # local memory is declared in the outermost block
        return "\n".join([*head, *functions, *begin, *body, "}", ""])
    leaves = bool(_LEAVES.search(without_comments(form.body)))
    begin.append("    do {" if leaves else "    {")
    end = ["    } while (0);" if leaves else "    }", *closed, "}", ""]
    return "\n".join([*head, *functions, *begin, *body, *end])


def _lines(name: str, text: str) -> list[str]:
    """Return a user's text so that compilers count its lines as the user does. (A backslash may end it.)"""
    return [f'#line 1 "{name}"', text, "", f'#line 1 "{PATH}"']


def _around(form: BodyForm) -> tuple[list[str], list[str]]:
    """Return the text before and behind the body of a loop."""
    ids = [f"  long {HIDDEN}at_{name} = get_global_id({_dimension(form, name)});" for name in form.indices]
    if form.grouped:
        return [*ids, *_indices(form)], []
    inside = " && ".join(f"{HIDDEN}at_{name} < {HIDDEN}n_{name}" for name in form.indices)
    return [*ids, f"  if ({inside}) {{", *_indices(form)], ["  }"]


def _around_reduction(form: BodyForm) -> tuple[list[str], list[str]]:
    """Return the text before and behind the body of a reduction."""
    last, others = form.indices[-1], form.indices[:-1]
    local = [f"  local {r.element} {HIDDEN}part_{r.name}[{GROUP}];" for r in form.reduced]
    own = [f"  {r.element} {r.name} = {identity(r.operator, r.element)};" for r in form.reduced]
    ids = [f"  long {HIDDEN}at_{name} = get_global_id({_dimension(form, name)});" for name in others]
    begin = [
        *local,
        f"  int {HIDDEN}me = get_local_id(0);",
        *ids,
        *own,
        f"  for (int {HIDDEN}round = 0; {HIDDEN}round < {EACH}; {HIDDEN}round++) {{",
        f"    long {HIDDEN}at_{last} = (long)get_group_id(0) * {GROUP * EACH} + {HIDDEN}round * {GROUP} + {HIDDEN}me;",
        f"    if ({HIDDEN}at_{last} < {HIDDEN}n_{last}) {{",
        *_indices(form),
    ]
    place = f"({_row(others)}) * get_num_groups(0) + get_group_id(0)" if others else "get_group_id(0)"
    end = ["    }", "  }", *_tree(form.reduced, place)]
    return begin, end


def _row(others: tuple[str, ...]) -> str:
    """Return the number of a row of the space: of all its indices but the last one."""
    text = f"{HIDDEN}at_{others[0]}"
    for name in others[1:]:
        text = f"({text}) * {HIDDEN}n_{name} + {HIDDEN}at_{name}"
    return text


def _tree(reduced: tuple[Reduced, ...], place: str, first: str = "") -> list[str]:
    """Return the text that reduces the results of a group's work-items, with ``first`` if given, and stores it."""
    me, apart = f"{HIDDEN}me", f"{HIDDEN}apart"
    parts = [(r, f"{HIDDEN}part_{r.name}") for r in reduced]
    total = [(r, both(r, first, f"{part}[0]") if first else f"{part}[0]") for r, part in parts]
    return [
        *(f"  {part}[{me}] = {r.name};" for r, part in parts),
        "  barrier(CLK_LOCAL_MEM_FENCE);",
        f"  for (int {apart} = {GROUP // 2}; {apart} > 0; {apart} /= 2) {{",
        f"    if ({me} < {apart}) {{",
        *(f"      {part}[{me}] = {both(r, f'{part}[{me}]', f'{part}[{me} + {apart}]')};" for r, part in parts),
        "    }",
        "    barrier(CLK_LOCAL_MEM_FENCE);",
        "  }",
        f"  if ({me} == 0) {{",
        *(f"    {HIDDEN}out_{r.name}[{place}] = {value};" for r, value in total),
        "  }",
    ]


def fold_source(operator: str, element: str) -> str:
    """Return the kernel ``fold(out, part, n, first)``: blocks of GROUP * EACH of the n elements of ``part`` become one
    element of ``out`` each, combined with ``first``."""
    r = Reduced("x", operator, element)
    lines = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] * (element == "double")
    lines += [
        f"kernel void fold(global {element} *{HIDDEN}out_x, global const {element} *part, long n, {element} first) {{",
        f"  local {element} {HIDDEN}part_x[{GROUP}];",
        f"  int {HIDDEN}me = get_local_id(0);",
        f"  {element} x = {identity(operator, element)};",
        f"  for (int k = 0; k < {EACH}; k++) {{",
        f"    long i = (long)get_group_id(0) * {GROUP * EACH} + k * {GROUP} + {HIDDEN}me;",
        f"    if (i < n) x = {both(r, 'x', 'part[i]')};",
        "  }",
        *_tree((r,), "get_group_id(0)", "first"),
        "}",
        "",
    ]
    return "\n".join(lines)


def _dimension(form: BodyForm, name: str) -> int:
    return len(form.indices) - 1 - form.indices.index(name)


def _indices(form: BodyForm) -> list[str]:
    if form.is_plain:
        return [f"    const long {name} = {HIDDEN}at_{name};" for name in form.indices]
    return [
        f"    const long {name} = {HIDDEN}start_{name} + {HIDDEN}at_{name} * {HIDDEN}step_{name};"
        for name in form.indices
    ]


def identity(operator: str, element: str) -> str:
    """Return the identity of an operator: an expression of C."""
    if operator in ("min", "max"):
        sign = "-" if operator == "max" else ""
        if element in ("float", "double"):
            return f"{sign}INFINITY"
        unsigned = element.startswith("u")
        least = "0" if unsigned else f"(-{_LARGEST[element] - 1}{'L' * (element == 'long')} - 1)"
        largest = _LARGEST[element[1:]] * 2 - 1 if unsigned else _LARGEST[element] - 1
        suffix = {"long": "L", "uint": "U", "ulong": "UL"}.get(element, "")
        return least if operator == "max" else f"{largest}{suffix}"
    return {"*": "1", "&": f"({element})(~({element})0)"}.get(operator, "0")


def both(r: Reduced, a: str, b: str) -> str:
    """Return the combination of two results: an expression of C. Least and greatest are NaN where one is."""
    if r.operator in ("min", "max"):
        sign = "<" if r.operator == "min" else ">"
        nan = f" || {a} != {a}" if r.element in ("float", "double") else ""
        return f"({a} {sign} {b}{nan} ? {a} : {b})"
    if r.element in ("float", "double") or r.operator in "&|^":
        return f"({r.element})({a} {r.operator} {b})"
    wide = "ulong" if r.element in ("long", "ulong") else "uint"
    return f"({r.element})(({wide}){a} {r.operator} ({wide}){b})"


def without_comments(text: str) -> str:
    """Return the text with blanks for comments, strings and characters."""
    return _NO_CODE.sub(lambda found: _NOT_BLANK.sub(" ", found.group()), text)


def check_body(form: BodyForm) -> None:
    """Raise LaunchError for text that makes points depend on one another, or that is no body."""
    names = [*form.indices, *(n for n, _ in (*form.arrays, *form.scalars, *form.constants))]
    names += [r.name for r in form.reduced]
    for name in names:
        if not _IDENTIFIER.fullmatch(name) or name.startswith(HIDDEN):
            raise LaunchError(f"{name!r} is no name that the body of a parallel_for can have")
    if twice := {n for n in names if names.count(n) > 1}:
        raise LaunchError(
            f"parallel_for: {', '.join(sorted(twice))} stands for two things",
            hint=f"the indices are {', '.join(form.indices)}; indices=(…) gives them other names",
        )
    for what, text in (("body", form.body), ("functions", form.functions)):
        code = without_comments(text)
        found = _GROUPS.search(code) or _LOCAL.search(code)
        if found is not None and (form.reduced or not form.grouped):
            raise LaunchError(
                f"<{what}>:{_line(code, found.start())}: {found.group().rstrip('( ')} belongs to work-groups; the"
                f" points of a {'reduction' if form.reduced else 'parallel_for'} are independent of one another",
                hint="" if form.reduced else "local=(…) says how many points a work-group has; then it may be used",
            )
        _check_braces(what, code)
    for r in form.reduced:
        check_reduced(r, form.body)


def asks_for_batches(body: str) -> bool:
    """Return True if a body calls the paper's functions of batches."""
    return bool(_BATCH.search(without_comments(body)))


def asks_for_groups(text: str) -> bool:
    """Return True if a text has barriers, local memory, or ids of work-groups."""
    code = without_comments(text)
    return bool(_GROUPS.search(code) or _LOCAL.search(code))


def may_meet(form: BodyForm, written: Set[str]) -> bool:
    """Return True if points seem to write elements that others use, from the subscripts alone: those that have no
    variable of the body's, of which an index is missing, or that differ."""
    known = {*form.indices, *_ALIKE, *(name for name, _ in (*form.scalars, *form.constants))}
    code = re.sub(r"\s", "", without_comments(form.body))
    for name in written:
        found = {t for t in re.findall(rf"\b{name}\[([^][]*)\]", code) if known.issuperset(_IDENTIFIER.findall(t))}
        if len(found) > 1 or any(
            re.search("[%/]", t) or not set(form.indices).issubset(_IDENTIFIER.findall(t)) for t in found
        ):
            return True
    return False


def _check_braces(what: str, code: str) -> None:
    depth = 0
    for at, character in enumerate(code):
        depth += (character == "{") - (character == "}")
        if depth < 0:
            raise LaunchError(f"<{what}>:{_line(code, at)}: there is a }} without its {{")
    if depth:
        raise LaunchError(f"<{what}>: there is a {{ without its }}")


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def check_reduced(r: Reduced, body: str) -> None:
    """Raise LaunchError unless the body does nothing with a reduced variable but put something into it by its operator:
    ``s += e``, ``s = s + e``, ``s = max(s, e)``."""
    code = without_comments(body)
    if found := re.search(r"\breturn\b", code):
        raise LaunchError(
            f"<body>:{_line(code, found.start())}: return would leave all points of a reduction",
            hint="continue goes on with the next point",
        )
    found_any = False
    for at in re.finditer(rf"(?<![\w.])(?<!->){re.escape(r.name)}\b", code):
        begin = max(code.rfind(c, 0, at.start()) for c in ";{})") + 1
        end = code.find(";", at.end())
        statement = code[begin : end if end >= 0 else len(code)].strip()
        statement = re.sub(r"^(?:else|do)\b\s*", "", statement)
        operator = operator_of(r.name, statement)
        if operator is None:
            raise LaunchError(
                f"<body>:{_line(code, at.start())}: {r.name} is reduced: a point may put something into it, and not"
                f" use it otherwise ({statement[:60]})",
                hint=f"{_example(r)} does it",
            )
        if operator != r.operator:
            raise LaunchError(
                f"<body>:{_line(code, at.start())}: {r.name} is reduced by {r.operator}, here it is by {operator}"
            )
        found_any = True
    if not found_any:
        raise LaunchError(f"parallel_for: the body puts nothing into {r.name}", hint=f"{_example(r)} does it")


def operator_of(name: str, statement: str) -> str | None:
    """Return the operator by which a statement combines a variable with a value that does not depend on it, or None."""
    n = re.escape(name)
    if re.fullmatch(rf"{n}\s*\+\+|\+\+\s*{n}", statement):
        return "+"
    if found := re.fullmatch(rf"{n}\s*([-+*&|^])=(?!=)(.*)", statement, re.DOTALL):
        operator, value = found.groups()
        return None if _uses(name, value) else "+" if operator == "-" else operator
    if found := re.fullmatch(rf"{n}\s*=\s*{n}\s*([+*&|^])(?![&|=])(.*)", statement, re.DOTALL):
        operator, value = found.groups()
        # an operator that binds less would include the variable: s = s * a + b
        loose = _top_level(value) & _LOOSER[operator]
        return None if _uses(name, value) or loose else operator
    if found := re.fullmatch(rf"{n}\s*=\s*f?(min|max)\s*\(\s*{n}\s*,(.*)\)", statement, re.DOTALL):
        operator, value = found.groups()
        balanced = _closes_at_end(value)
        return None if _uses(name, value) or not balanced else operator
    return None


_LOOSER = {"+": frozenset("<>=&|^?"), "*": frozenset("+-/%<>=&|^?"), "&": frozenset("<>=&|^?")}
_LOOSER |= dict.fromkeys("|^", _LOOSER["&"])


def _top_level(text: str) -> set[str]:
    """Return the characters of an expression that stand in no brackets."""
    depth, found = 0, set()
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            found.add(character)
    return found


def _closes_at_end(text: str) -> bool:
    """Return True if no bracket closes in a text that did not open there."""
    depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return False
    return depth == 0


def _uses(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w.])(?<!->){re.escape(name)}\b", text) is not None


def _example(r: Reduced) -> str:
    return f"{r.name} = {r.operator}({r.name}, e)" if r.operator in ("min", "max") else f"{r.name} {r.operator}= e"
