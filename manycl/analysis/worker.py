"""The process that parses: reads requests from standard input, answers on standard output.

libclang cannot be trusted with its own process. Measured with libclang-ng 22.1.4: a chain of 20,000 unary
operators, 100,000 nested ``if`` or a sum of 100,000 terms kill the process (stack overflow, SIGSEGV), also on a
thread with a 512 MiB stack; 100,000 array brackets keep it busy for more than a minute, and 30 macros that double
each other make the preprocessor write without end. So :mod:`manycl.analysis.service` keeps one such worker per process,
starts a new one when it dies. A question that computes for too long ends its process (the limit is on the process'
own seconds: those of a busy machine do not count). Messages are pickles, preceded by their length in 8 bytes.
"""

from __future__ import annotations

import math
import os
import pickle
import select
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from manycl.analysis.facts import KernelFacts
from manycl.analysis.reading.tree import Unit, decode, encode
from manycl.errors import Diagnostic, SourceError

if TYPE_CHECKING:
    from manycl.analysis.known_launch import KnownLaunch
    from manycl.analysis.launched import LaunchFacts

MEMORY = 4 << 30  # bytes of address space
_STACK = 512 << 20  # bytes of address space for the analysing thread; only what is used becomes memory
_RECURSION = 100_000
_IDLE = 0.02
"""Seconds without a question after which what questions about launches need is imported, which takes 0.15 s."""
NO_THREAD = 75
"""The status that the process ends with where it can have no thread."""

