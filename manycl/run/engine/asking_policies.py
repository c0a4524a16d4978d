"""Ask a policy for its plan or choice, so that no defect of a planner stops a run that one device could do. Where a
policy of manycl's own fails to plan, the graph runs in order on the best device; where a dynamic one fails to choose,
the kernel goes to a device with room. The reason is logged. An error of a user's own policy is raised."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from manycl import flags
from manycl.errors import ManyclError, PolicyError
from manycl.graph.graph import Graph, HostTask
from manycl.machine import DeviceIndex
from manycl.plan.movable import with_moving_shares
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policies import own_name
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.policy import (
    Choice,
    Component,
    DeviceState,
    DynamicPolicy,
    KernelByKernel,
    StaticPolicy,
    is_static,
    learns,
)
from manycl.plan.preemptible import with_preemption
from manycl.plan.problem import Problem
from manycl.plan.rescheduling import on_present
from manycl.plan.search.alternatives import following, with_units
from manycl.run.data.coherence import Directory
from manycl.run.lowering.steps import Lowered
from manycl.run.tiling.limits import limited
from manycl.utilities.unforeseen import told

Policy = StaticPolicy | DynamicPolicy | Plan
Lowering = Callable[[Problem, Plan | None, Directory], Lowered]
Value = TypeVar("Value")

UNFORESEEN = "unforeseen"
"""The key in a plan's details, and in its run's trace, of the list of what failed."""
UNPLANNED = "unplanned"
"""The key that marks a run whose commands went to devices as they were enqueued: no policy was asked."""


def planned(problem: Problem, policy: Policy) -> Plan | None:
    """Return the plan of a static policy (None: the policy is dynamic). Raises PolicyError, also for any exception of a
    policy that is not manycl's own."""
    if isinstance(policy, Plan):
        return policy
    if not is_static(policy):
        return None
    try:
        is_own = own_name(policy) and not learns(policy)
        plan = with_units(problem, policy.plan) if is_own else policy.plan(problem)
        plan = on_present(following(problem, plan), plan)  # the policy may not know of devices that leave
    except ManyclError:
        raise  # the problem has no plan; the error says why
    except Exception as error:
        if not own_name(policy):
            raise _users(policy, error) from error
        plan = plain(problem, told(error, f"planning with {_name(policy)}"))
    if not own_name(policy):
        following(problem, plan).check_given(plan)
    return plan


def decided(
    problem: Problem, policy: Policy, directory: Directory, lowering: Lowering, ahead: Plan | None = None
) -> tuple[Plan | None, Lowered]:
    """Return the plan and its steps. ``ahead``: the policy's plan, if it has been made, by ``completed``. Raises what
    ``planned`` and ``lowering`` raise."""
    plan = completed(problem, policy) if ahead is None else ahead
    try:
        if plan is None and (cut := in_advance(problem)) is not None:
            lowered = lowering(problem, cut, directory)
            wholes = len(lowered.steps) - sum(len(c.steps) for c in lowered.chunks.values())
            if wholes == len(problem.graph) - len(lowered.chunks) and lowered.chunks:
                return None, lowered  # each launch is one step or one that may move
        return plan, lowering(following(problem, plan), plan, directory)
    except Exception as error:
        if plan is None:
            raise
        try:
            whole = otherwise(problem, policy, plan, error)
            lowered = lowering(problem, whole, directory)
        except ManyclError:
            raise error from None  # the kernels have to be divided: no other plan is possible
        if not isinstance(error, ManyclError):
            told(error, f"following a plan of {_name(policy)}")
        return whole, lowered


def completed(problem: Problem, policy: Policy) -> Plan | None:
    """Return what ``planned`` does, by ``moving``, unless the plan is the user's. Raises what ``planned`` raises."""
    plan = planned(problem, policy)
    return plan if plan is None or plan is policy else moving(problem, policy, plan)


def moving(problem: Problem, policy: Policy, plan: Plan) -> Plan:
    """Return the plan of a policy with shares that may move at run time, where that pays, or may have to leave a
    device. (A policy that learns moves shares itself, from run to run.)"""
    if not own_name(policy) or problem.as_planned:
        return plan
    problem = following(problem, plan)
    try:
        has_learned = learns(policy)
        if plan.is_split and not has_learned:
            plan = with_moving_shares(problem, plan, flags.deterministic())
        return with_preemption(problem, plan, flags.strict(), not has_learned)
    except Exception as error:
        if isinstance(error, ManyclError):
            raise
        told(error, "finding out which shares may move")
        return plan


