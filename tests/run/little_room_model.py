"""A model of what a run that does not fit asks of its devices, which knows only commands and reports."""

from __future__ import annotations

from collections.abc import Iterable

from little_room_cases import ON_THE_HOST, Case, Place
from test_state import Unit

from manycl.machine import HOST
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem
from manycl.run.backend import (
    DOWNLOAD_QUEUE,
    EARLY_QUEUE,
    UPLOAD_QUEUE,
    Command,
    Copy,
    Download,
    Evict,
    HostCall,
    Report,
    Run,
    Upload,
)
from manycl.run.backends.chaos import ChaosBackend, left_by, touched
from manycl.run.coherence import Directory
from manycl.run.eviction import TightState
from manycl.run.transfers import LOOK_AHEAD


class Model:
    """What may be concluded of commands and reports. ``has[piece][place]``: the command that has brought its present
    contents there (None: they were there, or are made there)."""

    def __init__(self, case: Case) -> None:
        self.case, self.graph = case, case.graph
        self.has: dict[int, dict[Place, int | None]] = {}
        for p, mask in case.valid.items():
            places = [(d, case.whole[p]) for d in range(case.count) if mask >> (d + 1) & 1]
            self.has[p] = dict.fromkeys([ON_THE_HOST] * (mask & 1) + places)
        self.held = {d: {place[1] for has in self.has.values() for place in has if place[0] == d} for d in case.limits}
        self.writer: dict[int, int] = {}
        self.unused: set[tuple[int, Place]] = set()
        self.given: dict[int, Command] = {}
        self.order: dict[tuple[int, int], list[int]] = {}
        self.waited: dict[tuple[int, int], set[int]] = {}  # what commands of a queue wait for
        self.users: dict[Place, set[int]] = {}
        self.known: set[int] = set()
        self.gone: set[int] = set()  # pieces whose contents nobody needed
        self.early: dict[int, int] = {}  # results that have to leave at once, and the last node that touches them
        self.heads: dict[int, int] = {}  # of devices' queues, when it was last judged what makes way
        self.lanes: dict[tuple[int, int], list[int]] = {}
        for n, place in enumerate(case.places):
            self.lanes.setdefault(place, []).append(n)

    def known_places(self, piece: int) -> int:
        """The mask of the memories where a piece is known to be."""
        found = 0
        for (device, store), token in self.has.get(piece, {}).items():
            if store not in self.case.windows and (token is None or token in self.known):
                found |= 1 << (device + 1)
        return found

    def free(self, device: int) -> int:
        return self.case.limits[device] - sum(self.case.sizes[s] for s in self.held[device])

    def perform(self, commands: list[Command]) -> None:
        for command in commands:
            if not isinstance(command, Download):
                assert not self.early, "results leave as soon as they are made"
            {
                Upload: self.upload,
                Copy: self.copy,
                Download: self.download,
                Evict: self.evict,
                Run: self.run,
                HostCall: self.call,
            }[type(command)](command)
            if not isinstance(command, Evict):
                self.given[command.token] = command
        assert not self.early, "results leave as soon as they are made"

    def heard(self, reports: list[Report]) -> None:
        for report in reports:
            self.known.add(report.token)
            if report.token < len(self.graph):
                line = self.order[self.case.places[report.token]]
                self.known.update(line[: line.index(report.token)])

    def coming(self) -> list[int]:
        return [n for n in range(len(self.graph)) if n not in self.given]

    def needed(self, piece: int) -> bool:
        """Whether somebody may need the present contents of a piece: a node, or whoever looks when all is over."""
        for n in self.coming():
            task = self.graph.nodes[n]
            if piece in self.case.needs(n):
                return True
            if piece in task.writes:
                return False
        return piece not in self.case.own

    def readers(self, piece: int, place: Place) -> list[int]:
        """The nodes that need the present contents of a piece at a place."""
        found = []
        for n in self.coming():
            if piece in self.case.needs(n) and self.case.home(n, piece) == place:
                found.append(n)
            if piece in self.graph.nodes[n].writes:
                break
        assert found, "nobody needs it there"
        return found

    def hold(self, place: Place) -> None:
        device, store = place
        if device in self.held and store not in self.held[device]:
            self.held[device].add(store)
            assert self.free(device) >= 0

    def makers(self, piece: int, place: Place) -> set[int]:
        """What makes a piece valid at a place of a device and is not known to be over."""
        found = {self.has[piece][place]}
        if (writer := self.writer.get(piece)) is not None and self.case.places[writer][0] == place[0]:
            found.add(writer)
        return {t for t in found if t is not None} - self.known

    def brought(self, piece: int, place: Place, token: int) -> None:
        assert place not in self.has[piece], "it is there, or comes already"
        self.hold(place)
        self.has[piece][place] = token
        self.unused.add((piece, place))

    def upload(self, command: Upload) -> None:
        piece, store = command.buffer, command.store
        assert store is not None
        has = self.has.get(piece)
        assert has, "undefined contents are brought"
        assert ON_THE_HOST in has, "it comes from the host"
        assert has[ON_THE_HOST] is None or has[ON_THE_HOST] in self.known, "it may not have come to the host"
        assert all(place[0] != command.device for place in has), "it is on the device"
        assert (command.after, command.notify, command.queue) == ((), False, UPLOAD_QUEUE)
        self.readers(piece, (command.device, store))
        self.brought(piece, (command.device, store), command.token)

    def copy(self, command: Copy) -> None:
        piece, lane = command.buffer, (command.device, command.queue)
        source, target = (command.device, command.source), (command.device, command.target)
        assert source in self.has[piece], "it is not there"
        assert lane in [self.case.places[n] for n in self.readers(piece, target)], (
            "it is made by the queue that needs it"
        )
        behind = self.waited.setdefault(lane, set())
        own = {t for t in self.makers(piece, source) if t < len(self.graph) and self.case.places[t] == lane}
        assert set(command.after) == self.makers(piece, source) - behind - own
        assert len(command.after) == len(set(command.after))
        assert command.notify
        behind.update(command.after, [command.token])
        self.unused.discard((piece, source))
        self.brought(piece, target, command.token)
        self.users.setdefault(source, set()).add(command.token)  # the target's is the launch behind it

    def download(self, command: Download) -> None:
        piece, store = command.buffer, command.store
        assert store is not None
        place = command.device, store
        has = self.has[piece]
        assert place in has, "it is not there"
        assert ON_THE_HOST not in has, "the host has it, or it comes already"
        assert self.needed(piece), "nobody needs it"
        writer = self.writer.get(piece)
        if piece not in self.early and writer is not None and (made := self.case.home(writer, piece)) in has:
            assert place == made, "it comes from where it was made"
        wanted = {self.early[piece]} if piece in self.early else self.makers(piece, place)
        assert set(command.after) == wanted, "it waits for who makes it, or is the last to touch it"
        assert len(command.after) == len(set(command.after))
        assert command.notify
        assert command.queue == (EARLY_QUEUE if piece in self.early else DOWNLOAD_QUEUE)
        if piece not in self.early and self.coming() and not self.wanted_elsewhere(piece, command.device):
            self.makes_way(piece, place)
        self.early.pop(piece, None)
        has[ON_THE_HOST] = command.token
        self.unused.discard((piece, place))
        self.users.setdefault(place, set()).add(command.token)

    def wanted_elsewhere(self, piece: int, device: int) -> bool:
        """Whether the host, or another device, may need a piece now."""
        heads = [rest[0] for (d, _), line in self.lanes.items() if d != device and (rest := self.rest(line))]
        return any(piece in (*self.graph.nodes[n].reads, *self.graph.nodes[n].writes) for n in heads)

    def alone(self, device: int) -> bool:
        return not any(q for d, q in self.lanes if d == device)

    def makes_way(self, piece: int, place: Place) -> None:
        """A piece leaves because its store has to: for one of the next launches, which does not use it."""
        device = place[0]
        assert device in self.case.limits, "there is room"
        if not self.alone(device):
            return
        assert self.ahead(device)[1] > self.free(device), "there is room"
        head = next(rest[0] for lane, line in self.lanes.items() if lane[0] == device and (rest := self.rest(line)))
        stay = self.case.stores[head].values()
        assert place[1] not in stay, "its store is needed"
        for other in self.has[piece]:
            assert other == ON_THE_HOST or other[1] not in stay, "it is where it stays"

    def ahead(self, device: int) -> tuple[set[int], int]:
        """What the next launches of a device need, up to the second that needs what it does not hold, and that fits
        together: its stores, and how many bytes of these are missing."""
        line = next(line for lane, line in self.lanes.items() if lane[0] == device)
        needed: set[int] = set()
        lacking = 0
        for n in self.rest(line)[:LOOK_AHEAD]:
            more = {*self.case.stores[n].values()}
            if sum(self.case.sizes[s] for s in needed | more) > self.case.limits[device]:
                break
            lacking += not more - needed <= self.held[device]
            needed |= more
            if lacking == 2:
                break
        return needed, sum(self.case.sizes[s] for s in needed - self.held[device])

    def evict(self, command: Evict) -> None:
        device, store = command
        place = device, store
        assert store in self.held[device], "it is not there"
        assert not self.users.get(place, set()) - self.known, "somebody uses it"
        heads = [rest[0] for lane, line in self.lanes.items() if lane[0] == device and (rest := self.rest(line))]
        wanting = {s for n in heads if self.may_start(n) for s in self.case.stores[n].values()}
        assert sum(self.case.sizes[s] for s in wanting | self.held[device]) > self.case.limits[device], "there is room"
        assert any(store not in self.case.stores[n].values() for n in heads if self.may_start(n)), "it could stay"
        if self.alone(device):
            assert self.missing(heads[0]) > self.free(device), "there is room"
        for piece, has in list(self.has.items()):
            if place in has:
                assert (piece, place) not in self.unused, "it was brought for nobody"
                del has[place]
                if not has:
                    assert not self.needed(piece), "somebody needs it"
                    del self.has[piece]
                    self.gone.add(piece)
                elif set(has) == {ON_THE_HOST}:
                    token = has[ON_THE_HOST]
                    assert token is None or token in self.known, "it has not come to the host"
        self.held[device].discard(store)

    def rest(self, line: list[int]) -> list[int]:
        return [n for n in line if n not in self.given]

    def missing(self, n: int) -> int:
        """Bytes of what a launch needs and its device does not hold."""
        device = self.case.places[n][0]
        return sum(self.case.sizes[s] for s in self.case.stores[n].values() if s not in self.held[device])

    def may_start(self, n: int) -> bool:
        """Whether all that a launch comes after is over, or was given to its device."""
        device = self.case.places[n][0]
        before = [p for p in self.graph.predecessors[n] if p not in self.known]
        return all(p in self.given and self.case.places[p][0] == device for p in before)

    def enqueued(self, n: int) -> set[int]:
        """A node is enqueued: it finds what it needs, which others may bring."""
        brought = set()
        for piece in self.case.needs(n):
            if has := self.has.get(piece):
                home = self.case.home(n, piece)
                assert home in has, "it does not find what it needs"
                self.unused.discard((piece, home))
                if (token := has[home]) is not None:
                    brought.add(token)
        for piece in self.graph.nodes[n].writes:
            assert not any(p == piece for p, _ in self.unused), "it was brought for nobody"
            token = self.has.get(piece, {}).get(ON_THE_HOST)
            assert token is None or token in self.known or n >= len(self.graph), "what leaves would be overwritten"
            self.has[piece] = {self.case.home(n, piece): None}
            self.gone.discard(piece)
            self.writer[piece] = n
        self.order.setdefault(self.case.places[n], []).append(n)
        return brought

    def run(self, command: Run) -> None:
        n = command.token
        lane = command.device, command.queue
        assert lane == self.case.places[n]
        assert self.may_start(n)
        optional = {
            self.has[p].get(self.case.home(n, p))
            for p in self.graph.nodes[n].writes
            if p in self.has and p not in self.case.needs(n)
        }
        for store in self.case.stores[n].values():
            self.hold((command.device, store))
            self.users.setdefault((command.device, store), set()).add(n)
        others = {p for p in self.graph.predecessors[n] if self.case.places[p] != lane}
        behind = self.waited.setdefault(lane, set())
        wanted = (others | self.enqueued(n)) - self.known - behind
        optional -= wanted
        assert set(command.after) - optional == wanted, "it waits for what it needs alone"
        assert not set(command.after) & (behind | self.known), "it waits for what its queue has waited for"
        assert len(command.after) == len(set(command.after))
        behind.update(command.after)
        self.given[n] = command
        assert command.notify == self.tells(n, lane), "it is heard of where somebody must"
        for piece in {*self.graph.nodes[n].reads, *self.graph.nodes[n].writes}:
            if any(piece in (*self.graph.nodes[m].reads, *self.graph.nodes[m].writes) for m in self.coming()):
                continue
            has = self.has.get(piece, {})
            if piece not in self.case.own and self.case.home(n, piece) in has and self.in_windows(has):
                self.early[piece] = n

    def in_windows(self, has: dict[Place, int | None]) -> bool:
        """Whether contents are in windows alone."""
        return bool(has) and all(store in self.case.windows for _, store in has)

    def tells(self, n: int, lane: tuple[int, int]) -> bool:
        device = lane[0]
        following = self.rest(self.lanes[lane])
        if not following or any(self.case.places[s][0] != device for s in self.graph.successors[n]):
            return True
        if device not in self.case.limits:
            return False
        if any(q for d, q in self.lanes if d == device):
            return True
        stores = set(self.case.stores[following[0]].values())
        return not stores <= self.held[device]

    def call(self, command: HostCall) -> None:
        n = command.token
        assert all(p in self.known for p in self.graph.predecessors[n])
        task = self.graph.nodes[n]
        for piece in (*task.reads, *task.writes):
            if has := self.has.get(piece):
                assert has.get(ON_THE_HOST) is None or has[ON_THE_HOST] in self.known
        self.enqueued(n)

    def judge(self) -> None:
        """Everything that can go on does."""
        for (device, _), line in self.lanes.items():
            rest = self.rest(line)
            if not rest:
                continue
            n = rest[0]
            if device == ON_HOST:
                self.judge_host(n)
                continue
            if device in self.case.limits and self.alone(device) and self.heads.get(device) != n:
                self.heads[device] = n
                self.judge_room(device)
            if not self.may_start(n):
                continue
            task = self.graph.nodes[n]
            leaving = [self.has[p].get(ON_THE_HOST) for p in task.writes if p in self.has]
            if any(t is not None and t not in self.known for t in leaving):
                continue
            alone = not any(q for d, q in self.lanes if d == device)
            if device in self.case.limits and (not alone or self.missing(n) > self.free(device)):
                continue
            missing = [p for p in self.case.needs(n) if self.has.get(p) and not self.can_be_used(p, n)]
            assert missing, f"node {n} could be enqueued"
            for p in missing:
                assert ON_THE_HOST in self.has[p], "what it needs is not on its way"

    def judge_room(self, device: int) -> None:
        """What the next launches take the place of is on its way, as far as it has to go."""
        needed, wanted = self.ahead(device)
        free, held = self.free(device), self.held[device]
        staying = [s for s in held - needed if not self.may_go((device, s)) and not self.is_source((device, s))]
        going = sum(self.case.sizes[s] for s in held - needed if s not in staying)
        assert free + going >= wanted or not staying, f"{staying} could be on their way"

    def may_go(self, place: Place) -> bool:
        """Whether nobody needs what only a store holds."""
        return not any(self.needed(p) for p, has in self.has.items() if set(has) == {place})

    def is_source(self, place: Place) -> bool:
        """Whether one of the next launches finds something there that it needs elsewhere."""
        line = next(line for lane, line in self.lanes.items() if lane[0] == place[0])
        reads = {p for n in self.rest(line)[:LOOK_AHEAD] for p in self.graph.nodes[n].reads}
        return any(place in has and p in reads for p, has in self.has.items())

    def can_be_used(self, piece: int, n: int) -> bool:
        """Whether a piece is where a launch needs it, or can be brought there now."""
        has, device = self.has[piece], self.case.places[n][0]
        if any(place[0] == device for place in has):
            return True
        return ON_THE_HOST in has and (has[ON_THE_HOST] is None or has[ON_THE_HOST] in self.known)

    def judge_host(self, n: int) -> None:
        if not all(p in self.known for p in self.graph.predecessors[n]):
            return
        task = self.graph.nodes[n]
        tokens = []
        for piece in {*task.reads, *task.writes}:
            if has := self.has.get(piece):
                assert ON_THE_HOST in has, "what it needs is not on its way"
                tokens.append(has[ON_THE_HOST])
        assert not all(t is None or t in self.known for t in tokens), f"host function {n} could be called"

    def end(self) -> dict[int, int]:
        """The masks of pieces afterwards."""
        assert not self.unused, "was brought for nobody"
        for token, command in self.given.items():
            assert not isinstance(command, Download) or token in self.known, "it is not over before all has come"
        masks: dict[int, int] = {}
        for piece, has in self.has.items():
            assert piece in self.case.own or not self.in_windows(has), "it is in windows alone"
            mask = sum(1 << (device + 1) for device, store in has if store not in self.case.windows)
            if mask:
                masks[piece] = mask
        return masks


