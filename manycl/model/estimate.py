"""How long launches and transfers will take: of all models of a kernel on a device, the surest.

A launch that was measured on the device takes what it took (:mod:`manycl.model.history`). Another launch of a kernel
that was measured takes what MKMD's regression or REPARA's interpolation says, whichever has the narrower bar: the
error that it has had in predicting real runs, else in predicting its own samples from one another, and wider outside of
them. Where there are too few measurements for either, the first guess (:mod:`manycl.model.prior`) is scaled by what the
kernel took over its guess at other sizes on the device, else on other devices; so a kernel that does much more work
than assumed looks expensive everywhere. Where there is nothing, there is the first guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from manycl.graph.graph import Graph, Launch
from manycl.graph.versions import preferred
from manycl.machine import Device, Machine
from manycl.model.history import History, Shape, identity, kernel_key, lone
from manycl.model.occupancy import share_of
from manycl.model.prior import MEASURED, Correction, correction, prior, ratio, scaled
from manycl.model.transfer import Ends, Sharing, TransferModel
from manycl.model.trips import trip_count
from manycl.model.work import IMPOSSIBLE, NOTHING, Estimate, Work, implementation, product, work_of

__all__ = ["Estimate", "History", "ModelEstimates"]

_POOR = 9.0  # spread of a model's estimate from which on the scaled guess is looked at as well
_OTHERS = 8  # launches that it is scaled by, the latest ones
_INDEPENDENT = 4  # launches of a kernel from which on its models can contradict a single measurement


class ModelEstimates:
    """Estimates for one graph on one machine; implements ``plan.problem.Estimates``.

    The history is read once, when the first launch is asked for. ``sharing``: what is known of transfers at the same
    time.
    """

    def __init__(
        self, graph: Graph, machine: Machine, history: History | None = None, sharing: Sharing | None = None
    ) -> None:
        self._graph = graph
        self._machine = machine
        self._history = history if history is not None else History()
        self._transfers = TransferModel(machine, sharing if sharing is not None else Sharing())

    def launch(self, node: int, device: int) -> float:
        """Seconds of a node on a device of the machine; infinite where no version of it is for such a device."""
        return self._seconds[node][device]

    def estimate(self, node: int, device: int) -> Estimate:
        """The same with its error bar, and where it comes from."""
        return self._rows[node][device]

    def groups(self, node: int, device: int, count: int) -> float:
        """Seconds of a range of ``count`` work-groups of a node: the launch overhead, and of the rest in proportion,
        but no less than so few work-groups take that leave some of the device idle."""
        whole = self._seconds[node][device]
        task = self._graph.nodes[node]
        if not isinstance(task, Launch) or whole == math.inf:
            return whole
        place = self._machine.devices[device]
        chosen = implementation(task, place.kind)
        items = product(chosen.global_size)
        all_groups = items // product(chosen.local_size) if chosen.local_size else items
        if count >= all_groups:
            return whole
        part = count / all_groups
        known = all_groups if chosen.local_size else 0
        full, some = share_of(items, known, place), share_of(items * part, known * part, place)
        overhead = min(place.launch_overhead, whole / 2)
        return overhead + (whole - overhead) * min(1.0, part * full / some)

    def version(self, node: int, device: int) -> int:
        """Which of a node's versions the times are for: what the run would take, the first that is preferred there."""
        task = self._graph.nodes[node]
        if not isinstance(task, Launch) or not task.versions:
            return 0
        return next(iter(preferred(task.versions, self._machine.devices[device].kind)), 0)

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        """Seconds to move ``nbytes`` from a memory to another when nothing else moves."""
        return self._transfers.seconds(nbytes, source, target)

    def transfer_among(self, nbytes: int, source: int, target: int, others: Sequence[Ends]) -> float:
        """The same while transfers between the memories ``others`` go on (MKMD, Eq. 6)."""
        return self._transfers.seconds(nbytes, source, target, others)

    @cached_property
    def _seconds(self) -> list[tuple[float, ...]]:
        seconds: dict[int, tuple[float, ...]] = {}
        out: list[tuple[float, ...]] = []
        for row in self._rows:
            found = seconds.get(id(row))
            if found is None:
                found = seconds[id(row)] = tuple(e.seconds for e in row)
            out.append(found)
        return out

    @cached_property
    def _rows(self) -> list[tuple[Estimate, ...]]:
        """Per node, the estimates for each device; computed once per kind of launch."""
        predictor = Predictor(self._machine, self._history)
        kinds: dict[object, tuple[Estimate, ...]] = {}
        nothing = (NOTHING,) * len(self._machine.devices)
        rows: list[tuple[Estimate, ...]] = []
        for node, task in enumerate(self._graph.nodes):
            if not isinstance(task, Launch):
                rows.append(nothing)
                continue
            nbytes = buffer_bytes(self._graph, node)
            kind = (launch_kind(task), nbytes)
            row = kinds.get(kind)
            if row is None:
                row = kinds[kind] = predictor.row(task, nbytes)
            rows.append(row)
        return rows


def launch_kind(launch: Launch) -> tuple[object, ...]:
    """What launches of one graph have in common that take equally long."""
    values = trip_count(launch.program, launch.kernel).arguments(launch.args)
    own = id(launch.program), launch.kernel.name, launch.global_size, launch.local_size, launch.global_offset, values
    if not launch.versions:
        return own
    versions = (
        (
            id(v.program),
            v.kernel.name,
            v.global_size,
            v.local_size,
            trip_count(v.program, v.kernel).arguments(launch.args),
        )
        for v in launch.versions
    )
    return *own, *versions


