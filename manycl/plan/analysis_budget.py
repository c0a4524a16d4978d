"""The decision whether it pays to analyse how launches may be split: the cost is predicted from the numbers of kernels
and launches, never measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from manycl.graph.graph import Launch, Node
from manycl.plan.tuning import PLANNING
from manycl.utilities.kept import MANY


class AnalysisBudget:
    """The launches that have been analysed for splitting. The analysis is kept, so its cost is paid once: it begins
    when the graphs that might have been split are predicted to have taken so long that it is a small part of that, or
    where this one may gain more."""

    def __init__(self) -> None:
        self.kernels: set[object] = set()
        self.kinds: set[object] = set()
        self.saved = 0.0  # seconds that may be spent
        self._lock = threading.Lock()

    def afford(
        self,
        nodes: Sequence[Node],
        saving: float,
        limit: float | None,
        least: float,
        following: Callable[[], float] = lambda: 0.0,
        begun: bool = False,
    ) -> bool:
        """Return whether to analyse these nodes now. ``saving``: what this graph adds to the seconds that may be spent.
        ``limit``: the seconds that may be spent whatever was saved. ``least``: the seconds that may be spent although
        less was saved. ``following``: returns further seconds that it costs; called where the rest can be spent.
        ``begun``: kernels of this process have been analysed for something else."""
        with self._lock:
            kinds = {_kind(node) for node in nodes} - self.kinds
            kernels = {kind[:-2] for kind in kinds} - self.kernels
            cost = (
                PLANNING.again_look * len(nodes)
                + PLANNING.launch_look * len(kinds)
                + PLANNING.kernel_look * len(kernels)
                + (0.0 if self.kinds or begun else PLANNING.first_look)
            )
            if limit is None:
                self.saved += saving
            most = max(self.saved, least) if limit is None else limit
            more = following() if cost <= most else 0.0
            if cost + more > most:
                return False
            if kinds or more:
                self.saved = 0.0
            if len(self.kinds) + len(kinds) > MANY:
                self.kinds.clear()
                self.kernels.clear()
            self.kinds |= kinds
            self.kernels |= kernels
            return True

    def know(self, nodes: Sequence[Node]) -> None:
        """Note that these nodes have been analysed."""
        with self._lock:
            self.kinds |= {_kind(node) for node in nodes}
            self.kernels |= {_kind(node)[:-2] for node in nodes}


def _kind(node: Node) -> tuple[object, ...]:
    assert isinstance(node, Launch)
    return node.program.source, node.program.options, node.kernel.name, node.global_size, node.local_size