#: source, path as the user calls it, folder of quoted includes, build options (include folders absolute)
Request = tuple[str, str, str | None, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The kernels and warnings of a source; or ``message`` says what is wrong with it."""

    kernels: dict[str, KernelFacts] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    message: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    hint: str = ""
    result: object = None  # of a :class:`Question`
    tree: bytes = b""
    failure: str = ""  # what failed, where it should not have


@dataclass(frozen=True, slots=True)
class Question:
    """More about a source than its facts: ``what`` is ``sub_kernel``, ``windowed_kernel``, ``shifted_kernel``,
    ``guarded_kernel``, ``merge_kernel``, ``image_kernel`` or ``work_group_function`` (these with ``arguments``), of
    ``kernel``."""

    request: Request
    what: str
    kernel: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchQuestion:
    """A question about a launch of a kernel of a program (its ``tree``): a method of ``LaunchFacts`` with its
    arguments, or a property; or ``several`` of these, each with its arguments."""

    tree: bytes
    kernel: KernelFacts
    launch: KnownLaunch
    what: str
    arguments: tuple[Any, ...]


def send(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message, protocol=5)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> object:
    """The next message; raises EOFError when the other side is gone."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (length,) = struct.unpack("<Q", head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


_parsed: dict[tuple[object, ...], tuple[Unit, tuple[object, ...], WorkerAnswer]] = {}
_units: dict[bytes, Unit] = {}
_launches: dict[tuple[object, ...], LaunchFacts] = {}
_KEPT = 64


@dataclass(frozen=True, slots=True)
class Limited:
    """A question that may compute for so many seconds. ``before_launches``: questions about launches will follow."""

    seconds: float
    question: Request | Question | LaunchQuestion
    before_launches: bool = False


def about_launch(question: LaunchQuestion) -> WorkerAnswer:
    """Answer a question about a launch."""
    from manycl.analysis.launched import LaunchFacts

    key = question.tree, question.kernel.name, question.launch.key
    facts = _launches.get(key)
    if facts is None:
        unit = _units.get(question.tree)
        if unit is None:
            unit = decode(question.tree)
            _limit(_units)[question.tree] = unit
        facts = LaunchFacts(unit, question.kernel, question.launch)
        _limit(_launches)[key] = facts

    def answered(what: str, *arguments: Any) -> object:
        if what == "several":
            return [answered(*one) for one in arguments]
        spent = facts.regions.spent
        found = facts.computed(what, *arguments)
        facts.regions.answered(spent)
        return found

    return WorkerAnswer(result=answered(question.what, *question.arguments))


def _stamps(unit: Unit) -> tuple[object, ...]:
    """Return what changes with the files that a program includes."""
    found: list[object] = []
    for path in unit.files:
        try:
            info = os.stat(path)
            found.append((path, info.st_mtime_ns, info.st_size))
        except OSError:
            found.append(path)
    return tuple(found)


def _limit(kept: dict[Any, Any]) -> dict[Any, Any]:
    """Forget what was asked for first."""
    if len(kept) >= _KEPT:
        del kept[next(iter(kept))]
    return kept


def answer(request: Request | Question | LaunchQuestion) -> WorkerAnswer:
    """Analyse one source, or a launch; every failure becomes an answer."""
    try:
        return about_launch(request) if isinstance(request, LaunchQuestion) else _about_source(request)
    except Exception as error:
        return WorkerAnswer(failure="".join(traceback.format_exception(error)))


def _about_source(request: Request | Question) -> WorkerAnswer:
    from manycl.analysis.reading import frontend, kernels
    from manycl.analysis.reading.options import read_options

    question = request if isinstance(request, Question) else None
    source, path, folder, options = request.request if isinstance(request, Question) else request
    try:
        key = source, path, folder, options
        # who edits a text needs all of its functions, but for who takes those out that are not used
        everything = question is not None and question.what != "work_group_function"
        kept = (_parsed.get((*key, each)) for each in {False, everything})
        known = next((k for k in kept if k and k[1] == _stamps(k[0]) and not (everything and k[0].unused)), None)
        if known is None:
            unit = frontend.load(source, path, folder, read_options(options), everything=everything)
            facts = WorkerAnswer()
            if not everything:
                warnings = unit.warnings + kernels.shared_variables(unit)
                facts = WorkerAnswer(kernels.kernel_facts(unit), warnings, tree=encode(unit))
            known = _limit(_parsed)[*key, everything] = unit, _stamps(unit), facts
        return known[2] if question is None else WorkerAnswer(result=_result(question, known[0]))
    except SourceError as error:
        message = error.message.split("\n", 1)[0]
        return WorkerAnswer(message=message, diagnostics=error.diagnostics, hint=error.hint)
    except RecursionError:
        return WorkerAnswer(message=f"{path}: the source is nested too deeply to be analysed")
    except MemoryError:
        hint = "do its macros grow without bound?"
        return WorkerAnswer(message=f"{path}: the source needs too much memory to be analysed", hint=hint)


def _result(question: Question, unit: Unit) -> object:
    from manycl.analysis.texts import images, merge, rewrite
    from manycl.analysis.work_group.function import work_group_function

    source, _, _, options = question.request
    if question.what == "work_group_function":
        return work_group_function(unit, question.kernel, *question.arguments)
    if question.what == "merge_kernel":
        return merge.merge_kernel(unit, question.kernel, options)
    if question.what == "image_kernel":
        return images.image_kernel(unit, question.kernel, options, *question.arguments)
    return rewrite.sub_kernel(unit, question.kernel, source, options, question.what)


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    _import_ahead(requests, 0.0, "manycl.analysis.reading.frontend")  # it was started before anybody asks
    while True:
        try:
            request: Any = receive(requests)
        except EOFError:
            return
        _allow(request.seconds)
        send(answers, answer(request.question))
        if request.before_launches:
            _import_ahead(requests, _IDLE, "manycl.analysis.launched")


def _import_ahead(requests: IO[bytes], seconds: float, module: str) -> None:
    """Import a module that later questions need, unless there is a question within so many seconds."""
    with suppress(Exception):  # pipes are not waited for like this on this system; or who needs it will tell
        if not select.select([requests], [], [], seconds)[0]:
            import_module(module)


def _allow(seconds: float) -> None:
    """The process may compute for so long from now on; then the system ends it."""
    try:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), most))
    except (ImportError, ValueError, OSError):  # not on this system: the limit on waiting remains
        pass


def main() -> None:
    """Serve on the standard streams, with bounded memory, until the other side closes them."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # libraries print where they like
        os.dup2(null, standard)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):  # not on this system: the time limit remains
        pass
    sys.setrecursionlimit(_RECURSION)
    threading.stack_size(_STACK)
    thread = threading.Thread(target=serve, args=(requests, answers))
    try:
        thread.start()
    except RuntimeError:
        sys.exit(NO_THREAD)
    thread.join()
