"""Pages that are played: their code is run from top to bottom, and prints what they show.

``python`` blocks, and a notebook's cells, share one process. A block whose first line is a comment with a file's name
is written to that file. ``sh`` blocks are run by a shell. A ``text`` block is what the block before it prints, numbers
apart: each of its lines must come. Where a page says that a block fails, ``<!-- fails -->`` stands before it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests import ROOT

BLOCK = re.compile(r"(<!-- fails -->\n)?^```(\w+|\{code-cell\} ipython3)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CELL = "{code-cell} ipython3"
FILE = re.compile(r"(?:#|//) ([\w.]+)\n")
NUMBER = re.compile(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?|#+")
SECONDS = 200  # until a block has failed
LOOP = """
import json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "<page>", "exec"), names)
        ended = 0
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        ended = 1
    print(f"\\n<ended {ended}>", flush=True)
"""


class Player:
    """Plays a page in a folder. ``run`` returns what a block has printed, and whether it went well."""

    def __init__(self, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name, words in (("manycl", "-m manycl"), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._folder = folder
        # a user's: without what tests set, but for where answers are kept
        known = {k: v for k, v in os.environ.items() if not k.startswith("MANYCL_") or k == "MANYCL_CACHE"}
        own = {"PYTHONPATH": str(ROOT), "PATH": path, "MANYCL_DATA": str(folder / "measured")}
        self._environment = {**known, **own, "COLUMNS": "100", "TERM": "dumb"}
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._python is not None:
            self._python.stdin.close()  # type: ignore[union-attr]
            self._python.wait(SECONDS)
            self._python.stdout.close()  # type: ignore[union-attr]

    def run(self, kind: str, code: str) -> tuple[str, bool]:
        if name := FILE.match(code):
            (self._folder / name[1]).write_text(code, encoding="utf-8")
            return "", True
        if kind in {"python", CELL}:
            return self._statements(code)
        words = ["bash", "-eu", "-c", code]
        done = subprocess.run(
            words, cwd=self._folder, env=self._environment, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout, done.returncode == 0

    def _statements(self, code: str) -> tuple[str, bool]:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", LOOP], cwd=self._folder, env=self._environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        into, out = self._python.stdin, self._python.stdout
        assert into is not None
        assert out is not None
        into.write(f"{json.dumps(code)}\n")
        into.flush()
        told = []
        for line in out:
            if ended := re.fullmatch(r"<ended (\d)>\n", line):
                return "".join(told), ended[1] == "0"
            told.append(line)
        return "".join(told), False


def plain(line: str) -> str:
    """Return a line without what differs from one run to the next: numbers, and how far columns lie apart."""
    return " ".join(NUMBER.sub("#", line).split())


def play(page: Path, folder: Path) -> int:
    """Run all blocks of a page; how many there were."""
    printed, played = "", 0
    with Player(folder) as player:
        for fails, kind, code in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "text":
                lines = {plain(line) for line in printed.splitlines()}
                missing = [line for line in code.splitlines() if line.strip() and plain(line) not in lines]
                assert missing == [], f"{page.name} shows what is not printed:\n{printed}"
            elif kind in {"python", "sh", CELL} or FILE.match(code):
                printed, well = player.run(kind, code)
                assert well != bool(fails), f"{page.name}:\n{code}\n{printed}"
                played += 1
    return played
