"""Playback of a plan in which shares of launches move from device to device while they run. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from manycl.graph.graph import BufferKey, Launch
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import DynamicPolicy
from manycl.plan.preemptible import with_preemption
from manycl.run.commands.backend import Command, EndsEarly, Failed, Lane, Run, Shorten
from manycl.run.commands.chunk_commands import PacketEmitter
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.assign import Assigned
from manycl.run.engine.dynamic import Dynamic
from manycl.run.engine.playback import Changed, where
from manycl.run.lowering.steps import DROPPED, Lowered
from manycl.run.stealing.asked_shares import AskedShares
from manycl.run.stealing.packet_size import SETTLED
from manycl.run.stealing.share_scheduler import ShareScheduler
from manycl.utilities.changed import changed


class MovingPlayer(Dynamic):
    """Playback of a plan whose shares may move. ``before``: the steps as they have run by now, of which some are
    ``done``. ``nowhere``: pieces that are to be overwritten, and have no contents until then. ``later``: steps that it
    does not run, and on which nothing that it runs depends."""

    asks_at_transfers = False

    def __init__(
        self,
        subject: Subject,
        plan: Plan,
        following: ShareScheduler,
        directory: Directory,
        done: Set[int] = frozenset(),
        before: Lowered | None = None,
        nowhere: Set[BufferKey] = frozenset(),
        later: Set[int] = frozenset(),
    ) -> None:
        self._nowhere, self._later = nowhere, later
        self._followed, self._following = plan, following
        self._before = before or subject.lowered
        self._is_whole = before is None
        self._packets = PacketEmitter(subject, following.queues, done | later)
        super().__init__(subject, following, self._packets, directory, done | later)
        self._done = done
        self._arriving = Counter[DeviceIndex]()  # prefetching transfers in flight, by device
        # by token, the queues and chunks of packets that were dropped; in their queues they are numbered ~token
        self._dropped: dict[int, tuple[Lane, tuple[int, ...]]] = {}
        following.restarts.apart, following.restarts.may_drop = self._packets.apart, self._may_drop
        sizes = [buffer.nbytes for buffer in subject.problem.graph.buffers.values()]
        # the devices with memory of their own that holds all of the run
        self._far = [i for i, d in subject.problem.machine.numbered() if d.memory != HOST and d.holds(sizes)]

    @staticmethod
    def following(subject: Subject, plan: Plan, directory: Directory) -> MovingPlayer:
        """Return the playback of a plan of which some shares may move (``lowered.chunks``)."""
        return MovingPlayer(subject, plan, ShareScheduler(subject.problem, subject.lowered, directory.valid), directory)

    @staticmethod
    def asked(subject: Subject, policy: DynamicPolicy, directory: Directory) -> MovingPlayer:
        """Return the playback of what a dynamic policy decides, where some launches may move."""
        lowered = subject.lowered
        assert lowered.plan is not None
        following = AskedShares(subject.problem, policy, lowered, directory.valid)
        return MovingPlayer(subject, lowered.plan, following, directory, before=lowered)

    @property
    def issued(self) -> Sequence[Assignment]:
        packets = (c for c in self._emitter.commands if isinstance(c, Run) and c.task is not None)
        return [*self._issued, *(Assignment(c.token, c.device, c.queue, 0.0, 0.0) for c in packets)]

    @property
    def is_paused(self) -> bool:
        return self._following.is_paused

    def awaits(self, devices: Collection[DeviceIndex]) -> None:
        """Note devices that have left, or leave now, and are expected to return."""
        self._following.awaits(devices)

    def react(self, events: Sequence[Changed], now: float) -> list[Command]:
        self.awaits([event.device for event in events if event.returns])
        return super().react(events, now)

    @property
    def complete(self) -> int:
        return super().complete - len(self._later)

    @property
    def stolen(self) -> Mapping[str, float]:
        total, elsewhere = Counter[str](), Counter[str]()
        for node, worker, groups in self._following.shares():
            launch = self.command_graph.problem.graph.nodes[node]
            assert isinstance(launch, Launch)
            name = launch.kernel.name
            total[name] += groups
            elsewhere[name] += max(0, groups - worker.ran)
        return {name: elsewhere[name] / groups for name, groups in total.items()}

    def settled(self, plan: Plan | None) -> Plan | None:
        if plan is not None and self._is_whole and self.command_graph.problem.demanded:
            return self._in_packets(plan)  # the next run is to use packets, too
        if plan is None or not self._is_whole or self._is_disturbed:
            return None
        if plan.movable == plan.still:
            return plan
        begins, planned, now = Counter[int](), Counter[int](), dict[tuple[int, DeviceIndex], tuple[int, int]]()
        for node, worker, groups in self._following.shares():
            now[node, worker.device] = begins[node], worker.ran
            begins[node] += worker.ran
            planned[node] += groups
        if begins != planned:
            return None  # devices without a share have taken some
        out: list[Assignment] = []
        for a in plan.assignments:
            first, groups = now.get((a.node, a.device), (a.first, a.groups))
            if (a.node, a.device) in now:  # the share may have been in several ranges, side by side
                now[a.node, a.device] = first, 0
            if groups or not a.is_range:
                end = a.start + (a.end - a.start) * (groups / a.groups if a.groups else 1.0)
                out.append(a._replace(first=first, groups=groups, end=end))
        found = replace(plan, assignments=tuple(out), movable=plan.still, in_turn=())
        return with_preemption(self.command_graph.problem, found)

    def _in_packets(self, plan: Plan) -> Plan:
        """Return a plan with the packet sizes on which devices have settled; the number of chunks of shares follows
        from these. Done once, as measurements are never the same twice."""
        if SETTLED in plan.details:
            return plan
        sizes = [(node, w.device, w.size) for node, w, _ in self._following.shares()]
        packets = tuple([(node, device, size.groups) for node, device, size in sizes if size and size.is_settled])
        return replace(plan, details={**plan.details, SETTLED: packets}) if packets else plan

    @property
    def alarm(self) -> float | None:
        return self._following.alarm

    def late(self, now: float) -> list[Command]:
        self._add(self._following.late(now))
        return self._released()

    def _came(self, token: int, now: float) -> None:
        device = self._coming.pop(token)
        self._arriving[device] -= 1
        if not self._arriving[device]:
            self._add(self._following.arrived(device, now))

    def is_free(self, device: DeviceIndex) -> bool:
        return not self._arriving[device] and super().is_free(device)

    def _prefetch(self) -> None:
        if not self._following.foresees:  # no device is busy with something else
            return
        packets = self._packets
        devices = [d for d in self._far if d not in self.full]
        for device, keys in self._following.prefetched(devices, partial(packets.may_bring, self._is_heard)):
            tokens = packets.prefetch(keys, device)
            self._coming.update(dict.fromkeys(tokens, device))
            self._arriving[device] += len(tokens)

    def shortening(self) -> Sequence[Shorten]:
        return self._following.shortening()

    def shortened(self, command: Shorten, found: EndsEarly | None, now: float) -> list[Command]:
        token, is_over = command.token, command.token in self._complete
        if found is None and not is_over and self._packets.is_held(token):
            found = EndsEarly(1, 0.0)
        if found is not None and not is_over:
            gone = self._packets.shorten(token, found.nodes, command.launch(found.nodes))
            line = self._lines[self._lanes[token]]
            place = next(n for n, packet in enumerate(line) if packet[0] == token)
            _, chunks, before = line[place]
            line[place] = token, chunks[: found.nodes], before
            self._undecided += len(gone)
        self._add(self._following.shortened(token, found, now))
        return self._released()

    # packets that are begun anew on other devices

    @property
    def drops(self) -> bool:
        """True if packets of some device may be begun anew on others."""
        return bool(self._packets.apart)

    def restarts(self, repeats: Callable[[int], bool]) -> None:
        """Let packets be begun anew. ``repeats``: whether a step may run again on what it has left."""
        self._following.restarts.repeats = repeats

    def _may_drop(self, token: int) -> bool | None:
        """Return whether a packet may be dropped; None while its device was not given it."""
        at = None if self._lanes[token] is None else self._packets.index(token)
        if at is None or at in self._held or at in self._ready:
            return None
        return self._packets.may_drop(token)

    def _add(self, assigned: Sequence[Assigned]) -> None:
        for a in assigned:
            if a.chunks and a.node != a.chunks[0]:
                self._drop(self._packets.command(a.chunks[0]))
        super()._add(assigned)

    def _drop(self, command: Command) -> None:
        """Drop a packet that is begun anew."""
        assert isinstance(command, Run)
        token, lane = command.token, (command.device, command.queue)
        self._dropped[token] = lane, command.chunks
        line = self._lines[lane]
        line[next(n for n, packet in enumerate(line) if packet[0] == token)] = ~token, (), ()
        self._undecided += len(command.chunks)
        self._moving.difference_update(self._packets.drop(token))

    def _counts(self, token: int) -> int:
        return ~token if token in self._dropped else token

    def _end(self, node: int) -> list[int]:
        if node >= 0:
            ended = super()._end(node)
        else:  # a dropped packet, and what its queue was given before
            lane, _ = self._dropped[~node]
            line, ended = self._lines[lane], list[int]()
            while any(packet[0] == node for packet in line):
                ended += super()._end(line[0][1][0]) if line[0][1] else [line.popleft()[0]]
        if self._packets.apart:
            self._packets.ended(ended)
        return ended

    def where(self, token: int, node: int) -> tuple[DeviceIndex, int | None, str]:
        if token in self._dropped:
            return where(self.graph, self._dropped[token][0][0], token, node)
        return super().where(token, node)

    def unsound(self, failures: Sequence[Failed]) -> set[int]:
        return super().unsound([f for f in failures if f.token not in self._dropped])

    def lose(self, reason: str) -> list[BufferKey]:
        lost = super().lose(reason)
        nowhere = [*(self._nowhere - self.directory.valid.keys())]
        for key in nowhere:
            self.directory.lose(key, reason)
        return lost + nowhere

    def plan(self, name: str) -> Plan:
        return self._following.plan(name) or self._followed

    @property
    def ran(self) -> Lowered:
        """The steps, packets in the places of their first chunks, or of later ones where they were begun anew."""
        lowered, own = self._before, self.command_graph.lowered.steps
        nodes, steps = list(lowered.graph.nodes), list(lowered.steps)
        ran = [(c.token, c.chunks, c.task) for c in self._emitter.commands if isinstance(c, Run)]
        for token, chunks, task in [*ran, *((t, chunks, None) for t, (_, chunks) in self._dropped.items())]:
            if chunks:
                first, last = own[chunks[0]], own[chunks[-1]]
                step = first._replace(groups=last.first + last.groups - first.first)
                steps[token] = step if task is not None else step._replace(role=DROPPED)
                nodes[token] = task or nodes[token]
        return changed(lowered, graph=changed(lowered.graph, nodes=tuple(nodes)), steps=tuple(steps))
