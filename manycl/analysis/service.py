"""``parse_program``: the analysis as the rest of manycl calls it, with the parsing in a guarded process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from manycl import flags
from manycl.analysis import worker
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.analysis.reading.options import read_options
from manycl.analysis.reading.tree import Unit, decode
from manycl.analysis.worker_process import LostError, WorkerProcess
from manycl.errors import Diagnostic, SourceError
from manycl.utilities.disk_cache import DiskCache
from manycl.utilities.kept import MANY, Kept
from manycl.utilities.logs import logger
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:  # they import islpy, or the abstract run
    from manycl.analysis.known_launch import KnownLaunch
    from manycl.analysis.launched import LaunchFacts
    from manycl.analysis.parametric import Chosen, LaunchFamily
    from manycl.analysis.regions.enclosure import Enclosure
    from manycl.analysis.summary import KernelSummary
    from manycl.analysis.texts.merge import MergeKernel
    from manycl.analysis.texts.rewrite import SubKernel
    from manycl.analysis.work_group.group_function import WorkGroupFunction

Value = TypeVar("Value")
log = logger(__name__)

SOURCE_LIMIT = 20.0  # seconds of computing for one source
LAUNCH_LIMIT = 6.0  # seconds of computing for a question about a launch: what counts its steps ends long before
TRIES = 2  # a question is asked again if the process was ended from outside
_CACHED = 256  # programs
_OURS = ("manycl", "manycl/utilities", "manycl/analysis/", "manycl/graph/", "manycl/model/")
CODE = (*_OURS, "ziglang", "clang", "clang/native", "islpy")
"""What finds out all that is kept on disk about sources and launches."""
_answers = DiskCache("sources", 64 << 20, CODE)
_about_launches = DiskCache("launches", 64 << 20, CODE)
_enclosures = DiskCache("enclosures", 16 << 20, CODE)
_decisions = DiskCache("deciding", 16 << 20, CODE)
_summaries = DiskCache("followed", 16 << 20, CODE)
_MANY_STEPS = 1000
"""Steps of the abstract run of a launch (some 5 ms) from which on it is kept on disk what was found."""


def parse_program(source: str, *, path: str = "<source>", options: Sequence[str] = ()) -> ProgramFacts:
    """Parse OpenCL C and find out what each kernel does with its arguments.

    ``path`` names the source in messages; quoted includes are sought in its folder, then in the ``-I``
    folders (relative to the current one). ``options`` are build options as given to ``clBuildProgram``, each
    an argument of its own: ``-D``, ``-U``, ``-I`` and ``-cl-std=`` count, all others are accepted. Without
    ``-cl-std=`` the source is OpenCL C 1.2 or, if it does not parse as such, 3.0 or 2.0.

    Returns the facts of all kernels (none for a source without kernels). The same arguments give the same object,
    unless the source includes files. Raises :class:`SourceError` with the diagnostics, for whatever input.
    """
    given = tuple(options)
    key = _request(source, path, given)
    program = _programs.get(key)
    if program is None:
        answer = _ask(key)
        program = ProgramFacts(source, given, answer.kernels, path, answer.warnings, answer.tree)
        if not _includes(source):
            return _programs.keep(key, program)
    return program


def sub_kernel(program: ProgramFacts, kernel: str, how: str = "sub_kernel") -> SubKernel:
    """Return the kernel that runs ranges of the work-groups of a launch of ``kernel``, or runs it in another way
    (``how``: as of :func:`manycl.analysis.texts.rewrite.sub_kernel`), or why there is none. Raises KeyError for a
    kernel that the program does not have, :class:`SourceError` where a file that it includes has changed and no longer
    compiles."""
    result: SubKernel = _question(program, how, kernel)
    return result if result.edited else replace(result, options=program.options)


def image_kernel(program: ProgramFacts, kernel: str, pixels: tuple[str, ...]) -> SubKernel:
    """Return the kernel with arrays in place of its images (:func:`manycl.analysis.texts.images.image_kernel`), or why
    there is none. Raises as :func:`sub_kernel`."""
    found: SubKernel = _question(program, "image_kernel", kernel, (pixels,))
    return found


def merge_kernel(program: ProgramFacts, kernel: str) -> MergeKernel:
    """Return how to copy exactly what ranges of the work-groups of a launch of ``kernel`` wrote, or why that cannot be
    done. Raises as :func:`sub_kernel` does."""
    found: MergeKernel = _question(program, "merge_kernel", kernel)
    return found


def work_group_function(
    program: ProgramFacts,
    kernel: str,
    local_size: tuple[int, int, int],
    lanes: int = 16,
    wide: bool = False,
    lines: bool = False,
) -> WorkGroupFunction:
    """A function that runs work-groups of ``kernel``, for a compiler of OpenCL C, or why there is none. ``local_size``
    is that of the launches that it is for; ``lanes``: how many 4-byte values a vector of the processor has; ``wide``:
    global ids may exceed 31 bits; ``lines``: it tells compilers the user's. Raises as :func:`sub_kernel` does."""
    arguments = local_size, lanes, wide, lines
    found: WorkGroupFunction = _question(program, "work_group_function", kernel, arguments)
    return found


