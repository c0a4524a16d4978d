"""libclang's side of the analysis: parse, gate on diagnostics, lower the syntax tree once to plain nodes. Only this
file and :mod:`manycl.analysis.reading.frontend` know libclang. It works in the bundled ``libclang`` of the
libclang-ng wheel, with the OpenCL header that comes with it. libclang dies of a stack overflow on deeply nested
sources, so all of this runs in a process of its own (:mod:`manycl.analysis.worker`)."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from clang import cindex

from manycl.analysis.reading.options import TOLERANT, BuildOptions
from manycl.analysis.reading.preprocess import Expanded, expand
from manycl.analysis.reading.tree import CType, Function, Node, Unit
from manycl.errors import RECURSION, Diagnostic, SourceError

_SPACES = {1: "global", 2: "local", 3: "constant", 4: "private", 5: "generic"}  # of target spir64
_SCALARS = {  # libclang's kind -> (own kind, OpenCL C's name)
    "BOOL": ("bool", "bool"),
    "VOID": ("void", "void"),
    "CHAR_S": ("int", "char"),
    "SCHAR": ("int", "char"),
    "CHAR_U": ("int", "char"),
    "UCHAR": ("int", "uchar"),
    "SHORT": ("int", "short"),
    "USHORT": ("int", "ushort"),
    "INT": ("int", "int"),
    "UINT": ("int", "uint"),
    "LONG": ("int", "long"),
    "LONGLONG": ("int", "long"),
    "ULONG": ("int", "ulong"),
    "ULONGLONG": ("int", "ulong"),
    "HALF": ("float", "half"),
    "FLOAT16": ("float", "half"),
    "FLOAT": ("float", "float"),
    "DOUBLE": ("float", "double"),
}
_ARRAYS = ("CONSTANTARRAY", "INCOMPLETEARRAY")
_SIZEABLE = {"POINTER", "BLOCKPOINTER", "EXTVECTOR", "VECTOR", "RECORD", "ENUM", "ATOMIC", *_ARRAYS}
NO_TYPE = CType("other", "")
_ATOMIC = re.compile(r"_Atomic\((.*)\)")


def pointer(target: CType, group: str = "pointer", size: int = 8, const: bool = False, space: str = "") -> CType:
    return CType(group, f"{target.name}*", "", 1, size, const, space, "", target, True)


@dataclass
class Types:
    """Own types of one translation unit, by libclang's identity of the canonical type."""

    known: dict[tuple[int, int | None], CType] = field(default_factory=dict)

    def of(self, type_: cindex.Type) -> CType:
        key = (type_._kind_id, type_.data[0])
        if key not in self.known:
            self.known[key] = self._make(type_)
        return self.known[key]

    def _make(self, type_: cindex.Type) -> CType:
        canonical = type_.get_canonical()
        kind = canonical.kind.name
        if kind == "INVALID":
            return NO_TYPE
        # to ask for the size of, say, <builtin fn type> is a segmentation fault
        if kind == "VOID" or not (kind in _SCALARS or kind in _SIZEABLE):
            return self._special(canonical, kind)
        space = _SPACES.get(cindex.conf.lib.clang_getAddressSpace(canonical), "")
        const = canonical.is_const_qualified()
        size = max(canonical.get_size(), 0)
        if kind in _SCALARS:
            group, name = _SCALARS[kind]
            base = "" if name == "void" else name
            return CType(group, name, base, size=size, const=const, address_space=space)
        if kind in ("POINTER", "BLOCKPOINTER"):
            group = "pointer" if kind == "POINTER" else "block"
            return pointer(self.of(canonical.get_pointee()), group, size, const, space)
        if kind in ("EXTVECTOR", "VECTOR"):
            lanes, element = canonical.element_count, self.of(canonical.element_type)
            return CType("vector", f"{element.name}{lanes}", element.base, lanes, size, const, space)
        if kind in _ARRAYS:
            element = self.of(canonical.element_type)
            element = replace(element, address_space=element.address_space or space, const=element.const or const)
            name = f"{element.name}[{canonical.element_count if kind == 'CONSTANTARRAY' else ''}]"
            space = space or element.address_space
            return CType("array", name, "", 1, size, const, space, "", element, element.holds_pointers)
        if kind == "RECORD":
            return self._record(canonical, size, const, space)
        if kind == "ENUM":
            base = self.of(canonical.get_declaration().enum_type).name
            return CType("int", _bare(canonical), base, size=size, const=const, address_space=space)
        inner = _ATOMIC.search(canonical.spelling)
        base = _packet(inner.group(1)) if inner else ""
        return CType("int", f"atomic_{base}", base, 1, size, const, space, holds_pointers=base.endswith("*"))

    def _record(self, canonical: cindex.Type, size: int, const: bool, space: str) -> CType:
        declaration = canonical.get_declaration()
        holds = any(self._holds(member.type) for member in canonical.get_fields())
        group = "union" if declaration.kind == cindex.CursorKind.UNION_DECL else "record"
        members: tuple[tuple[int, CType], ...] = ()
        if not holds:  # else it may contain a pointer to itself
            places = [(m.get_field_offsetof(), m) for m in canonical.get_fields() if not m.is_bitfield()]
            members = tuple((bits // 8, self.of(m.type)) for bits, m in places if bits >= 0)
        return CType(group, _bare(canonical), "", 1, size, const, space, holds_pointers=holds, members=members)

    def _holds(self, type_: cindex.Type) -> bool:
        """Return whether a member may hold an address; pointers, which may be to the type itself, are not followed."""
        canonical = type_.get_canonical()
        if canonical.kind.name in ("POINTER", "BLOCKPOINTER"):
            return True
        return self.of(canonical).holds_pointers

    def _special(self, canonical: cindex.Type, kind: str) -> CType:
        name = _bare(canonical)
        access = next((a for a in ("write_only", "read_write") if a in canonical.spelling), "read_only")
        if kind == "VOID":
            space = _SPACES.get(cindex.conf.lib.clang_getAddressSpace(canonical), "")
            return CType("void", "void", const=canonical.is_const_qualified(), address_space=space)
        if kind.startswith("OCLIMAGE"):
            return CType("image", name, access=access, holds_pointers=True)
        if kind == "PIPE":
            packet = _packet(re.sub(r".*\bpipe\s+", "", canonical.spelling))
            return CType("pipe", packet, access=access, holds_pointers=True)
        if kind == "OCLSAMPLER":
            return CType("sampler", "sampler_t")
        if kind in ("OCLEVENT", "OCLQUEUE", "OCLRESERVEID"):
            return CType("opaque", name, size=8)
        if kind in ("FUNCTIONPROTO", "FUNCTIONNOPROTO"):
            return CType("function", name)
        return CType("other", name, holds_pointers=True)


_PACKETS = {"unsigned char": "uchar", "unsigned short": "ushort", "unsigned int": "uint", "unsigned long": "ulong"}


def _packet(spelling: str) -> str:
    vector = re.fullmatch(r"(.*?)\s*__attribute__\(\(ext_vector_type\((\d+)\)\)\)", spelling)
    scalar, lanes = (vector.group(1), vector.group(2)) if vector else (spelling, "")
    return _PACKETS.get(scalar, scalar) + lanes


def _bare(type_: cindex.Type) -> str:
    """A type's name without qualifiers; an unnamed record is called by its typedef or just ``struct``."""
    words = re.sub(r"\b(const|volatile|restrict|__\w+)\b\s*", "", type_.spelling).strip()
    return re.sub(r"^(struct|union|enum) \((unnamed|anonymous).*", r"\1", words)


_UNARY = {1: "x++", 2: "x--", 3: "++x", 4: "--x", 5: "&", 6: "*", 7: "+", 8: "-", 9: "~", 10: "!"}


@functools.cache
def _library() -> Any:
    """libclang with the functions that its Python bindings leave out."""
    library = cindex.conf.lib
    for name, arguments, result in (
        ("clang_getCursorUnaryOperatorKind", [cindex.Cursor], ctypes.c_int),
        ("clang_Cursor_Evaluate", [cindex.Cursor], ctypes.c_void_p),
        ("clang_EvalResult_getKind", [ctypes.c_void_p], ctypes.c_int),
        ("clang_EvalResult_getAsLongLong", [ctypes.c_void_p], ctypes.c_longlong),
        ("clang_EvalResult_dispose", [ctypes.c_void_p], None),
        ("clang_getFileLocation", [cindex.SourceLocation, *[ctypes.c_void_p] * 4], None),
    ):
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = result
    return library


_MOST_ERRORS = 100
LONG_TABLE = 1 << 15
"""Bytes of the text of a table whose elements are not looked at: nothing is known of their values then."""


def _arguments(version: str) -> list[str]:
    include = os.path.join(cindex.Config.resource_dir or "", "include")
    limit = f"-ferror-limit={_MOST_ERRORS}"
    return ["-x", "cl", f"-cl-std={version}", "-target", "spir64", f"-I{include}", limit, *TOLERANT]


def _parse(text: str, version: str) -> cindex.TranslationUnit:
    try:
        return cindex.Index.create().parse(FILE, args=_arguments(version), unsaved_files=[(FILE, text)])
    except cindex.TranslationUnitLoadError as error:
        raise SourceError("the compiler gave up on this source", hint="is it deeply nested?") from error


def load(source: str, path: str, folder: str | None, options: BuildOptions, *, everything: bool = False) -> Unit:
    """Expand, parse and lower ``source``: of its functions the kernels and what they can reach, or ``everything``. The
    language version is the one asked for; without, OpenCL C 1.2, and when that does not parse 3.0 and 2.0. Raises
    :class:`SourceError` with the compiler's diagnostics (those of 1.2 when no version will do)."""
    if options.version:
        return _load(source, path, folder, options, options.version, everything)
    first: SourceError | None = None
    for version in ("CL1.2", "CL3.0", "CL2.0"):
        try:
            return _load(source, path, folder, options, version, everything)
        except SourceError as error:
            first = first or error
    assert first is not None
    raise first


def _load(source: str, path: str, folder: str | None, options: BuildOptions, version: str, everything: bool) -> Unit:
    expanded = expand(source, path, folder, options, version)
    unit = _parse(expanded.text, version)
    found = diagnostics(unit, expanded)
    if errors := tuple(d for d in found if d.is_error):
        # must come before any question about types: libclang may crash on those of a broken program
        raise SourceError(f"{path}: the source does not compile as OpenCL C {version[2:]}", errors)
    warnings = () if options.quiet else tuple(str(d) for d in (*expanded.warnings, *found))
    lowered = _Lowering(unit, expanded, version).unit(warnings, everything)
    lowered.loose = options.loose
    if not everything:
        _refuse_recursion(lowered, path)
    return lowered


def _refuse_recursion(unit: Unit, path: str) -> None:
    """Raise SourceError where a function may call itself, which OpenCL C forbids: work-items have no stacks for it."""
    calls = {
        ref: {n.ref: n for n in function.nodes if n.kind == "DECL_REF_EXPR" and n.ref in unit.functions}
        for ref, function in unit.functions.items()
    }
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]  # each calls the next one
        start = calls[cycle[0]][cycle[1]].start
        begin, names = unit.text.rfind(b"\n", 0, start) + 1, [unit.functions[ref].name for ref in cycle]
        row = unit.text[begin:].split(b"\n", 1)[0].decode(errors="replace")
        column = len(unit.text[begin:start].decode(errors="replace")) + 1
        words = f"{RECURSION}: {' calls '.join(names)}"
        found = Diagnostic(*unit.place(start), column, "error", words, row)
        raise SourceError(f"{path}: the source is not OpenCL C", (found,)) from None


_MAY_BE_ARRAYS = {
    *("DECL_REF_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "UNARY_OPERATOR", "VAR_DECL", "FIELD_DECL"),
    *("STRING_LITERAL", "COMPOUND_LITERAL_EXPR", "INIT_LIST_EXPR", "TYPE_REF", "TYPEDEF_DECL", "MEMBER_REF"),
}
_CONSTANTS = {"INTEGER_LITERAL", "CHARACTER_LITERAL", "CXX_BOOL_LITERAL_EXPR", "CXX_UNARY_EXPR"}


class _Lowering:
    """One pass over libclang's tree; nothing of libclang survives it."""

    def __init__(self, unit: cindex.TranslationUnit, expanded: Expanded, version: str) -> None:
        self.lib = _library()
        self.tu = unit
        self.expanded = expanded
        self.version = version
        self.text = expanded.text.encode()
        self.types = Types()
        self.refs: dict[int, int] = {}
        file = cindex.File.from_name(unit, FILE)
        # a location in a file is one number, its offset after that of the file's start; macro expansions have
        # bit 31 set
        self.origin = cindex.SourceLocation.from_offset(unit, file, 0).int_data
        self.kinds = {kind.value: kind.name for kind in cindex.CursorKind}
        self.found: list[Any] = []
        self.visit = self._visitor()

    def _visitor(self) -> Any:
        found = self.found

        def collect(child: Any, parent: Any, data: Any) -> int:
            child._tu = self.tu
            found.append(child)
            return 1  # siblings only

        return cindex.cursor_visit_callback(collect)

    def children(self, cursor: Any) -> list[Any]:
        self.found.clear()
        self.lib.clang_visitChildren(cursor, self.visit, None)
        return list(self.found)

    def unit(self, warnings: tuple[str, ...], everything: bool) -> Unit:
        """The program: of its functions the kernels and what they can reach (libraries come with thousands), or
        ``everything``, for those who edit its text."""
        definitions: dict[int, Any] = {}
        variables: dict[int, Node] = {}
        declared: set[int] = set()
        prototypes: list[Node] = []
        for cursor in self.children(self.tu.cursor):
            location = cursor.location
            if location.file is None or location.file.name != FILE:
                continue
            kind = self.kinds[cursor._kind_id]
            if kind == "FUNCTION_DECL":
                ref = self.reference(cursor)
                declared.add(ref)
                if cursor.is_definition():
                    definitions[ref] = cursor
                else:
                    prototypes.append(self.node(cursor))
            elif kind == "VAR_DECL":
                node = self.node(cursor, LONG_TABLE)
                variables[node.ref] = node
        if everything:
            functions = {ref: self.function(cursor) for ref, cursor in definitions.items()}
        else:
            functions = self.reachable(definitions, variables.values())
        text, lines = self.text, self.expanded.lines
        found = tuple(prototypes)
        files, unused = self.expanded.files, {r: self.extent(c) for r, c in definitions.items() if r not in functions}
        return Unit(
            text, lines, functions, frozenset(declared), variables, warnings, found, self.version, files, unused
        )

    def reachable(self, definitions: dict[int, Any], variables: Iterable[Node]) -> dict[int, Function]:
        """The kernels and all functions that they, or variables' blocks, reach, in the source's order."""
        found: dict[int, Function] = {}
        pending = [ref for ref, cursor in definitions.items() if self.is_kernel(cursor)]
        pending += [n.ref for variable in variables for n in variable.walk() if n.ref in definitions]
        while pending:
            ref = pending.pop()
            if ref not in found:
                function = found[ref] = self.function(definitions[ref])
                mentioned = {n.ref for part in (*function.parameters, function.body) for n in part.walk() if n.ref}
                pending.extend(mentioned & definitions.keys())
        return {ref: found[ref] for ref in definitions if ref in found}

    def is_kernel(self, cursor: Any) -> bool:
        if "(device_kernel)" in cursor.type.spelling:
            return True
        attributes = [c for c in self.children(cursor) if self.kinds.get(c._kind_id, "").endswith("_ATTR")]
        return any(self.text[slice(*self.extent(c))] in (b"kernel", b"__kernel") for c in attributes)

    def reference(self, cursor: Any) -> int:
        """A small number for a declaration, the same for all its redeclarations."""
        canonical = self.lib.clang_getCanonicalCursor(cursor)
        return self.refs.setdefault(canonical.data[0], len(self.refs) + 1)

    def extent(self, cursor: Any) -> tuple[int, int]:
        extent = self.lib.clang_getCursorExtent(cursor)
        start, end = extent.begin_int_data - self.origin, extent.end_int_data - self.origin
        if 0 <= start <= end <= len(self.text):
            return start, end
        start, end = self.offset(extent.start), self.offset(extent.end)  # inside a macro of the OpenCL header
        return (start, end) if 0 <= start <= end <= len(self.text) else (0, 0)

    def offset(self, location: cindex.SourceLocation) -> int:
        """Return where a location lies in the source: that of a macro's argument, not of the macro."""
        offset = ctypes.c_uint()
        self.lib.clang_getFileLocation(location, None, None, None, ctypes.byref(offset))
        return offset.value

    def type(self, cursor: Any) -> CType:
        type_ = self.lib.clang_getCursorType(cursor)
        type_._tu = self.tu
        return self.types.of(type_)

    def node(self, cursor: Any, longest: float = math.inf) -> Node:
        """A node and all below it, but for an initial value of more than so many bytes that holds no addresses."""
        kind = self.kinds.get(cursor._kind_id, "UNKNOWN")
        start, end = self.extent(cursor)
        node = Node(kind, self.type(cursor), start, end)
        decays = kind not in _MAY_BE_ARRAYS
        if kind in ("DECL_REF_EXPR", "MEMBER_REF_EXPR"):
            node.name = cursor.spelling
            target = self.lib.clang_getCursorReferenced(cursor)
            if target.data[0]:
                node.ref = self.reference(target)
                target_kind = self.kinds.get(target._kind_id)
                decays = target_kind == "PARM_DECL"
                if target_kind == "ENUM_CONSTANT_DECL":
                    node.value = self.lib.clang_getEnumConstantDeclValue(target)
                elif target_kind == "FIELD_DECL" and not self.lib.clang_Cursor_isBitField(target):
                    bits = self.lib.clang_Cursor_getOffsetOfField(target)
                    node.value = bits // 8 if bits >= 0 else None
        elif kind in ("VAR_DECL", "PARM_DECL", "FUNCTION_DECL", "FIELD_DECL"):
            node.name = cursor.spelling
            node.ref = self.reference(cursor)
            node.at = self.offset(self.lib.clang_getCursorLocation(cursor))
        elif kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR"):
            node.op = cursor.spelling
        elif kind == "UNARY_OPERATOR":
            node.op = _UNARY.get(self.lib.clang_getCursorUnaryOperatorKind(cursor), "?")
        elif kind in _CONSTANTS:
            node.value = self.evaluate(cursor)
        shown = self.children(cursor)
        if longest < math.inf and not node.type.holds_pointers:
            shown = [child for child in shown if len(range(*self.extent(child))) <= longest]
        node.children = tuple(map(self.node, shown))
        if node.children:
            last = node.children[-1]
            if kind == "CSTYLE_CAST_EXPR" and self.text[start : last.start].rstrip().endswith(b"("):
                # for libclang, a vector made of one scalar ends before its last parenthesis
                node.end = self.text.index(b")", last.end) + 1
            node.end = max(node.end, last.end)
        if kind == "PAREN_EXPR" and node.children:
            node.type = node.children[-1].type
        elif node.type.kind == "array" and decays:
            # libclang calls what an array has decayed to by the array's type; a parameter is always a pointer
            node.type = pointer(node.type.target or NO_TYPE)
        return node

    def evaluate(self, cursor: Any) -> int | None:
        result = self.lib.clang_Cursor_Evaluate(cursor)
        if not result:
            return None
        integer = self.lib.clang_EvalResult_getKind(result) == 1
        value = self.lib.clang_EvalResult_getAsLongLong(result) if integer else None
        self.lib.clang_EvalResult_dispose(result)
        return value

    def function(self, cursor: Any) -> Function:
        nodes = [self.node(child) for child in self.children(cursor)]
        start, end = self.extent(cursor)
        attributes = tuple(self.words(n) for n in nodes if n.kind.endswith("_ATTR"))
        parameters = tuple(n for n in nodes if n.kind == "PARM_DECL")
        body = next(n for n in reversed(nodes) if n.kind == "COMPOUND_STMT")
        result = self.types.of(cursor.result_type)
        function = Function(
            self.reference(cursor),
            cursor.spelling,
            start,
            end,
            self.is_kernel(cursor),
            result,
            parameters,
            body,
            attributes,
        )
        function.required_work_group = self.required_work_group(attributes)
        return function

    def words(self, node: Node) -> str:
        return self.text[node.start : node.end].decode("utf-8", "replace")

    def required_work_group(self, attributes: tuple[str, ...]) -> tuple[int, int, int] | None:
        for attribute in attributes:
            match = re.fullmatch(r"(?:__)?reqd_work_group_size(?:__)?\s*\((.*)\)", attribute, re.DOTALL)
            if match is None:
                continue
            values = [_literal(word) for word in match.group(1).split(",")]
            if len(values) != 3 or None in values:
                values = self.constants(match.group(1))
            if len(values) == 3 and all(value is not None and value > 0 for value in values):
                x, y, z = (value or 1 for value in values)
                return x, y, z
        return None

    def constants(self, arguments: str) -> list[int | None]:
        """Constant expressions, evaluated by the compiler as the arguments of a call behind the program."""
        probe = f"void manycl_probe(int, int, int); void manycl_call(void) {{ manycl_probe({arguments}); }}"
        unit = _parse(f"{self.expanded.text}\n{probe}", self.version)
        if any(diagnostic.severity >= ERROR for diagnostic in unit.diagnostics):
            return []
        last = list(unit.cursor.get_children())[-1]
        calls = [c for c in last.walk_preorder() if c.kind == cindex.CursorKind.CALL_EXPR]
        return [self.evaluate(argument) for argument in calls[0].get_arguments()] if calls else []


def _literal(word: str) -> int | None:
    match = re.fullmatch(r"\s*(0[xX][\da-fA-F]+|[1-9]\d*)[uUlL]*\s*", word)
    return int(match.group(1), 0) if match else None


# What libclang has to say about a source: its diagnostics, in the user's own lines and columns.


FILE = "/manycl/program.cl"
"""The expanded text's name, in memory only."""
ERROR = 3  # libclang's severities: 2 warning, 3 error, 4 fatal
_SEVERITIES = {2: "warning", 3: "error", 4: "fatal error"}


def diagnostics(unit: Any, expanded: Expanded) -> list[Diagnostic]:
    rows = expanded.text.split("\n")
    return [_diagnostic(d, expanded, rows) for d in unit.diagnostics if d.severity in _SEVERITIES]


def _diagnostic(found: Any, expanded: Expanded, rows: list[str]) -> Diagnostic:
    """Return a diagnostic with the place in the user's file."""
    severity, location = _SEVERITIES[found.severity], found.location
    if location.file is None or location.file.name != FILE:
        return Diagnostic("<built in>", 0, 0, severity, found.spelling)
    index = min(max(location.line - 1, 0), len(expanded.lines) - 1)
    row = rows[index]
    before = row.encode()[: max(location.column - 1, 0)].decode(errors="replace")
    path, line, column, own = expanded.place(index, len(before) + 1, row)
    return Diagnostic(path, line, column, severity, found.spelling, own)
