"""Learning from real runs: durations for the history, and how good the predictions for them were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from manycl.graph.graph import Graph, Launch, Node, Version
from manycl.graph.versions.feasible import able
from manycl.machine import Device, DeviceIndex, Machine
from manycl.model.counts import MOST
from manycl.model.estimate import launch_kind
from manycl.model.history.history import PRIOR, SHAPES, History, KernelKey, Shape, identity, kernel_key
from manycl.model.predictor import Predictor
from manycl.model.work import Estimate, implementation, work_of

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
    device are first compared with the models' predictions.
    """
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
