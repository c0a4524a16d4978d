"""The predictor of a launch's time: of a kernel's models on a device the surest; of its versions the fastest.

A launch that was measured on the device takes its measured time (:mod:`manycl.model.history.history`). Another launch
of a measured kernel takes the time of MKMD's regression or REPARA's interpolation, whichever has the narrower bar: the
error that it has had in predicting real runs, else in predicting its own samples from one another, and wider outside of
them. Where there are too few measurements for either, the first guess (:mod:`manycl.model.prior`) is scaled by the
kernel's ratio of measured to guessed time at other sizes on the device, else on other devices; so a kernel that does
much more work than assumed looks expensive everywhere. Without any measurement, the first guess stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from typing import NamedTuple

from manycl.analysis.costs.cost import Work
from manycl.graph.graph import Buffer, BufferKey, Launch, Version
from manycl.graph.versions.feasible import able
from manycl.graph.versions.sequence import SequenceProgram
from manycl.machine import Device, DeviceIndex, Machine
from manycl.model.counts import EACH, Counts
from manycl.model.history.history import History, Shape, identity, kernel_key, lone
from manycl.model.history.measured import SOURCE
from manycl.model.prior import ESTIMATED, MEASURED, NO_CORRECTION, Correction, correction, prior, ratio, scaled
from manycl.model.work import IMPOSSIBLE, Estimate, product, work_of
from manycl.utilities.kept import ENOUGH


class LaunchRow(NamedTuple):
    """A launch on every device: the estimates, and the versions (index) that they are for."""

    estimates: tuple[Estimate, ...]
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A device, and how good first guesses for it are."""

    device: Device
    name: str  # its identity
    measured: bool  # its numbers are measurements
    plain: bool  # its flops are a plain kernel's (docs/machines.md)
    seen: Correction

    def guess(self, work: Work) -> Estimate:
        return prior(work, self.device, measured=self.measured, plain=self.plain, seen=self.seen)


class Predictor:
    """The choice between the models, for one machine and history and for launches that use these buffers."""

    def __init__(
        self, machine: Machine, history: History, buffers: Mapping[BufferKey, Buffer], *, counted: bool = True
    ) -> None:
        self._history = history
        self._counts = Counts(buffers, counted=counted)
        self._indices = machine.indices
        self._places = []
        for device in machine.devices:
            name = identity(device)
            notes = [machine.notes.get(f"{device.name}.{n}") or machine.notes.get(device.name, "") for n in MEASURED]
            measured = all("measured" in note for note in notes)
            plain = bool(notes[0]) and SOURCE not in notes[0]  # its numbers are described
            seen = correction(history.ratios(name).values())
            self._places.append(_Place(device, name, measured, plain, seen))

    def row(self, launch: Launch) -> LaunchRow:
        """Return the estimates of a launch for every device: of the version that is predicted to be the fastest there.
        Without versions, it is the launch itself. Of several that a device can run, the one that it prefers
        (:func:`manycl.graph.versions.feasible.able`) gives way only to one that is faster by measurements of both:
        first guesses are too rough to tell versions apart."""
        if not launch.versions:
            found = self._of(launch, launch, self._indices)
            return LaunchRow(tuple(found.values()), (0,) * len(found))
        orders = [self._able(launch, p) for p in self._places]
        told = [
            self._of(launch, version, [d for d, order in zip(self._indices, orders, strict=True) if v in order])
            for v, version in enumerate(launch.versions)
        ]
        estimates, versions = [], []
        for d, order in enumerate(orders):
            best = order[0] if order else 0
            for v in order[1:]:
                now, other = told[best][d], told[v][d]
                if now.known and other.known and other.seconds < now.seconds:
                    best = v
            estimates.append(told[best].get(d, IMPOSSIBLE))
            versions.append(best)
        return LaunchRow(tuple(estimates), tuple(versions))

    def _able(self, launch: Launch, place: _Place) -> list[int]:
        """Return the versions that a device may run, without those that could not run there before."""
        unable = self._history.unable
        return [v for v in able(launch, place.device) if (kernel_key(launch.versions[v]), place.name) not in unable]

    def _of(self, launch: Launch, chosen: Launch | Version, devices: Sequence[DeviceIndex]) -> dict[int, Estimate]:
        """Return the estimates of one implementation, by device."""
        cases = [_Case(launch, chosen, self._places[d], self._history, self._counts) for d in devices]
        measured = cache(lambda: [(i, known) for i, case in enumerate(cases) if (known := case.known) is not None])
        return {d: _choose(i, cases, measured) for i, d in enumerate(devices)}

    def models(self, launch: Launch, chosen: Launch | Version, device: DeviceIndex) -> list[Estimate]:
        """Return the fitted models' predictions for a launch on a device (without its slow-down), measured or not."""
        case = _Case(launch, chosen, self._places[device], self._history, self._counts)
        return case.here.predictions(case.work) if case.here is not None else []

    def guess(self, launch: Launch, chosen: Launch | Version, device: DeviceIndex) -> Estimate:
        """Return the first guess, not corrected by earlier ones."""
        place = self._places[device]
        return replace(place, seen=NO_CORRECTION).guess(self._counts.work(launch, chosen))

    def traffic(self, launch: Launch, chosen: Launch | Version) -> float:
        """Return the bytes of memory that an implementation of a launch moves."""
        return self._counts.work(launch, chosen).global_bytes

    def alone(self, launch: Launch, chosen: Launch | Version, local: tuple[int, ...], device: DeviceIndex) -> float:
        """Return the first guess for one work-group alone, without overhead; infinite: operations not known."""
        place, work = self._places[device], self._counts.work(launch, chosen)
        if not (work.exact and work.operations):
            return math.inf
        return place.guess(_resized(work, Shape(local, work.f))).seconds - place.device.launch_overhead


