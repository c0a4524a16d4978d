"""Learning from real runs: durations for the history, how good the predictions for them were, and links: how fast
transfers were where that was not measured (``manycl devices --measure``), and the cost of passing data on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median, quantiles

from manycl.graph.graph import Graph, Launch, Node, Version
from manycl.graph.versions.feasible import able
from manycl.machine import Device, DeviceIndex, Machine
from manycl.model.counts import MOST
from manycl.model.estimate import launch_kind
from manycl.model.history.history import KEEP, PRIOR, SHAPES, History, KernelKey, Shape, identity, kernel_key
from manycl.model.history.measured import Measurements
from manycl.model.predictor import Predictor
from manycl.model.transfer import CHUNK, LARGE, TINY, size_class, smallest
from manycl.model.work import Estimate, implementation, work_of
from manycl.utilities.kept import ENOUGH

_NO_VERSIONS: Mapping[int, Version] = {}


def enough(nodes: Iterable[Node]) -> frozenset[int]:
    """Return the places of launches that are enough to learn from, as reading times takes a while: of each kernel and
    NDRange, whatever its arguments, no more than the history keeps, evenly chosen."""
    places: dict[object, list[int]] = {}
    for place, node in enumerate(nodes):
        if isinstance(node, Launch):
            places.setdefault((id(node.kernel), node.global_size, node.local_size), []).append(place)
    return frozenset([place for alike in places.values() for place in alike[:: -(-len(alike) // SHAPES)]])


def learn(
    history: History,
    graph: Graph,
    machine: Machine,
    durations: Iterable[tuple[int, DeviceIndex, float]],
    versions: Mapping[int, Version] = _NO_VERSIONS,
) -> None:
    """Add (node, device, seconds) of one run to the history; seconds with the devices' slow-downs, as measured.
    ``versions``: the version that ran, for nodes that have several. Launches that the history does not know on their
    device are first compared with the models' predictions."""
    devices = machine.devices
    names = [identity(d) for d in devices]
    seen: dict[object, tuple[KernelKey, Shape]] = {}
    predictor: Predictor | None = None  # made only if there is something to compare
    comparisons = 0
    history.next_run()
    for node, device, seconds in durations:
        place, launch = devices[device], graph.nodes[node]
        if not isinstance(launch, Launch):
            continue  # copies go by bandwidth
        alone = seconds / place.slowdown
        chosen = versions.get(node) or implementation(launch, place.kind)
        kind = (launch_kind(launch), id(chosen) if launch.versions else 0, device)
        known = seen.get(kind)
        if known is None:
            known = seen[kind] = kernel_key(chosen), Shape(chosen.global_size, work_of(launch, chosen).f)
            here = history.on(known[0], names[device])
            if launch.versions:
                _note_unable(history, launch, chosen, place)
            if here is None or PRIOR not in here.comparisons:
                predictor = predictor or Predictor(machine, history, graph.buffers)
                _compare_guess(history, known[0], place, predictor.guess(launch, chosen, device), alone)
            # fitting takes milliseconds: runs do not wait for it, planning asks for the models next time
            elif comparisons < MOST and known[1] not in here.series and here.are_fitted:
                comparisons += 1
                predictor = predictor or Predictor(machine, history, graph.buffers)
                for found in predictor.models(launch, chosen, device):
                    model = found.source.partition(",")[0]
                    history.compare(known[0], names[device], model, found.seconds, alone)
        history.observe(*known, names[device], alone)


def _note_unable(history: History, launch: Launch, ran: Launch | Version, device: Device) -> None:
    """Note versions that could not run: a version that the device prefers and that has never run there would have been
    tried first (:meth:`manycl.model.predictor.Predictor.row`), so where another one ran, it could not."""
    name = identity(device)
    for index in able(launch, device):
        if launch.versions[index] is ran:
            return
        key = kernel_key(launch.versions[index])
        if history.on(key, name) is None:
            history.unable.add((key, name))


