"""The history of measurements: durations by kernel, device and launch, and how far off the predictions for them were.

First runs and outliers must not poison anything. A launch's *first* measurement on a device (which may hold page faults
and cold caches) counts only while it is alone. Two measurements give the smaller one (disturbances make a measurement
longer); three and more give the median of all but the first. While it is alone it also fades: see :func:`lone`. Times
are those of the device itself, without the slow-down that was asked of it.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations
from statistics import fmean, median_low
from typing import NamedTuple

from manycl.analysis.costs.cost import Work
from manycl.analysis.facts import ProgramFacts
from manycl.graph.graph import Launch, Version
from manycl.machine import Device, DeviceIndex
from manycl.model.interpolation import Interpolation, interpolate
from manycl.model.occupancy import RANGES, LaunchRange
from manycl.model.regression import Regression, Sample, fit
from manycl.model.work import Estimate, around, product
from manycl.utilities.kept import ENOUGH, MANY


class Imbalances:
    """The imbalances of the last runs of divided launches, by what identifies these (``key``): by how much one device
    took longer than another, relative to the plan. Models do not see this for devices that are alike: a measurement of
    one counts for all, so one that another process slows down is planned like the others."""

    def __init__(self) -> None:
        self._runs: dict[Hashable, deque[dict[DeviceIndex, float]]] = {}

    def note(self, key: Hashable, took: Mapping[DeviceIndex, float]) -> None:
        """Note that a launch was divided; ``took``: each device's seconds, relative to those planned for them."""
        if len(took) < 2 or min(took.values()) <= 0.0:
            return
        runs = self._runs.pop(key, None)
        if runs is None:
            runs = deque(maxlen=ENOUGH)
            while len(self._runs) >= MANY:
                del self._runs[next(iter(self._runs))]
        runs.append(dict(took))
        self._runs[key] = runs  # moved to the end: forgotten last

    def of(self, key: Hashable, devices: Sequence[DeviceIndex]) -> float:
        """Return the part by which one of some devices took longer than another one in each of the last runs, at least;
        0 where they have not all taken part in so many."""
        runs = self._runs.get(key, ())
        if len(runs) < ENOUGH or any(d not in took for took in runs for d in devices):
            return 0.0
        pairs = permutations(devices, 2)
        return max([0.0, *(min(took[a] / took[b] - 1.0 for took in runs) for a, b in pairs)])


KEEP = 31  # measurements per launch and device, and comparisons per model; older ones are forgotten; our own choice
SHAPES = 512  # launches per kernel and device, likewise; our own choice
_FITTED = 128  # the most launches that models are fitted to, evenly from small to large; our own choice
_STALE = 16  # models are fitted anew when one launch in this many has changed; our own choice
_DISBELIEVED = 2.0  # a single measurement this many times above all other predictions is suspicious; our own choice


class KernelKey(NamedTuple):
    """A kernel: hash of its program's text and build options, its name, and the work-group size of its launches."""

    text: str
    kernel: str
    local_size: tuple[int, ...] | None


class Shape(NamedTuple):
    """The rest that makes two launches alike: the NDRange, and f (:class:`manycl.model.work.Work`); and of ranges of
    such a launch, which one it is."""

    global_size: tuple[int, ...]
    f: float
    range: LaunchRange | None = None


@lru_cache(maxsize=4096)
def text_hash(source: str, options: tuple[str, ...], included: bytes = b"") -> str:
    """Return a hash of a program's text with its build options, and the files that it includes."""
    text = "\0".join([source, *options]).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text + included).hexdigest()[:24]


def text_of(program: ProgramFacts) -> str:
    """Return the hash by which a program is known."""
    # one that includes files is known by its tree, which has them (and the folder they lie in)
    included = program.tree if "#include" in program.source else b""
    return text_hash(program.source, program.options, included)


def kernel_key(chosen: Launch | Version) -> KernelKey:
    return KernelKey(text_of(chosen.program), chosen.kernel.name, chosen.local_size)


