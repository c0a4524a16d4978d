"""Runs an application on the devices that are here, once or in turn with its data left in place, and checks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manycl.api.arrays.host_arrays import AnyArray, as_bytes
from manycl.applications.application import Application, Iterate
from manycl.applications.python_files import functions
from manycl.drivers.choice import Opened
from manycl.errors import ResultError, RunError
from manycl.graph.graph import BufferKey, Graph
from manycl.plan.merging import Merging
from manycl.plan.plan import Plan
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.policy import Policy, learns
from manycl.run.data.host_memory import copy_bytes, ram_bytes
from manycl.run.engine.observers import Counting
from manycl.run.engine.result import Result
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.graph_cache.learners import Learners, told
from manycl.run.session.session import Session
from manycl.utilities import user_file


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of results: against what, whether they agree, and by how much."""

    against: str
    passed: bool
    text: str


class Runner:
    """An application loaded into a session of its own: its buffers hold their initial contents."""

    def __init__(
        self,
        application: Application,
        devices: str | Sequence[str] | Opened | None = None,
        *,
        profile: bool = True,
        serve: bool | None = None,
        merging: Merging | None = None,
        as_planned: bool = False,
    ) -> None:
        self.application = application
        _check_room(application)
        self.session = Session(devices, profile=profile, serve=serve, merging=merging, as_planned=as_planned)
        try:
            self._load()
        except BaseException:
            self.session.close()
            raise

    def _load(self) -> None:
        """Give every buffer its initial contents."""
        application = self.application
        self.plan: Plan | None = None
        self._learners = Learners()
        graph = application.graph
        self._load_functions()
        written = {key for node in graph.nodes for key in node.writes}
        self.iterations: Iterations | None = None
        if application.iterate is not None:
            self.iterations = Iterations(application, application.iterate, self.session)
            written |= self.iterations.exchanged
        self._initial: dict[BufferKey, AnyArray] = {}
        for key, buffer in graph.buffers.items():
            self.session.buffers.adopt(buffer)
            contents = application.contents[key]
            if contents.kind == "undefined":
                continue
            host = self.session.buffers.overwrite(key)
            try:
                data = contents.create()
            except MemoryError:
                raise _no_room(buffer.name, contents.nbytes) from None
            copy_bytes(host, as_bytes(data))
            if key in written:
                self._initial[key] = data  # needed again when the graph is run again

    def _load_functions(self) -> None:
        """Run the Python files whose functions a device may run: their faults are told before anything runs."""
        programs, devices = self.session.backend.programs, list(self.session.machine.numbered())
        for version, function in functions(self.application.graph):
            if any(d.kind in version.kinds and not programs.fault(version, index) for index, d in devices):
                function.load()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.session.close()

    def run(
        self,
        policy: str | Policy | Plan | None = None,
        *,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Result:
        """Run the application once, from the initial contents: its graph, or all repetitions of it where it has some,
        which are then what ``progress`` counts."""
        queues = {**self.application.queues, **(queues or {})}
        if policy is None or isinstance(policy, str):
            options = {**self.application.goals, **(options or {})}
        if self.iterations is not None:
            return self.iterations.run(policy, queues, options, progress)
        chosen = self._learners.find(policy, options)
        result = self.session.run(
            self.graph,
            chosen,
            queues=queues,
            options=options,
            observers=(Counting(progress),) if progress is not None else (),
        )
        return told(chosen, result) if learns(chosen) else result

    @cached_property
    def graph(self) -> Graph:
        """The graph that runs, or runs first, with the results that the host reads then."""
        return self.application.graph_with(self.application.read_after(1), self.session.machine)

    def reset(self) -> None:
        """Give every buffer that the graph writes its initial contents again."""
        if self.iterations is not None:
            self.iterations.reset()
        for key, data in self._initial.items():
            copy_bytes(self.session.buffers.overwrite(key), as_bytes(data))

    def outputs(self) -> dict[str, AnyArray]:
        """The results by name, copied out."""
        return {
            o.name: self.session.buffers.host(self._holds(o.buffer)).view(o.dtype).reshape(o.shape).copy()
            for o in self.application.outputs
        }

    def _holds(self, key: BufferKey) -> BufferKey:
        return key if self.iterations is None else self.iterations.holds(key)

    def check(self, outputs: Mapping[str, AnyArray]) -> list[Check]:
        """Compare with the application's reference, where it has one, and with one device running all in order. The
        second comparison is bit for bit when all devices are of one model; otherwise within the tolerance, since
        different devices may round differently."""
        checks = []
        if self.application.reference is not None:
            checks.append(_against("reference", outputs, self._reference(), self.application.tolerance))
        machine = self.session.machine
        self.reset()
        if self.iterations is None:
            self.run(InOrder())
        else:  # as often as it took, whatever the condition says of the other device's numbers
            self.iterations.run(InOrder(), self.application.queues, None, None, self.iterations.times)
        alike = len({(d.model, d.driver) for d in machine.devices}) == 1
        tolerance = 0.0 if alike else self.application.tolerance
        checks.append(_against("one device", outputs, self.outputs(), tolerance))
        return checks

    def _reference(self) -> dict[str, AnyArray]:
        assert self.application.reference is not None
        path, name = self.application.reference
        function = user_file.function(Path(path), name, "reference file", ResultError)
        names = {key: b.name for key, b in self.application.graph.buffers.items()}
        inputs = {
            names[key]: contents.create()
            for key, contents in self.application.contents.items()
            if contents.kind != "undefined"
        }
        try:
            found = function(inputs)
            arrays = {str(k): np.asarray(v) for k, v in found.items()}
        except (Exception, SystemExit) as error:
            raise ResultError(f"{path}: {name} failed: {type(error).__name__}: {error}") from error
        for key, array in arrays.items():
            if array.dtype.kind not in "biuf":
                raise ResultError(f"{path}: {name} returned {key} as {array.dtype}, not as numbers")
        return arrays


def _check_room(application: Application) -> None:
    """Raise RunError, naming the largest buffer, where the host cannot hold all buffers: a system that hands out more
    memory than it has ends the process when it is written."""
    sizes = {b.nbytes: b.name for b in application.graph.buffers.values()}
    if sum(b.nbytes for b in application.graph.buffers.values()) > ram_bytes():
        raise _no_room(sizes[max(sizes)], max(sizes), len(application.graph.buffers))


def _no_room(name: str, nbytes: int, buffers: int = 1) -> RunError:
    others = f", with {buffers - 1} others," if buffers > 1 else ""
    return RunError(
        f"buffer {name} of {nbytes:,} bytes{others} does not fit into the host's {ram_bytes():,} bytes of memory",
        hint="make its shape smaller (-D sets symbols)",
    )


def _against(what: str, outputs: Mapping[str, AnyArray], expected: Mapping[str, AnyArray], tolerance: float) -> Check:
    """Compare all outputs; the error of one is max|result - expected| / max|expected|."""
    worst, faults = 0.0, []
    for name, result in outputs.items():
        if name not in expected:
            raise ResultError(f"the {what} returns no {name}; it has {', '.join(expected) or 'nothing'}")
        wanted = expected[name]
        if wanted.shape != result.shape:
            raise ResultError(f"{name}: the result has shape {result.shape}, the {what}'s {wanted.shape}")
        if tolerance == 0.0:
            if result.tobytes() != wanted.tobytes():
                different = int(np.count_nonzero(as_bytes(np.ascontiguousarray(result != wanted))))
                faults.append(f"{name}: {different} of {result.size} elements differ")
            continue
        error = relative_error(result, wanted)
        worst = max(worst, error)
        if not error <= tolerance:
            faults.append(f"{name}: relative error {error:.3g}")
    if faults:
        return Check(what, False, f"{what}: WRONG: " + "; ".join(faults) + f" (tolerance {tolerance:g})")
    if tolerance == 0.0:
        return Check(what, True, f"{what}: identical, bit for bit")
    return Check(what, True, f"{what}: equal, relative error {worst:.2g} (tolerance {tolerance:g})")


def relative_error(result: AnyArray, expected: AnyArray) -> float:
    """max|result - expected| / max|expected|; infinite where either is not finite and the other differs."""
    a, b = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite]):
        return float("inf")
    scale = float(np.max(np.abs(b), where=finite, initial=0.0)) or 1.0
    return float(np.max(np.abs(a - b), where=finite, initial=0.0)) / scale


