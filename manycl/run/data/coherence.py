"""The coherence directory: for every buffer, or for regions of it, in which memories its current contents are valid.

Pure bookkeeping. Contents are undefined until they are written; undefined contents are never copied. A kernel that
writes a buffer may leave parts of it as they were, so it needs the current contents first, like a reader, unless it is
known to write every byte.

Nearly always a buffer is valid as a whole, and one bit mask says where. After a launch was divided, its regions are
valid in different memories. While such a run is under way its pieces (:mod:`manycl.region`) stand for the buffer, each
with a key of its own and treated like a buffer; when it has ended, they are put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import compress, count, repeat
from typing import NamedTuple

from manycl.errors import ResultError
from manycl.graph.graph import BufferKey
from manycl.machine import HOST, HOST_BIT
from manycl.region import NOTHING, Region, holders, union
from manycl.utilities.kept import FEW


class ValidRegion(NamedTuple):
    """Bytes of a buffer that are valid in the memories of a mask (0: undefined)."""

    region: Region
    mask: int


Lies = dict[tuple[BufferKey, tuple[int, ...]], tuple[tuple[Region, ...], list[int] | None]]
"""The valid regions in which pieces lie, as indices, with these regions, by buffer and the masks of its regions."""


def lie_in(
    valid_regions: tuple[ValidRegion, ...], buffer: BufferKey, members: Mapping[BufferKey, Region], lies: Lies
) -> list[int] | None:
    """Return in which region of a buffer each of its pieces lies, as indices; None if one lies in several (cached)."""
    regions, masks = zip(*valid_regions, strict=True)
    known = lies.get((buffer, masks))
    found = known[1] if known is not None and known[0] == regions else holders(list(members.values()), regions)
    if known is None and len(lies) >= FEW:
        lies.clear()
    lies[buffer, masks] = regions, found  # (the same objects are compared in no time)
    return found


def places(mask: int) -> frozenset[int]:
    """Return the memories of a mask."""
    return frozenset(m for m in range(mask.bit_length()) if mask >> m & 1)


class Directory:
    """The coherence directory of a session or a run. ``valid[key]`` is a bit mask over memories (bit m: valid in memory
    m) of a buffer or a piece. Without an entry, contents are undefined, or ``valid_regions[key]`` has masks region by
    region (two or more, which are all of the buffer). Of a ``lost`` buffer, whose contents a failed run or a lost
    device left unknown, these masks say nothing of bytes that have not been written since. ``name``: what errors call a
    buffer. ``unchanged``: by buffer, what has its contents, as nothing has written it since."""

    __slots__ = ("_keys", "_name", "lost", "unchanged", "valid", "valid_regions")

    def __init__(self, name: Callable[[BufferKey], str] = "buffer {}".format) -> None:
        self._name = name
        self.valid: dict[BufferKey, int] = {}
        self.valid_regions: dict[BufferKey, tuple[ValidRegion, ...]] = {}
        self.lost: dict[BufferKey, tuple[str, Region]] = {}  # the reason, and what was written since
        self.unchanged: dict[BufferKey, object] = {}
        self._keys = count(-1, -1)

    def copy(self) -> Directory:
        """Return a copy that changes apart from this one."""
        other = Directory(self._name)
        other.valid, other.valid_regions = dict(self.valid), dict(self.valid_regions)
        other.unchanged = dict(self.unchanged)
        other._keys = self._keys  # (steps that are made with a copy run beside those of this one)
        return other

    def new_key(self) -> BufferKey:
        """Return a new key for a piece, or for a buffer of a run's own."""
        return BufferKey(next(self._keys))

    def define(self, key: BufferKey, memory: int = HOST) -> None:
        """Note that the contents were set in one memory; all other copies are stale."""
        self.valid[key] = 1 << memory
        self.unchanged.pop(key, None)
        self.valid_regions.pop(key, None)
        self.lost.pop(key, None)

    def define_regions(self, key: BufferKey, valid_regions: Iterable[tuple[Region, int]]) -> None:
        """Note that the contents were set: each region in the memories of a mask."""
        self.define(key)
        del self.valid[key]
        self._join(key, valid_regions)

    def define_region(self, key: BufferKey, region: Region, nbytes: int) -> None:
        """Note that some bytes of a buffer of ``nbytes`` were set in the host's memory; other copies are stale."""
        self.unchanged.pop(key, None)
        kept = [(rest, mask) for before, mask in self.regions_of(key, nbytes) if (rest := before - region)]
        self.valid.pop(key, None)
        self.valid_regions.pop(key, None)
        self._join(key, [(region, HOST_BIT), *kept])
        self.heal(key, region, nbytes)

    def copied(self, key: BufferKey, memory: int) -> None:
        """Note that a transfer made the contents valid in one more memory."""
        self.valid[key] |= 1 << memory

    def gathered(self, key: BufferKey) -> None:
        """Note that all defined bytes of a buffer were copied to the host."""
        if key not in self.valid_regions:
            if key in self.valid:
                self.copied(key, HOST)
            return
        self._join(key, [(region, mask and mask | HOST_BIT) for region, mask in self.valid_regions.pop(key)])

    def joined(self, key: BufferKey, memory: int) -> None:
        """Note that all defined bytes of a buffer were copied to one memory: it is valid there as a whole."""
        mask = -1
        for valid in self.valid_regions.pop(key):
            mask &= (valid.mask or -1) | 1 << memory
        self.valid[key] = mask

    def set_regions(self, key: BufferKey, valid_regions: tuple[ValidRegion, ...]) -> None:
        """Take back that a buffer is valid as a whole: it is valid region by region."""
        del self.valid[key]
        self.valid_regions[key] = valid_regions

    def evict(self, key: BufferKey, memory: int) -> None:
        """Note that a memory does not hold the contents any more; another one does, or they are undefined."""
        keep = ~(1 << memory)
        if key in self.valid_regions:
            self._join(key, [(region, mask & keep) for region, mask in self.valid_regions.pop(key)])
        elif mask := self.valid.pop(key, 0) & keep:
            self.valid[key] = mask

    def renumber(self, memories: Mapping[int, int]) -> set[BufferKey]:
        """Give memories new numbers; those that are not among ``memories`` are gone. Return the buffers of which
        contents were nowhere else: they count as undefined until they are lost, with a reason."""

        def moved(mask: int) -> int:
            return sum(1 << new for old, new in memories.items() if mask >> old & 1)

        gone: set[BufferKey] = set()
        for key, mask in list(self.valid.items()):
            self.valid[key] = moved(mask)
            if not self.valid[key]:
                del self.valid[key]
                gone.add(key)
        for key, valid_regions in list(self.valid_regions.items()):
            del self.valid_regions[key]
            if any(valid.mask and not moved(valid.mask) for valid in valid_regions):
                gone.add(key)
            else:
                self._join(key, [(region, moved(mask)) for region, mask in valid_regions])
        return gone

    def drop(self, key: BufferKey, memory: int) -> None:
        """Note that a transfer that was counted upon may never have ended: the memory does not hold the contents."""
        self.valid[key] &= ~(1 << memory)

    def lose(self, key: BufferKey, reason: str) -> None:
        """Note that a failed run left the contents unknown; asking for them raises with ``reason``."""
        self.forget(key)
        self.lost[key] = reason, NOTHING

    def heal(self, key: BufferKey, region: Region, nbytes: int) -> None:
        """Note that some bytes of a buffer of ``nbytes`` have been written: they are known again."""
        if key in self.lost:
            reason, written = self.lost[key]
            self.lost[key] = reason, written | region
            if not Region.span(0, nbytes) - self.lost[key][1]:
                del self.lost[key]

    def forget(self, *keys: BufferKey) -> None:
        """Drop all that is known of some buffers, which are gone."""
        for known in (self.valid, self.valid_regions, self.lost, self.unchanged):
            if known:
                pop = known.pop
                for key in keys:
                    pop(key, None)

    def check(self, key: BufferKey, region: Region | None = None) -> None:
        """Raise :class:`ResultError` if a failed run left the contents, or those of a region, unknown."""
        if key in self.lost:
            reason, written = self.lost[key]
            if region is None or region - written:
                raise ResultError(
                    f"the contents of {self._name(key)} are unknown: {reason}",
                    hint="write all of it before it is used again; of a host function, name it in overwrites",
                )

    def regions_of(self, key: BufferKey, nbytes: int) -> tuple[ValidRegion, ...]:
        """Return the valid regions of a buffer of ``nbytes``: one if it is valid as a whole."""
        return self.valid_regions.get(key) or (ValidRegion(Region.span(0, nbytes), self.valid.get(key, 0)),)

    def missing(self, key: BufferKey, memory: int, nbytes: int) -> list[ValidRegion]:
        """Return the regions of a buffer of ``nbytes`` whose contents a memory does not hold."""
        if key not in self.valid_regions:
            mask = self.valid.get(key, 0)
            return [ValidRegion(Region.span(0, nbytes), mask)] if mask and not mask >> memory & 1 else []
        return [valid for valid in self.valid_regions[key] if valid.mask and not valid.mask >> memory & 1]

    def is_known_on_host(self, key: BufferKey) -> bool:
        """Return whether all contents of a buffer are valid on the host."""
        return bool(self.valid.get(key, 0) & HOST_BIT) and key not in self.lost

    def memories(self, key: BufferKey) -> frozenset[int]:
        """Return the memories where the contents are valid, of the largest region; empty: undefined."""
        valid_regions = self.valid_regions.get(key)
        if valid_regions is None:
            return places(self.valid.get(key, 0))
        return places(max(valid_regions, key=lambda p: p.mask and p.region.nbytes).mask)

    def open(self, cut: Mapping[BufferKey, Mapping[BufferKey, Region]], lies: Lies) -> None:
        """Replace the buffers ``cut`` by their pieces, as a run begins. ``cut`` gives for each buffer its pieces by
        key, each of which lies in one region of the buffer. ``lies`` caches in which."""
        valid = self.valid
        for buffer, members in cut.items():
            valid_regions = self.valid_regions.get(buffer)
            if valid_regions is None:
                if mask := valid.pop(buffer, 0):
                    valid.update(dict.fromkeys(members, mask))
                continue
            regions, masks = zip(*valid_regions, strict=True)
            known = lies.get((buffer, masks))
            if known is not None and known[0] == regions:
                found = known[1]
            else:
                found = lie_in(valid_regions, buffer, members, lies)
            assert found is not None, "a piece lies in one region of its buffer"
            del self.valid_regions[buffer]
            held = [*map(masks.__getitem__, found)]
            valid.update(zip(compress(members, held), filter(None, held), strict=True))

    def close(
        self,
        cut: Mapping[BufferKey, Mapping[BufferKey, Region]],
        joined: dict[tuple[int, ...], tuple[ValidRegion, ...]],
        own: Iterable[BufferKey] = (),
    ) -> None:
        """Put the pieces of each buffer (by key) together again, as one or in regions, as the run has ended. A buffer
        that lost a piece is lost. ``joined`` caches what was found for these pieces before, by the buffer and its
        pieces' masks. ``own``: the run's own buffers, which are forgotten."""
        for buffer, members in cut.items():
            lost = [self.lost.pop(key)[0] for key in members if key in self.lost] if self.lost else ()
            masks = [*map(self.valid.pop, members, repeat(0))]
            if lost:
                self.lose(buffer, lost[0])
                continue
            known = joined.get((buffer, *masks))
            if known is not None:
                self.valid_regions[buffer] = known
                continue
            self._join(buffer, zip(members.values(), masks, strict=True))
            if buffer in self.valid_regions:
                if len(joined) >= FEW:
                    joined.clear()
                joined[buffer, *masks] = self.valid_regions[buffer]
        if own:
            self.forget(*own)

    def _join(self, key: BufferKey, valid_regions: Iterable[tuple[Region, int]]) -> None:
        """Set where a buffer is valid: each region in the memories of a mask."""
        by_mask: dict[int, list[Region]] = {}
        for region, mask in valid_regions:
            by_mask.setdefault(mask, []).append(region)
        if len(by_mask) == 1:
            if mask := next(iter(by_mask)):
                self.valid[key] = mask
            return
        self.valid_regions[key] = tuple(
            [ValidRegion(found[0] if len(found) == 1 else union(found), mask) for mask, found in by_mask.items()]
        )

    def validate(self, memories: int) -> None:
        """Assert the invariants (used by tests and at debug level 4)."""
        for key, mask in self.valid.items():
            assert 0 < mask < 1 << memories, f"buffer {key} valid in no memory of the machine: {mask:b}"
        for key, valid_regions in self.valid_regions.items():
            assert key not in self.valid, f"buffer {key} both whole and in regions"
            masks = {p.mask for p in valid_regions}
            assert len(masks) == len(valid_regions) > 1, f"regions of buffer {key} are valid in the same places"
            total = sum(p.region.nbytes for p in valid_regions)
            assert total == union(p.region for p in valid_regions).nbytes, f"regions of {key} overlap"