def symbolic(program: ProgramFacts, kernel: str) -> KernelSummary:
    """Return what a kernel accesses and counts in any launch, in terms of ids and scalars. Raises KeyError for a kernel
    that the program does not have. The same arguments give the same object."""
    return _followed(program, kernel, None)


def _followed(program: ProgramFacts, kernel: str, launch: KnownLaunch | None) -> KernelSummary:
    facts = program.kernels[kernel]
    key = program.tree, kernel, launch and launch.key
    found = _interpreted.get(key)
    if found is None:
        question = _key(program, kernel, launch.key) if launch is not None else b""
        kept: Any = _summaries.recall(question) if question else None
        if kept is None:
            from manycl.analysis.interpreter.interpret import interpret

            kept = interpret(_unit(program), facts, launch)
            if question and kept.steps > _MANY_STEPS and not kept.failure:
                with suppress(RecursionError):  # what is nested deeply is followed again
                    _summaries.note(question, kept)
        found = _interpreted.keep(key, kept)
    return found


def deciding(program: ProgramFacts, kernel: str) -> frozenset[int] | None:
    """The scalars (indices) that decide what a kernel accesses; None: any may. Raises KeyError for no such kernel."""
    facts = program.kernels[kernel]
    key = program.tree, kernel
    found = _deciding.get(key)
    if found is None:
        from manycl.analysis.regions.bounds import deciding

        try:
            question = _key(program, kernel)
            found = (_recalled(_decisions, question, lambda: deciding(symbolic(program, kernel), facts)),)
        except SourceError:
            found = (None,)
        except Exception as error:  # each launch is looked at for itself
            told(error, f"finding out on what the accesses of kernel {kernel} depend")
            found = (None,)
        found = _deciding.keep(key, found)
    return found[0]


def _key(program: ProgramFacts, *about: object) -> bytes:
    return repr((sha256(program.tree).digest(), *about)).encode()


def _recalled(cache: DiskCache, question: bytes, find: Callable[[], Value]) -> Value:
    """Return what a cache has of a question, else what is found now, which it then has."""
    kept: Any = cache.recall(question)
    if kept is None:
        kept = (find(),)
        cache.note(question, kept)
    value: Value = kept[0]
    return value


def accessing(
    program: ProgramFacts, kernel: str, launch: KnownLaunch, at_once: bool = False
) -> tuple[KnownLaunch, Mapping[int, int]]:
    """A launch that accesses the same, or the same moved, and by how many bytes the given one's are further on, by
    argument: the first that was asked about, of those that differ only in scalars. So what was found out about one
    is known of all, as in loops that hand a kernel their counter. ``at_once``: the launch is not followed for that.
    Raises as :func:`deciding` does."""
    if not launch.scalars or not program.tree:
        return launch, {}
    found = deciding(program, kernel)
    if found is not None and not found.issuperset(launch.scalars):
        kept = {i: launch.scalars[i] for i in found & set(launch.scalars)}
        key = program.tree, kernel, replace(launch, scalars=kept).key
        launch = _alike.get(key) or _alike.keep(key, launch)
    many = _family(program, kernel, launch).of(launch)
    if many is not None:
        return many.like(launch)
    return (launch if found is not None else _touching(program, kernel, launch, at_once)), {}