def buffer_bytes(graph: Graph, node: int) -> int:
    """What a launch moves if it touches all of its buffers once: the bytes of those it reads, and of those it
    writes."""
    task, buffers, nbytes = graph.nodes[node], graph.buffers, 0
    for key in task.reads:
        nbytes += buffers[key].nbytes
    for key in task.writes:
        nbytes += buffers[key].nbytes
    return nbytes


@dataclass(frozen=True, slots=True)
class _Place:
    """A device, and how good first guesses for it are."""

    device: Device
    name: str  # its identity
    measured: bool  # its numbers are measurements
    seen: Correction

    def guess(self, work: Work) -> Estimate:
        return prior(work, self.device, measured=self.measured, seen=self.seen)


class _Case:
    """One launch on one device: everything that is known of it."""

    def __init__(self, launch: Launch, nbytes: int, place: _Place, history: History) -> None:
        chosen = implementation(launch, place.device.kind)
        key = kernel_key(chosen)
        self.place = place
        self.work = work_of(launch, chosen, nbytes)
        self.shape = Shape(chosen.global_size, self.work.f)
        self.guess = place.guess(self.work)
        self.here = history.on(key, place.name)
        self.measured: Estimate | None = None
        self.idle = 0
        series = self.here.series.get(self.shape) if self.here is not None else None
        if series is not None and series.count:
            self.measured = series.estimate().times(place.device.slowdown)
            self.idle = history.idle(key, self.shape, place.name)

    @property
    def solid(self) -> Estimate | None:
        """What measurements of this very launch say, where there are several."""
        return self.measured if self.measured is not None and self.measured.samples > 1 else None

    @cached_property
    def told(self) -> Estimate | None:
        """What measurements of other launches of the kernel on the device say: the surest of the models and of the
        guess scaled by them."""
        if self.here is None:
            return None
        found: list[Estimate] = []
        if self.measured is None or len(self.here.series) >= _INDEPENDENT:
            found = [e.times(self.place.device.slowdown) for e in self.here.predictions(self.work)]
        best = min((e.spread for e in found), default=math.inf)
        if best > _POOR and (ratios := self._at_other_sizes()):
            found.append(scaled(self.guess, self.place.device, ratios, "another size, scaled"))
        return min(found, key=lambda e: e.spread, default=None)

    @property
    def known(self) -> Estimate | None:
        return self.solid or self.told or self.measured

    def _at_other_sizes(self) -> list[float]:
        """Measured over guessed at the sizes that were measured on the device."""
        out = []
        device = self.place.device
        known = self.here.series if self.here is not None else {}
        for shape, series in islice(reversed(known.items()), _OTHERS):
            if shape != self.shape and series.count:
                guess = self.place.guess(_resized(self.work, shape))
                found = ratio(series.typical * device.slowdown, guess, device)
                if found is not None:
                    out.append(found)
        return out


def _resized(work: Work, shape: Shape) -> Work:
    """The work of the same kernel at another size, in proportion."""
    items = product(shape.global_size)
    factor = items * shape.f / work.cost
    return Work(
        items,
        max(1, round(work.work_groups * items / work.work_items)) if work.work_groups else 0,
        shape.f,
        {kind: n * factor for kind, n in work.operations.items()},
        work.global_bytes * items / work.work_items,
    )


class Predictor:
    """The decision between the models, for one machine and history."""

    def __init__(self, machine: Machine, history: History) -> None:
        self._history = history
        self._places = []
        for device in machine.devices:
            name = identity(device)
            measured = all(f"{device.name}.{n}" in machine.notes for n in MEASURED)
            seen = correction(history.ratios(name).values())
            self._places.append(_Place(device, name, measured, seen))

    def row(self, launch: Launch, nbytes: int) -> tuple[Estimate, ...]:
        """The estimates of a launch that reads and writes ``nbytes`` of buffers, for every device."""
        able = [not launch.versions or bool(preferred(launch.versions, p.device.kind)) for p in self._places]
        cases = [_Case(launch, nbytes, p, self._history) for p, a in zip(self._places, able, strict=True) if a]
        found = iter([_choose(i, cases) for i in range(len(cases))])
        return tuple(next(found) if a else IMPOSSIBLE for a in able)

    def models(self, launch: Launch, nbytes: int, device: int) -> list[Estimate]:
        """What each fitted model says of a launch on a device (without its slow-down), measured there or not."""
        case = _Case(launch, nbytes, self._places[device], self._history)
        return case.here.predictions(case.work) if case.here is not None else []


def _choose(index: int, cases: Sequence[_Case]) -> Estimate:
    case = cases[index]
    if (solid := case.solid) is not None:
        return solid
    otherwise = case.told or _from_others(index, cases)
    if case.measured is None:
        return otherwise or case.guess
    return case.measured if otherwise is None else lone(case.measured, otherwise, case.idle)


def _from_others(index: int, cases: Sequence[_Case]) -> Estimate | None:
    """The guess, scaled by what the launch took on other devices."""
    ratios = []
    for i, case in enumerate(cases):
        if i != index and (known := case.known) is not None:
            found = ratio(known.seconds, case.guess, case.place.device)
            if found is not None:
                ratios.append(found)
    case = cases[index]
    return scaled(case.guess, case.place.device, ratios, "another device, scaled") if ratios else None
