"""Whether kernels that ran whole could have been divided: the analysis is asked when the program ends, as launches that
went to a device at once were never looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manycl.api.recording import Runs
from manycl.graph.graph import BufferArg, BufferKey, Graph, Launch
from manycl.plan.problem import HANDOVER
from manycl.plan.split import Split
from manycl.plan.splitting import ONE_WORK_GROUP, split_of
from manycl.plan.tuning import PLANNING
from manycl.report.divided import RANGE
from manycl.run.streams.eager_rule import gains_nothing
from manycl.trace import KernelEvent

if TYPE_CHECKING:
    from manycl.run.engine.merged_traces import PastRun
    from manycl.run.engine.result import Result

ASKED = 32
"""Kernels that the analysis is asked about, at most, those first that took longest."""
SHORT = "it is too short to gain by that"
UNKNOWN = "the program was over before it was found out how"


@dataclass(slots=True)
class Whole:
    """What ran of a kernel function. ``launch``: of its launches the one that took longest, with the bytes of its
    ``sizes``; ``seconds`` that it took; ``runs_took``: the longest run with it."""

    launch: Launch
    sizes: Mapping[BufferKey, int]
    seconds: float = -1.0
    runs_took: float = 0.0

    def why(self) -> str:
        """Why it was not divided although it can be, where no run says so."""
        if gains_nothing(self.runs_took) or self.seconds < PLANNING.worth * HANDOVER:
            return SHORT
        return UNKNOWN


class Kernels(Runs):
    """All runs from now on, and of each kernel function, by its name, a launch that can be asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Whole] = {}

    def add(self, run: PastRun, result: Result) -> None:
        super().add(run, result)
        for event in run.happened:
            if isinstance(event, KernelEvent) and event.role in ("", RANGE):
                task = result.graph.nodes[event.node]
                if isinstance(task, Launch):
                    found = self._of(task, result.graph, max(0.0, event.end - event.start))
                    found.runs_took = max(found.runs_took, run.seconds)

    def _of(self, launch: Launch, graph: Graph, seconds: float) -> Whole:
        found = self.found.get(launch.kernel.name)
        if found is not None and seconds <= found.seconds:
            return found
        sizes = {a.key: graph.buffers[a.key].nbytes for a in launch.args if isinstance(a, BufferArg)}
        if found is None:
            found = self.found[launch.kernel.name] = Whole(launch, sizes, seconds)
        else:
            found.launch, found.sizes, found.seconds = launch, sizes, seconds
        return found

    def asked(self, names: Iterable[str]) -> dict[str, str]:
        """Why kernels cannot be divided, with the line, by their names; empty where they can. Those of which that is
        not known are left out."""
        wanted = [(name, self.found[name]) for name in names if name in self.found]
        wanted.sort(key=lambda pair: -pair[1].seconds)
        return {name: _reason(found) for name, found in wanted[:ASKED]}


def _reason(found: Whole) -> str:
    reason = split_of(found.launch, found.sizes)
    if isinstance(reason, Split):
        return ""
    return reason if reason == ONE_WORK_GROUP else f"line {found.launch.kernel.line}: {' '.join(reason.split())}"