def _touching(program: ProgramFacts, kernel: str, launch: KnownLaunch, at_once: bool) -> KnownLaunch:
    """A launch that touches the same as far as it was followed, the first that was asked about: a sort's steps of one
    distance do, whatever direction they sort in."""
    own = program.tree, kernel, launch.key
    known = _same.get(own)
    if known is None and not at_once:
        found = sha256(interpreted(program, kernel, launch).touching.encode()).digest()
        alike = program.tree, kernel, replace(launch, scalars={}).key, found
        known = _same.keep(own, _same.get(alike) or _same.keep(alike, launch))
    return known or launch


def launched(program: ProgramFacts, kernel: str, launch: KnownLaunch) -> LaunchFacts:
    """Return all that is known of a launch; the same arguments give the same object. Raises KeyError for no such
    kernel."""
    facts = program.kernels[kernel]
    key = program.tree, kernel, launch.key
    found = _launches.get(key)
    if found is None:
        from manycl.analysis.launched import LaunchFacts, Unanswered

        many = None if launch.parameters else _parametric(program, kernel, launch)

        def remote(what: str, arguments: tuple[object, ...]) -> object:
            for_all = many and many[0].for_all(what, *arguments)
            if for_all is not None:
                return for_all

            def asked(what: str, *arguments: object) -> Any:
                answer = _answer(worker.LaunchQuestion(program.tree, facts, launch, what, arguments), LAUNCH_LIMIT)
                if answer.failure:
                    raise LostError(_failed(answer, "the analysis"))
                return answer.result

            def question(what: str, *arguments: object) -> bytes:
                return _key(program, kernel, launch.key, what, arguments)

            try:
                if what != "several":
                    return _recalled(_about_launches, question(what, *arguments), lambda: asked(what, *arguments))
                several: Any = arguments  # each is kept for itself: others may be asked with it next time
                known: dict[object, Any] = {one: _about_launches.recall(question(*one)) for one in several}
                missing = [one for one in several if known[one] is None]
                for one, answer in zip(missing, asked(what, *missing) if missing else (), strict=True):
                    known[one] = (answer,)
                    _about_launches.note(question(*one), known[one])
                return [known[one][0] for one in several]
            except LostError as lost:
                return Unanswered(f"{lost}", again=lost.outside)

        summary = _interpreted.get(key) or (many[1] if many else interpreted(program, kernel, launch))
        found = _launches.keep(key, LaunchFacts(_unit(program), facts, launch, remote, summary, many is not None))
        with _lock:
            _steps[key[:2]] = max(_steps.pop(key[:2], 0), found.summary.steps)
            if len(_steps) > _CACHED:
                del _steps[next(iter(_steps))]
    return found


def _parametric(program: ProgramFacts, kernel: str, launch: KnownLaunch) -> tuple[LaunchFacts, KernelSummary] | None:
    """Return the facts of a launch's parametric launch, and its own summary by them, or None where none is known."""
    from manycl.analysis.parametric import evaluated

    found = _family(program, kernel, launch).of(launch) if launch.scalars else None
    summary = evaluated(found, launch) if found is not None else None
    if found is None or summary is None:
        return None
    _interpreted.keep((program.tree, kernel, found.launch.key), found.summary)
    return launched(program, kernel, found.launch), summary


