"""Every public function refuses, in a sentence and before anything runs, what is no argument for it."""

from __future__ import annotations

import enum
import inspect
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.api.program import Kernel
from manycl.api.recording import Recording, RunTrace
from manycl.api.reserve import Reserved

SOURCE = "kernel void twice(global int *x, int n) { if (get_global_id(0) < n) x[get_global_id(0)] *= 2; }"
BESIDE = (Kernel, Recording, Reserved, RunTrace)
"""Classes that public functions return, beside those that the package exports."""
INSIDE = {
    "Queue": "add begin_stream collected finish_for first_reads give keep make_room move reach_horizon "
    "read_ahead read_behind submitting uses wait_for write_ahead",
    "Array": "__init__ check_out checked like meets new on use",
    "Event": "__init__",
    "Kernel": "__init__",
    "ParallelFor": "called",
    "Prepared": "__init__ complete",
    "Recording": "__init__ add is_of",
    "Reserved": "__init__",
}
"""Methods that only manycl itself calls, or that take anything by operators (``a[key]``)."""
VALUES = (mc.Choice, mc.LocalMemory, mc.KernelByKernel, mc.Machine, mc.Plan, mc.Trace, RunTrace)
"""Made by policies and readers, whose judges look at what they contain: their constructors are not asked here."""

ODD: dict[str, Any] = {
    "None": None, "True": True, "0": 0, "5": 5, "-1": -1, "10**30": 10**30, "2.5": 2.5, "nan": float("nan"),
    "inf": float("inf"), "1j": 1j, "text": "x", "bytes": b"x", "object": object(), "class": int, "list": [3],
    "[None]": [None], "tuple": (1, 2), "dict": {"x": None}, "set": {"x"}, "function": lambda: None,
    "array": np.zeros(3), "digits": 10**5000,
}  # fmt: skip
INTEGERS = {"0", "5", "-1"}
MAY = {
    "int": INTEGERS, "float": INTEGERS | {"2.5", "10**30"}, "bool": {"True"}, "str": {"text"}, "Path": {"text"},
    "None": {"None"},
    "Axis": INTEGERS | {"None"}, "Out": {"None"}, "Space": INTEGERS | {"list", "tuple"},
    "Shape": INTEGERS | {"list", "tuple"},
    "Sequence[int]": INTEGERS | {"list", "tuple"},
    "Sequence[str]": {"set"}, "Sequence[str | Path]": {"set"}, "Mapping[str, Any]": {"dict"}, "Bounds": {"tuple"},
    "npt.DTypeLike": {"class"}, "Callable[..., Any]": {"function", "class"}, "NDRangeFunction": {"function", "class"},
    "Callable[[], Any]": {"function", "class"}, "Callable[[Event], Any]": {"function", "class"},
    "Bound": {"text", "function", "class"}, "AnyArray": {"array"}, "Kernel": set(), "Array": set(), "Queue": set(),
    "Placement": set(), "DaskClient": set(),
    "Sequence[Event]": set(), "Sequence[Array]": set(), "Mapping[str, int]": set(), "Session": set(),
    "Policy": set(), "Plan": set(), "Merging": set(), "How": set(), "Literal['learning']": set(),
    "Mapping[str, Bounds]": set(), "Mapping[str, str]": set(), "Mapping[str, AccessPattern]": set(),
    "Sequence[tuple[Array, Array]]": set(), "tuple[tuple[int, int], ...]": set(),
    "Iterable[str]": {"list", "tuple", "set", "dict", "text"},
}  # fmt: skip
"""By a part of an annotation: which of these may be taken (they are not tried); all others have to be refused."""


class Place:
    """What valid calls are made of."""

    def __init__(self, queue: mc.Queue, folder: Path) -> None:
        self.queue, self.folder = queue, folder
        self.program = mc.Program(SOURCE)
        self.kernel = mc.Program(SOURCE).twice
        self.a, self.b = queue.array(np.arange(4, dtype=np.int32)), queue.zeros(4, np.int32)
        self.c = queue.zeros(4, np.int32)
        with queue.prepare() as self.prepared:
            self.kernel(queue, (4,), None, self.a, 4)
        self.event = self.kernel(queue, (4,), None, self.b, 4)
        queue.finish()
        self.trace = queue.trace
        self.loop = mc.ParallelFor("x[i] = i;")