def begun(case: Case, seed: int) -> tuple[TightState, ChaosBackend, Directory]:
    directory = Directory()
    directory.valid.update(case.valid)
    backend = ChaosBackend(case.where, seed, room=case.limits)
    for p, mask in case.valid.items():
        for m in range(case.where.memories):
            if mask >> m & 1:
                backend.values[m][p] = f"initial {p}"
            elif m == HOST or m - 1 not in case.limits:
                backend.values[m][p] = f"stale {m}"
    problem = Problem(case.told_graph, case.where, Unit(), (case.queues,) * case.count)
    state = TightState(problem, case.plan(), directory, lambda n, p: p in case.over[n], lowered=case.lowered())
    backend.begin(case.graph, state.queues)
    return state, backend, directory


def alone(case: Case, nodes: Iterable[int]) -> dict[int, object]:
    """What pieces hold when some nodes have run, one after another."""
    values: dict[int, object] = {p: f"initial {p}" for p in case.valid}
    for n in nodes:
        inputs = {p: values.get(p) for p in touched(case.graph, n)}
        values.update({p: left_by(case.graph, n, p, inputs, None) for p in case.graph.nodes[n].writes})
    return values


def check(case: Case, directory: Directory, backend: ChaosBackend, values: dict[int, object]) -> None:
    """What counts as valid is there."""
    for p, mask in directory.valid.items():
        for m in range(case.where.memories):
            if mask >> m & 1:
                assert backend.values[m].get(p) == values[p], f"piece {p} in memory {m}"
