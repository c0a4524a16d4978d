"""Background analysis: how the launches of repeated graphs may be split is analysed while devices compute.

The analysis takes some 0.1 s a kernel, for which no run of a loop should wait. It begins when the graph has run as long
as that (``PLANNING.beside``), or at once where the answers are known from another process, and so long that planning
the result is a part of it (``PLANNING.looking``). Then plans that divide are tried
(:mod:`manycl.run.graph_cache.graph_cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from manycl.errors import LaunchError, SourceError
from manycl.graph.dependences import Batch
from manycl.graph.division import divide
from manycl.graph.graph import BufferArg, BufferKey, Graph, Launch
from manycl.graph.versions.versions import run_as
from manycl.graph.work_groups import with_work_groups
from manycl.plan.problem import Looks
from manycl.plan.split import Split
from manycl.plan.splitting import following, is_known, split_of
from manycl.plan.tuning import PLANNING
from manycl.run.executor.lanes import Worker
from manycl.run.graph_cache.autotuner import PLANNED_RUNS
from manycl.utilities.unforeseen import told

_Sized = tuple[Launch, Mapping[BufferKey, int]]
"""A launch, and the bytes of its buffers."""


class Interest:
    """The seconds that a graph's runs have taken, and the state of its analysis. ``is_done``: its launches have been
    analysed, and it has run long enough for plans that take long to make."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.runs = 0
        self.price: float | None = None  # seconds that it has to run before the analysis; None: not yet known
        self.is_asked = self.is_done = False


class BackgroundAnalysis:
    """The background analysis of a session, by a thread of its own, which ends with the process."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._worker: Worker | None = None

    def ran(self, interest: Interest, seconds: float, devices: int, graph: Callable[[], Batch | Graph | None]) -> None:
        """Note a run of a graph on so many devices, and begin its analysis if it is due."""
        interest.seconds += seconds
        interest.runs += 1
        if interest.is_done or interest.is_asked or interest.runs < 2 or interest.seconds < (interest.price or 0.0):
            return
        found = graph()
        if found is None:
            return
        interest.is_asked = True
        launches, cells = _launches(found), len(found.nodes) * devices
        if self._worker is None:
            self._worker = Worker("manycl-look")
        if interest.price is not None:
            self._worker.submit(lambda: self._look(interest, launches, devices))
        else:
            self._worker.submit(lambda: self._appraise(interest, launches, cells))

    def close(self) -> None:
        """Let the thread end when its work is done."""
        if self._worker is not None:
            self._worker.release()

    def _appraise(self, interest: Interest, launches: Sequence[_Sized], cells: int) -> None:
        """Set the price of an analysis. ``cells``: nodes of the graph, for each device."""
        unknown = [launch for launch, sizes in launches if not is_known(launch, sizes)]
        following_all = sum(following(*launch) for launch in launches)
        kernels = {(launch.program.tree, launch.kernel.name) for launch in unknown}
        look = PLANNING.kernel_look * len(kernels) + PLANNING.launch_look * len(unknown) + following_all
        plans = PLANNED_RUNS * PLANNING.planned_cell * cells
        interest.price = max(look / PLANNING.beside, plans / PLANNING.looking)
        interest.is_asked = False

    def _look(self, interest: Interest, launches: Sequence[_Sized], devices: int) -> None:
        for launch, sizes in launches:
            split = split_of(launch, sizes)
            if isinstance(split, Split):
                _foresee_ranges(launch, sizes, split, devices)
        self._looks.know([launch for launch, _ in launches])
        interest.is_done = True


def _launches(graph: Batch | Graph) -> list[_Sized]:
    """Return the launches of a graph, each kind once, on any buffers of its sizes."""
    found: dict[object, _Sized] = {}
    for node in graph.nodes:
        if isinstance(node, Launch):
            sizes = {a.key: graph.buffers[a.key].nbytes for a in node.args if isinstance(a, BufferArg)}
            places = {key: BufferKey(place) for place, key in enumerate(sizes)}
            args = tuple([a.of(places[a.key]) if isinstance(a, BufferArg) else a for a in node.args])
            shape = node.global_size, node.local_size, node.global_offset, args, tuple(sizes.values())
            kind = node.program.tree, node.kernel.name, *shape
            found.setdefault(kind, (node, sizes))
    return list(found.values())


def _foresee_ranges(launch: Launch, sizes: Mapping[BufferKey, int], split: Split, devices: int) -> None:
    """Compute what ranges of a launch touch, for which plans that divide it will ask."""
    try:
        division = divide(with_work_groups(run_as(launch, 0)), split.dimension, sizes)
        for first in range(0, split.groups, -(-split.groups // devices)):
            of = division.range(first, min(-(-split.groups // devices), split.groups - first))
            for key in sizes:
                for kind in ("read", "write"):
                    division.footprints(key, kind, of)
    except (LaunchError, SourceError):
        return
    except Exception as error:
        told(error, f"finding out what ranges of {launch.name} touch")