def identity(device: Device) -> str:
    """Return what equally fast devices have in common: model, driver, compute units; of described devices the name."""
    if not device.model and not device.platform:
        return device.name
    units = f"{device.compute_units} unit{'s' if device.compute_units != 1 else ''}"
    return "; ".join([device.kind, device.model, units, device.platform, device.driver])


def share_key(launch: Launch) -> tuple[KernelKey, tuple[int, ...]]:
    """Return what launches have in common that are divided alike."""
    return kernel_key(launch), launch.global_size


class Series:
    """Measurements in seconds of one launch on one device. ``unsaved``: those that are in no store yet."""

    __slots__ = ("_estimate", "_typical", "first", "rest", "run", "unsaved")

    def __init__(self, samples: Iterable[float] = (), run: int = 0) -> None:
        self.first = 0.0  # 0: no measurement
        self.rest: deque[float] = deque(maxlen=KEEP)
        self.unsaved: list[float] = []
        self.run = run  # the kernel's run number at the last measurement
        self._typical: float | None = None
        self._estimate: Estimate | None = None
        for seconds in samples:
            self.add(seconds)

    def add(self, seconds: float) -> None:
        if self.first:
            self.rest.append(seconds)
        else:
            self.first = seconds
        self._typical = self._estimate = None

    @property
    def count(self) -> int:
        return (1 if self.first else 0) + len(self.rest)

    @property
    def samples(self) -> list[float]:
        return [self.first, *self.rest] if self.first else []

    @property
    def typical(self) -> float:
        """The typical seconds; one bad measurement of two or more does not affect it."""
        if self._typical is None:
            if not self.rest:
                self._typical = self.first
            elif len(self.rest) == 1:
                self._typical = min(self.first, self.rest[0])
            else:
                self._typical = median_low(self.rest)
        return self._typical

    def estimate(self) -> Estimate:
        """Return the typical time, with the mean relative deviation of the better nine tenths as its error."""
        if self._estimate is None:
            self._estimate = self._estimated()
        return self._estimate

    def _estimated(self) -> Estimate:
        m = self.typical
        if not self.rest:
            return around(m, math.inf, 1.0, "measured once", 1)
        deviations = sorted(abs(s - m) / m for s in (self.rest if len(self.rest) > 1 else self.samples))
        error = fmean(deviations[: max(2, math.ceil(0.9 * len(deviations)))])
        return around(m, error, 1.0, "measured", self.count)