class Iterations:
    """The graph of an application that is repeated, and which buffer holds what its names mean."""

    def __init__(self, application: Application, how: Iterate, session: Session) -> None:
        self._application = application
        self._how = how
        self._session = session
        self._swapped: dict[BufferKey, BufferKey] = dict((*how.swap, *((b, a) for a, b in how.swap)))
        self._learners = Learners()
        self._odd = False
        self.times = 0  # of the last run

    @property
    def exchanged(self) -> frozenset[BufferKey]:
        """Buffers that take part in an exchange."""
        return frozenset(self._swapped)

    def reset(self) -> None:
        """Every buffer is again what its name says."""
        self._odd = False

    def holds(self, key: BufferKey) -> BufferKey:
        """The buffer that holds the contents of another one now."""
        return self._swapped.get(key, key) if self._odd else key

    def run(
        self,
        policy: str | Policy | Plan | None,
        queues: Mapping[str, int],
        options: Mapping[str, str] | None,
        progress: Callable[[int], None] | None,
        times: int | None = None,
    ) -> Result:
        """All repetitions, or ``times`` of them without looking at the condition; the last one's result, whose details
        have ``iterations`` and ``total_seconds``."""
        chosen = self._learners.find(policy, options)
        prepared: dict[tuple[BufferKey, ...], CachedGraph] = {}  # by what is brought to the host afterwards
        machine = self._session.machine
        until = self._condition() if times is None else None
        total, turn = 0.0, 0
        while turn < (self._how.times if times is None else times):
            results = self._application.read_after(turn + 1) if machine.memories > 1 else ()
            if (found := prepared.get(results)) is None:
                graph = self._application.graph_with(results, machine)
                found = CachedGraph(self._session, graph, chosen, queues=queues, options=options)
                prepared[results] = found
            result = found.run(self._swapped if self._odd else None)
            total += result.seconds
            turn += 1
            self._odd ^= bool(self._swapped)
            if progress is not None:
                progress(turn)
            if until is not None and turn % self._how.every == 0 and self._true(until):
                break
        self.times = turn
        return replace(result, details={**result.details, "iterations": turn, "total_seconds": total})

    def _condition(self) -> Callable[..., Any] | None:
        if self._how.until is None:
            return None
        path, name = self._how.until
        return user_file.function(Path(path), name, "file of the condition", ResultError)

    def _true(self, until: Callable[..., Any]) -> bool:
        assert self._how.until is not None
        buffers, contents = self._application.graph.buffers, self._application.contents
        given: dict[str, AnyArray] = {}
        for key in self._how.buffers:
            view = self._session.buffers.host(self.holds(key)).view(contents[key].dtype).reshape(contents[key].shape)
            view.flags.writeable = False
            given[buffers[key].name] = view
        try:
            return bool(until(given))
        except (Exception, SystemExit) as error:
            path, name = self._how.until
            raise ResultError(f"{path}: {name} failed: {type(error).__name__}: {error}") from error
