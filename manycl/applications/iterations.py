"""Applications that are repeated, with their data left where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from manycl.api.arrays.host_arrays import AnyArray
from manycl.applications.application import Application, Iterate
from manycl.errors import ResultError
from manycl.graph.graph import BufferKey
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy
from manycl.run.engine.result import Result
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.graph_cache.learners import Learners
from manycl.run.session.session import Session
from manycl.utilities import user_file


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
