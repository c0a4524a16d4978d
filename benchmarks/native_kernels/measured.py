"""One process of the measurement: every kernel in one way, on one core or all, checked against NumPy.

CPU seconds are those of all threads of the process: what else the machine does counts little.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from manycl.api.arrays.host_arrays import AnyArray
from manycl.drivers.driver import DriverError, Source
from manycl_bench.libsplit.application import KERNELS, Application, Contents, Step
from manycl_bench.libsplit.registry import APPLICATIONS
from native_kernels import four, polybench

HERE = Path(__file__).parent
ENOUGH = 1.5
"""CPU seconds after which a kernel is not run again, once it was three times."""
SHORT, MOST_IN_A_ROW = 5e-3, 100
PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel"}
BLAS = "product_2048"


@dataclass(frozen=True)
class Task:
    """``way``: "native", "hand", "numpy", or a key of PLATFORMS. ``folder``: where what is expected is kept."""

    way: str
    names: Sequence[str]
    quick: bool
    repeats: int
    folder: str


@dataclass(frozen=True)
class Case:
    """``make`` gives an application of a size; ``folder`` has its source."""

    make: Callable[[int], Application]
    small: int
    size: int
    folder: Path
    options: tuple[str, ...] = ()


def _cases() -> dict[str, Case]:
    found: dict[str, Case] = {
        "product_tiled": Case(lambda n: four.product("product_tiled", n), 64, 1024, HERE, four.MAD),
        "product_naive": Case(lambda n: four.product("product_naive", n), 64, 1024, HERE, four.MAD),
        "five_points": Case(four.five_points, 128, 4096, HERE, four.MAD),
        "bodies": Case(four.bodies, 256, 8192, HERE, four.MAD),
        BLAS: Case(lambda n: four.product("product_naive", n), 64, 2048, HERE, four.MAD),
    }
    for name, entry in APPLICATIONS.items():
        found[f"libsplit {name}"] = Case(entry.make, entry.small, entry.quick, KERNELS)
    for name, (make, small, size) in polybench.KERNELS.items():
        found[f"polybench {name}"] = Case(make, small, size, HERE)
    return found


CASES = _cases()
FOUR = ("product_tiled", "product_naive", "five_points", "bodies")


class Way(Protocol):
    """How one application is run."""

    def prepare(self, step: Step) -> Callable[[], object]:
        """What runs a launch, and returns when it is complete."""

    def contents(self, name: str) -> AnyArray: ...


class OpenCL:
    """Plain PyOpenCL."""

    def __init__(self, platform: str, application: Application, text: str, options: Sequence[str]) -> None:
        import pyopencl as cl

        from manycl.drivers.opencl.processor import introduce

        self.cl, self.application = cl, application
        device = next(p for p in cl.get_platforms() if p.name.startswith(PLATFORMS[platform])).get_devices()[0]
        if platform == "pocl":
            introduce(device)  # it may be older than the processor
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what compilers say
            self.program = cl.Program(self.context, text).build(list(options))
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.memory = {k: cl.Buffer(self.context, flags, hostbuf=v) for k, v in application.arrays.items()}

    def prepare(self, step: Step) -> Callable[[], object]:
        kernel = self.cl.Kernel(self.program, step.kernel)
        kernel.set_args(*(self.memory[a] if isinstance(a, str) else _scalar(a) for a in step.args))

        def launch() -> None:
            self.cl.enqueue_nd_range_kernel(self.queue, kernel, step.global_size, step.local_size)
            self.queue.finish()

        return launch

    def contents(self, name: str) -> AnyArray:
        found = np.empty_like(self.application.arrays[name])
        self.cl.enqueue_copy(self.queue, found, self.memory[name])
        return found


OTHER = "kernel void other(global int *x) { x[get_global_id(0)] += 1; }"
"""A program that is built before all others, which begins what is there for all of them."""


class Native:
    """manycl's driver alone. ``build_ms``: from the source until all kernels are there, in a process that has built
    another program."""

    _opened: Any = None

    def __init__(self, application: Application, text: str, options: Sequence[str]) -> None:
        from manycl.drivers.choice import open_devices

        if Native._opened is None:
            _, (opened,) = open_devices("native")
            Native._opened = opened.handle.open(opened.device)
            self._build(Native._opened, OTHER, (), [Step("other", (64,), (64,), ())])
        self.driver = Native._opened
        self.queue = self.driver.queue(False)
        begin = time.perf_counter()
        self.program = self._build(self.driver, text, options, application.steps)
        self.build_ms = 1e3 * (time.perf_counter() - begin)
        self.memory = {k: self.driver.allocate(v.nbytes) for k, v in application.arrays.items()}
        self.arrays = {k: m.kept[: m.nbytes] for k, m in self.memory.items()}
        self.types = {k: (v.dtype, v.shape) for k, v in application.arrays.items()}
        for name, data in application.arrays.items():
            self.arrays[name][:] = data.reshape(-1).view(np.uint8)

    @staticmethod
    def _build(driver: Any, text: str, options: Sequence[str], steps: Sequence[Step]) -> Any:
        """A program, with all of its kernels as these steps launch them."""
        program = driver.build(Source(text, tuple(options)))
        for step in {step.kernel: step for step in steps}.values():
            kernel = driver.kernel(program, step.kernel).kernel
            if kernel.refused is None:
                local = step.local_size or kernel.choose_local(step.global_size)
                kernel.entry((*local, 1, 1)[:3], len(step.global_size))
        return program

    def prepare(self, step: Step) -> Callable[[], object]:
        kernel = self.driver.kernel(self.program, step.kernel)
        if kernel.kernel.refused is not None:  # else what is measured is another driver
            raise DriverError(str(kernel.kernel.refused))
        for index, value in enumerate(step.args):
            kernel.set(index, self.memory[value] if isinstance(value, str) else _scalar(value).tobytes())
        shape = step.global_size, step.local_size, None
        kernel.shape(*shape)
        return lambda: self.driver.wait(self.driver.launch(self.queue, kernel, *shape, None))

    def contents(self, name: str) -> AnyArray:
        dtype, shape = self.types[name]
        found: AnyArray = self.arrays[name].view(dtype).reshape(shape)
        return found


class Hand:
    """The loops of hand_cut.cl, in this thread."""

    def __init__(self, application: Application, options: Sequence[str]) -> None:
        import ctypes

        from manycl.drivers.native.compiler.compiling import compile_kernels
        from manycl.drivers.native.compiler.library import load_object

        text = (HERE / "hand_cut.cl").read_text(encoding="utf-8")
        self.c = ctypes
        self.library = load_object(compile_kernels(text, options), ctypes.CDLL)
        self.arrays = {name: data.copy() for name, data in application.arrays.items()}

    def prepare(self, step: Step) -> Callable[[], object]:
        size = step.args[-1]
        assert isinstance(size, int)
        pointers = [self.c.c_void_p(self.arrays[a].ctypes.data) for a in step.args if isinstance(a, str)]
        last = self.c.c_long(four.groups(step.kernel, size))
        function = getattr(self.library, step.kernel)
        return lambda: function(self.c.c_long(0), last, *pointers, self.c.c_int(size))

    def contents(self, name: str) -> AnyArray:
        return self.arrays[name]


def _scalar(value: float) -> Any:
    return np.int32(value) if isinstance(value, int) else np.float32(value)


def serve(task: Task) -> None:
    """Print a JSON object a line, for each kernel of each application."""
    for name in task.names:
        for row in _rows(task, name):
            print(json.dumps({"way": task.way, "application": name, **row}), flush=True)


def _rows(task: Task, name: str) -> Iterator[dict[str, Any]]:
    case = CASES[name]
    application = case.make(case.small if task.quick else case.size)
    if task.way == "numpy":
        contents = {k: v.copy() for k, v in application.arrays.items()}
        kernel = application.steps[0].kernel
        yield {"kernel": kernel, **timed(lambda: four.NUMPY[kernel](contents), task.repeats)}
        return
    text = (case.folder / application.source).read_text(encoding="utf-8")
    try:
        way: Way
        if task.way == "native":
            way = Native(application, text, case.options)
        elif task.way == "hand":
            way = Hand(application, case.options)
        else:
            way = OpenCL(task.way, application, text, case.options)
        launches: dict[str, Callable[[], object]] = {}
        for step in application.steps:
            launch = way.prepare(step)
            launch()
            launches.setdefault(step.kernel, launch)
    except Exception as reason:
        yield {"kernel": application.steps[0].kernel, "failed": f"{type(reason).__name__}: {reason}"[:400]}
        return
    error = _error(task, name, application, way)
    for kernel, launch in launches.items():
        row = {"kernel": kernel, "error": error}
        if isinstance(way, Native):
            row["build_ms"] = way.build_ms
        row["wrong"] = not error <= application.tolerance
        yield row | timed(launch, task.repeats)


def _error(task: Task, name: str, application: Application, way: Way) -> float:
    """The greatest difference from NumPy's results, as a part of the greatest of them."""
    expected = _expected(task, name, application)
    found = 0.0
    for key, wanted in expected.items():
        one, other = way.contents(key).astype(np.float64), wanted.astype(np.float64)
        found = max(found, float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-30)))
    return found


def _expected(task: Task, name: str, application: Application) -> Contents:
    """Computed once for all processes."""
    path = Path(task.folder) / f"{name.replace(' ', '_')}.npz"
    with contextlib.suppress(OSError):
        return dict(np.load(path))
    found = application.expected(1)
    np.savez(path, **found)  # type: ignore[arg-type]
    return found


def timed(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """The least CPU seconds, and the median seconds on the clock; of what is short, of several in a row."""
    begin = time.perf_counter()
    work()
    count = max(1, min(MOST_IN_A_ROW, int(SHORT / (time.perf_counter() - begin))))
    used: list[float] = []
    clock: list[float] = []
    while len(used) < repeats and (len(used) < 3 or count * sum(used) < ENOUGH):
        begin, start = time.perf_counter(), time.process_time()
        for _ in range(count):
            work()
        used.append((time.process_time() - start) / count)
        clock.append((time.perf_counter() - begin) / count)
    return {"cpu_s": min(used), "wall_s": statistics.median(clock)}
