"""What a run that does not fit asks of its devices, against a model that knows only commands and reports: random graphs
of pieces, windows and limits, in any legal order of events. Nothing makes way, moves or waits without need, nothing
that somebody needs is lost, and what could be enqueued is not held back."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from test_state import FACTS, PROGRAM, Unit

from manycl.errors import ResultError
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch, Piece, Rows
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
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
from manycl.run.steps import Lowered
from manycl.run.transfers import LOOK_AHEAD
from manycl.run.windows import Room, Window

SEEDS = 600
NBYTES = 4  # of a piece
Place = tuple[int, int]  # a device and one of its stores
ON_THE_HOST = ON_HOST, 0


class Case:
    """``stores[n]``: what node n works on, in which it finds its pieces: by buffer, the key of a window of it or its
    own. Buffers 0, 1, … have pieces of their own; windows hold some neighbours of these."""

    def __init__(self, seed: int, nodes: int) -> None:
        chance = self.chance = random.Random(seed)
        self.count = chance.randint(1, 2)
        short = range(self.count) if chance.random() < 0.7 else range(1)  # the others have room for all
        self.devices = tuple(Device(f"d{i}", "gpu", memory=i + 1) for i in range(self.count))
        self.where = Machine(self.devices)
        self.queues = chance.choice((1, 1, 2))
        pieces: dict[int, list[int]] = {}
        key = -1
        for whole in range(chance.randint(2, 5)):
            pieces[whole] = []
            for _ in range(chance.choice((1, 1, 2, 4))):
                pieces[whole].append(key)
                key -= 1
        self.pieces = pieces
        self.whole = {p: w for w, ps in pieces.items() for p in ps}
        windows: dict[int, Window] = {}
        self.inside: dict[int, list[int]] = {}
        for whole, of in pieces.items():
            for device in short:
                for _ in range(chance.choice((0, 1, 2, 3)) if len(of) > 1 else 0):
                    low = chance.randrange(len(of))
                    count = chance.randint(1, len(of) - low)
                    if count < len(of):
                        windows[key] = Window(key, whole, low * NBYTES, count * NBYTES, device)
                        self.inside[key] = of[low : low + count]
                        key -= 1
        self.windows = windows
        self.sizes = {w: NBYTES * len(of) for w, of in pieces.items()} | {k: w.nbytes for k, w in windows.items()}
        self.own = {p for w in pieces if chance.random() < 0.15 for p in pieces[w]}
        self.nodes: list[Launch | HostTask] = []
        self.places: list[tuple[int, int]] = []
        self.stores: list[dict[int, int]] = []
        stay = chance.random()
        for n in range(chance.randint(2, nodes)):
            if chance.random() < 0.08:
                found = list(self.whole)
                reads = tuple(chance.sample(found, chance.choice((0, 1, 1, 2))))
                writes = tuple(chance.sample(found, chance.choice((0, 0, 1))))
                self.nodes.append(HostTask(f"h{n}", print, (), reads, writes))
                self.places.append((ON_HOST, 0))
                self.stores.append({})
            else:
                self.launch(n, stay)
        over = [self.overwrites(n) for n in range(len(self.nodes))]
        self.over = over
        before = self.dependences()
        buffers = {
            p: Piece(p, NBYTES, f"p{p}", w, (Rows(of.index(p) * NBYTES, NBYTES),))
            for w, of in pieces.items()
            for p in of
        }
        notes = {"windows": windows}
        known = [self.told(n) for n in range(len(self.nodes))]
        self.told_graph = Graph(tuple(known), buffers, before, notes=notes)
        full = (replace(t, overwrites=tuple(over[n])) if isinstance(t, Launch) else t for n, t in enumerate(self.nodes))
        self.graph = Graph(tuple(full), buffers, before, notes=notes)
        self.limits = {}
        for d in short:
            used = {s for n, (at, _) in enumerate(self.places) if at == d for s in self.stores[n].values()}
            most = max((sum(self.sizes[s] for s in self.stores[n].values()) for n in self.of(d)), default=NBYTES)
            total = sum(self.sizes[s] for s in used)
            self.limits[d] = max(most, chance.randint(most // 2, max(most, total)))
        self.valid: dict[int, int] = {}
        free = dict(self.limits)
        for whole, of in pieces.items():
            home = HOST
            if chance.random() < 0.3:
                home = chance.randint(1, self.count)
                if home - 1 in self.limits:
                    if free[home - 1] < self.sizes[whole]:
                        home = HOST
                    else:
                        free[home - 1] -= self.sizes[whole]
            for p in of:
                if p not in self.own and chance.random() < 0.9:
                    self.valid[p] = 1 << home | (chance.random() < 0.3)

    def of(self, device: int) -> list[int]:
        return [n for n, (d, _) in enumerate(self.places) if d == device]

    def launch(self, n: int, stay: float) -> None:
        chance = self.chance
        place = chance.randrange(self.count), chance.randrange(self.queues)
        if self.places and self.places[-1][0] >= 0 and chance.random() < stay:
            place = self.places[-1]
        if self.nodes and isinstance(self.nodes[-1], Launch) and chance.random() < 0.25:  # the same once more
            self.nodes.append(replace(self.nodes[-1], name=f"n{n}"))
            self.places.append((self.places[-1][0], place[1]))
            self.stores.append(self.stores[-1])
            return
        stores: dict[int, int] = {}
        reads: list[int] = []
        writes: list[int] = []
        for whole in chance.sample(list(self.pieces), min(len(self.pieces), chance.choice((1, 1, 2, 3)))):
            mine = [k for k, w in self.windows.items() if w.whole == whole and w.device == place[0]]
            store = stores[whole] = chance.choice(mine) if mine and chance.random() < 0.8 else whole
            found = self.inside.get(store, self.pieces[whole])
            if chance.random() < 0.6:
                reads += chance.sample(found, chance.randint(1, len(found)))
            else:
                writes += chance.sample(found, chance.randint(1, len(found)))
                reads += [p for p in found if p in writes and chance.random() < 0.3]
        args = tuple(BufferArg(s) for s in stores.values())
        self.nodes.append(Launch(f"n{n}", PROGRAM, FACTS, (1,), None, args, tuple(reads), tuple(writes)))
        self.places.append(place)
        self.stores.append(stores)

    def overwrites(self, n: int) -> list[int]:
        task = self.nodes[n]
        if not isinstance(task, Launch):
            return []
        return [p for p in task.writes if p not in task.reads and self.chance.random() < 0.6]

    def told(self, n: int) -> Launch | HostTask:
        """As the engine knows it: some of what a launch overwrites is only found when it asks."""
        task = self.nodes[n]
        return replace(task, overwrites=tuple(self.over[n][:1])) if isinstance(task, Launch) else task

    def dependences(self) -> tuple[tuple[int, ...], ...]:
        out: list[tuple[int, ...]] = []
        for n, task in enumerate(self.nodes):
            found = set()
            for p in range(n):
                other = self.nodes[p]
                mine, theirs = {*task.reads, *task.writes}, {*other.reads, *other.writes}
                if {*task.writes} & theirs or mine & {*other.writes}:
                    found.add(p)
            out.append(tuple(sorted(found)))
        return tuple(out)

    def home(self, n: int, piece: int) -> Place:
        """Where a node finds a piece."""
        device = self.places[n][0]
        return (device, self.stores[n][self.whole[piece]]) if device >= 0 else ON_THE_HOST

    def needs(self, n: int) -> list[int]:
        task = self.nodes[n]
        return [p for p in dict.fromkeys((*task.reads, *task.writes)) if p not in self.over[n]]

    def plan(self) -> Plan:
        ranges = tuple(Assignment(n, *place, 0.0, 0.0) for n, place in enumerate(self.places))
        return Plan(ranges, "random", tuple(d.name for d in self.devices), 0.0)

    def lowered(self) -> Lowered:
        room = Room(self.limits, self.windows, self.using(), self.sizes)
        return Lowered(self.told_graph, self.plan(), own=tuple(self.own), room=room)

    def using(self) -> list[dict[int, int]]:
        """The windows of each node; what is done once more has the very same ones."""
        found: dict[int, dict[int, int]] = {}
        for stores in self.stores:
            found[id(stores)] = {w: s for w, s in stores.items() if s in self.windows}
        return [found[id(stores)] for stores in self.stores]


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


def run(case: Case, seed: int) -> None:
    state, backend, directory = begun(case, seed)
    model = Model(case)
    for commands in (state.start(0.0), state.handle()):
        state.validate()
        model.perform(commands)
        backend.perform(commands)
    while not state.finished:
        model.judge()
        reports = backend.wait()
        model.heard(reports)
        commands = state.handle(*reports)
        state.validate()
        model.perform(commands)
        backend.perform(commands)
    backend.finish()
    state.close()
    assert directory.valid == model.end()
    check(case, directory, backend, alone(case, range(len(case.graph))))


@pytest.mark.parametrize("nodes", [8, 30])
def test_in_little_room_nothing_makes_way_moves_or_waits_without_need(nodes: int) -> None:
    for seed in range(SEEDS if nodes < 20 else SEEDS // 4):
        try:
            run(Case(seed, nodes), seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_of_a_run_that_is_stopped_nothing_is_lost_that_is_known_to_be_there() -> None:
    for seed in range(SEEDS // 2):
        try:
            stopped(Case(seed, 12), seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def stopped(case: Case, seed: int) -> None:
    """Whatever has been enqueued still runs; what has not been reported is not counted on."""
    state, backend, directory = begun(case, seed)
    model, left = Model(case), seed % 7
    for commands in (state.start(0.0), state.handle()):
        model.perform(commands)
        backend.perform(commands)
    while not state.finished and left:
        left -= 1
        reports = backend.wait()
        model.heard(reports)
        commands = state.handle(*reports)
        model.perform(commands)
        backend.perform(commands)
    for key, memory in state.unfinished_copies():
        directory.drop(key, memory)
    for key in state.unfinished_writes():
        directory.lose(key, "it was stopped")
    state.close()
    backend.finish()
    unknown = {
        p for n in model.given if n < len(case.graph) and n not in model.known for p in case.graph.nodes[n].writes
    }
    for p in case.whole:
        known = model.known_places(p) if p not in unknown else 0
        assert directory.valid.get(p, 0) == known, f"piece {p}"
        if p not in case.own and not known and (p in case.valid or p in model.writer):
            gone = "before a kernel had overwritten"
            reason = f"stopped|{gone}" if p in unknown else gone if p in model.gone else "come back"
            with pytest.raises(ResultError, match=reason):
                directory.check(p)
        elif known:
            directory.check(p)
    check(case, directory, backend, alone(case, [n for n in range(len(case.graph)) if n in model.given]))
