"""When it is worth finding out how launches may be split: what that costs is foreseen by the number of kernels and of
their launches, never measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from manycl.graph.graph import Launch, Node
from manycl.plan.tuning import PLANNING


class Looks:
    """Which launches have been looked at. The analysis is kept, so what it costs is paid once: it is begun when the
    graphs that would have been split are predicted to have taken so long that it is a small part of that."""

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
    ) -> bool:
        """Whether to look at these nodes now; ``saving`` is what this graph adds to what may be spent, ``limit`` what
        may be spent whatever was saved, ``least`` what may be spent although less was; ``following``: tells what more
        it costs, asked where the rest can be spent."""
        with self._lock:
            kinds = {_kind(node) for node in nodes} - self.kinds
            kernels = {kind[:-2] for kind in kinds} - self.kernels
            cost = (
                PLANNING.again_look * len(nodes)
                + PLANNING.launch_look * len(kinds)
                + PLANNING.kernel_look * len(kernels)
                + (0.0 if self.kinds else PLANNING.first_look)
            )
            if limit is None:
                self.saved += saving
            most = max(self.saved, least) if limit is None else limit
            more = following() if cost <= most else 0.0
            if cost + more > most:
                return False
            if kinds or more:
                self.saved = 0.0
            if len(self.kinds) + len(kinds) > PLANNING.looks:
                self.kinds.clear()
                self.kernels.clear()
            self.kinds |= kinds
            self.kernels |= kernels
            return True

    def know(self, nodes: Sequence[Node]) -> None:
        """These have been looked at."""
        with self._lock:
            self.kinds |= {_kind(node) for node in nodes}
            self.kernels |= {_kind(node)[:-2] for node in nodes}


def _kind(node: Node) -> tuple[object, ...]:
    assert isinstance(node, Launch)
    return node.program.source, node.program.options, node.kernel.name, node.global_size, node.local_size