CALLS: dict[str, Callable[[Place], tuple[Callable[..., Any], dict[str, Any]]]] = {
    "Queue.__init__": lambda p: (mc.Queue, {"devices": "cpu/2"}),
    "Queue.admit": lambda p: (p.queue.admit, {"name": "cpu0.0"}),
    "Queue.array": lambda p: (p.queue.array, {"contents": [1, 2]}),
    "Queue.call": lambda p: (p.queue.call, {"function": lambda: None}),
    "Queue.check_versions": lambda p: (
        lambda **words: p.queue.check_versions(
            words.pop("kernel"), words.pop("global_size"), words.pop("local_size"), p.a, 4, **words
        ),
        {"kernel": p.kernel, "global_size": (4,), "local_size": None},
    ),
    "Queue.come": lambda p: (p.queue.come, {"device": "cpu0.0"}),
    "Queue.arange": lambda p: (p.queue.arange, {"start": 4}),
    "Queue.copy": lambda p: (p.queue.copy, {"target": p.a, "source": p.b}),
    "Queue.empty": lambda p: (p.queue.empty, {"shape": 4, "dtype": np.int32}),
    "Queue.default_rng": lambda p: (p.queue.default_rng, {}),
    "Queue.eye": lambda p: (p.queue.eye, {"n": 4}),
    "Queue.fill": lambda p: (p.queue.fill, {"array": p.a, "value": 3}),
    "Queue.from_dlpack": lambda p: (p.queue.from_dlpack, {"producer": np.zeros(3)}),
    "Queue.leave": lambda p: (p.queue.leave, {"device": "cpu0.0"}),
    "Queue.full": lambda p: (p.queue.full, {"shape": 4, "fill_value": 1}),
    "Queue.linspace": lambda p: (p.queue.linspace, {"start": 0, "stop": 1}),
    "Queue.ones": lambda p: (p.queue.ones, {"shape": 4}),
    "Queue.read": lambda p: (p.queue.read, {"array": p.a}),
    "Queue.report": lambda p: (lambda **words: p.queue.report(**words).__enter__(), {"path": p.folder / "run.txt"}),
    "Queue.slow": lambda p: (p.queue.slow, {"device": "cpu0.0", "factor": 1.0}),
    "Queue.write": lambda p: (p.queue.write, {"array": p.a, "contents": [1, 2, 3, 4]}),
    "Queue.zeros": lambda p: (p.queue.zeros, {"shape": 4, "dtype": np.int32}),
    "Placement.__init__": lambda p: (mc.Placement, {"never": "cpu1"}),
    "Array.astype": lambda p: (p.a.astype, {"dtype": np.float32}),
    "Array.exchange": lambda p: (p.a.exchange, {"other": p.b}),
    "Array.fill": lambda p: (p.a.fill, {"value": 3}),
    "Array.get": lambda p: (p.a.get, {}),
    "Array.set": lambda p: (p.a.set, {"contents": [1, 2, 3, 4]}),
    "Array.sort": lambda p: (p.c.sort, {}),
    "Array.view": lambda p: (p.a.view, {"dtype": np.uint32}),
    "Event.add_callback": lambda p: (p.event.add_callback, {"function": print}),
    "ParallelFor.__init__": lambda p: (mc.ParallelFor, {"body": "x[i] = i;"}),
    "ParallelFor.__call__": lambda p: (lambda **words: p.loop(**{"x": p.a, **words}), {"space": 4}),
    "ParallelFor.derive": lambda p: (lambda **words: p.loop.derive(**{"x": p.a, **words}), {"space": 4}),
    "ParallelFor.source": lambda p: (lambda **words: p.loop.source(**{"x": p.a, **words}), {"space": 4}),
    "parallel_for": lambda p: (
        lambda **words: mc.parallel_for(**{"x": p.a, **words}), {"space": 4, "body": "x[i] = i;"},
    ),
    "Plan.as_trace": lambda p: (p.queue.result.plan.as_trace, {}),
    "Plan.from_json": lambda p: (mc.Plan.from_json, {"text": "{}"}),
    "Plan.save": lambda p: (p.queue.result.plan.save, {"path": p.folder / "plan.json"}),
    "Prepared.repeat": lambda p: (p.prepared.repeat, {"times": 1}),
    "Program.__init__": lambda p: (mc.Program, {"source": SOURCE}),
    "Program.annotate": lambda p: (p.program.annotate, {"kernel": "twice", "argument": "x", "within": (0, "n")}),
    "Program.build": lambda p: (p.program.build, {}),
    "Program.from_file": lambda p: (mc.Program.from_file, {"path": p.folder / "k.cl"}),
    "Program.kernel": lambda p: (p.program.kernel, {"name": "twice"}),
    "Kernel.__call__": lambda p: (
        lambda queue, global_size, local_size, **words: p.kernel(queue, global_size, local_size, p.a, 4, **words),
        {"queue": p.queue, "global_size": (4,), "local_size": None},
    ),
    "Kernel.add_sequence": lambda p: (p.kernel.add_sequence, {"function": print, "kinds": "cpu"}),
    "Kernel.add_version": lambda p: (p.kernel.add_version, {"other": p.program.twice, "kinds": "cpu"}),
    "Kernel.annotate": lambda p: (p.kernel.annotate, {"argument": "x", "within": (0, "n")}),
    "RunTrace.gantt": lambda p: (p.trace.gantt, {"path": p.folder / "run.html"}),
    "RunTrace.perfetto": lambda p: (p.trace.perfetto, {"path": p.folder / "run.json"}),
    "Trace.load": lambda p: (mc.Trace.load, {"path": p.folder / "run.jsonl"}),
    "Trace.parse": lambda p: (mc.Trace.parse, {"lines": []}),
    "Trace.save": lambda p: (p.trace.save, {"path": p.folder / "run.jsonl"}),
    "activate": lambda p: (mc.activate, {}),
    "continuous_subsections": lambda p: (mc.continuous_subsections, {"start": "batch", "end": "batch + 1"}),
    "dot": lambda p: (mc.dot, {"a": p.a, "b": p.b}),
    "load_application": lambda p: (mc.load_application, {"path": p.folder / "a.json"}),
    "load_machine": lambda p: (mc.load_machine, {"path": "mkmd"}),
    "policy": lambda p: (mc.policy, {"name": "odd"}),
    "reserve": lambda p: (mc.reserve, {"devices": "cpu/2#0"}),
    "sampler": lambda p: (mc.sampler, {"addressing": "repeat"}),
    "successive_subsections": lambda p: (mc.successive_subsections, {"count": 1}),
    "trace_all": lambda p: (mc.trace_all, {"path": p.folder / "all.txt"}),
}  # fmt: skip


