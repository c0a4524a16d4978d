"""Measuring what the models of an application's kernels lack: every kernel on every device, at several sizes. Sizes are
varied by the application's own symbols: those whose value changes some kernel's NDRange are halved, quartered and so
on, all together and one by one, as far as the application loads with them. Every launch runs three times on each device
that may run it, unless it has been measured there before; what is learned goes to the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from manycl.applications.application import Application
from manycl.applications.runner import Runner
from manycl.errors import ManyclError
from manycl.graph.graph import Graph, Launch
from manycl.graph.versions.feasible import able
from manycl.machine import Device, DeviceIndex
from manycl.model.estimate import ModelEstimates
from manycl.model.history.history import Shape, identity, kernel_key
from manycl.model.trips import trip_count
from manycl.model.work import implementation
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.problem import Problem
from manycl.run.session.session import Session
from manycl.utilities.kept import ENOUGH

_TOGETHER = (Fraction(1, 2), Fraction(3, 4), Fraction(1, 4), Fraction(5, 8), Fraction(1, 8))
_ALONE = (Fraction(1, 2), Fraction(1, 4))
_LEAST = 2  # a symbol's value below which it is not varied; our own choice
_MOST = 12  # values that a symbol is given, at most; our own choice

Parameters = Mapping[str, str]
Load = Callable[[Parameters], Application]


@dataclass(frozen=True, slots=True)
class ProfileStep:
    """One application, with some values of its symbols, on one device. ``outcome``: ``measured``, ``known`` (measured
    before), ``left out`` (no time) or what went wrong. ``runs`` and ``seconds`` it took. ``version``: of its kernels
    that have several, in the order in which the device prefers them. ``first``: seconds of the first of the runs."""

    parameters: Parameters
    device: str
    outcome: str
    runs: int = 0
    seconds: float = 0.0
    version: int = 0
    first: float = 0.0


def variations(load: Load, given: Parameters) -> list[tuple[Parameters, Application]]:
    """The application, then with other values of its size symbols, if it loads and has NDRanges not seen before."""
    first = load(given)
    found = [(given, first)]
    seen = {_ranges(first)}

    def attempt(values: Mapping[str, int]) -> bool:
        if len(found) >= _MOST:
            return False
        parameters = {**given, **{name: str(value) for name, value in values.items()}}
        try:
            application = load(parameters)
        except ManyclError:
            return False  # the application does not come in this size
        ranges = _ranges(application)
        if not ranges <= set().union(*seen):
            seen.add(ranges)
            found.append((parameters, application))
            return True
        return False

    numbers = {n: int(v) for n, v in first.parameters.items() if isinstance(v, int) and v >= _LEAST}
    sizes = [name for name in numbers if _halved(load, given, name, numbers[name], _ranges(first))]
    if not sizes:
        return found
    for factor in _TOGETHER:
        attempt({name: max(1, int(numbers[name] * factor)) for name in sizes})
    if len(sizes) > 1:
        for factor in _ALONE:
            for name in sizes:
                attempt({name: max(1, int(numbers[name] * factor))})
    return found


def _halved(load: Load, given: Parameters, name: str, value: int, ranges: frozenset[object]) -> bool:
    """Return whether the kernels' NDRanges depend on a symbol."""
    try:
        return not _ranges(load({**given, name: str(value // 2)})) <= ranges
    except ManyclError:
        return False


def _ranges(application: Application) -> frozenset[object]:
    return frozenset(
        (n.kernel.name, n.global_size, n.local_size) for n in application.graph.nodes if isinstance(n, Launch)
    )


def profile(
    found: Sequence[tuple[Parameters, Application]],
    devices: str | None,
    budget: float,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[ProfileStep]:
    """Measure what is missing, largest first wanted, within ``budget`` seconds (infinity: all): yields what was done.
    The sizes that were asked for come first. A run that would take longer than what is left, as far as the models know,
    is left out; a first run, which builds kernels, is taken to need as long as the last one did."""
    begin = time.monotonic()
    done, first = 0, 0.0
    for parameters, application in found:
        if time.monotonic() - begin >= budget:
            yield ProfileStep(parameters, "all devices", "left out")
            continue
        with Runner(application, devices) as runner:
            for device in runner.session.machine.indices:
                for edition, graph in enumerate(_editions(application.graph, runner.session.machine.devices[device])):
                    step = _on_device(runner, graph, parameters, device, edition, begin + budget, first)
                    first = step.first or first
                    yield step
                done += 1
                progress(done)


def _editions(graph: Graph, device: Device) -> list[Graph]:
    """The graph with each of the versions that a device may run of its kernels; itself where there are none."""
    orders = {n: able(task, device) for n, task in enumerate(graph.nodes) if isinstance(task, Launch) and task.versions}
    out = []
    for edition in range(max(map(len, orders.values()), default=0)):
        nodes = list(graph.nodes)
        for n, order in orders.items():
            launch = nodes[n]
            assert isinstance(launch, Launch)
            if order:
                nodes[n] = replace(launch, versions=(launch.versions[order[min(edition, len(order) - 1)]],))
        out.append(replace(graph, nodes=tuple(nodes)))
    return out or [graph]


def _on_device(
    runner: Runner, graph: Graph, parameters: Parameters, device: DeviceIndex, edition: int, end: float, building: float
) -> ProfileStep:
    session = runner.session
    name = session.machine.devices[device].name
    begin, runs, first = time.monotonic(), 0, 0.0
    problem = session.problem(graph)
    missing = ENOUGH - _known(session, problem, device)
    if missing <= 0:
        return ProfileStep(parameters, name, "known", version=edition)
    try:
        plan = problem.all_on(device, "profile")
        for _ in range(missing):
            start = time.monotonic()
            if start + max(_expected(problem, plan), 0.0 if runs else building) > end:
                break
            runner.reset()
            session.run(graph, plan)
            first = first or time.monotonic() - start
            runs += 1
            problem = session.problem(graph)  # learns from the run
    except ManyclError as error:
        # where one version cannot run, others may
        outcome = f"{'failed' if not edition else 'cannot run'}: {error.message}"
        return ProfileStep(parameters, name, outcome, runs, time.monotonic() - begin, edition, first)
    outcome = "measured" if runs == missing else "left out" if not runs else f"measured {runs} of {missing} times"
    return ProfileStep(parameters, name, outcome, runs, time.monotonic() - begin, edition, first)


def _known(session: Session, problem: Problem, device: DeviceIndex) -> int:
    """Return how often the launch measured least on a device was measured there (ENOUGH: nothing is missing)."""
    place = session.machine.devices[device]
    least = ENOUGH
    for node, task in enumerate(problem.graph.nodes):
        if isinstance(task, Launch) and device in problem.allowed(node):
            chosen = implementation(task, place.kind)
            shape = Shape(chosen.global_size, trip_count(chosen.program, chosen.kernel).of(task, chosen))
            series = session.models.history.series(kernel_key(chosen), shape, identity(place))
            least = min(least, series.count if series is not None else 0)
    return least


def _expected(problem: Problem, plan: Plan) -> float:
    """Seconds that a run will take; first guesses count as little as they may."""
    estimates = problem.estimates
    assert isinstance(estimates, ModelEstimates)
    total = 0.0
    for a in plan.assignments:
        if a.device != ON_HOST:
            found = estimates.estimate(a.node, a.device)
            total += found.seconds if found.known else found.low
    return total
