"""The directory against what it stands for: of every byte, in which memories it is valid, or why it is unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from manycl.errors import ResultError
from manycl.machine import HOST, HOST_BIT
from manycl.region import Region
from manycl.run.data.coherence import Directory, ValidRegion

MEMORIES, NBYTES, BUFFERS = 4, 6, (0, 1)
memories = st.integers(0, MEMORIES - 1)
outcomes = st.sampled_from([*range(MEMORIES), "undefined", "lost"])
cells = st.lists(st.integers(0, 2), min_size=NBYTES, max_size=NBYTES)

Masks = list[int]


def region_of(chosen: list[int]) -> Region:
    at = np.array(chosen, np.int64)
    return Region.of(at, at + 1)


def places(mask: int) -> set[int]:
    return {m for m in range(MEMORIES) if mask >> m & 1}


def bytes_of(region: Region) -> list[int]:
    return [b for low, high in region.intervals for b in range(low, high)]


class Bytewise(RuleBasedStateMachine):
    """``masks[buffer]``: a mask of memories for each byte; ``lost[buffer]``: why its contents are unknown, and the
    bytes that were written since."""

    @initialize()
    def begin(self) -> None:
        self.directory = Directory()
        self.masks: dict[int, Masks] = {b: [0] * NBYTES for b in BUFFERS}
        self.lost: dict[int, tuple[str, set[int]]] = {}
        self.open: dict[int, dict[int, Region]] = {}  # by buffer that is cut: bytes by piece
        self.joined: dict[tuple[int, ...], dict[tuple[int, ...], tuple[ValidRegion, ...]]] = {}  # by cut
        self.cuts: dict[object, int] = {}

    def members(self, key: int) -> list[tuple[int, int]]:
        """(buffer, byte) of all that a key stands for."""
        for buffer, of in self.open.items():
            if key in of:
                return [(buffer, b) for b in bytes_of(of[key])]
        return [(key, b) for b in range(NBYTES)]

    def seen(self, key: int) -> Masks:
        return [self.masks[buffer][b] for buffer, b in self.members(key)]

    def put(self, key: int, found: Any) -> None:
        for buffer, b in self.members(key):
            self.masks[buffer][b] = found(self.masks[buffer][b])

    def keys(self, wanted: Any = lambda masks: True) -> list[int]:
        """Buffers that are not cut now, and pieces."""
        found = [b for b in BUFFERS if b not in self.open] + [p for of in self.open.values() for p in of]
        return [key for key in found if wanted(self.seen(key))]

    def draw(self, data: Any, wanted: Any = lambda masks: True) -> int | None:
        found = self.keys(wanted)
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data(), memory=memories)
    def define(self, data: Any, memory: int) -> None:
        key = self.draw(data)
        assert key is not None
        self.directory.define(key, memory)
        self.put(key, lambda _: 1 << memory)
        self.lost.pop(key, None)

    def write(self, buffer: int, written: set[int]) -> None:
        if buffer in self.lost:
            self.lost[buffer][1].update(written)
            if len(self.lost[buffer][1]) == NBYTES:
                del self.lost[buffer]

    @rule(data=st.data(), written=st.sets(st.integers(0, NBYTES - 1), min_size=1), by_the_host=st.booleans())
    def written_in_part(self, data: Any, written: set[int], by_the_host: bool) -> None:
        """By the host, or by a run, which says itself where contents are; several that write all of it heal it."""
        free = [b for b in BUFFERS if b not in self.open]
        if not free:
            return
        buffer, region = data.draw(st.sampled_from(free)), region_of(sorted(written))
        if by_the_host:
            self.directory.define_region(buffer, region, NBYTES)
            self.masks[buffer] = [HOST_BIT if b in written else mask for b, mask in enumerate(self.masks[buffer])]
        else:
            self.directory.heal(buffer, region, NBYTES)
        self.write(buffer, written)

    @rule(data=st.data(), memory=memories)
    def copied(self, data: Any, memory: int) -> None:
        key = self.draw(data, lambda masks: len(set(masks)) == 1 and masks[0])
        if key is not None:
            self.directory.copied(key, memory)
            self.put(key, lambda mask: mask | 1 << memory)

    @rule(data=st.data())
    def gathered(self, data: Any) -> None:
        key = self.draw(data, lambda masks: len(set(masks)) > 1)
        if key is not None:
            self.directory.gathered(key)
            self.put(key, lambda mask: mask and mask | HOST_BIT)

    @rule(data=st.data(), memory=memories, was_for_nothing=st.booleans())
    def brought_together(self, data: Any, memory: int, was_for_nothing: bool) -> None:
        key = self.draw(data, lambda masks: len(set(masks)) > 1)
        if key is None:
            return
        parts = self.directory.valid_regions[key]
        self.directory.joined(key, memory)
        if was_for_nothing:
            self.directory.set_regions(key, parts)
            return
        everywhere = set.intersection(*(places(part.mask) for part in parts if part.mask)) | {memory}
        self.put(key, lambda _: sum(1 << m for m in everywhere))

    @rule(data=st.data(), memory=memories)
    def evict(self, data: Any, memory: int) -> None:
        key = self.draw(data)
        assert key is not None
        self.directory.evict(key, memory)
        self.put(key, lambda mask: mask & ~(1 << memory))

    @rule(data=st.data(), memory=memories)
    def drop(self, data: Any, memory: int) -> None:
        key = self.draw(data, lambda masks: len(set(masks)) == 1 and masks[0] & ~(1 << memory))
        if key is not None:
            self.directory.drop(key, memory)
            self.put(key, lambda mask: mask & ~(1 << memory))

    @rule(data=st.data(), reason=st.sampled_from(["it failed", "it was stopped"]))
    def lose(self, data: Any, reason: str) -> None:
        key = self.draw(data)
        assert key is not None
        self.directory.lose(key, reason)
        self.put(key, lambda _: 0)
        self.lost[key] = reason, set()

    @rule(data=st.data())
    def forget(self, data: Any) -> None:
        key = self.draw(data)
        assert key is not None
        self.directory.forget(key)
        self.put(key, lambda _: 0)
        self.lost.pop(key, None)

    @precondition(lambda self: len(self.open) < len(BUFFERS))
    @rule(data=st.data(), labels=cells)
    def cut(self, data: Any, labels: list[int]) -> None:
        """A run begins: within its parts, a buffer is cut anyhow."""
        self.cut_one(data.draw(st.sampled_from([b for b in BUFFERS if b not in self.open])), labels)

    def cut_one(self, buffer: int, labels: list[int]) -> None:
        parts = self.directory.valid_regions.get(buffer)
        at = [0] * NBYTES
        for i, part in enumerate(parts or ()):
            for b in bytes_of(part.region):
                at[b] = i
        found: dict[tuple[int, int], list[int]] = {}
        for b in range(NBYTES):
            found.setdefault((at[b], labels[b]), []).append(b)
        # the same cut of the same buffer has the same keys, as it has when a graph runs again
        keys = {place: self.cuts.setdefault((buffer, tuple(bs)), -1 - len(self.cuts)) for place, bs in found.items()}
        self.open[buffer] = {keys[place]: region_of(bs) for place, bs in found.items()}
        self.directory.open({buffer: self.open[buffer]}, {})

    @rule(buffer=st.sampled_from(BUFFERS), labels=cells, left=st.lists(outcomes, min_size=3, max_size=3))
    def divided(self, buffer: int, labels: list[int], left: list[int | str]) -> None:
        """A whole run of ranges: of its piece, each leaves contents in a memory, none, or unknown ones."""
        if buffer in self.open:
            return
        self.cut_one(buffer, labels)
        for piece, outcome in zip(self.open[buffer], left, strict=False):
            self.directory.forget(piece)
            self.put(piece, lambda _: 0)
            if outcome == "lost":
                self.directory.lose(piece, "a range failed")
                self.lost[piece] = "a range failed", set()
            elif isinstance(outcome, int):
                self.directory.define(piece, outcome)
                self.put(piece, lambda _, memory=outcome: 1 << memory)
        self.join_one(buffer)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def join(self, data: Any) -> None:
        """The run has ended; what was found of the same pieces before is known only to the same cut."""
        self.join_one(data.draw(st.sampled_from(sorted(self.open))))

    def join_one(self, buffer: int) -> None:
        members = self.open[buffer]
        known = self.joined.setdefault((buffer, *members), {})
        self.directory.close({buffer: members}, known)
        reasons = [self.lost.pop(piece) for piece in members if piece in self.lost]
        del self.open[buffer]
        if reasons:
            self.lost[buffer] = reasons[0][0], set()
            self.masks[buffer] = [0] * NBYTES

    @precondition(lambda self: not self.open)
    @rule(stay=st.permutations(range(1, MEMORIES)), count=st.integers(1, MEMORIES - 1))
    def renumber(self, stay: list[int], count: int) -> None:
        """Devices have gone: contents that were only there are, and so is a buffer of which a part was."""
        numbers = {HOST: HOST} | {old: new for new, old in enumerate(stay[:count], 1)}

        def moved(mask: int) -> int:
            return sum(1 << numbers[m] for m in places(mask) if m in numbers)

        gone = {b for b in BUFFERS if any(mask and not moved(mask) for mask in self.masks[b])}
        assert self.directory.renumber(numbers) == gone
        for buffer in BUFFERS:
            self.put(buffer, lambda mask, buffer=buffer: 0 if buffer in gone else moved(mask))

    @rule()
    def another(self) -> None:
        """One that changes apart from this one, for simulated runs."""
        if not self.open:
            other = self.directory.copy()
            other.define(BUFFERS[0], 1)
            other.forget(BUFFERS[1])

    @invariant()
    def is_what_it_stands_for(self) -> None:
        self.directory.validate(MEMORIES)
        for key in self.keys():
            masks = self.seen(key)
            if key in self.directory.valid_regions:
                found = [0] * NBYTES
                for part in self.directory.valid_regions[key]:
                    for b in bytes_of(part.region):
                        found[b] = part.mask
                assert found == masks
                most = max(set(masks) - {0}, key=lambda mask: masks.count(mask))
                size = len(self.directory.memories(key)), self.directory.memories(key)
                largest = [m for m in set(masks) - {0} if masks.count(m) == masks.count(most)]
                assert size[1] in [{i for i in range(MEMORIES) if mask >> i & 1} for mask in largest]
            else:
                assert set(masks) == {self.directory.valid.get(key, 0)}
                assert self.directory.memories(key) == places(masks[0])
            if key in self.lost:
                reason, written = self.lost[key]
                self.directory.check(key, region_of(sorted(written)))
                for region in (None, *(region_of([b]) for b in range(NBYTES) if key in BUFFERS and b not in written)):
                    with pytest.raises(ResultError, match=reason):
                        self.directory.check(key, region)
            else:
                self.directory.check(key)
        for buffer in self.open:
            assert buffer not in self.directory.valid
            assert buffer not in self.directory.valid_regions


Bytewise.TestCase.settings = settings(max_examples=120, stateful_step_count=25)
TestBytewise = Bytewise.TestCase


def test_keys_of_pieces_are_new_and_negative() -> None:
    directory = Directory()
    assert [directory.new_key() for _ in range(3)] == [-1, -2, -3]


def test_contents_are_the_hosts_unless_said_otherwise() -> None:
    directory = Directory()
    directory.define(3)
    assert directory.memories(3) == {HOST}
