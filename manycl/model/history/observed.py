"""What real runs tell of a machine's links: how fast transfers were, where nobody has measured that (``manycl devices
--measure``), and what it takes to hand data from one device to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median, quantiles

from manycl.machine import Device
from manycl.model.history.history import identity
from manycl.model.history.measured import Measurements
from manycl.model.transfer import CHUNK, size_class, smallest

LEAST = 1 << 20
"""Bytes; smaller transfers tell more of latency than of bandwidth."""
FEW = 1 << 14
"""Bytes that take hardly more than the latency."""
_KEPT = 32  # of each link and direction
_RUNS = 16  # whose handovers count
_ENOUGH = 3  # transfers; the first to new memory are slow
_OFTEN, _UNLIKE = 8, 3  # transfers of a size, and sizes, that tell which chunks are large enough


class ObservedLinks:
    """Latencies in seconds, and bytes per second, of the latest transfers between the host and devices with memory of
    their own."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], deque[float]] = {}
        self._handovers: deque[float] = deque(maxlen=_RUNS)
        self._rates: dict[tuple[str, str], dict[int, deque[float]]] = {}  # bytes per second, by size of chunks
        self._chunks: dict[tuple[str, str], int] = {}

    def observe(self, device: Device, to_device: bool, nbytes: int, seconds: float) -> None:
        """A transfer of ``nbytes`` took ``seconds``."""
        if FEW < nbytes < LEAST or seconds <= 0.0:
            return
        way = "up" if to_device else "down"
        name, value = (f"{way}_observed", nbytes / seconds) if nbytes >= LEAST else (f"{way}_latency_observed", seconds)
        self._found.setdefault((identity(device), name), deque(maxlen=_KEPT)).append(value)
        size, link = size_class(nbytes), (identity(device), f"{way}_chunk_observed")
        if size is not None and link not in self._chunks:  # it is found once
            rates = self._rates.setdefault(link, {})
            rates.setdefault(size, deque(maxlen=_KEPT)).append(nbytes / seconds)
            self._find_chunk(link, {n: median(r) for n, r in rates.items() if len(r) >= _OFTEN})

    def _find_chunk(self, link: tuple[str, str], rates: Mapping[int, float]) -> None:
        """Where enough transfers of unlike sizes tell how much small ones lose."""
        if len(rates) >= _UNLIKE and max(rates) >= CHUNK:
            self._chunks[link] = smallest(rates)
            del self._rates[link]

    def handed_over(self, seconds: Iterable[float]) -> None:
        """In a run, data had come to the host from one device, and began to go to another so much later. Most may have
        been in no hurry: the shortest time counts."""
        shortest = min(seconds, default=None)
        if shortest is not None:
            self._handovers.append(shortest)

    def handover(self, otherwise: float) -> float:
        """What a dependence between devices costs beside its transfers, in seconds: the lower quartile of the latest
        runs, since there are some in which nothing was waited for."""
        return quantiles(self._handovers, n=4)[0] if len(self._handovers) >= _ENOUGH else otherwise

    def values(self) -> Iterable[tuple[str, dict[str, float]]]:
        """What :class:`manycl.model.history.store.Store` keeps of them: the medians, by device."""
        found: dict[str, dict[str, float]] = {}
        for (subject, name), values in self._found.items():
            if len(values) >= _ENOUGH:
                found.setdefault(subject, {})[name] = median(values)
        for (subject, name), chunk in self._chunks.items():
            found.setdefault(subject, {})[name] = chunk
        return found.items()

    def added_to(self, measurements: Measurements) -> Mapping[str, Mapping[str, float]]:
        """What was measured, and what has been observed since; chunks that are known stay."""
        merged = {subject: dict(values) for subject, values in measurements.items()}
        for subject, values in self.values():
            known = merged.setdefault(subject, {})
            known.update((name, value) for name, value in values.items() if name not in known or "_chunk" not in name)
        return merged
