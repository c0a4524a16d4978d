"""Units that were changed, read again."""

from __future__ import annotations

from manycl.analysis.options import BuildOptions
from manycl.analysis.tree import Unit
from manycl.analysis.work_group.syntax import NoGroupFunctionError

MOST_TEXT = 1 << 20  # bytes


def read_again(unit: Unit, text: bytes) -> Unit:
    """A unit of another text. Raises NoGroupFunctionError for one that is too long."""
    from manycl.analysis.frontend import load

    if len(text) > MOST_TEXT:
        raise NoGroupFunctionError("its functions are too large to be written where they are called")
    return load(text.decode(), "<source>", None, BuildOptions(version=unit.version, quiet=True), everything=True)
