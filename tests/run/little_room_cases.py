"""Random runs that do not fit: graphs of pieces, windows of buffers, limits, and where all is at the start."""

from __future__ import annotations

import random
from dataclasses import replace

from test_state import FACTS, PROGRAM

from manycl.graph.graph import BufferArg, Graph, HostTask, Launch, Piece, Rows
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.steps import Lowered
from manycl.run.windows import Room, Window

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