def _compare_guess(history: History, key: KernelKey, device: Device, guess: Estimate, seconds: float) -> None:
    """Compare the first guess, without the launch overhead, with the first measurement of a kernel."""
    body = (guess.seconds - device.launch_overhead) / device.slowdown
    history.compare(key, identity(device), PRIOR, body, max(seconds - device.launch_overhead, seconds * 0.5))


class ObservedLinks:
    """The links observed in a session: latencies in seconds, and bytes per second, of the latest transfers between the
    host and devices with memory of their own."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], deque[float]] = {}
        self._handovers: deque[float] = deque(maxlen=KEEP)
        self._rates: dict[tuple[str, str], dict[int, deque[float]]] = {}  # bytes per second, by size of chunks
        self._chunks: dict[tuple[str, str], int] = {}

    def observe(self, device: Device, to_device: bool, nbytes: int, seconds: float) -> None:
        """Note that a transfer of ``nbytes`` took ``seconds``."""
        if TINY < nbytes < LARGE or seconds <= 0.0:
            return
        way = "up" if to_device else "down"
        name, value = (f"{way}_observed", nbytes / seconds) if nbytes >= LARGE else (f"{way}_latency_observed", seconds)
        self._found.setdefault((identity(device), name), deque(maxlen=KEEP)).append(value)
        size, link = size_class(nbytes), (identity(device), f"{way}_chunk_observed")
        if size is not None and link not in self._chunks:  # the chunk size is found once
            rates = self._rates.setdefault(link, {})
            rates.setdefault(size, deque(maxlen=KEEP)).append(nbytes / seconds)
            self._find_chunk(link, {n: median(r) for n, r in rates.items() if len(r) >= ENOUGH})

    def enqueued(self, device: Device, is_copy: bool, seconds: float) -> None:
        """Note that the host's thread took ``seconds`` for each transfer or other command that it enqueued."""
        name = f"enqueuing{'_copy' if is_copy else ''}_observed"
        self._found.setdefault((identity(device), name), deque(maxlen=KEEP)).append(seconds)

    def _find_chunk(self, link: tuple[str, str], rates: Mapping[int, float]) -> None:
        """Set a link's chunk size, if enough transfers of unlike sizes show how much small ones lose."""
        if len(rates) >= ENOUGH and max(rates) >= CHUNK:
            self._chunks[link] = smallest(rates)
            del self._rates[link]

    def handed_over(self, seconds: Iterable[float]) -> None:
        """Note the handovers of a run: the seconds between the arrival of data at the host from one device, and the
        beginning of their transfer to another. Most may have been in no hurry: the shortest time counts."""
        shortest = min(seconds, default=None)
        if shortest is not None:
            self._handovers.append(shortest)

    def handover(self, otherwise: float) -> float:
        """Return the cost of a dependence between devices beside its transfers, in seconds: the lower quartile of the
        latest runs, since in some runs nothing was waited for."""
        return quantiles(self._handovers, n=4)[0] if len(self._handovers) >= ENOUGH else otherwise

    def values(self) -> Iterable[tuple[str, dict[str, float]]]:
        """Return the values that :class:`manycl.model.history.store.Store` keeps: the medians, by device."""
        found: dict[str, dict[str, float]] = {}
        for (subject, name), values in self._found.items():
            if len(values) >= ENOUGH:
                found.setdefault(subject, {})[name] = median(values)
        for (subject, name), chunk in self._chunks.items():
            found.setdefault(subject, {})[name] = chunk
        return found.items()

    def added_to(self, measurements: Measurements) -> Mapping[str, Mapping[str, float]]:
        """Return measurements with the observations since; known chunk sizes stay."""
        merged = {subject: dict(values) for subject, values in measurements.items()}
        for subject, values in self.values():
            known = merged.setdefault(subject, {})
            known.update((name, value) for name, value in values.items() if name not in known or "_chunk" not in name)
        return merged
