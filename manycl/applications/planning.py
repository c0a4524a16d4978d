"""The question of ``manycl plan`` and ``manycl simulate``: an application on a machine, and what is known of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from manycl import flags
from manycl.applications.application import Application
from manycl.graph import bounds
from manycl.machine import HOST, Machine, queue_counts
from manycl.model.estimate import ModelEstimates
from manycl.model.history.history import History
from manycl.model.history.measured import on_machine
from manycl.model.history.store import Store
from manycl.plan.problem import HANDOVER, Problem
from manycl.plan.splitting import Splits
from manycl.run.simulation.foresee import directory_of, foreseeing


@dataclass(frozen=True, slots=True)
class PlanningTarget:
    """A machine, and what was measured of kernels on devices like its own. ``here``: it is
    this machine, where estimates may be wrong; on others they are what happens."""

    machine: Machine
    history: History
    here: bool = False


def this_machine(devices: str | None) -> PlanningTarget:
    """The chosen devices of this machine (None: MANYCL_DEVICES, else all), as measured as they are."""
    from manycl.drivers.choice import open_devices

    machine, _ = open_devices(devices if devices is not None else flags.devices())
    if not flags.learning():
        return PlanningTarget(machine, History(), here=True)
    store = Store()
    return PlanningTarget(on_machine(machine, store.measurements()), store.history(), here=True)


def described_machine(name: str) -> PlanningTarget:
    """A machine that a file describes (or one that comes with manycl). Measurements of kernels count where a device is
    of the model, driver and size of one that was measured here."""
    from manycl.machine_file import load_machine

    return PlanningTarget(load_machine(name), Store().history() if flags.learning() else History())


def problem_of(
    application: Application,
    place: PlanningTarget,
    queues: Mapping[str, int],
    options: Mapping[str, str],
    as_planned: bool = False,
    handover: float = HANDOVER,
    in_kernel_queues: bool = False,
) -> tuple[Problem, ModelEstimates]:
    """Return the problem of a policy, with the application's initial contents on the host, and what the host reads
    afterwards in the graph; and the problem's estimates. ``queues`` by device name or kind, before the application's
    own; ``as_planned``, ``handover``, ``in_kernel_queues``: as of a :class:`Problem`. Raises LaunchError for a launch
    that certainly leaves its buffers."""
    bounds.check(application.graph)
    graph = application.graph_with(application.read_after(1), place.machine)
    estimates = ModelEstimates(graph, place.machine, place.history, exact=not place.here)
    problem = Problem(
        graph=graph,
        machine=place.machine,
        estimates=estimates,
        queues=queue_counts(place.machine, {**application.queues, **queues}),
        valid={key: frozenset({HOST}) for key, c in application.contents.items() if c.kind != "undefined"},
        options={**application.goals, **options},
        splits=Splits(graph, frozenset(device.kind for device in place.machine.devices)),
        as_planned=as_planned,
        handover=handover,
        in_kernel_queues=in_kernel_queues,
    )
    if place.machine.memories > 1:  # elsewhere the engine adds nothing to a plan
        problem = replace(problem, foresee=foreseeing(problem, directory_of(problem)))
    return problem, estimates
