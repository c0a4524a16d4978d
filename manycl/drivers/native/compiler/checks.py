"""Kernels with checks of all that they access (MANYCL_CHECK=bounds): how they are compiled, and launched. In LLVM's
unoptimised representation each pointer gets a companion that says into which array it points. That is made where an
array is, goes with the pointer through variables and calls, and is asked before each access (``runtime/checks.cl``)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from ctypes import c_char
from functools import cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

from manycl.drivers.driver import DriverError
from manycl.drivers.native.driver import NativeDriver
from manycl.drivers.native.kernel import SetKernel
from manycl.drivers.native.queue import NativeEvent, NativeQueue

_HERE = Path(__file__)
TEXT = f"""// edited by {sha256(_HERE.read_bytes()).hexdigest()}
#line 1 "checks"
{(_HERE.parent.parent / "runtime" / "checks.cl").read_text(encoding="utf-8")}"""
_OURS = ("", "program", "built-in functions")  # files: the text around the user's is one, too
_ATTRIBUTES = r"ptr (?:[a-z]+(?:\([^()]*\)| \d+)? )*"
_POINTER = rf"{_ATTRIBUTES}(%[\w.]+|@[\w.$]+|null|undef|poison|\w+ \((?:[^()]|\([^()]*\))*\))"
_LOAD_STORE = re.compile(rf"  (?:\S+ = )?(load|store) (?:atomic )?(?:volatile )?(.*), {_POINTER}(?: [\w\"()]+)*, align")
_ATOMIC = re.compile(rf"  \S+ = (?:atomicrmw|cmpxchg) (?:\w+ )*{_POINTER}, (.*)")
_MEMORY = re.compile(rf"  (?:tail )?call void @llvm\.mem[^(]*\({_POINTER}, (?:{_POINTER}|i8 \S+), (i64 \S+), i1")
_STORE = re.compile(rf"  store (?:volatile )?{_POINTER}, {_POINTER}")
_CALL = re.compile(r"  (?:\S+ = )?(?:tail )?call [^@]*@(?!llvm\.|manycl_object)(.*)")
_ADDRESS = re.compile(rf"^  (%\S+) = getelementptr ([\[<{{%].*?|\w+), {_POINTER}, (?:i64 0, )?([^,\n]+)", re.M)
_ODD = r"[^ !#-Z^-~]|\["
_CHOSEN = re.compile(r"^  (%\S+) = (?:phi ptr \[|select i1 [^,]*, ptr) ", re.M)
_MOVED = re.compile(r"  (%\S+) = ptrtoint ptr (%\S+) to i64(?:.*\n){1,3}?.* = sub i64 \1, .*\n  (%\S+) = inttoptr ")
_TAKEN = re.compile(rf"{_ATTRIBUTES}(%[\w.]+)(?![\w.]|, align)")


class Checks:
    """``text``: LLVM's unoptimised representation of a program and ``TEXT``, with checks."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"^  (?:tail )?call void @llvm\.lifetime.*\n", "", text, flags=re.M)
        text = re.sub(r"(getelementptr) (?:inbounds |nuw |nusw )+", r"\1 ", text)
        self._notes = dict(re.findall(r"^!(\d+) = (.*)$", text, re.M))
        self._globals = dict[str, str]()  # by what they begin with
        arrays = re.findall(r"^(@(?!\.str)[\w.$]+) = .*?\bconstant (.*)", text, re.M)
        self._arrays = {name: (type_, self._new()) for name, type_ in arrays}  # (behind the types there are values)
        text = re.sub(r"^define .*?^}", self._function, text, flags=re.M | re.S)
        text = re.sub(r",? !dbg !\d+", "", text)  # calls without are refused beside others with
        self.text = text + "".join(f"{name} = internal global {value}\n" for value, name in self._globals.items())

    def _global(self, value: str) -> str:
        return self._globals.setdefault(value, f"@manycl.{len(self._globals)}")

    def _new(self) -> str:
        """A ``struct manycl_object``."""
        return self._global(f"[6 x i64] zeroinitializer ; {len(self._globals)}")

    def _text(self, words: str) -> str:
        return self._global(f'[{len(words) + 1} x i8] c"{words}\\00"')

    def _place(self, line: str) -> tuple[str, str]:
        """The file and line that an instruction, or a function, is of."""
        row = ""
        while m := re.search(r"(?:!dbg|file:) !(\d+)", line) or re.search(r"scope: !(\d+)", line):
            line = self._notes[m[1]]
            row = row or "".join(re.findall(r"\bline: (\d+)", line))
        return "".join(re.findall(r'filename: "(.*?)"', line)), row

    def _function(self, match: re.Match[str]) -> str:
        whole = match[0]
        head, *lines = whole.split("\n")
        if self._place(head)[0] == "checks":
            return whole
        is_entry, taken = "@manycl_unchecked_entry(" in head, set(_TAKEN.findall(whole))
        self._variables = dict(re.findall(r"^  (%\S+) = alloca (.*?), align", whole, re.M))
        passed = re.findall(r"(?:byval|sret)\((.*?)\) align \d+ (%[\w.]+)", head)
        self._variables |= {name: type_ for type_, name in passed}
        self._own = self._arrays | {name: (t, self._new()) for name, t in self._variables.items() if name in taken}
        self._addresses = {name: rest for name, *rest in _ADDRESS.findall(whole)}
        self._moved = {name: ["i8", before, ""] for _, before, name in _MOVED.findall(whole)}
        self._addresses |= self._moved
        parameters = re.findall(_POINTER, head)
        self._slots = {name: _argument(i) for i, name in enumerate(parameters)}
        self._slots |= dict(re.findall(rf"^  (%\S+) = load ptr, {_POINTER}", whole, re.M))
        self._objects = {name: f"%manycl.of.{name[1:]}" for name in (*self._slots, *_CHOSEN.findall(whole))}
        self._objects |= {name: object_ for name, (_, object_) in self._own.items()}
        self._objects |= dict(re.findall(rf"^  (%\S+) = call ptr @manycl_object\({_POINTER}", whole, re.M))
        out = [head]
        for line in lines:
            file, row = self._place(line) if "!dbg" in line else ("", "")
            if file not in _OURS and " phi " not in line:
                words = f"line {row}" + (f" of {re.sub(_ODD, '?', file)}" if not file.endswith("<source>") else "")
                out.append(f"  store ptr {self._text(words)}, ptr @manycl_place")
            if not is_entry:
                out += [check for access in _accesses(line) for check in self._checks(*access)]
            out += [f"  call void @manycl_keep(ptr {slot}, ptr {p}, ptr {self._object(p)})" for slot, p in _puts(line)]
            made = (*(self._arrays if is_entry else ()), *parameters) if line == "entry:" else (line.split(" ")[2:3])
            out += [line, *(known for name in made for known in self._known(name))]
            if m := _CHOSEN.match(line):
                objects = re.sub(r"(\[ |ptr )([%@][\w.$]+)", lambda v: f"{v[1]}{self._object(v[2])}", line)
                out.append(objects.replace(f"{m[1]} =", f"{self._objects[m[1]]} =", 1))
        return "\n".join(out)

    def _known(self, name: str) -> Iterator[str]:
        """Yield the lines that note to which array a pointer that was just made belongs."""
        if name in self._own:
            type_, object_ = self._own[name]
            given = f"ptr {object_}, ptr {name}, {_size(type_)}, i64 0, ptr {self._text(name[1:])}"
            yield f"  %{object_[1:]} = call ptr @manycl_object({given})"
        elif name in self._moved:
            yield f"  call void @manycl_move(ptr {self._object(name)}, ptr {name})"
        elif name in self._slots:
            yield f"  {self._objects[name]} = call ptr @manycl_kept(ptr {self._slots[name]}, ptr {name})"

    def _root(self, pointer: str) -> str:
        """Return the pointer that an address was computed from."""
        return self._root(self._addresses[pointer][1]) if pointer in self._addresses else pointer

    def _object(self, pointer: str) -> str:
        root = self._root(pointer)
        return self._objects.get("".join(re.findall(r"@[\w.$]+", root)) or root, "null")

    def _checks(self, pointer: str, nbytes: str, does: str) -> Iterator[str]:
        if pointer in self._variables:
            return  # all of it
        unknown = nbytes if "ptrtoint" in nbytes else "i64 0"
        each, base, words, root = unknown, pointer, self._text(does), self._root(pointer)
        while base in self._addresses:
            type_, base, index = self._addresses[base]
            each, count = unknown if type_[0] == "[" else _size(type_), re.match(r"\[(\d+) x", type_)
            is_part = self._addresses.get(base, " ")[0][0] in "%{"  # of a structure
            if count and int(count[1]) > 1 and (is_part or base in self._own):
                name = self._text(f"an array in {self._slots.get(root, root)[1:]}" if is_part else base[1:])
                yield f"  call void @manycl_index({index}, i64 {count[1]}, ptr {name}, ptr {words})"
        yield f"  call void @manycl_check(ptr {self._object(base)}, ptr {pointer}, {nbytes}, {each}, ptr {words})"


