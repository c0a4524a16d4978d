"""Estimates of how long launches and transfers of a graph take on a machine, and of which version is the fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from manycl.graph.graph import BufferArg, BufferKey, CopyTask, FillTask, Graph, HostTask, Launch, Version
from manycl.graph.launch import local_bytes
from manycl.graph.versions.feasible import able
from manycl.graph.versions.sequence import is_sequence
from manycl.graph.work_groups import with_work_groups
from manycl.machine import Device, DeviceIndex, Machine
from manycl.model.counts import buffer_bytes, facts_of
from manycl.model.estimates import Ends, Estimates
from manycl.model.history.history import History, Shape, faded, identity, kernel_key, share_key
from manycl.model.occupancy import LaunchRange, RangeCosts, cells_of, learned, waves_of
from manycl.model.predictor import LaunchRow, Predictor
from manycl.model.prior import ESTIMATED, FACTOR_LIMIT, prior
from manycl.model.slices import shipped
from manycl.model.transfer import COPYING, TransferModel
from manycl.model.trips import trip_count
from manycl.model.work import IMPOSSIBLE, NOTHING, Estimate, product, work_of
from manycl.utilities.kept import MANY
from manycl.utilities.unforeseen import told

__all__ = ["Estimate", "History", "ModelEstimates"]


class ModelEstimates(Estimates):
    """Estimates for one graph on one machine. The history is read once, when the first launch is asked for. ``exact``:
    the estimates are what will happen, as on a machine that is only simulated. ``counted``: operations of kernels never
    measured are counted, else guessed."""

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        history: History | None = None,
        *,
        exact: bool = False,
        counted: bool = True,
    ) -> None:
        self._graph = graph
        self._machine = machine
        self._history = history if history is not None else History()
        try:
            self.contended = self._transfers.contended(machine)
        except Exception as error:
            told(error, "finding out whether transfers slow each other down")
        self._exact = exact
        self.is_counted = counted
        self._names = [identity(d) for d in machine.devices]
        self._ranges: dict[tuple[int, int, int], RangeCosts | None] = {}
        self._densities: dict[Hashable, tuple[float, ...]] = {}  # by kernel, NDRange, groups and what decides them

    def uncounted(self) -> ModelEstimates:
        if self._exact:
            return self  # they are what happens, and nobody waits for a plan of a described machine
        return ModelEstimates(self._graph, self._machine, self._history, counted=False)

    def for_graph(self, graph: Graph) -> ModelEstimates:
        return ModelEstimates(graph, self._machine, self._history, exact=self._exact, counted=self.is_counted)

    def launch(self, node: int, device: DeviceIndex) -> float:
        """Return the seconds of a node on a device of the machine; infinite where no version is for it."""
        return self._seconds[node][device]

    def estimate(self, node: int, device: DeviceIndex) -> Estimate:
        """Return the same with its error bar and its source."""
        return self._rows[node].estimates[device]

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float | None:
        """Return the seconds of a range of ``count`` of a node's ``of`` work-groups along a dimension, on average over
        where it lies: the launch overhead, and the waves of its groups (:mod:`manycl.model.occupancy`)."""
        whole = self._seconds[node][device]
        if count >= of or not 0.0 < whole < math.inf:
            return whole
        part = self._of_ranges(node, device, of, lambda costs: costs.part(count, of))
        return None if part is None else whole * part

    def relative(self, node: int, device: DeviceIndex, where: LaunchRange) -> float:
        found = self._of_ranges(node, device, where.of, lambda costs: costs.relative(where))
        return 1.0 if found is None else found

    def waves(self, node: int, device: DeviceIndex, of: int) -> float:
        found = self._of_ranges(
            node, device, of, lambda costs: costs.groups / (costs.waves.units * costs.waves.resident)
        )
        return 0.0 if found is None else found

    def _of_ranges(self, node: int, device: DeviceIndex, of: int, asked: Callable[[RangeCosts], float]) -> float | None:
        """Return what is ``asked`` of the costs of a node's ranges on a device; None where these are not known."""
        key = self._graph.same[node], device, of
        try:
            if key not in self._ranges:
                self._ranges[key] = self._found_costs(node, device, of)
            costs = self._ranges[key]
            return None if costs is None else asked(costs)
        except Exception as error:
            told(error, f"predicting ranges of {self._graph.nodes[node].name}")
            self._ranges[key] = None
            return None

    def _found_costs(self, node: int, device: DeviceIndex, of: int) -> RangeCosts | None:
        task, whole = self._graph.nodes[node], self._seconds[node][device]
        if not isinstance(task, Launch) or not 0.0 < whole < math.inf:
            return None
        place, chosen = self._machine.devices[device], self._chosen(task, node, device)
        local = chosen.local_size or with_work_groups(task).local_size or (1,) * len(chosen.global_size)
        groups = max(of, product([-(-n // m) for n, m in zip(chosen.global_size, local, strict=True)]))
        waves = waves_of(place, product(local), local_bytes(task, chosen.kernel))
        once = min(place.launch_overhead, whole / 2)
        if waves.floor > 1.0:
            one = self._predictor.alone(task, chosen, local, device) * waves.length(groups) / (whole - once)
            waves = replace(waves, floor=max(1.0, min(waves.floor, one)))
        trips = trip_count(chosen.program, chosen.kernel)
        along = [d for d, n in enumerate(zip(chosen.global_size, local, strict=True)) if -(-n[0] // n[1]) == of]
        decided = trips.item.deciding(task.args) if trips.item is not None else ()
        asked = id(chosen.kernel), chosen.global_size, task.global_offset, local, of, decided
        if (density := self._densities.get(asked)) is None:
            density = trips.along(task, chosen, local, along[-1], cells_of(of)) if along else ()
            self._densities[asked] = density
        costs = RangeCosts(waves, groups, once / whole, density)
        key, shape, name = kernel_key(chosen), Shape(chosen.global_size, work_of(task, chosen).f), self._names[device]
        here, took = self._history.on(key, name), list[tuple[LaunchRange, float]]()
        for where, seconds in here.ranges(shape) if here is not None else ():
            if where.of != of:
                continue
            part, otherwise = seconds * place.slowdown / whole, costs.of(where)
            at = shape._replace(range=where)
            if part > otherwise and here is not None and here.series[at].count == 1:
                part = faded(part, otherwise, self._history.idle(key, at, name))
            took.append((where, part))
        return learned(costs, tuple(took)) if took else costs

    def version(self, node: int, device: DeviceIndex) -> int:
        """Return the version of a node (index) that the times are for: the one that is predicted to be the fastest of
        those that the device may run (:meth:`manycl.model.predictor.Predictor.row`)."""
        return self._rows[node].versions[device]

    def doubt(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        """Return how far off the ratios of a node's times on these devices are expected to be, as a part of them: on
        devices that are alike, all times are wrong alike."""
        if self._exact or len({self._names[d] for d in devices}) < 2:
            return 0.0
        return max(self._rows[node].estimates[d].error for d in devices)

    def is_measured(self, node: int, device: DeviceIndex) -> bool:
        """Return whether a launch's time on a device rests on measurements of its kernel; copies go by bandwidth."""
        return self._exact or self._rows[node].estimates[device].known

    def off(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        """Return how far the shares of launches like a node's were from the plan in each of the last runs: by what part
        one of these devices took longer than another (:mod:`manycl.model.history.history`)."""
        launch = self._graph.nodes[node]
        if self._exact or not isinstance(launch, Launch):
            return 0.0
        return self._history.imbalances.of(share_key(launch), devices)

    def first_slice(self, node: int, device: DeviceIndex) -> float | None:
        """Return the work-items of the first slices, by the predictors that come with manycl."""
        task = self._graph.nodes[node]
        if self._exact or not isinstance(task, Launch):
            return None
        try:
            # the launch itself, if it has no versions: no model is asked, as that takes long
            version = self.version(node, device) if task.versions else None
            chosen = task if version is None else task.versions[version]
            known = self._history.on(kernel_key(chosen), self._names[device])
            if known is not None and known.series:
                return None
            buffers = self._graph.buffers
            sizes = tuple([(a.key, buffers[a.key].nbytes) for a in task.args if isinstance(a, BufferArg)])
            return first_slice(task, version, self._machine.devices[device], sizes)
        except Exception as error:
            told(error, f"looking for the features of kernel {task.kernel.name}")
            return None

    def fastest(self, launch: Launch, device: DeviceIndex) -> int | None:
        """Return the fastest version for a launch like one of the graph's; None where there is no such launch."""
        try:
            row = self._kinds.get(launch_kind(launch))
        except Exception as error:
            told(error, f"choosing a version of {launch.name}")
            return None
        return None if row is None else row.versions[device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        """Return the seconds to move ``nbytes`` from a memory to another when nothing else moves."""
        try:
            return self._transfers.seconds(nbytes, source, target)
        except Exception as error:
            told(error, "predicting a transfer")
            return nbytes / COPYING if source != target else 0.0

    def traffic(self, node: int, device: DeviceIndex) -> float:
        """Return the bytes that a launch moves if all touched before is cached (``model/counts.py``)."""
        task = self._graph.nodes[node]
        if isinstance(task, Launch):
            try:
                return self._predictor.traffic(task, self._chosen(task, node, device))
            except Exception as error:
                told(error, f"predicting the traffic of {task.name}")
                return super().traffic(node, device)
        return 0.0 if isinstance(task, HostTask) else float(task.moved)

    def slowdowns(self, ends: Sequence[Ends], most: Sequence[float]) -> list[float]:
        """Return how many times longer than alone each of several transfers between a device's memory and the host's
        takes when all of them go on at the same time."""
        try:
            return self._transfers.slowdowns(ends, most)
        except Exception as error:
            told(error, "predicting transfers at the same time")
            return super().slowdowns(ends, most)

    def _chosen(self, task: Launch, node: int, device: DeviceIndex) -> Launch | Version:
        return task.versions[self.version(node, device)] if task.versions else task

    @cached_property
    def _transfers(self) -> TransferModel:
        return TransferModel(self._machine)

    @cached_property
    def _predictor(self) -> Predictor:
        try:
            return Predictor(self._machine, self._history, self._graph.buffers, counted=self.is_counted)
        except Exception as error:
            told(error, "reading what was measured")
            return Predictor(self._machine, History(), self._graph.buffers)

    def _row(self, task: Launch) -> LaunchRow:
        """Return the predictions for a launch; where they fail, the first guess."""
        try:
            return self._predictor.row(task)
        except Exception as error:
            told(error, f"predicting {task.name}")
        rows = [_guessed(task, device) for device in self._machine.devices]
        return LaunchRow(tuple(estimate for estimate, _ in rows), tuple(version for _, version in rows))

    def _moving(self, task: CopyTask | FillTask) -> LaunchRow:
        """Return the times of a copy or fill on each device: its bytes in the device's memory."""
        took = [d.launch_overhead + task.moved / d.bandwidth for d in self._machine.devices]
        return LaunchRow(tuple(Estimate(t, t / ESTIMATED, t * ESTIMATED, "bandwidth") for t in took), (0,) * len(took))

    @cached_property
    def _seconds(self) -> list[tuple[float, ...]]:
        seconds: dict[int, tuple[float, ...]] = {}
        out: list[tuple[float, ...]] = []
        for row in self._rows:
            found = seconds.get(id(row))
            if found is None:
                found = seconds[id(row)] = tuple([e.seconds for e in row.estimates])
            out.append(found)
        return out

    @property
    def _rows(self) -> list[LaunchRow]:
        """Predictions of each node on each device."""
        return self._table[0]

    @property
    def _kinds(self) -> dict[object, LaunchRow]:
        """Predictions of each kind of launch on each device, whatever its buffers."""
        return self._table[1]

    @cached_property
    def _table(self) -> tuple[list[LaunchRow], dict[object, LaunchRow]]:
        """Both tables; predicted once for each kind of launch and bytes."""
        buffers = self._graph.buffers
        found: dict[object, LaunchRow] = {}
        kinds: dict[object, LaunchRow] = {}
        devices = len(self._machine.devices)
        nothing = LaunchRow((NOTHING,) * devices, (0,) * devices)
        rows: list[LaunchRow] = []
        for index, first in enumerate(self._graph.same):
            if first < index:
                rows.append(rows[first])
                continue
            task = self._graph.nodes[index]
            if not isinstance(task, Launch):
                rows.append(nothing if isinstance(task, HostTask) else self._moving(task))
                continue
            kind: object = index
            size: object = index
            try:
                kind = launch_kind(task)
                size = kind, buffer_bytes(buffers, task)
            except Exception as error:
                told(error, f"looking for launches like {task.name}")
            row = found.get(size)
            if row is None:
                row = found[size] = kinds[kind] = self._row(task)
            rows.append(row)
        return rows, kinds


def _guessed(task: Launch, device: Device) -> tuple[Estimate, int]:
    """Return the first guess for a launch on a device, without counts or measurements, and its version."""
    order = able(task, device) if task.versions else []
    if task.versions and not order:
        return IMPOSSIBLE, 0
    version = order[0] if order else 0
    try:
        return prior(work_of(task, task.versions[version] if task.versions else task), device), version
    except Exception as error:
        told(error, f"guessing {task.name}")
        return Estimate(_GUESSED, _GUESSED / FACTOR_LIMIT, _GUESSED * FACTOR_LIMIT, "a guess"), version


_GUESSED = 1e-3  # seconds of a launch that nothing can predict; our own choice


def launch_kind(launch: Launch) -> tuple[object, ...]:
    """Return what launches of one graph have in common that take equally long."""
    found: list[object] = [launch.global_offset]
    versions: tuple[Launch | Version, ...] = (launch, *launch.versions)
    for v in versions:
        values = trip_count(v.program, v.kernel).arguments(launch.args)
        found.append((id(v.program), v.kernel.name, v.global_size, v.local_size, values))
    return tuple(found)


# Sizes of the first slices of a launch that was never measured, by its features.


@lru_cache(MANY)
def first_slice(
    launch: Launch, version: int | None, device: Device, sizes: tuple[tuple[BufferKey, int], ...]
) -> float | None:
    """Return the work-items of a slice of a version of a launch (None: it has none), on a device, by the
    predictors that come with manycl. None where they know nothing of such devices, or the analysis finds no features.
    ``sizes``: the bytes of the launch's buffers."""
    chosen = launch if version is None else launch.versions[version]
    if device.kind not in shipped().models or (isinstance(chosen, Version) and is_sequence(chosen)):
        return None
    facts = facts_of(launch, chosen, dict(sizes))
    return None if facts is None else shipped().points(facts.features, device.kind, device.compute_units)