class Comparison(NamedTuple):
    """A prediction and the measurement after it (seconds)."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return abs(self.predicted - self.measured) / self.measured


@dataclass(slots=True)
class OnDevice:
    """All measurements of a kernel on a device. A range has a series as a part of its launch, and is a launch, too."""

    series: dict[Shape, Series] = field(default_factory=dict)
    comparisons: dict[str, deque[Comparison]] = field(default_factory=dict)  # by model
    unsaved: list[tuple[str, Comparison]] = field(default_factory=list)
    _errors: dict[str, float] = field(default_factory=dict)
    _changes: int = 0  # since the models were fitted
    _fitted_to: int = 0  # launches
    _models: tuple[Regression | None, Interpolation | None] = (None, None)

    def add(self, shape: Shape) -> Series:
        """Return a new series; where there are too many, the oldest is forgotten."""
        alike = [s for s in self.series if bool(s.range) == bool(shape.range)]
        if len(alike) >= (RANGES if shape.range else SHAPES):
            del self.series[alike[0]]
        self.series[shape] = series = Series()
        return series

    @property
    def launches(self) -> dict[Shape, Series]:
        return {shape: series for shape, series in self.series.items() if not shape.range}

    def ranges(self, launch: Shape) -> list[tuple[LaunchRange, float]]:
        """Return the ranges of a launch that were measured, and their typical seconds."""
        return [(s.range, series.typical) for s, series in self.series.items() if s.range and s[:2] == launch[:2]]

    def changed(self, series: Series) -> None:
        """Note that a series has one more measurement, which may change the models."""
        if series.count <= 4 or series.count % 8 == 0:
            self._changes += 1

    def restore(self, stored: Stored) -> None:
        """Add a series from a store."""
        self.series[stored.shape] = Series(stored.samples, run=-stored.idle)
        self._changes += 1
        for model, comparison in stored.comparisons:
            self.compared(model, comparison)

    @property
    def are_fitted(self) -> bool:
        """True if the models are fitted to what is known now."""
        return self._changes <= self._fitted_to // _STALE

    def models(self) -> tuple[Regression | None, Interpolation | None]:
        """Return the models fitted to the launches; they are fitted anew when enough of these have changed to make a
        difference."""
        if not self.are_fitted:
            samples = sorted(Sample(t := product(s.global_size), t * s.f, r.typical) for s, r in self.launches.items())
            chosen = samples[:: -(-len(samples) // _FITTED)] if samples else []
            self._models = fit(chosen), interpolate((s.cost, s.seconds) for s in chosen)
            self._fitted_to, self._changes = len(samples), 0
        return self._models

    def compared(self, model: str, comparison: Comparison) -> None:
        self.comparisons.setdefault(model, deque(maxlen=KEEP)).append(comparison)
        self._errors.pop(model, None)

    def error(self, model: str) -> float | None:
        """Return the mean relative error of a model's predictions of launches that were measured later, without the
        worst tenth; None before there are a few."""
        known = self.comparisons.get(model, ())
        if len(known) < ENOUGH:
            return None
        found = self._errors.get(model)
        if found is None:
            errors = sorted(c.error for c in known)
            found = self._errors[model] = fmean(errors[: max(ENOUGH, math.ceil(0.9 * len(errors)))])
        return found

    def predictions(self, work: Work) -> list[Estimate]:
        """Return the fitted models' predictions for a launch, whether or not it was measured; the surest first."""
        regression, interpolation = self.models()
        out: list[Estimate] = []
        if regression is not None:
            out.append(regression.estimate(work.work_items, work.cost, self.error("regression")))
        if interpolation is not None:
            out.append(interpolation.estimate(work.cost, self.error("interpolation")))
        return sorted((e for e in out if e.seconds > 0), key=lambda e: e.spread)


@dataclass(slots=True)
class _Kernel:
    devices: dict[str, OnDevice] = field(default_factory=dict)
    runs: int = 0  # runs in which it was measured, on any device
    last: int | None = None


class Stored(NamedTuple):
    """A series as a store keeps it; ``idle``: runs of the kernel elsewhere since it was measured last."""

    device: str
    shape: Shape
    samples: tuple[float, ...]
    idle: int
    comparisons: tuple[tuple[str, Comparison], ...] = ()  # only with a device's first series


Load = Callable[[str], Iterable[tuple[KernelKey, Stored]]]
LoadRatios = Callable[[str], Mapping[KernelKey, float]]
PRIOR = "prior"
"""The model whose comparisons leave out the launch overhead, and are made once a kernel and device."""