def _family(program: ProgramFacts, kernel: str, launch: KnownLaunch) -> LaunchFamily:
    """The launches of a kernel that differ from one in scalars only."""
    key = program.tree, kernel, replace(launch, scalars={}).key
    family = _families.get(key)
    if family is None:
        from manycl.analysis.parametric import LaunchFamily
        from manycl.analysis.regions.enclosure import stays

        facts = program.kernels[kernel]

        @cache
        def enclosure() -> Enclosure | None:
            return enclosed(program, kernel)

        keeps = lambda one, between: stays(enclosure(), facts, one, between)  # noqa: E731
        family = _families.keep(key, LaunchFamily(facts, partial(_widest, program, facts), keeps))
    return family


def _widest(
    program: ProgramFacts, kernel: KernelFacts, launch: KnownLaunch, chosen: Chosen, least: int
) -> tuple[KnownLaunch, KernelSummary] | None:
    """:func:`manycl.analysis.parametric.widest`, of this process or another one."""
    from manycl.analysis.interpreter.interpret import interpret
    from manycl.analysis.parametric import widest

    def found() -> tuple[KnownLaunch, KernelSummary] | None:
        return widest(launch, chosen, least, partial(interpret, _unit(program), kernel))

    return _recalled(_about_launches, _key(program, kernel.name, launch.key, chosen, least), found)


def is_one_of_many(program: ProgramFacts, kernel: str, launch: KnownLaunch) -> bool:
    """Return whether a launch is one of those that a launch with parameters is."""
    return bool(launch.scalars) and _family(program, kernel, launch).of(launch) is not None


def steps(program: ProgramFacts, kernel: str) -> int:
    """Return what following a launch of a kernel has taken at most, in steps of the abstract run; 0: none was
    followed."""
    return _steps.get((program.tree, kernel), 0)


def interpreted(program: ProgramFacts, kernel: str, launch: KnownLaunch) -> KernelSummary:
    """Return what a kernel accesses and counts in one launch; without isl, whose import alone takes a tenth of a
    second."""
    known = _launches.get((program.tree, kernel, launch.key))
    return known.summary if known is not None else _followed(program, kernel, launch)


def enclosed(program: ProgramFacts, kernel: str) -> Enclosure | None:
    """Return what a kernel accesses in any launch, so that many can be asked about quickly; None where that cannot be
    told. Raises KeyError for a kernel that the program does not have."""
    facts = program.kernels[kernel]

    def found() -> Enclosure | None:
        from manycl.analysis.interpreter.interpret import interpret_any
        from manycl.analysis.regions.enclosure import enclosure

        return enclosure(interpret_any(_unit(program), facts))

    return _recalled(_enclosures, _key(program, kernel), found)


def oversized(program: ProgramFacts, kernel: str) -> tuple[str, int, str, int] | None:
    """A private variable that no device has room for: its name, its bytes, and the path and line of its declaration."""
    from manycl.analysis.regions import bounds

    return bounds.oversized(_unit(program), program.kernels[kernel])


def _unit(program: ProgramFacts) -> Unit:
    unit = _units.get(program.tree)
    if unit is None:
        unit = _units.keep(program.tree, decode(program.tree))
    return unit


def _question(program: ProgramFacts, what: str, kernel: str, arguments: tuple[Any, ...] = ()) -> Any:
    if kernel not in program.kernels:
        raise KeyError(kernel)
    request = _request(program.source, program.path, program.options)
    key = request, what, kernel, arguments
    result = _texts.get(key)
    if result is None:
        result = _ask(worker.Question(request, what, kernel, arguments)).result
        if not _includes(program.source):
            return _texts.keep(key, result)
    return result


def _request(source: str, path: str, options: tuple[str, ...]) -> worker.Request:
    """Return what the worker is asked; raises :class:`SourceError` for options and text that are none."""
    settings = read_options(options)
    _check_text(source, path)
    folder = os.getcwd() if path.startswith("<") else os.path.dirname(os.path.abspath(path))
    return source, path, folder, (*options, *(f"-I{include}" for include in settings.folders))


def _check_text(source: str, path: str) -> None:
    position, words = source.find("\0"), "a NUL byte"
    try:
        source.encode()
    except UnicodeEncodeError as error:
        position, words = error.start, "a character that is not valid Unicode"
    if position >= 0:
        line = source.count("\n", 0, position) + 1
        raise SourceError(f"{path} is not valid text", (Diagnostic(path, line, 0, "error", words),))