def _public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What a user can call with arguments, as the package has it."""
    exported = [(name, getattr(mc, name)) for name in mc.__all__]
    for name, what in [*exported, *((kind.__name__, kind) for kind in BESIDE)]:
        if inspect.isfunction(what):
            yield name, what
        if not inspect.isclass(what) or issubclass(what, (Exception, enum.Enum)):
            continue
        for method in dir(what):
            function = inspect.getattr_static(what, method)
            function = getattr(function, "__func__", function)
            is_made_here = inspect.isfunction(function) and function.__module__.startswith(("manycl.", "contextlib"))
            is_public = not method.startswith("_") or (method in ("__init__", "__call__") and what not in VALUES)
            inside = INSIDE.get(what.__name__, "").split()
            if what in (mc.KernelByKernel, mc.Machine, mc.Choice) or (what is RunTrace and hasattr(mc.Trace, method)):
                continue
            if is_made_here and is_public and method not in inside:
                yield f"{what.__name__}.{method}", function


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    listed = list(inspect.signature(function).parameters.values())
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in listed if p.name not in ("self", "cls") and p.kind not in fixed]


PUBLIC = {name: function for name, function in _public() if _parameters(function)}
"""Without functions of NumPy's, which take whatever NumPy's do: ``*args, **options``."""


def test_every_public_function_is_tried() -> None:
    assert PUBLIC.keys() == CALLS.keys()


def _parts(annotation: str) -> list[str]:
    """Of a union, what it is made of: brackets hold together."""
    parts, depth = [""], 0
    for c in annotation:
        depth += (c == "[") - (c == "]")
        if c == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with mc.Queue("cpu/2") as queue:
        yield Place(queue, tmp_path_factory.mktemp("arguments"))


@pytest.mark.parametrize("name", sorted(CALLS))
def test_what_is_no_argument_is_refused(place: Place, name: str) -> None:
    made, valid = CALLS[name](place)
    kept, before = place.a.get(), len(place.queue)
    wrong = []
    for parameter in _parameters(PUBLIC[name]):
        parts = _parts(str(parameter.annotation))
        if {"Any", "npt.ArrayLike"} & set(parts):
            continue
        may = set[str]().union(*(MAY[part] for part in parts))
        for odd in sorted(ODD.keys() - may):
            told = _told(partial(made, **{**valid, parameter.name: ODD[odd]}))
            if told:
                wrong.append(f"{parameter.name}={odd}: {told}")
    assert not wrong, "\n".join(wrong)
    assert len(place.queue) == before
    assert (place.a.get() == kept).all()


def _told(call: Callable[[], Any]) -> str:
    """What is wrong with how a call was refused; nothing where it was in a sentence."""
    try:
        call()
    except mc.ManyclError as error:
        return "" if len(str(error).split()) > 3 else f"says only {error}"
    except (TypeError, ValueError, IndexError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        is_ours = "manycl" in where.filename and (where.line or "").lstrip().startswith("raise")
        is_ours |= "manycl/api/arrays" in where.filename or "numpy" in where.filename  # as NumPy says it
        return "" if is_ours else f"{type(error).__name__} from inside: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "was taken"


NAN, HUGE = float("nan"), 10**30
WRONG: tuple[Callable[[Place], Any], ...] = (
    lambda p: mc.Queue(""),
    lambda p: mc.Queue([]),
    lambda p: mc.Queue("cpu/2", queues={"cpu": 0}),
    lambda p: mc.Queue("cpu/2", queues={"cpu": -3}),
    lambda p: mc.Queue("cpu/2", queues={"cpu": 1 << 40}),
    lambda p: mc.Queue("cpu/2", queues={"nothing": 2}),
    lambda p: mc.Queue("cpu/2", policy="nothing"),
    lambda p: mc.Queue("cpu/2", options={"nothing": 1}),
    lambda p: mc.Queue("cpu/2", options={5: 1}),
    lambda p: mc.Queue("cpu/2", policy="hop", options={"live": object()}),
    *(lambda p, shape=shape: p.queue.zeros(shape) for shape in (-1, (4, -1), 1 << 62, (1 << 40, 1 << 40), [2.5])),
    *(lambda p, shape=shape: p.queue.empty(shape) for shape in (-1, (4, -1), 1 << 62, (1 << 40, 1 << 40), [2.5])),
    *(lambda p, dtype=dtype: p.queue.zeros(4, dtype) for dtype in (object, "U3", "M8[D]", "V0")),
    *(lambda p, odd=odd: p.queue.array(odd) for odd in (None, "x", object(), [[1], [1, 2]], {}, {"x"}, print)),
    *(lambda p, odd=odd: p.a.set(odd) for odd in (None, "xxxx", [1, 2], [HUGE] * 4, [NAN] * 4, [[1], [1, 2]], {})),
    *(lambda p, odd=odd: p.queue.write(p.a, odd) for odd in (None, "xxxx", [1, 2], [HUGE] * 4, [[1], [1, 2]], {})),
    *(lambda p, odd=odd: p.queue.fill(p.a, odd) for odd in (None, "x", NAN, HUGE, [1, 2], 2.5, {}, [[1], [1, 2]])),
    *(lambda p, odd=odd: p.a.fill(odd) for odd in (None, "x", NAN, HUGE, [1, 2], 2.5, {}, print)),
    *(lambda p, odd=odd: p.queue.from_dlpack(odd) for odd in (None, "x", 5, object(), [1])),
    *(lambda p, odd=odd: p.a.transpose(odd) for odd in (3, -5, "x", 1.5, [0, 0], [None], HUGE, {"x": 1})),
    *(lambda p, odd=odd: p.a.reshape(odd) for odd in (3, "x", 1.5, [4, 4], HUGE, {})),
    *(lambda p, odd=odd: p.a[odd] for odd in (7, "x", 1.5, HUGE, slice("a"), {}, (0, 0), [7])),
    *(lambda p, odd=odd: p.a.__setitem__(0, odd) for odd in (None, "x", [1, 2], NAN, object(), HUGE)),
    *(lambda p, odd=odd: p.kernel(p.queue, (4,), None, odd, 4) for odd in (None, 5, "x", [1], np.zeros(4), HUGE)),
    *(
        lambda p, odd=odd: p.kernel(p.queue, (4,), None, p.a, odd)
        for odd in (None, "x", [1], HUGE, NAN, 2.5, 1j, {}, print, b"xx", mc.LocalMemory(4))
    ),
    *(
        lambda p, size=size: p.kernel(p.queue, size, None, p.a, 4)
        for size in (None, "4", 0, -1, (), (1, 1, 1, 1), (1.5,), HUGE, True, b"4", (NAN,), {"x"})
    ),
    *(lambda p, size=size: p.kernel(p.queue, (4,), size, p.a, 4) for size in ("4", 0, 3, (), (2, 2), HUGE, b"4")),
    *(
        lambda p, offset=offset: p.kernel(p.queue, (4,), None, p.a, 4, global_offset=offset)
        for offset in ((-1,), (HUGE,), (0, 0), "0", (1.5,), b"0", True, 1 << 63)
    ),
    lambda p: p.kernel(p.queue, (4,), None, p.a, 4, rank=NAN),
    lambda p: p.kernel(p.queue, (4,), None, p.a),
    lambda p: p.queue.call(print, p.a, writes=[p.b]),
    lambda p: p.queue.call(print, p.a, rank=NAN),
    lambda p: p.queue.copy(p.a, p.b, byte_count=-1),
    lambda p: p.queue.copy(p.a, p.b, byte_count=HUGE),
    lambda p: p.queue.copy(p.a, p.b, src_offset=17),
    lambda p: p.queue.copy(p.a, p.b, dst_offset=-1),
    lambda p: p.queue.fill(p.a, 1, offset=3),
    lambda p: p.queue.fill(p.a, 1, size=-4),
    lambda p: p.queue.read(p.a, np.zeros(3, np.int32)),
    lambda p: p.queue.leave("nothing"),
    lambda p: p.queue.come("nothing"),
    lambda p: p.queue.admit("nothing"),
    *(lambda p, factor=factor: p.queue.slow("cpu0.0", factor) for factor in (0, -1, NAN, float("inf"))),
    lambda p: p.queue.report(p.folder / "run.odd").__enter__(),
    lambda p: mc.trace_all(p.folder / "run.odd"),
    lambda p: mc.trace_all(""),
    lambda p: mc.Trace.load(p.folder / "nothing.jsonl"),
    lambda p: mc.Trace.load("\0"),
    lambda p: mc.Trace.parse([5]),
    lambda p: mc.Trace.parse(["x"]),
    lambda p: mc.Plan.from_json("x"),
    lambda p: mc.Plan.from_json("[]"),
    lambda p: p.prepared.repeat(-1),
    lambda p: p.prepared.repeat(1, every=0),
    lambda p: p.prepared.repeat(1, swap=[(p.a, 5)]),
    *(lambda p, path=path: mc.Program.from_file(p.folder / path) for path in ("nothing.cl", "", "x" * 5000)),
    lambda p: mc.Program.from_file("\0"),
    lambda p: mc.Program(SOURCE, [5]),
    lambda p: mc.Program("kernel void f( {"),
    lambda p: p.program.kernel("nothing"),
    *(lambda p, argument=argument: p.kernel.annotate(argument, within=(0, 1)) for argument in (7, -1, "nothing", HUGE)),
    *(
        lambda p, pair=pair: p.kernel.annotate("x", values=pair)
        for pair in ((), (1,), ("", ""), ("x y", 1), (None, 1), (NAN, 1), (1, 2, 3), [0, 1.5], "01")
    ),
    lambda p: p.kernel.annotate("x", within={"nothing": (0, 1)}),
    lambda p: p.kernel.annotate("x"),
    lambda p: p.kernel.add_version(p.program.twice, "nothing"),
    lambda p: p.kernel.add_version(print, "host", divide=7),
    lambda p: p.kernel.add_sequence(print, "host"),
    *(lambda p, space=space: mc.parallel_for(space, "x[i] = i;", x=p.a) for space in (10**20, -1, (), (1,) * 4)),
    *(lambda p, odd=odd: mc.parallel_for(4, "x[i] = n;", x=p.a, n=odd) for odd in (None, "x", HUGE, [1], {}, print)),
    lambda p: mc.parallel_for(4, "x[i] = n;", x=p.a, constants={"n": None}),
    lambda p: mc.parallel_for(4, "x[i] = 1;", x=p.a, local=(3, 3)),
    lambda p: mc.parallel_for(4, "x[i] = 1;", x=p.a, local=(-1,)),
    lambda p: mc.parallel_for(4, "x[i] = 1;", x=p.a, indices=("1",)),
    lambda p: mc.parallel_for(4, "x[i] = 1;", x=p.a, name="not a name"),
    lambda p: mc.parallel_for(4, "s += x[i];", x=p.a, reduction={"s": "nothing"}),
    lambda p: mc.parallel_for(4, "x[i] = 1;", x=p.a, access={"x": mc.continuous_subsections("nothing", "1")}),
    lambda p: mc.parallel_for(4, "x[i] = 1;", x=p.a, batch=0),
    lambda p: mc.successive_subsections(0),
    *(lambda p, seconds=seconds: mc.reserve("cpu", seconds=seconds) for seconds in (0, -1, NAN, 1e300, "a")),
    lambda p: mc.reserve("cpu", priority=1 << 40),
    lambda p: mc.reserve("nothing"),
    lambda p: mc.reserve(""),
    lambda p: mc.reserve([]),
    lambda p: mc.load_machine("nothing"),
    lambda p: mc.load_machine("\0"),
    lambda p: mc.load_application(p.folder / "nothing.json"),
    lambda p: mc.load_application(p.folder),
    lambda p: p.a.sum(axis=7),
    lambda p: p.a.sum(dtype="M8[D]"),
    lambda p: p.a.mean(dtype=np.int32),
    lambda p: p.a.sum(out=p.b),
    lambda p: p.a.view("M8[D]"),
    lambda p: p.a.view("V3"),
    lambda p: p.a.astype("U3"),
    lambda p: p.a.astype(object),
    lambda p: p.a.exchange(p.a[1:]),
    lambda p: mc.dot(p.a, p.a[1:]),
)  # fmt: skip


def test_wrong_values_are_refused(place: Place) -> None:
    kept, before = place.a.get(), len(place.queue)
    told = {inspect.getsource(call).strip() + str(call.__defaults__): _told(partial(call, place)) for call in WRONG}
    assert not any(told.values()), "\n".join(f"{words}\n    {call:.300}" for call, words in told.items() if words)
    assert len(place.queue) == before
    assert (place.a.get() == kept).all()


def test_comments_are_in_whatever_encoding(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-8", "utf-8-sig"):
        (tmp_path / "k.cl").write_bytes(f"// größer\n{SOURCE}".encode(encoding))
        assert list(mc.Program.from_file(tmp_path / "k.cl").facts.kernels) == ["twice"]
