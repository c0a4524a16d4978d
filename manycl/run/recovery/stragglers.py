"""Straggler detection: a run finds devices that take longer than predicted, without an event, from how long its own
kernels take on the devices' clocks. Pure.

A device is a straggler where each of its last kernels, several in a row, took far longer than was measured before. Then
the gain of planning the rest anew is predicted (:meth:`manycl.run.recovery.replanning.Outlook.gain`). Waiting for data,
or for other devices, is not part of that time. Kernels that were never measured, and short ones, do not count; nor do
those of a device with several queues, which run beside one another. Where all devices take longer alike, as the machine
is busy, nothing is gained, and nothing happens. As then time decides which device runs what, this is not done between
devices that are not alike, which may differ in the last bits of results, in graphs that run again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from manycl.graph.graph import Launch
from manycl.machine import DeviceIndex, are_of_a_kind
from manycl.plan.rescheduling import Rescheduler
from manycl.plan.tuning import PLANNING
from manycl.run.commands.backend import Done, Report, Run
from manycl.run.commands.command_graph import KernelEnds
from manycl.run.commands.transfers import Subject
from manycl.run.engine.compile_time import LEAST
from manycl.run.engine.playback import Playback
from manycl.run.stealing.worker import TIMES
from manycl.utilities.kept import ENOUGH

WORK = 5e-3
"""The least predicted seconds in all of a device's last kernels, of which at least ENOUGH count; our own choice."""


class StragglerDetection:
    """The straggler detection of a run that follows a plan. ``took``: the seconds of a kernel that was reported (None:
    they are unknown); ``before``: how many times as long as the models predict devices take, as far as the plan knows
    that from the run itself; ``is_deterministic``: results must not depend on time."""

    def __init__(
        self,
        subject: Subject,
        playback: Playback,
        took: Callable[[int, DeviceIndex], float | None],
        before: Mapping[DeviceIndex, float],
        is_deterministic: bool,
    ) -> None:
        self._problem, self._lowered, self._playback = subject.problem, subject.lowered, playback
        self._took, self._before, self._is_deterministic = took, before, is_deterministic
        self._where = Rescheduler(subject.problem, subject.lowered.extent, subject.lowered.graph)
        self._kernels: dict[DeviceIndex, list[tuple[float, float]]] = {}
        """By device, of each of its kernels, how many times as long as predicted it took, and the predicted seconds."""
        self._foreseen: dict[tuple[int, DeviceIndex, int], float] = {}
        self._ends = KernelEnds(playback.command_graph)
        self._heard, self._asks, self._patience = 0, 0, ENOUGH

    @property
    def is_possible(self) -> bool:
        """True if the rest may be planned anew for a straggler: on devices that are alike, or where results may depend
        on time; not where a plan is to run as it is."""
        problem = self._problem
        there = [device for d, device in problem.machine.numbered() if d not in problem.away]
        if len(there) < 2 or problem.as_planned:
            return False
        return not self._is_deterministic or (
            are_of_a_kind(there) and not any(isinstance(t, Launch) and t.versions for t in problem.graph.nodes)
        )

    def heard(self, reports: Sequence[Report]) -> Mapping[DeviceIndex, float]:
        """Note reports of kernels. Return how many times as long as predicted devices take, for all with enough
        kernels, if there is a straggler for which planning anew is to be considered; else nothing."""
        before = self._heard
        for report in reports:
            for command in self._ends.of(report) if isinstance(report, Done) else ():
                if self._playback.queues[command.device] == 1:
                    self._hear(command)
        if self._heard == before or self._heard < self._asks or not self.lagging:
            return {}
        return {} if self._others_will_tell() else {d: median(self._last(d)[0]) for d in self._kernels}

    @property
    def lagging(self) -> list[DeviceIndex]:
        """The stragglers."""
        return [*filter(self._lags, self._kernels)]

    def refused(self) -> None:
        """Note that planning anew does not pay, or not yet: it is considered again after ever more kernels."""
        self._asks, self._patience = self._heard + self._patience, 2 * self._patience

    def told(self, factors: Mapping[DeviceIndex, float], gain: float) -> str:
        """Return, in words, the stragglers for which planning anew pays, and the rule."""
        names = [d.name for d in self._problem.machine.devices]
        devices = (f"{names[d]} takes {factors[d]:.3g} times as long as foreseen" for d in self.lagging)
        count = max(len(self._last(d)[0]) for d in self.lagging)
        gained = f"{100 * gain:.0f} % of what is left to gain, at least {100 * PLANNING.gain:.0f} %"
        return f"{', '.join(devices)} ({count} kernels in a row beyond {TIMES:g} times, and {gained})"

    def _last(self, device: DeviceIndex) -> tuple[list[float], bool]:
        """Return how many times as long as predicted each of a device's last kernels has taken, and whether these are
        as many as count."""
        ratios, work = list[float](), 0.0
        for ratio, foreseen in reversed(self._kernels[device]):
            ratios.append(ratio)
            work += foreseen
            if len(ratios) >= ENOUGH and work >= WORK:
                return ratios, True
        return ratios, False

    def _lags(self, device: DeviceIndex) -> bool:
        last, is_enough = self._last(device)  # (one that was slow before is faster again below the reciprocal)
        was_slow = self._before.get(device, 1.0) > 1.0
        return is_enough and (min(last) > TIMES or (was_slow and max(last) < 1.0 / TIMES))

    def _hear(self, command: Run) -> None:
        """Note that a kernel has ended."""
        device, foreseen = command.device, self._seconds(command.token, command.device)
        if foreseen >= LEAST and (took := self._took(command.token, device)) is not None:
            self._heard += 1
            self._kernels.setdefault(device, []).append((took / foreseen, foreseen))

    def _seconds(self, step: int, device: DeviceIndex) -> float:
        """Return the predicted seconds of a step; 0 where they are a first guess."""
        of = self._lowered.step(step)
        kind = self._problem.graph.same[of.node], device, of.groups if of.role else -1
        seconds = self._foreseen.get(kind)
        if seconds is None:
            is_known = self._problem.estimates.is_measured(of.node, device)
            seconds = self._foreseen[kind] = self._where.seconds(step, device) if is_known else 0.0
        return seconds

    def _others_will_tell(self) -> bool:
        """Return whether devices without any count yet have kernels in flight that will count: these devices may take
        longer, too."""
        return any(
            isinstance(command, Run)
            and not is_complete
            and command.device not in self._kernels
            and self._seconds(command.token, command.device) >= LEAST
            for command, is_complete in self._playback.given
        )
