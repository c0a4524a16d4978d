"""In how large chunks long transfers go: the smallest that a link carries nearly as fast as larger ones.

Device-Hopping (Section 3.3) searches for chunk sizes once for a machine, "at the factory", as the cost of chunks does
not depend on kernels: small ones keep every reaction short, and what goes from device to device by the host is on its
way up sooner. Here ``manycl devices --measure`` tries all sizes, and where nobody has asked for that, the transfers
that runs make anyway tell.
"""

from __future__ import annotations

from collections.abc import Mapping

from manycl.machine import HOST, Machine

CHUNK = 8 << 20
"""Bytes, where nothing is known of a machine's links."""
SIZES = tuple(1 << n for n in range(18, 27))
"""Bytes that a chunk may have: 256 KiB to 64 MiB."""
SLOWER = 0.03
"""The part of the highest throughput that chunks may cost."""
REACTION = 2e-3
"""Seconds that a chunk takes at most, unless it is of the smallest size: so long whoever stops a transfer waits."""


def smallest(rates: Mapping[int, float]) -> int:
    """The chunk size of a link. ``rates``: bytes per second that it carries in chunks of some of ``SIZES``."""
    best = max(rates.values())
    return min(min(n for n, rate in rates.items() if rate >= (1.0 - SLOWER) * best), _most(best))


def size_class(nbytes: int) -> int | None:
    """The size of chunks that a transfer of so many bytes tells of; None: it is too small or too large for that."""
    return next((n for n in SIZES if n <= nbytes < 2 * n), None)


def chunk_of(machine: Machine) -> int:
    """Bytes of chunks that all links between devices' memories and the host's carry well; 0: nobody knows."""
    known = [link for link in machine.links if HOST in (link.source, link.target) and link.chunk]
    if not known:
        return 0
    return min(max(link.chunk for link in known), _most(min(link.bandwidth for link in known)))


def _most(bandwidth: float) -> int:
    """The largest size that takes no longer than a reaction may."""
    return max(n for n in SIZES if n <= max(bandwidth * REACTION, SIZES[0]))
