"""The errors manycl raises: each says what is wrong, where, and what to do next. The command line prints any
:class:`ManyclError` as one message and exits with status 2; anything else is a defect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

Raised = TypeVar("Raised", bound=BaseException)


def a(noun: str) -> str:
    """Return a word with its article."""
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


class ManyclError(Exception):
    """Base of every error a user can cause or cure. ``hint`` says what to do next, or is empty."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


def anew(error: Raised) -> Raised:
    """Return the same error as if nobody had raised it: for who keeps one, and for who raises one that is kept. Each
    time that an exception is raised it is given the frames that it leaves, and with them the arrays of who has
    called."""
    found = type(error).__new__(type(error), *error.args)
    found.__dict__.update(error.__dict__)
    return found


_SHOWN = 20  # diagnostics of one source
_WIDTH = 100  # characters of a line of it


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of a compiler or reader: 1-based line and column (0 where unknown), in the user's own file.
    ``source``: the text of that line, or nothing where it is not known."""

    path: str
    line: int
    column: int
    severity: str
    text: str
    source: str = ""

    @property
    def is_error(self) -> bool:
        return self.severity.endswith("error")

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{where}: {self.severity}: {self.text}"

    def lines(self) -> list[str]:
        """The message, its line of source, and a caret below the column."""
        if not self.source.strip():
            return [str(self)]
        if not 0 < self.column <= len(self.source) + 1:
            return [str(self), f"  {self.source.strip()[:_WIDTH]}"]
        place = self.column - 1
        first = max(0, min(place - _WIDTH // 2, len(self.source) - _WIDTH))
        shown = self.source[first : first + _WIDTH].rstrip()
        before = "".join("\t" if c == "\t" else " " for c in shown[: place - first].ljust(place - first))
        return [str(self), f"  {shown}", f"  {before}^"]


RECURSION = "recursion, which OpenCL C does not have"
"""What is told of programs with it, which some compilers take all the same."""


class SourceError(ManyclError):
    """OpenCL C that does not parse or compile. ``diagnostics`` holds the compiler's own words with their places."""

    def __init__(self, message: str, diagnostics: tuple[Diagnostic, ...] = (), *, hint: str = "") -> None:
        told = [f"  {line}" for d in diagnostics[:_SHOWN] for line in d.lines()]
        more = [f"  and {len(diagnostics) - _SHOWN} more"] if len(diagnostics) > _SHOWN else []
        text = "\n".join([message, *told, *more])
        super().__init__(text, hint=hint)
        self.diagnostics = diagnostics


class OptionError(SourceError):
    """Build options that are none."""


class SpecificationError(ManyclError):
    """A specification file that is malformed: names the file, the line and the field."""

    def __init__(self, problem: str, *, path: str = "", line: int = 0, field: str = "", hint: str = "") -> None:
        where = f"{path}:{line}" if line else path
        parts = [p for p in (where, field) if p]
        super().__init__(": ".join([*parts, problem]), hint=hint)
        self.problem = problem
        self.path = path
        self.line = line
        self.field = field


class DeviceError(ManyclError):
    """A device that does not exist, cannot be divided as asked, or cannot be opened."""


class VersionError(ManyclError):
    """A version of a kernel that does not do what the kernel does."""


class MachineError(ManyclError):
    """A machine description that is malformed: names the file and the key."""


class ArgumentError(ManyclError, TypeError):
    """An argument of a function of Python's that is not what the function takes."""


class LaunchError(ManyclError):
    """A launch that cannot be right: argument count or type, NDRange, work-group size, buffer size."""


class GraphError(ManyclError):
    """A task graph that is not one: a cycle, an edge to a node that does not exist, an unknown buffer."""


class PolicyError(ManyclError):
    """A scheduling policy that does not exist or decides something impossible."""


class RunError(ManyclError):
    """A run that failed on a device: which kernel, which device, which sizes, what was done before."""


class ResultError(ManyclError):
    """A result that does not have the shape, the type or the values that were asked for."""