def in_advance(problem: Problem) -> Plan | None:
    """Return the plan by which launches are cut whose devices are chosen at run time, so that they may leave these:
    each on its fastest device. Return None where no launch may."""
    if problem.as_planned or limited(problem, None):  # (nothing is evicted for packets)
        return None
    seconds = problem.estimates.launch
    try:
        fastest = [
            ON_HOST if isinstance(task, HostTask) else min(problem.allowed(n), key=lambda d: seconds(n, d))
            for n, task in enumerate(problem.graph.nodes)
        ]
        took = [0.0 if d == ON_HOST else seconds(n, d) for n, d in enumerate(fastest)]
        whole = [Assignment(n, d, 0, 0.0, t) for n, (d, t) in enumerate(zip(fastest, took, strict=True))]
        plan = Plan(tuple(whole), "", tuple(d.name for d in problem.machine.devices), 0.0)
        found = with_preemption(problem, plan, demanded=False)
    except ManyclError:  # a kernel that no device can run: the run says so
        return None
    except Exception as error:
        told(error, "finding out which launches may leave devices")
        return None
    return found if found.still else None


def otherwise(problem: Problem, policy: Policy, plan: Plan, error: Exception) -> Plan:
    """Return the plan that replaces one that cannot be lowered: whole kernels, where one of manycl's own policies has
    divided some. Raises the error where there is no other plan."""
    if policy is plan or not (plan.is_split and own_name(policy)):
        raise error
    words, _, _ = str(error).partition("\n")
    return plain(problem, f"the plan of {_name(policy)} cannot be followed: {words}")


def careful(policy: Policy) -> Policy:
    """Return the policy, wrapped, if it is dynamic, so that it always answers or raises an error that says whose fault
    it is."""
    return policy if isinstance(policy, Plan) or is_static(policy) else _Careful(cast("DynamicPolicy", policy))


def plain(problem: Problem, reason: str) -> Plan:
    """Return a plan of whole kernels in order on the best device. Raises PolicyError where one can run nowhere so."""
    asked = replace(problem, options={}, foresee=None, rival=False)
    try:
        plan = InOrder().plan(asked)
    except ManyclError:
        raise
    except Exception as error:
        reason = f"{reason}; {told(error, 'planning with in_order')}"
        plan = _plainest(asked)
    return replace(plan, details={**plan.details, UNFORESEEN: [reason]})


def _plainest(problem: Problem) -> Plan:
    """Return a plan with each kernel on the device that may run most kernels, or on its first allowed one."""
    allowed = [problem.allowed(n) for n in range(len(problem.graph))]
    best = max(problem.machine.indices, key=lambda d: sum(d in places for places in allowed))
    return problem.all_on(best, "in_order")


def asked(policy: object, what: str, ask: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """Return what a policy answers. Where a policy of manycl's own fails, return what ``otherwise`` gives; for other
    policies raise PolicyError."""
    try:
        return ask()
    except ManyclError:
        raise
    except Exception as error:
        if not own_name(policy):
            raise _users(policy, error) from error
        told(error, f"{what} with {_name(policy)}")
        return otherwise()


class _Careful(KernelByKernel):
    def __init__(self, policy: DynamicPolicy) -> None:
        self._policy = policy

    def _asked(self, ask: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        return asked(self._policy, "choosing", ask, otherwise)

    def start(self, problem: Problem) -> None:
        super().start(problem)
        self._asked(lambda: self._policy.start(problem), lambda: None)

    def components(self, graph: Graph) -> tuple[tuple[int, ...], ...]:
        plain = super().components
        return self._asked(lambda: self._policy.components(graph), lambda: plain(graph))

    def queues(self, device: DeviceIndex) -> int:
        return self._asked(lambda: self._policy.queues(device), lambda: 1)

    def resident(self, device: DeviceIndex) -> int:
        return self._asked(lambda: self._policy.resident(device), lambda: 1)

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        return self._asked(lambda: self._policy.select(frontier, devices, now), lambda: _free(frontier, devices))


def _free(frontier: Sequence[Component], devices: Sequence[DeviceState]) -> Choice | None:
    """Return a choice for the first component for which a device has room."""
    return next((Choice(c.index, d) for c in frontier for d in c.devices if devices[d].free), None)


def _name(policy: object) -> str:
    return f"policy {own_name(policy) or type(policy).__name__}"


def _users(policy: object, error: Exception) -> PolicyError:
    """Return the error of a policy that is not manycl's, with its file and line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename}, line {place.lineno}"
    return PolicyError(f"{_name(policy)} failed: {type(error).__name__}: {error} ({where})")
