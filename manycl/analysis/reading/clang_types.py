"""Types: libclang's become our own, which know nothing of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from clang import cindex

from manycl.analysis.reading.tree import CType

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
        """Whether a member may hold an address; pointers, which may be to the type itself, are not followed."""
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
