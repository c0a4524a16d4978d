"""The text of merge kernels: replacing parts of a source, and the functions that copy an element."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.analysis.texts.rewrite import apply_edits, without_strings


def balanced(text: bytes, start: int, end: int) -> tuple[int, int]:
    """An extent with all parentheses closed: libclang leaves out the last one of ``(float4)(1)``."""
    words = without_strings(text[start:end])
    missing = words.count(b"(") - words.count(b")")
    while missing > 0 and text[end : end + 1] in (b")", b" ", b"\n", b"\t", b"\r"):
        missing -= text[end : end + 1] == b")"
        end += 1
    return start, end


def splice(text: bytes, extent: tuple[int, int], edits: Sequence[tuple[int, int, str]]) -> str | None:
    """The text of an extent after edits of parts of it; None where they are not parts, or overlap."""
    start, end = extent
    position = start
    for first, last, _ in sorted(edits, key=lambda edit: edit[:2]):
        if first < position or last > end or first >= last:
            return None
        position = last
    moved = [(first - start, last - start, words) for first, last, words in edits]
    return apply_edits(text[start:end], moved).decode("utf-8", "replace")


class CopyingFunctions:
    """The copying functions that a merge kernel calls. Each knows the arguments whose buffers its address may lie in,
    and is given for each argument where its buffer begins and where the copy of it begins that is copied from."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.shared: set[tuple[int, ...]] = set()  # arguments that one store may go to
        self.asked: dict[str, tuple[str, str, tuple[int, ...]]] = {}

    # -- parameters

    def names(self, argument: int, sized: Sequence[int]) -> list[str]:
        kinds = ("to", "from", "size") if argument in sized else ("to", "from")
        return [f"{self.prefix}{kind}_{argument}" for kind in kinds]

    def passed(self, arguments: Sequence[int], sized: Sequence[int]) -> list[str]:
        return [name for argument in arguments for name in self.names(argument, sized)]

    def declared(self, arguments: Sequence[int], sized: Sequence[int]) -> list[str]:
        types = {"size": "ulong "}
        found = self.passed(arguments, sized)
        kind = [name.removeprefix(self.prefix).split("_")[0] for name in found]
        return [types.get(k, "__global const uchar *") + name for k, name in zip(kind, found, strict=True)]

    # -- calls

    def value(self, word: str, where: str, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        return self.call("value", word, [self.cast(word, where)], arguments, sized)

    def lanes(
        self, word: str, where: str, lanes: Sequence[int], arguments: tuple[int, ...], sized: Sequence[int]
    ) -> str:
        mask = sum(1 << lane for lane in set(lanes))
        return self.call("lanes", word, [self.cast(word, where), f"{mask}u"], arguments, sized)

    def vector(self, word: str, where: str, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        return self.call("vector", word, [self.cast(word.rstrip("0123456789"), where)], arguments, sized)

    def bytes(self, size: int, where: str, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        return self.call("bytes", "uchar", [self.cast("uchar", where), f"{size}u"], arguments, sized)

    def group(
        self, word: str, where: str, number: str, step: str, arguments: tuple[int, ...], sized: Sequence[int]
    ) -> str:
        self.call("value", word, [], arguments, sized)
        return self.call("group", word, [self.cast(word, where), number, step], arguments, sized)

    @staticmethod
    def cast(word: str, where: str) -> str:
        return f"(__global {word} *)({where})"

    def call(self, kind: str, word: str, first: list[str], arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        name = self.name(kind, word, arguments)
        self.asked[name] = (kind, word, arguments)
        if len(arguments) > 1:
            self.shared.add(arguments)
        return f"{name}({', '.join([*first, *self.passed(arguments, sized)])})"

    def name(self, kind: str, word: str, arguments: Sequence[int]) -> str:
        return f"{self.prefix}{kind}_{word}_{'_'.join(map(str, arguments))}"

    # -- definitions

    def definitions(self, sized: Sequence[int]) -> str:
        tuples = sorted({arguments for _, _, arguments in self.asked.values()})
        parts = [self.source(arguments, sized) for arguments in tuples]
        parts += [self.definition(name, *asked, sized) for name, asked in sorted(self.asked.items(), key=self.order)]
        return "\n".join(parts) + "\n"

    @staticmethod
    def order(item: tuple[str, tuple[str, str, tuple[int, ...]]]) -> tuple[bool, str]:
        return item[1][0] == "group", item[0]

    def source(self, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        """The function from an address to that of the same element in the copy."""
        tests = ""
        for argument in arguments[:-1]:
            to, source, size = self.names(argument, sized)
            tests += f" if ((ulong)p - (ulong){to} < {size}) return {source} + ((ulong)p - (ulong){to});"
        to, source = self.names(arguments[-1], sized)[:2]
        name, declared = self.name("source", "of", arguments), ", ".join(self.declared(arguments, sized))
        body = f"{tests} return {source} + (p - {to});"
        return f"__global const uchar *{name}(__global const uchar *p, {declared}) {{{body} }}"

    def definition(self, name: str, kind: str, word: str, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        passed, declared = (", ".join(f(arguments, sized)) for f in (self.passed, self.declared))
        element = word.rstrip("0123456789") if kind == "vector" else word
        source = (
            f"(__global const {element} *){self.name('source', 'of', arguments)}((__global const uchar *)p, {passed})"
        )
        lanes = word.removeprefix(element)
        more, body = {
            "value": ("", f"*p = *({source});"),
            "vector": ("", f"vstore{lanes}(vload{lanes}(0, {source}), 0, p);"),
            "lanes": (
                ", uint mask",
                f"__global const {word} *q = {source};"
                " for (uint k = 0; mask >> k; k++) if (mask >> k & 1) p[k] = q[k];",
            ),
            "bytes": (", uint n", _BYTES.replace("@", source)),
            "group": (
                ", size_t n, size_t step",
                _GROUP.replace("@", f"{self.name('value', word, arguments)}(p + k * step, {passed});"),
            ),
        }[kind]
        return f"void {name}(__global {element} *p{more}, {declared}) {{ {body} }}"


_BYTES = """__global const uchar *q = @;
    if ((((ulong)p | (ulong)q | n) & 7) == 0)
        for (uint k = 0; k < n / 8; k++) ((__global ulong *)p)[k] = ((__global const ulong *)q)[k];
    else if ((((ulong)p | (ulong)q | n) & 3) == 0)
        for (uint k = 0; k < n / 4; k++) ((__global uint *)p)[k] = ((__global const uint *)q)[k];
    else for (uint k = 0; k < n; k++) p[k] = q[k];"""
_GROUP = """size_t k = (get_local_id(2) * get_local_size(1) + get_local_id(1)) * get_local_size(0) + get_local_id(0);
    for (; k < n; k += get_local_size(0) * get_local_size(1) * get_local_size(2)) @"""
