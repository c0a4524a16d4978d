"""Rows of figures that an experiment has measured, kept in a file until it is over: it goes on where it was stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = "hopping_rows.json"


class Kept:
    """The rows of one measurement. ``asked``: what they depend on; rows of anything else are dropped. ``path``: of the
    file (None: nothing is kept)."""

    def __init__(self, path: Path | None = None, asked: Mapping[str, Any] | None = None) -> None:
        self._path, self._asked = path, json.loads(json.dumps(asked))
        self.rows: list[dict[str, Any]] = []
        if path is not None and path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            self.rows = found["rows"] if found["asked"] == self._asked else []

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Keep rows: a whole benchmark's, so that it is not measured again."""
        self.rows += rows
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_suffix(".part")
            unfinished.write_text(json.dumps({"asked": self._asked, "rows": self.rows}), encoding="utf-8")
            os.replace(unfinished, self._path)