class _Case:
    """One implementation of a launch on one device, with everything that is known of it."""

    def __init__(
        self, launch: Launch, chosen: Launch | Version, place: _Place, history: History, counts: Counts
    ) -> None:
        key = kernel_key(chosen)
        self.place = place
        self.work = work_of(launch, chosen)
        self.shape = Shape(chosen.global_size, self.work.f)
        self.here = history.on(key, place.name)
        self.measured: Estimate | None = None
        self.idle = 0
        self._launch, self._implementation, self._counts = launch, chosen, counts
        series = self.here.series.get(self.shape) if self.here is not None else None
        if series is not None and series.count:
            self.measured = series.estimate().times(place.device.slowdown)
            self.idle = history.idle(key, self.shape, place.name)

    @cached_property
    def counted(self) -> Work:
        """The work with its operations, counted only where a first guess is wanted."""
        return self._counts.work(self._launch, self._implementation)

    @cached_property
    def guess(self) -> Estimate:
        """The first guess; of several kernels, which fill a device unlike one another, the sum of theirs."""
        program = self._implementation.program
        if not isinstance(program, SequenceProgram):
            return self.place.guess(self.counted)
        found = [self.place.guess(work) for work in self._counts.of_steps(self._launch, program)]
        seconds, low, high = (sum(ends) for ends in zip(*[(e.seconds, e.low, e.high) for e in found], strict=True))
        return Estimate(seconds, low, high, found[0].source)

    def within(self, guess: Estimate) -> Estimate:
        """Return a guess that takes as long at least as the memory of a described device takes to carry the launch's
        bytes once: a guess that is corrected, or scaled by what caches do elsewhere, may take less."""
        device = self.place.device
        least = device.launch_overhead + device.slowdown * self.counted.global_bytes / device.bandwidth
        return guess.times(least / guess.seconds) if self.place.plain and 0.0 < guess.seconds < least else guess

    @property
    def solid(self) -> Estimate | None:
        """The estimate from measurements of this very launch, where there are several."""
        return self.measured if self.measured is not None and self.measured.samples > 1 else None

    @cached_property
    def told(self) -> Estimate | None:
        """The estimate from other launches of the kernel on the device: the surest of models and scaled guess."""
        if self.here is None:
            return None
        found: list[Estimate] = []
        if self.measured is None or len(self.here.launches) >= ENOUGH:  # its models can contradict a single measurement
            found = [e.times(self.place.device.slowdown) for e in self.here.predictions(self.work)]
        best = min((e.spread for e in found), default=math.inf)
        if best > ESTIMATED**2 and (ratios := self._at_other_sizes()):
            found.append(scaled(self.guess, self.place.device, ratios, "another size, scaled"))
        return min(found, key=lambda e: e.spread, default=None)

    @property
    def known(self) -> Estimate | None:
        return self.solid or self.told or self.measured

    def _at_other_sizes(self) -> list[float]:
        """Return measured over guessed times at the sizes that were measured on the device."""
        out = []
        device = self.place.device
        known = self.here.launches if self.here is not None else {}
        for shape, series in islice(reversed(known.items()), EACH):
            if shape != self.shape and series.count:
                guess = self.place.guess(_resized(self.counted, shape))
                found = ratio(series.typical * device.slowdown, guess, device)
                if found is not None:
                    out.append(found)
        return out


def _resized(work: Work, shape: Shape) -> Work:
    """Return the work of the same kernel at another size, in proportion."""
    items = product(shape.global_size)
    factor = items * shape.f / work.cost
    return replace(
        work,
        work_items=items,
        work_groups=max(1, round(work.work_groups * items / work.work_items)) if work.work_groups else 0,
        f=shape.f,
        operations={kind: n * factor for kind, n in work.operations.items()},
        global_bytes=work.global_bytes * items / work.work_items,
        scattered=work.scattered * factor,
        shared=work.shared * factor,
    )


def _choose(index: int, cases: Sequence[_Case], measured: Callable[[], Sequence[tuple[int, Estimate]]]) -> Estimate:
    case = cases[index]
    if (solid := case.solid) is not None:
        return solid
    otherwise = case.told or _from_others(index, cases, measured())
    if case.measured is None:
        return case.told or case.within(otherwise or case.guess)
    return case.measured if otherwise is None else lone(case.measured, otherwise, case.idle)


def _from_others(index: int, cases: Sequence[_Case], measured: Sequence[tuple[int, Estimate]]) -> Estimate | None:
    """Return the guess, scaled by the launch's times on other devices (``measured``)."""
    ratios = []
    for i, known in measured:
        if i != index and (found := ratio(known.seconds, cases[i].guess, cases[i].place.device)) is not None:
            ratios.append(found)
    case = cases[index]
    return scaled(case.guess, case.place.device, ratios, "another device, scaled") if ratios else None
