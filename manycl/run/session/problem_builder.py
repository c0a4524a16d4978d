"""Builds the problem that a policy gets for a graph, from a session's present state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from manycl import flags
from manycl.graph.graph import Graph
from manycl.model.estimate import ModelEstimates
from manycl.model.estimates import Slowed
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy, find
from manycl.plan.problem import HANDOVER, Problem
from manycl.plan.rescheduling import on_present
from manycl.plan.splitting import Splits
from manycl.run.commands.compiler import check_devices
from manycl.run.lowering.overwritten import contents
from manycl.run.simulation.foresee import foreseeing, parts_of
from manycl.run.simulation.simulate import with_ranges

if TYPE_CHECKING:
    from manycl.run.session.session import Session


class Asked(NamedTuple):
    """A problem, the ``policy`` that shall solve it (or a plan that is given), and the policy's ``name``."""

    problem: Problem
    policy: Any
    name: str


def asked(
    session: Session,
    graph: Graph,
    policy: str | Policy | Plan | None,
    queues: Mapping[str, int] | None,
    options: Mapping[str, str] | None,
    repeated: int,
    rival: bool,
) -> Asked:
    """Return the problem and policy for arguments of :meth:`Session.run`. Raises PolicyError for an unknown policy or
    option."""
    if isinstance(policy, Plan):
        problem = replace(problem_of(session, graph, (), {}), repeated=repeated)
        check_devices(problem, policy)
        return Asked(problem, on_present(problem, policy), policy.policy)
    chosen = find(policy or flags.policy()) if policy is None or isinstance(policy, str) else policy
    problem = replace(session.problem(graph, queues, options), repeated=repeated, rival=rival)
    if repeated and session.machine.memories > 1:
        problem = _without_unneeded(session, problem)
    if repeated > 1 and session.machine.memories > 1:  # before the graph has run, times are guesses
        problem = replace(problem, foresee=foreseeing(problem, session.directory))
    if policy is None:
        name = flags.policy()
    else:
        name = policy if isinstance(policy, str) else type(policy).__name__
    return Asked(problem, with_ranges(problem, chosen, name), name)


def problem_of(session: Session, graph: Graph, queues: tuple[int, ...], options: Mapping[str, str]) -> Problem:
    """Return the problem, from all that has been learned so far; ``queues``: the number for each device (empty: by
    default)."""
    machine, directory = session.machine, session.directory
    valid = {k: directory.memories(k) for k in graph.buffers} if machine.memories > 1 else {}
    estimates = ModelEstimates(graph, machine, session.models.history, session.sharing)
    session.backend.programs.prefer = estimates.fastest
    slow = session.device_events.slow
    factors = {i: slow[d.name] for i, d in machine.numbered() if d.name in slow}
    return Problem(
        graph=graph,
        machine=machine,
        handover=session.models.links.handover(HANDOVER),
        estimates=Slowed(estimates, factors) if factors else estimates,
        queues=queues,
        valid=valid,
        options=options,
        splits=Splits(graph, frozenset(device.kind for device in machine.devices)),
        looks=session.models.looks,
        parts=parts_of(directory, graph),
        spills=True,
        away=session.away,
        merging=session.merging,
        demanded=session.demanded,
    )


def _without_unneeded(session: Session, problem: Problem) -> Problem:
    """Return the problem without the places of buffers whose contents no node reads before it overwrites them: when the
    graph runs again, it does not matter where they were left."""
    known = next((keys for graph, keys in session.unneeded if graph is problem.graph), None)
    if known is None:
        known = frozenset(
            key for key, (found, _) in contents(problem.graph, problem.graph.buffers).items() if not found
        )
        session.unneeded.append((problem.graph, known))
    valid = {key: frozenset() if key in known else places for key, places in problem.valid.items()}
    parts = {key: found for key, found in problem.parts.items() if key not in known}
    return replace(problem, valid=valid, parts=parts)
