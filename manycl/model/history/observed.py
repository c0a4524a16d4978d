"""Links as observed in real runs: how fast transfers were, where that was not measured (``manycl devices --measure``),
and the cost of passing data from one device to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median, quantiles

from manycl.machine import Device
from manycl.model.history.history import KEEP, identity
from manycl.model.history.measured import Measurements
from manycl.model.transfer import CHUNK, LARGE, TINY, size_class, smallest
from manycl.utilities.kept import ENOUGH


class ObservedLinks:
    """The links observed in a session: latencies in seconds, and bytes per second, of the latest transfers between the
    host and devices with memory of their own."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], deque[float]] = {}
        self._handovers: deque[float] = deque(maxlen=KEEP)
        self._rates: dict[tuple[str, str], dict[int, deque[float]]] = {}  # bytes per second, by size of chunks
        self._chunks: dict[tuple[str, str], int] = {}

    def observe(self, device: Device, to_device: bool, nbytes: int, seconds: float) -> None:
        """Note that a transfer of ``nbytes`` took ``seconds``."""
        if TINY < nbytes < LARGE or seconds <= 0.0:
            return
        way = "up" if to_device else "down"
        name, value = (f"{way}_observed", nbytes / seconds) if nbytes >= LARGE else (f"{way}_latency_observed", seconds)
        self._found.setdefault((identity(device), name), deque(maxlen=KEEP)).append(value)
        size, link = size_class(nbytes), (identity(device), f"{way}_chunk_observed")
        if size is not None and link not in self._chunks:  # the chunk size is found once
            rates = self._rates.setdefault(link, {})
            rates.setdefault(size, deque(maxlen=KEEP)).append(nbytes / seconds)
            self._find_chunk(link, {n: median(r) for n, r in rates.items() if len(r) >= ENOUGH})

    def enqueued(self, device: Device, is_copy: bool, seconds: float) -> None:
        """Note that the host's thread took ``seconds`` for each transfer, or other command, that it enqueued in a
        run."""
        name = f"enqueuing{'_copy' if is_copy else ''}_observed"
        self._found.setdefault((identity(device), name), deque(maxlen=KEEP)).append(seconds)

    def _find_chunk(self, link: tuple[str, str], rates: Mapping[int, float]) -> None:
        """Set a link's chunk size, if enough transfers of unlike sizes show how much small ones lose."""
        if len(rates) >= ENOUGH and max(rates) >= CHUNK:
            self._chunks[link] = smallest(rates)
            del self._rates[link]

    def handed_over(self, seconds: Iterable[float]) -> None:
        """Note the handovers of a run: the seconds between the arrival of data at the host from one device, and the
        beginning of their transfer to another. Most may have been in no hurry: the shortest time counts."""
        shortest = min(seconds, default=None)
        if shortest is not None:
            self._handovers.append(shortest)

    def handover(self, otherwise: float) -> float:
        """Return the cost of a dependence between devices beside its transfers, in seconds: the lower quartile of the
        latest runs, since in some runs nothing was waited for."""
        return quantiles(self._handovers, n=4)[0] if len(self._handovers) >= ENOUGH else otherwise

    def values(self) -> Iterable[tuple[str, dict[str, float]]]:
        """Return the values that :class:`manycl.model.history.store.Store` keeps: the medians, by device."""
        found: dict[str, dict[str, float]] = {}
        for (subject, name), values in self._found.items():
            if len(values) >= ENOUGH:
                found.setdefault(subject, {})[name] = median(values)
        for (subject, name), chunk in self._chunks.items():
            found.setdefault(subject, {})[name] = chunk
        return found.items()

    def added_to(self, measurements: Measurements) -> Mapping[str, Mapping[str, float]]:
        """Return measurements with the observations since; known chunk sizes stay."""
        merged = {subject: dict(values) for subject, values in measurements.items()}
        for subject, values in self.values():
            known = merged.setdefault(subject, {})
            known.update((name, value) for name, value in values.items() if name not in known or "_chunk" not in name)
        return merged
