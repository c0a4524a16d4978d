"""Graphs that come again, enqueued anew: recognised by their shape, and played as prepared ones are.

A loop that makes its arrays where it needs them enqueues the same graph each time, on other buffers. Its first runs are
planned, each knowing better how long kernels take; then the plan that ran fastest is kept, and what it was compiled to
is played on the new buffers. Where arrays are when it begins is part of what is recognised.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence

from manycl.errors import PolicyError
from manycl.graph import bounds
from manycl.graph.dependences import Batch
from manycl.graph.graph import BufferKey, Graph
from manycl.graph.shape import BatchShape, shape
from manycl.plan import policies
from manycl.plan.plan import Plan
from manycl.plan.policy import find, is_static, learns
from manycl.plan.problem import queue_counts
from manycl.run.pace import AHEAD
from manycl.run.result import Result
from manycl.run.script import Script
from manycl.run.session import LastTime, Session
from manycl.run.trials import SECOND_THOUGHTS, Trials

KEPT, NODES = 64, 1 << 16
"""Graphs that are kept, and nodes of all of them."""
THOUGHTS = (*SECOND_THOUGHTS, *(4**n for n in range(3, 10)))
"""After so many runs of a plan the policy is asked once more: ever more rarely, as devices and links may change."""


class Recurring:
    """The graphs of a queue that have run, by what they are and where their buffers were."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._nodes = 0
        self._changes = session.changes
        self._static: dict[str, bool] = {}

    def run(
        self, batch: Batch, policy: str, queues: Mapping[str, int] | None, options: Mapping[str, str] | None
    ) -> Result:
        """Run what was enqueued by the policy of that name; raises what ``Session.run`` raises."""
        session = self._session
        if self._changes != session.changes:
            self._known.clear()
            self._nodes, self._changes = 0, session.changes
        found = shape(batch) if len(batch.nodes) <= NODES and self._is_static(policy) else None
        if found is None:
            return session.run(batch.graph(), policy, queues=queues, options=options)
        directory, keys = session.directory, found.keys
        places = tuple([directory.parts.get(key) or directory.valid.get(key, 0) for key in keys])
        settings = tuple((queues or {}).items()), tuple((options or {}).items())
        # with one device that computes in the host's memory, nothing is decided by the scalars
        alone = session.machine.memories == 1 and queue_counts(session.machine, queues or {}) == (1,)
        key = (policy, *settings, places, found.structure, () if alone else found.scalars)
        known = self._known.get(key)
        if known is None:
            several = queue_counts(session.machine, queues or {}) != (1,)
            graph = batch.graph()
            known = self._keep(key, _Known(graph, found, THOUGHTS if several else ()))
        else:
            self._known.move_to_end(key)
            graph = batch.as_in(known.graph, dict(zip(known.shape.keys, keys, strict=True)))
            if found.scalars != known.shape.scalars:
                bounds.check(graph)
            result = known.again(session, graph, found)
            if result is not None:
                return result
        result = session.run(graph, policy, queues=queues, options=options)
        known.answered(result, keys)
        return result

    def _is_static(self, policy: str) -> bool:
        """Whether a policy plans before the run; a user's own may have reasons to be asked each time."""
        found = self._static.get(policy)
        if found is None:
            made = find(policy)
            is_own = type(made).__module__.startswith(f"{policies.__name__}.")
            found = self._static[policy] = is_own and is_static(made) and not learns(made)
        return found

    def _keep(self, key: Hashable, known: _Known) -> _Known:
        self._known[key] = known
        self._nodes += len(known.graph)
        while len(self._known) > KEPT or self._nodes > NODES:
            _, oldest = self._known.popitem(last=False)
            self._nodes -= len(oldest.graph)
        return known


class _Known:
    """One of them. ``thoughts``: as of trials; nothing is tried where there is nothing to choose."""

    def __init__(self, graph: Graph, of: BatchShape, thoughts: Sequence[int]) -> None:
        self.graph = graph  # whose programs are what the shape names
        self.shape = of
        self._thoughts = thoughts
        self._trials = Trials(thoughts=thoughts)
        self._forget()

    def _forget(self) -> None:
        self._script: Script | None = None
        self._keys: tuple[BufferKey, ...] = ()
        self._last = LastTime()

    def answered(self, result: Result, keys: tuple[BufferKey, ...]) -> None:
        """The policy was asked, and that was the run."""
        if self._thoughts:
            self._trials.answered(result.seconds, result.plan)
        else:
            self._trials = Trials(result.plan, thoughts=())
        if self._trials.plan is not None and self._trials.plan is result.plan:
            self._remember(result, keys)

    def again(self, session: Session, graph: Graph, of: BatchShape) -> Result | None:
        """Run what is kept; None where the policy is to be asked."""
        plan, keys = self._trials.plan, of.keys
        if plan is None:
            return None
        result = None
        if self._script is not None and self._script.plan is plan:
            script = self._script.on(graph, dict(zip(self._keys, keys, strict=True)))
            result = session.on_others(script, self._last, keys, of.scalars)
        if result is None:
            result = self._follow(session, graph, keys, plan)
        if result is None:
            self._trials = Trials(thoughts=self._thoughts)
        else:
            self._trials.repeated(result.seconds)
        return result

    def _follow(self, session: Session, graph: Graph, keys: tuple[BufferKey, ...], plan: Plan) -> Result | None:
        try:
            result = session.run(graph, plan)
        except PolicyError:  # it cannot be followed any more
            return None
        self._remember(result, keys)
        return result

    def _remember(self, result: Result, keys: tuple[BufferKey, ...]) -> None:
        """What a plan was compiled to. What is done again is enqueued at once: of long runs that would be more than
        Ctrl-C may have to wait for."""
        self._forget()
        script = result.script
        if script is not None and script.is_plain and result.seconds <= AHEAD:
            self._script, self._keys = script, keys
