"""Last words: what was running when a process was lost.

Of a kernel that faults, the native runtime says what is known (``native/runtime/faults.h``), also of one that another
driver runs in this process, if that has noted it here. Who is killed says nothing: so where it is asked for, a note is
kept in a file of what devices were given and what is known to be complete; writes to it outlive the process. A helper
waits for that to go, and reads the note out unless it went by itself. Run as a script with the note's path, this file
says what was running.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_HELPER = 'read -r word; [ "$word" = done ] || "$0" -I -S "$1" "$2" >&2; rm -f "$2"'
SHOWN = 8  # kernels of a device that are named

sink = ctypes.c_int(2)
"""The file descriptor that the words of a fault are written to."""
LINES = 16
"""The most queues of other drivers of which is told (``WATCHED`` in native/runtime/faults.h); our own choice."""
running = (ctypes.c_void_p * LINES)()
"""The addresses of lines of text: the kernels that other drivers run in this process."""
_free = list(range(LINES))
note: int | None = None
"""The file descriptor of the note, while one is kept: what is noted costs a microsecond each."""


class Line:
    """A line of text about what a queue of another driver in this process runs; empty: nothing. ``address``: of its
    bytes, which end with a 0; ``longest``: how many there may be."""

    __slots__ = ("_place", "_text", "address", "longest")

    def __init__(self) -> None:
        self.longest = 256
        self._text = ctypes.create_string_buffer(self.longest)
        self.address = ctypes.addressof(self._text)
        try:
            self._place: int | None = _free.pop()
        except IndexError:
            self._place = None
            return
        running[self._place] = self.address

    def __del__(self) -> None:
        if self._place is not None:
            running[self._place] = None
            _free.append(self._place)

    def say(self, words: str) -> None:
        """Have the line be these words, or as many as fit."""
        self._text.value = words.encode(errors="replace")[: self.longest - 1]


@contextmanager
def kept() -> Iterator[None]:
    """Keep a note of what runs until the end of the block, to be read out if the process does not get there."""
    global note
    if os.name != "posix" or note is not None:
        yield
        return
    note, path = tempfile.mkstemp(prefix="manycl-", suffix=".note")
    sink.value = note
    command = ["/bin/sh", "-c", _HELPER, sys.executable, __file__, path]
    helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    assert helper.stdin is not None
    try:
        yield
    finally:
        descriptor, note, sink.value = note, None, 2
        os.close(descriptor)
        with suppress(OSError):  # somebody has ended the helper
            helper.stdin.write(b"done\n")
            helper.stdin.close()
        helper.wait()


def begin() -> None:
    """Note that nothing runs yet."""
    if note is not None:
        os.ftruncate(note, 0)
        os.lseek(note, 0, os.SEEK_SET)


def given(token: int, device: str, queue: int, name: str) -> None:
    """A command was enqueued on a queue of a device, after those before."""
    if note is not None:
        os.write(note, f"+{token}\t{device} queue {queue}\t{name}\n".encode(errors="replace"))


def complete(token: int) -> None:
    """A command is complete, and so are those that its queue was given before."""
    if note is not None:
        os.write(note, b"-%d\n" % token)


def read(text: str) -> list[str]:
    """A line for each queue that had something to do: what ran there, or was to run."""
    lanes: dict[str, list[tuple[str, str]]] = {}
    where: dict[str, str] = {}
    for line in text.splitlines():
        token, *rest = line[1:].split("\t")
        if line.startswith("+") and len(rest) == 2:
            lanes.setdefault(rest[0], []).append((token, rest[1]))
            where[token] = rest[0]
        elif line.startswith("-") and token in where:
            waiting = lanes[where[token]]
            at = next((i for i, (other, _) in enumerate(waiting) if other == token), -1)
            del waiting[: at + 1]
    out = []
    for lane, waiting in lanes.items():
        if waiting:
            names = list(dict.fromkeys(name for _, name in waiting))
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            one = "" if len(waiting) == 1 else f" (one of {len(waiting)} launches)"
            out.append(f"{', '.join(names[:SHOWN])}{more} on {lane}{one}")
    return out


def main(path: str) -> None:
    """Say what was running when the process that kept a note was lost."""
    with open(path, encoding="utf-8", errors="replace") as kept_note:
        text = kept_note.read()
    _, mark, words = text.partition("manycl: ")
    if mark:
        print(mark + words, end="")
    elif found := read(text):
        print("manycl: the process was lost while this ran:\n" + "".join(f"  {line}\n" for line in found), end="")
        print("  hint: kernels that leave their arrays end processes; MANYCL_CHECK=bounds checks every access")
    else:
        print("manycl: the process was lost while no kernel ran")


if __name__ == "__main__":
    main(sys.argv[1])