def _accesses(line: str) -> Iterator[tuple[str, str, str]]:
    """The pointers that an instruction uses, with bytes, and what it does with these."""
    if m := _LOAD_STORE.match(line):
        yield m[3], _size(m[2]), "reads" if m[1] == "load" else "writes"
    elif m := _ATOMIC.match(line):
        yield m[1], _size(m[2]), "writes"
    elif m := _MEMORY.match(line):
        yield from ((pointer, m[3], does) for pointer, does in ((m[1], "writes"), (m[2], "reads")) if pointer)


def _puts(line: str) -> Iterator[tuple[str, str]]:
    """The slots that an instruction puts pointers into, with these."""
    if m := _STORE.match(line):
        yield m[2], m[1]
    elif m := _CALL.match(line):
        yield from ((_argument(i), found) for i, found in enumerate(re.findall(_POINTER, m[1])))


def _argument(number: int) -> str:
    return f"inttoptr (i64 {8 * number} to ptr)"


def _size(text: str) -> str:
    """The bytes of the type that a text begins with."""
    depths = accumulate((char in "[{<(") - (char in "]})>") for char in text)
    type_ = text[: next((at for at, depth in enumerate(depths) if not depth and text[at] in " ,"), len(text))]
    return f"i64 ptrtoint (ptr getelementptr ({type_}, ptr null, i32 1) to i64)"


class CheckedDriver(NativeDriver):
    """Waits for each kernel, and raises DriverError for one that left an array."""

    def launch(self, queue: NativeQueue, kernel: Any, *given: Any, **more: Any) -> NativeEvent:
        event = super().launch(queue, kernel, *given, **more)
        if type(kernel) is SetKernel:
            self.wait(event)
            libraries = [library for _, library in getattr(kernel.kernel, "entries", {}).values()]
            faults = [(c_char * 1024).in_dll(o, "manycl_fault") for o in libraries if hasattr(o, "manycl_fault")]
            if not faults:
                say_unchecked(f"kernel {kernel.kernel.name}")
            for fault in faults:
                words, fault.raw = fault.value.decode(), bytes(1024)
                if words:
                    raise DriverError(re.sub(r"_manycl\d*_\w*|\.addr\b|\bmanycl\w*\.", "", words))
        return event


@cache
def say_unchecked(what: str) -> None:
    """One line, once."""
    print(f"manycl: {what} is not compiled with checks of all accesses: only red zones are checked", file=sys.stderr)
