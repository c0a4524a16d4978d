"""Recovery of an eager stream (:mod:`manycl.run.streams.eager_stream`) whose device was lost: what is left to do, for
the other devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from manycl.drivers.driver import DeviceLost, Driver, DriverError, Event
from manycl.errors import ManyclError
from manycl.graph.dependences import Batch
from manycl.machine import HOST
from manycl.plan.plan import Assignment, Plan
from manycl.run.commands.backend import Download, Run
from manycl.run.engine.engine import CRASHED
from manycl.run.executor.record import Transferred
from manycl.run.lowering.lower import lower
from manycl.run.lowering.overwritten import Overwritten
from manycl.run.recovery.idempotence import Repeatable
from manycl.run.recovery.lineage import HeldVersions, Unrecoverable, rest_of
from manycl.run.recovery.resume import note
from manycl.run.session.problem_builder import problem_of
from manycl.utilities.logs import logger

if TYPE_CHECKING:
    from manycl.run.session.session import Session
    from manycl.run.streams.eager_result import EagerResult

log = logger(__name__)


def left_of_leg(session: Session, over: EagerResult, moved: Sequence[Transferred]) -> Batch | str:
    """Return what the other devices have to do of a batch whose device is lost; then the directory has the places of
    buffers. ``moved``: the batch's transfers; those to the host may have overwritten its contents. Return the reason in
    words where the run cannot go on: the device's process has ended by itself, or what the batch needs is gone. Return
    "" where the device works, or there is no other one."""
    lanes, machine, directory = session.backend.lanes[over.device], session.machine, session.directory
    if len(machine.devices) < 2 or not lanes.probe():
        return ""
    if lanes.driver.has_crashed:
        return CRASHED
    graph = over.graph
    if not directory.parts.keys().isdisjoint(graph.buffers):
        return ""
    names = tuple([device.name for device in machine.devices])
    nodes = range(len(graph.nodes))
    plan = Plan(tuple([Assignment(n, over.device, 0, 0.0, 0.0) for n in nodes]), "in_order", names, 0.0)
    problem = problem_of(session, graph, (), {})
    try:
        lowered = lower(problem, plan, directory)
        if lowered.graph is not graph:
            return ""
        own = machine.devices[over.device].memory
        history = HeldVersions(lowered, lambda _: own, directory.valid, ())
        commands: list[tuple[Run | Download, bool]] = list(_carried_out(over, lanes.driver))
        back = [t for t in moved if not t.is_upload and any(_fate(lanes.driver, event)[1] for event in t.events)]
        commands += [(Download(len(nodes), key, over.device, (), False), False) for t in back for key in t.keys]
        gone = {own} - {HOST, *(d.memory for i, d in machine.numbered() if i != over.device)}
        overwritten = Overwritten(lowered, graph, repeated=True, questions=0)
        rest = rest_of(history, commands, gone, Repeatable(problem, lowered), overwritten.find)
    except Unrecoverable as reason:
        gone_keys = ", ".join(graph.buffers[key].name or f"buffer {key}" for key in reason.keys)
        return f"it cannot go on without: {gone_keys}: {reason.reason}"
    except ManyclError:
        return ""
    left = [n for n in nodes if n not in rest.done]
    if not left:
        return ""
    note(rest, directory)
    for key in rest.lost:
        directory.lose(key, "they were only on a device that has failed")
    place, waits = {n: i for i, n in enumerate(left)}, over.batch.after
    after = {place[n]: tuple([place[m] for m in waits[n] if m in place]) for n in left if n in waits}
    log.warning("%s does not work any more; what it was given goes on without", names[over.device])
    return Batch(tuple([graph.nodes[n] for n in left]), over.batch.buffers, {n: a for n, a in after.items() if a})


def _carried_out(over: EagerResult, driver: Driver) -> Iterator[tuple[Run, bool]]:
    """Yield the batch's commands that may have begun, and whether they are complete."""
    for n, (_, _, event) in enumerate(over.given):
        is_complete, has_begun = _fate(driver, event)
        if has_begun:
            yield Run(n, over.device, 0, (), False), is_complete


def _fate(driver: Driver, event: Event) -> tuple[bool, bool]:
    """Return whether a command is complete, and whether it may have begun. A driver in this process is not trusted
    about a lost device."""
    if not driver.has_own_process:
        return False, True
    try:
        return driver.done(event), True
    except DeviceLost as lost:
        return False, lost.has_begun
    except DriverError:
        return False, True
