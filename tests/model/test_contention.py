"""What shares the host's memory gets its fair share: by hand, and as properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.machine import HOST, Device, Machine
from manycl.model.contention import Activities, Contention, Use, shared
from manycl.model.estimates import Estimates


class Links(Estimates):
    """A transfer takes a second for a byte; those of one link halve each other's speed."""

    def __init__(self, contended: bool = False) -> None:
        self.contended = contended

    def launch(self, node: int, device: int) -> float:
        return 1.0

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return float(nbytes)

    def slowdowns(self, ends: list[tuple[int, int]], most: object) -> list[float]:  # type: ignore[override]
        return [float(ends.count(e)) for e in ends]


def contention(bandwidth: float = math.inf, links: bool = False) -> Contention:
    return Contention(Machine((Device("cpu0", "cpu"),), host_bandwidth=bandwidth), Links(links))


@pytest.mark.parametrize(
    ("draws", "capacity", "slower"),
    [
        ([], 1.0, []),
        ([3.0, 4.0], 8.0, [1.0, 1.0]),
        ([8.0, 8.0], 8.0, [2.0, 2.0]),
        ([8.0, 8.0, 2.0], 12.0, [1.6, 1.6, 1.0]),  # who draws little is not disturbed
        ([0.0, 12.0], 12.0, [1.0, 1.0]),
    ],
)
def test_fair_shares(draws: list[float], capacity: float, slower: list[float]) -> None:
    assert shared(draws, capacity) == pytest.approx(slower)


@given(st.lists(st.floats(0.0, 100.0), max_size=8), st.floats(0.1, 100.0))
def test_all_of_the_capacity_is_shared_and_no_more(draws: list[float], capacity: float) -> None:
    got = [wanted / slower for wanted, slower in zip(draws, shared(draws, capacity), strict=True)]
    assert math.fsum(got) == pytest.approx(min(capacity, math.fsum(draws)))
    most = max(got, default=0.0)
    assert all(g == pytest.approx(wanted) or g == pytest.approx(most) for g, wanted in zip(got, draws, strict=True))


def test_two_transfers_and_a_kernel_by_hand() -> None:
    """MKMD's Figure 6: the processor is congested. 12 bytes a second; the kernel would draw all of them."""
    meets = contention(12.0)
    progress = Activities(meets)
    assert progress.begin(0, 0.0, 1.0, device=0, use=meets.use(None, 12.0, 1.0)) == [(0, 1.0)]
    changed = progress.begin(1, 0.5, 1.0, use=meets.use((HOST, 1), 8.0, 1.0))
    # 6 bytes of the kernel are left, 8 of the transfer: 6 a second each
    assert dict(changed) == pytest.approx({0: 1.5, 1: 0.5 + 8 / 6})
    # 2 bytes are left, and all it wants of the memory
    assert dict(progress.finish(0, 1.5)) == pytest.approx({1: 1.75})


def test_links_come_first() -> None:
    """What a link already slows down draws less."""
    uses = [Use((HOST, 1), 8.0), Use((HOST, 1), 8.0), Use(None, 4.0)]
    assert contention(12.0, links=True).slowdowns(uses) == [2.0, 2.0, 1.0]
    assert contention(6.0, links=True).slowdowns(uses) == pytest.approx([4.0, 4.0, 2.0])
    assert contention(links=True).slowdowns(uses) == [2.0, 2.0, 1.0]


def test_kernels_in_several_queues_share_the_memory_of_their_device() -> None:
    """Each would draw all that it carries; the host's memory, and another device's, are others."""
    gpus = tuple(Device(f"gpu{m}", "gpu", memory=m, bandwidth=10.0) for m in (1, 2))
    both = Contention(Machine(gpus, host_bandwidth=99.0), Links())
    mine, other = (Use(None, both.draws(20.0, 1.0, m), memory=m) for m in (1, 2))
    assert mine.draws == 10.0
    assert both.slowdowns([mine, mine, other, both.use(None, 90.0, 1.0)]) == [2.0, 2.0, 1.0, 1.0]


def test_what_does_not_wait_for_its_turn_leaves_what_its_latency_leaves() -> None:
    """A byte a second. 3 bytes in 12 s beside a transfer that would have the whole link."""
    shares = Contention(Machine((Device("gpu0", "gpu", memory=1),)), Links(), in_turn=False)
    small, large = shares.use((HOST, 1), 3.0, 12.0, in_turn=False), shares.use((HOST, 1), 90.0, 90.0)
    assert shares.slowdowns([small, large]) == pytest.approx([1.0, 4 / 3])
    assert shares.slowdowns([small, small, large]) == pytest.approx([1.0, 1.0, 2.0])
    back = shares.use((1, HOST), 90.0, 90.0)
    assert shares.slowdowns([large, back]) == [1.0, 1.0], "each direction is a link of its own"
    assert contention().use((HOST, 1), 3.0, 12.0) == Use(), "where all wait for their turn, nothing is shared"


def test_links_are_not_looked_at_for_kernels_that_share_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memories are no limit, a kernel that begins or ends changes nothing for transfers."""
    links, looked = contention(links=True), list[int]()
    slowdowns = links.slowdowns

    def noted(uses: list[Use]) -> list[float]:
        looked.append(len(uses))
        return slowdowns(uses)

    monkeypatch.setattr(links, "slowdowns", noted)
    progress, transfer = Activities(links), links.use((HOST, 1), 4.0, 4.0)
    assert progress.begin(0, 0.0, 4.0, use=transfer) == [(0, 4.0)]
    assert progress.begin(1, 0.0, 1.0, device=0, share=0.75) == [(1, 1.0)]
    assert dict(progress.begin(2, 0.0, 1.0, device=0, share=0.75)) == {1: 1.5, 2: 1.5}
    assert progress.finish(1, 1.5) == [(2, 1.5)]
    assert looked == [1]
    assert dict(progress.begin(3, 2.0, 1.0, use=transfer)) == {0: 6.0, 3: 4.0}
    assert looked == [1, 2]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.1, 3.0), st.floats(0.0, 20.0)), min_size=1, max_size=6),
    st.floats(1.0, 30.0),
)
def test_ends_are_those_of_small_steps(jobs: list[tuple[float, float, float]], bandwidth: float) -> None:
    """Against an integration in small steps, which shares no code but the shares."""
    meets = contention(bandwidth)
    progress, ends = Activities(meets), {}
    waiting = sorted((start, i) for i, (start, _, _) in enumerate(jobs))
    running: dict[int, float] = {}
    while waiting or running:
        following = min(((end, i) for i, end in running.items()), default=(math.inf, -1))
        if waiting and waiting[0][0] <= following[0]:
            start, i = waiting.pop(0)
            use = meets.use(None, jobs[i][1] * jobs[i][2], jobs[i][1])
            running.update(progress.begin(i, start, jobs[i][1], use=use))
        else:
            ends[following[1]] = following[0]
            del running[following[1]]
            running.update(progress.finish(following[1], following[0]))
    step, at = 1e-3, 0.0
    left = {i: seconds for i, (_, seconds, _) in enumerate(jobs)}
    found = {}
    while left:
        now = [i for i in left if jobs[i][0] <= at]
        paces = shared([min(bandwidth, jobs[i][2]) for i in now], bandwidth)
        for i, pace in zip(now, paces, strict=True):
            left[i] -= step / pace
            if left[i] <= 0:
                found[i] = at + step
                del left[i]
        at += step
    for i, end in ends.items():
        assert found[i] == pytest.approx(end, abs=0.05)