class History:
    """Measurements in memory. They are read from a store when a program (``load``, by the hash of its text), or the
    ratios of first guesses on a device (``load_ratios``), are asked for the first time. Devices are named by their
    :func:`identity`."""

    def __init__(self, load: Load | None = None, load_ratios: LoadRatios | None = None) -> None:
        self._load = load
        self._load_ratios = load_ratios
        self._kernels: dict[KernelKey, _Kernel] = {}
        self._texts = set[str]()  # of programs that were read
        self._ratios: dict[str, dict[KernelKey, float]] = {}
        self._run = 0
        self.unable: set[tuple[KernelKey, str]] = set()
        """Versions instead of which another one ran (they do not build, or their work-groups are too large), and the
        device. Not stored: another session tries them again."""
        self.begun: set[tuple[KernelKey, str]] = set()
        """Kernels of which ranges have run in this session, and the name of the device. Not stored."""
        self.imbalances = Imbalances()
        """The differences between shares of divided launches and the plan. Not stored: they pass."""

    def next_run(self) -> None:
        """Begin a new run: later observations belong to it."""
        self._run += 1

    def on(self, key: KernelKey, device: str) -> OnDevice | None:
        return self._kernel(key).devices.get(device)

    def series(self, key: KernelKey, shape: Shape, device: str) -> Series | None:
        found = self.on(key, device)
        return found.series.get(shape) if found is not None else None

    def observe(self, key: KernelKey, shape: Shape, device: str, *taken: float) -> None:
        """Add launches of one run, in seconds. Times that are not positive and finite (no profiling) are ignored."""
        taken = tuple([seconds for seconds in taken if 0.0 < seconds < math.inf])
        if not taken:
            return
        kernel = self._kernel(key)
        if kernel.last != self._run:
            kernel.last = self._run
            kernel.runs += 1
        here = kernel.devices.get(device)
        if here is None:
            here = kernel.devices[device] = OnDevice()
        series = here.series.get(shape)
        if series is None:
            series = here.add(shape)
        series.unsaved += taken
        series.run = kernel.runs
        for seconds in taken:
            series.add(seconds)
            here.changed(series)

    def compare(self, key: KernelKey, device: str, model: str, predicted: float, measured: float) -> None:
        """Add a prediction and its measurement."""
        if 0.0 < measured < math.inf and 0.0 < predicted < math.inf:
            here = self._kernel(key).devices.setdefault(device, OnDevice())
            found = Comparison(predicted, measured)
            here.compared(model, found)
            here.unsaved.append((model, found))
            if model == PRIOR:
                self.ratios(device)[key] = measured / predicted

    def idle(self, key: KernelKey, shape: Shape, device: str) -> int:
        """Return the runs of the kernel elsewhere since this launch was measured last on the device."""
        series = self.series(key, shape, device)
        return self._kernel(key).runs - series.run if series is not None else 0

    def ratios(self, device: str) -> dict[KernelKey, float]:
        """Return, for the kernels that have run on a device, measured time over first guess."""
        found = self._ratios.get(device)
        if found is None:
            found = self._ratios[device] = dict(self._load_ratios(device)) if self._load_ratios is not None else {}
        return found

    def items(self) -> Iterator[tuple[KernelKey, str, OnDevice]]:
        for key, kernel in self._kernels.items():
            for device, here in kernel.devices.items():
                yield key, device, here

    def recall(self, text: str) -> None:
        """Read what the store has of a program's kernels, unless that has been done."""
        if self._load is not None and text not in self._texts:
            self._texts.add(text)
            for key, stored in self._load(text):
                kernel = self._kernels.setdefault(key, _Kernel())
                kernel.devices.setdefault(stored.device, OnDevice()).restore(stored)

    def _kernel(self, key: KernelKey) -> _Kernel:
        kernel = self._kernels.get(key)
        if kernel is None:
            self.recall(key.text)
            kernel = self._kernels.setdefault(key, _Kernel())
        return kernel


def lone(measured: Estimate, otherwise: Estimate, idle: int) -> Estimate:
    """Return the estimate from a single measurement, given the estimate from everything else. A measurement far above
    may have been disturbed. It is believed at first, or the device could be tried again and again; but as the kernel
    runs elsewhere (``idle`` runs) it is believed less, until the device gets a second chance."""
    if measured.seconds <= _DISBELIEVED * otherwise.seconds or otherwise.seconds <= 0:
        return measured
    seconds = faded(measured.seconds, otherwise.seconds, idle)
    return Estimate(seconds, min(otherwise.low, seconds), measured.high, "measured once, doubted", None, 1)


def faded(measured: float, otherwise: float, idle: int) -> float:
    """Return the seconds of a single measurement above what is predicted otherwise, after ``idle`` runs elsewhere."""
    weight = 0.5 ** (idle / ENOUGH)
    return otherwise * math.exp(weight * math.log(measured / otherwise))
