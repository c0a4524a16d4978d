"""Scheduling policies: their two kinds, and the registry that has them by name.

Two kinds, one registry:

- a *static* policy has ``plan(problem) -> Plan`` and decides everything before the run;
- a *dynamic* policy has ``select(frontier, devices, now) -> Choice | None`` (PySchedCL, Algorithm 1,
  ``select``) and is asked again whenever something finished. It schedules task components; ``components``
  says which (default: every kernel is one), ``queues`` how many in-order queues of a device one may use,
  ``resident`` how many components a device holds at once.

A user registers either with :func:`register`: a class with one of these methods, or a plain function
``select(frontier, devices, now)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

from manycl.errors import PolicyError
from manycl.expressions import suggest
from manycl.graph.graph import Graph
from manycl.machine import Device, DeviceIndex
from manycl.plan import policies
from manycl.plan.options import Options
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.utilities import user_file


@dataclass(frozen=True, slots=True)
class Component:
    """A task component on the frontier: every predecessor outside it is complete. ``rank`` orders the frontier: the
    user's own rank where given, else the largest bottom-level rank of its FRONT (PySchedCL, Section 5), in seconds.
    ``devices``: indices of the devices that it may run on. ``seconds[d]``: the estimated time of all its kernels, one
    after another, on device d, transfers of missing inputs included."""

    index: int
    nodes: tuple[int, ...]
    rank: float
    devices: tuple[DeviceIndex, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device as a policy sees it. ``free``: how many more components it may get. ``ready_at``: the estimated time (in
    seconds, same clock as ``now``) when the components on it will have finished."""

    index: DeviceIndex
    device: Device
    free: int
    running: tuple[int, ...]
    ready_at: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision to run component ``component`` (its index) on device ``device`` (its index)."""

    component: int
    device: DeviceIndex


@runtime_checkable
class StaticPolicy(Protocol):
    def plan(self, problem: Problem) -> Plan: ...


Timed = tuple[int, int, float]
"""A node, a device (index) and seconds."""


@runtime_checkable
class LearningPolicy(StaticPolicy, Protocol):
    """A static policy that is used again for every repetition of a graph, and observes how long each one takes."""

    def observe(self, graph: Graph, durations: Iterable[Timed], waits: Iterable[Timed] | None = None) -> None:
        """Learn from a repetition: the seconds of its launches, or ranges of them, and the seconds for which devices
        waited for data before these (None: unknown; computed when it is read)."""

    def settled(self, graph: Graph) -> bool:
        """Return whether the policy would still make its last plan of this graph."""


class DynamicPolicy(Protocol):
    """A dynamic policy. ``frontier`` is sorted by rank, highest first; ``devices`` are all; None as a choice: wait."""

    def start(self, problem: Problem) -> None: ...

    def components(self, graph: Graph) -> tuple[tuple[int, ...], ...]: ...

    def queues(self, device: DeviceIndex) -> int: ...

    def resident(self, device: DeviceIndex) -> int: ...

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None: ...


def is_static(policy: object) -> TypeGuard[StaticPolicy]:
    """Return whether a policy is static, as isinstance would, which takes 15 us for a protocol."""
    return hasattr(policy, "plan")


def learns(policy: object) -> TypeGuard[LearningPolicy]:
    """Return whether a policy learns, as isinstance would, which takes 15 us for a protocol."""
    return hasattr(policy, "observe") and hasattr(policy, "settled") and hasattr(policy, "plan")


class KernelByKernel:
    """Base of the dynamic policies that schedule one kernel at a time on one queue per device (PySchedCL, Section 5).
    ``problem`` is set when a run starts."""

    problem: Problem

    def start(self, problem: Problem) -> None:
        self.problem = problem

    def components(self, graph: Graph) -> tuple[tuple[int, ...], ...]:
        return tuple((i,) for i in range(len(graph.nodes)))

    def queues(self, device: DeviceIndex) -> int:
        return 1

    def resident(self, device: DeviceIndex) -> int:
        return 1

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        raise NotImplementedError


Policy = StaticPolicy | DynamicPolicy
registry: dict[str, Callable[[], Policy]] = {}
"""The functions and classes that make the registered policies, by name."""


def register(name: str) -> Callable[[Any], Any]:
    """Decorator that registers a class (with ``plan`` or ``select``) or a function ``select(frontier, devices, now)``
    for use as ``policy=name`` and ``--policy name``."""

    def add(what: Any) -> Any:
        if name in policies.NAMES:
            policies.load(name)  # not later, when it would replace the policy registered now
        whose = {"__module__": getattr(what, "__module__", "")}  # the module that is named if it fails
        if isinstance(what, type):
            if not (hasattr(what, "plan") or hasattr(what, "select")):
                raise PolicyError(f"policy {name!r}: a class needs a method plan(problem) or select(…)")
            is_whole = hasattr(what, "plan") or issubclass(what, KernelByKernel)
            registry[name] = what if is_whole else type(what.__name__, (what, KernelByKernel), whose)
        elif callable(what):
            registry[name] = type(name, (KernelByKernel,), {**whose, "select": staticmethod(what)})
        else:
            raise PolicyError(f"policy {name!r}: neither a class nor a function")
        return what

    return add


def names() -> tuple[str, ...]:
    """Return the names of all registered policies, sorted."""
    policies.load(*policies.NAMES)
    return tuple(sorted(registry))


def _having(option: str) -> list[str]:
    """Return the policies that have an option."""
    declared = {name: getattr(registry[name], "options", None) for name in names()}
    return [name for name, found in declared.items() if isinstance(found, Options) and option in found.names]


Options.having = _having


def find(name: str) -> Policy:
    """Return a new policy of that name. ``FILE.py:NAME`` runs the user's file first and takes NAME from it. Raises
    PolicyError for an unknown name, with the names that there are."""
    if ".py:" in name:
        path, _, name = name.rpartition(":")
        user_file.run(Path(path), "policy file", PolicyError)
    elif name in policies.NAMES:
        policies.load(name)
    made = registry.get(name)
    if made is None:
        policies.load(*policies.NAMES)
        raise PolicyError(
            f"no policy is called {name!r}{suggest(name, registry)}",
            hint=f"registered: {', '.join(sorted(registry))}; your own: --policy FILE.py:NAME",
        )
    return made()
