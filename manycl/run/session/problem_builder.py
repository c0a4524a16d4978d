"""Builds the problem that a policy gets for a graph, from the present state of devices and data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from manycl import flags
from manycl.graph.graph import Graph
from manycl.machine import queue_counts
from manycl.model.estimate import ModelEstimates
from manycl.model.estimates import Slowed
from manycl.plan.plan import Plan, fitted
from manycl.plan.policy import Policy, find
from manycl.plan.problem import HANDOVER, Problem
from manycl.plan.rescheduling import on_present
from manycl.plan.search.alternatives import following
from manycl.plan.splitting import Splits
from manycl.run.lowering.overwritten import contents
from manycl.run.lowering.steps import valid_intervals
from manycl.run.session.device_set import DeviceSet
from manycl.run.session.session_data import SessionData
from manycl.run.simulation.foresee import foreseeing
from manycl.run.simulation.simulate import with_ranges


class Asked(NamedTuple):
    """A problem, the ``policy`` that shall solve it (or a plan that is given), and the policy's ``name``."""

    problem: Problem
    policy: Any
    name: str


class RunRequest(NamedTuple):
    """A request to run a graph: arguments of :meth:`Session.run`, and ``rival`` as of
    :class:`manycl.plan.problem.Problem`. ``gained``: seconds that a plan made ahead shall be able to gain."""

    policy: str | Policy | Plan | None
    queues: Mapping[str, int] | None
    options: Mapping[str, str] | None
    repeated: int
    rival: bool
    gained: float = 0.0


def asked(devices: DeviceSet, data: SessionData, graph: Graph, wanted: RunRequest) -> Asked:
    """Return the problem and policy for a graph. Raises PolicyError for an unknown policy or option."""
    policy, queues, options, repeated, rival, _ = wanted
    if isinstance(policy, Plan):
        problem = following(replace(problem_of(devices, data, graph), repeated=repeated), policy)
        if data.steps.has(problem.graph, policy):  # it was fitted and checked
            problem.check(policy)
        else:
            policy = fitted(policy, problem.graph)
            problem.check_given(policy)
        return Asked(problem, on_present(problem, policy) if problem.away else policy, policy.policy)
    chosen = find(policy or flags.policy()) if policy is None or isinstance(policy, str) else policy
    devices.learn()
    problem = problem_of(devices, data, graph, queue_counts(devices.machine, queues or {}), options, repeated)
    problem = replace(problem, rival=rival)
    if repeated and devices.machine.memories > 1:
        problem = _without_unneeded(data, problem)
    if repeated != 1 and devices.machine.memories > 1:  # before a repeated graph has run, times are guesses
        problem = replace(problem, foresee=foreseeing(problem, data.directory))
    if policy is None:
        name = flags.policy()
    else:
        name = policy if isinstance(policy, str) else type(policy).__name__
    return Asked(problem, with_ranges(problem, chosen, name), name)


def problem_of(
    devices: DeviceSet,
    data: SessionData,
    graph: Graph,
    queues: tuple[int, ...] = (),
    options: Mapping[str, str] | None = None,
    repeated: int = 0,
) -> Problem:
    """Return the problem, from all that has been learned so far; ``queues``: by device (empty: by default)."""
    machine, models, directory = devices.machine, devices.models, data.directory
    valid = {k: directory.memories(k) for k in graph.buffers} if machine.memories > 1 else {}
    estimates = estimates_of(devices, graph)
    devices.backend.programs.prefer = estimates.fastest
    guesses = estimates.uncounted()
    slow = devices.events.slow
    factors = {i: slow[d.name] for i, d in machine.numbered() if d.name in slow}
    return Problem(
        graph=graph,
        machine=machine,
        handover=models.links.handover(HANDOVER),
        estimates=Slowed(estimates, factors) if factors else estimates,
        queues=queues,
        valid=valid,
        options=options or {},
        splits=Splits(
            graph,
            frozenset(device.kind for device in machine.devices),
            None if repeated else lambda node: min([guesses.launch(node, d) for d in machine.indices], default=0.0),
        ),
        repeated=repeated,
        analysis=models.budget,
        valid_intervals=valid_intervals(directory, graph),
        spills=True,
        away=devices.away,
        merging=data.merging,
        as_planned=data.as_planned,
        demanded=devices.demanded,
    )


def estimates_of(devices: DeviceSet, graph: Graph) -> ModelEstimates:
    """Return the estimates for a graph by all that has been learned so far."""
    return ModelEstimates(graph, devices.machine, devices.models.history)


def _without_unneeded(data: SessionData, problem: Problem) -> Problem:
    """Return the problem without the places of buffers whose contents no node reads before it overwrites them: when the
    graph runs again, it does not matter where they were left."""
    known = next((keys for graph, keys in data.unneeded if graph is problem.graph), None)
    if known is None:
        known = frozenset(
            key for key, (found, _) in contents(problem.graph, problem.graph.buffers).items() if not found
        )
        data.unneeded.append((problem.graph, known))
    valid = {key: frozenset() if key in known else places for key, places in problem.valid.items()}
    parts = {key: found for key, found in problem.valid_intervals.items() if key not in known}
    return replace(problem, valid=valid, valid_intervals=parts)