def _ask(request: worker.Request | worker.Question) -> worker.WorkerAnswer:
    """Return what a process has found out about the text, this one or another."""
    asked = request.request if isinstance(request, worker.Question) else request
    if _includes(asked[0]):  # a file that is included may change
        return _ask_worker(request)
    text, path, _, options = asked  # nothing is sought in the folder
    about = (request.what, request.kernel, *request.arguments) if isinstance(request, worker.Question) else ()
    question = repr((text, path, options, about)).encode()
    kept = _answers.recall(question)
    if isinstance(kept, worker.WorkerAnswer):
        log.debug("%s was analysed before", path)
        return kept
    answer = _ask_worker(request)
    log.debug("%s is analysed", path)
    _answers.note(question, answer)
    return answer


def _includes(source: str) -> bool:
    return "include" in source


def _ask_worker(request: worker.Request | worker.Question) -> worker.WorkerAnswer:
    path = request.request[1] if isinstance(request, worker.Question) else request[1]
    try:
        reply = _answer(request, SOURCE_LIMIT)
    except LostError as lost:
        raise SourceError(f"{path}: {lost}", hint=lost.hint) from None
    if reply.failure:
        raise SourceError(f"{path}: {_failed(reply, 'the analysis of this source')}")
    if reply.message:
        raise SourceError(reply.message, reply.diagnostics, hint=reply.hint)
    return reply


def _failed(answer: worker.WorkerAnswer, what: str) -> str:
    """Return what failed in the other process, where nothing should, in words."""
    log.warning("%s failed:\n%s", what, answer.failure.rstrip())
    if flags.debug():
        print(answer.failure, file=sys.stderr)
    return f"{what} failed ({answer.failure.strip().splitlines()[-1][:200]})"


def _answer(question: worker.Request | worker.Question | worker.LaunchQuestion, seconds: float) -> worker.WorkerAnswer:
    """The answer of the other process, which is started again if need be. Raises :class:`LostError`."""
    for again in range(TRIES - 1, -1, -1):
        with _asking:
            try:
                return _worker().ask(worker.Limited(seconds, question, _expected))
            except LostError as lost:
                if not (lost.outside and again):
                    raise
                log.warning("%s: it is started again", lost)
    raise AssertionError("the last try returns or raises")


def expect_launches() -> None:
    """Have the other process import what questions about launches need, when it has nothing else to do. Where no
    answer is kept on disk yet, the process is started now: the first source will be a question."""
    global _expected
    _expected = True
    with suppress(OSError):
        if _answers.is_empty:
            with _asking:
                _worker()


_expected = False
_lock = threading.Lock()
_asking = threading.Lock()
_programs: Kept[tuple[object, ...], ProgramFacts] = Kept(_CACHED)
_units: Kept[bytes, Unit] = Kept(_CACHED)
_deciding: Kept[tuple[bytes, str], tuple[frozenset[int] | None]] = Kept(_CACHED)
_alike: Kept[tuple[object, ...], KnownLaunch] = Kept(_CACHED)
_same: Kept[tuple[object, ...], KnownLaunch] = Kept(MANY)
_texts: Kept[tuple[object, ...], object] = Kept(_CACHED)
_launches: Kept[tuple[object, ...], LaunchFacts] = Kept(_CACHED)
_interpreted: Kept[tuple[object, ...], KernelSummary] = Kept(MANY)
_families: Kept[tuple[object, ...], LaunchFamily] = Kept(_CACHED)
_steps: dict[tuple[bytes, str], int] = {}
_current: WorkerProcess | None = None


def _worker() -> WorkerProcess:
    global _current
    if _current is None or not _current.usable():
        if _current is not None:
            _current.close()
        _current = WorkerProcess()
        log.debug("the process of the analysis is %d", _current.process.pid)
    return _current


@atexit.register  # before threads register that they are waited for: these may ask until then
def _stop() -> None:
    if _current is not None:
        _current.close()
