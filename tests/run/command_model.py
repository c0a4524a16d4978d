"""A model of what a run asks of its devices, which knows only commands and reports, and random runs for it to judge."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import replace

from test_state import Unit, expected, launch, machine

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask, Launch
from manycl.machine import HOST
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.backend import (
    AHEAD_QUEUE,
    DOWNLOAD_QUEUE,
    EARLY_QUEUE,
    UPLOAD_QUEUE,
    Command,
    Download,
    HostCall,
    Report,
    Run,
    Upload,
)
from manycl.run.backends.chaos import ChaosBackend
from manycl.run.coherence import Directory
from manycl.run.state import RunState
from manycl.run.transfers import LARGE, LOOK_AHEAD, SMALL


class Case:
    """A random graph, machine and plan, and where buffers are at the start. ``told``: the graph as the engine knows it,
    where some of what launches overwrite is only found when it asks."""

    def __init__(self, seed: int, nodes: int) -> None:
        chance = self.chance = random.Random(seed)
        builder = GraphBuilder()
        sizes = [4, 4, SMALL - 1, SMALL, LARGE]
        keys = [builder.buffer(chance.choice(sizes), f"b{i}") for i in range(chance.randint(2, 7))]
        for i in range(chance.randint(1, nodes)):
            reads, writes = (tuple(chance.sample(keys, chance.choice((0, 1, 1, 2)))) for _ in range(2))
            if chance.random() < 0.12:
                builder.add(HostTask(f"h{i}", print, (), reads, writes))
            else:
                over = tuple(k for k in writes if k not in reads and chance.random() < 0.4)
                builder.add(replace(launch(f"n{i}", reads, writes), overwrites=over))
        self.graph = builder.build()
        self.told = replace(self.graph, nodes=tuple(map(self.hidden, self.graph.nodes)))
        shared = chance.choice((0.0, 0.2, 0.5))
        memories = [HOST if chance.random() < shared else m for m in range(1, chance.randint(2, 4))]
        if chance.random() < 0.2:
            memories.append(memories[-1])
        numbers = {m: n for n, m in enumerate(sorted({HOST, *memories}))}
        self.where = machine([numbers[m] for m in memories])
        self.queues = chance.randint(1, 2)
        stay = chance.random()
        places: list[tuple[int, int]] = []
        for task in self.graph.nodes:
            if isinstance(task, HostTask):
                places.append((ON_HOST, 0))
            elif places and places[-1][0] >= 0 and chance.random() < stay:
                places.append(places[-1])
            else:
                places.append((chance.randrange(len(memories)), chance.randrange(self.queues)))
        self.places = places
        self.valid = {}
        for key in self.graph.buffers:
            if chance.random() < 0.85:
                homes = [HOST] if chance.random() < 0.6 else chance.sample(range(self.where.memories), 1)
                homes += [m for m in range(self.where.memories) if chance.random() < 0.15]
                self.valid[key] = sum(1 << m for m in {*homes})

    def hidden(self, task: Launch | HostTask) -> Launch | HostTask:
        return replace(task, overwrites=task.overwrites[:1]) if isinstance(task, Launch) else task

    def overwritten(self, node: int, key: int) -> bool:
        task = self.graph.nodes[node]
        return isinstance(task, Launch) and key in task.overwrites

    def plan(self) -> Plan:
        ranges = tuple(Assignment(n, *place, 0.0, 0.0) for n, place in enumerate(self.places))
        return Plan(ranges, "random", tuple(d.name for d in self.where.devices), 0.0)

    def memory(self, device: int) -> int:
        return self.where.devices[device].memory if device >= 0 else HOST

    def needs(self, node: int) -> list[int]:
        """The buffers whose contents a node needs."""
        task = self.graph.nodes[node]
        return [k for k in dict.fromkeys((*task.reads, *task.writes)) if not self.overwritten(node, k)]


class Model:
    """What may be concluded of commands and reports. ``has[key][memory]``: the command that has brought the present
    contents there (None: they were there, or are made there)."""

    def __init__(self, case: Case) -> None:
        self.case, self.graph = case, case.graph
        self.memory = [d.memory for d in case.where.devices]
        self.far = case.where.memories > 1
        self.has: dict[int, dict[int, int | None]] = {
            key: {m: None for m in range(case.where.memories) if mask >> m & 1} for key, mask in case.valid.items()
        }
        self.writer: dict[int, int] = {}
        self.unused: dict[tuple[int, int], int] = {}  # transfers of the present contents that nobody has used
        self.given: dict[int, Command] = {}
        self.order: dict[tuple[int, int], list[int]] = {}  # nodes of each queue, as they were enqueued
        self.known: set[int] = set()  # tokens that are known to be over
        self.handed: dict[int, int] = {}  # by download that follows its maker at once: the maker
        self.promised: dict[int, list[tuple[int, int]]] = {}  # by token: (buffer, node) to which it goes on
        self.early: set[int] = set()  # launches of which all predecessors have been enqueued
        self.lanes: dict[tuple[int, int], list[int]] = {}
        for n, place in enumerate(case.places):
            self.lanes.setdefault(place, []).append(n)

    # events

    def perform(self, commands: list[Command]) -> None:
        for i, command in enumerate(commands):
            if isinstance(command, Upload):
                self.upload(command, commands[i + 1 :])
            elif isinstance(command, Download):
                self.download(command, commands[:i])
            else:
                assert isinstance(command, Run | HostCall)
                self.run(command)
            self.given[command.token] = command

    def heard(self, reports: list[Report]) -> None:
        for report in reports:
            token = report.token
            self.know(token)
            if token in self.handed:
                self.know(self.handed[token])

    def know(self, token: int) -> None:
        self.known.add(token)
        if token < len(self.graph):
            line = self.order[self.case.places[token]]
            self.known.update(line[: line.index(token)])

    def use(self, key: int, memory: int) -> None:
        self.unused.pop((key, memory), None)

    def upload(self, command: Upload, later: list[Command]) -> None:
        key, memory = command.buffer, self.memory[command.device]
        assert self.has.get(key), "undefined contents are brought"
        assert memory not in self.has[key], "it is there, or comes already"
        assert HOST in self.has[key], "it comes from the host"
        assert self.arrived(key, HOST), "it is not known to have come to the host"
        assert not command.after
        assert command.notify == (self.memory.count(memory) > 1), "who hears of it shares the memory"
        self.use(key, HOST)
        self.has[key][memory] = command.token
        self.unused[key, memory] = command.token
        reader, queue = self.reader(key, memory, command.device)
        is_small = self.graph.buffers[key].nbytes < SMALL
        runs = [c for c in later if isinstance(c, Run) and c.device == command.device]
        at_once = bool(runs) and runs[0].token == reader and command.token in runs[0].after
        head = next(n for n in self.lanes[command.device, queue] if n not in self.given)
        if is_small and self.counts(command.device) == 1:
            assert command.queue == queue, "what is little goes before its reader"
        elif is_small:
            due = {queue} if key in self.writer else {UPLOAD_QUEUE}
            assert command.queue in due | ({UPLOAD_QUEUE} if reader != head else due | {UPLOAD_QUEUE})
        elif reader != head:
            assert command.queue == AHEAD_QUEUE, "what is not due holds nothing up"
        else:
            assert command.queue in (UPLOAD_QUEUE, AHEAD_QUEUE)
            if at_once:
                assert command.queue == UPLOAD_QUEUE, "what is due waits behind nothing"

    def reader(self, key: int, memory: int, device: int) -> tuple[int, int]:
        """The next node of a device that needs the present contents of a buffer."""
        for n in range(len(self.graph)):
            if n not in self.given and key in self.case.needs(n) and self.case.places[n][0] == device:
                return n, self.case.places[n][1]
        raise AssertionError("nobody there needs it")

    def counts(self, device: int) -> int:
        return 1 + max((q for d, q in self.lanes if d == device), default=0)

    def download(self, command: Download, earlier: list[Command]) -> None:
        key, memory = command.buffer, self.memory[command.device]
        assert memory in self.has.get(key, {}), "it is not there"
        assert HOST not in self.has[key], "the host has it, or it comes already"
        writer = self.writer.get(key)
        pending = [writer] if writer is not None and writer not in self.known else []
        assert list(command.after) == pending, "it waits for who makes it, and for nobody else"
        assert all(self.case.places[p][0] == command.device for p in pending), "devices wait for themselves alone"
        assert command.notify
        self.use(key, memory)
        self.has[key][HOST] = command.token
        self.unused[key, HOST] = command.token
        is_large = self.graph.buffers[key].nbytes >= SMALL
        hands = [c for c in earlier if isinstance(c, Run | HostCall)]
        at_once = bool(hands) and hands[-1].token == writer and self.users_elsewhere(writer, key)
        if at_once and writer is not None:
            self.handed[command.token] = writer
        place = self.case.places[writer] if writer is not None else (-1, 0)
        if not is_large and place[0] == command.device and self.order[place][-1] == writer:
            assert command.queue == place[1], "what is little leaves behind its maker"
        elif at_once:
            assert command.queue in (EARLY_QUEUE,), "what leaves as soon as it is made holds up nothing that is due"
        else:
            by_host = [n for n in self.next_needing(key) if self.case.places[n][0] == ON_HOST]
            by_device = [n for n in self.next_needing(key) if self.case.places[n][0] != ON_HOST]
            if not by_host:
                assert command.queue == DOWNLOAD_QUEUE
            elif not by_device:
                assert command.queue == EARLY_QUEUE
            else:
                assert command.queue in (EARLY_QUEUE, DOWNLOAD_QUEUE)

    def next_needing(self, key: int) -> Iterator[int]:
        """Nodes that need the present contents of a buffer and have not been enqueued."""
        for n in range(len(self.graph)):
            if n not in self.given:
                if key in self.case.needs(n):
                    yield n
                if key in self.graph.nodes[n].writes:
                    return

    def users_elsewhere(self, node: int | None, key: int) -> list[int]:
        """Whom a node hands a buffer to as soon as it has made it."""
        if node is None or not self.far:
            return []
        device = self.case.places[node][0]
        mine = self.memory[device] if device >= 0 else HOST
        found = []
        for s in self.graph.successors[node]:
            other = self.case.places[s][0]
            if other in (device, ON_HOST) or self.memory[other] == mine or key not in self.graph.nodes[s].reads:
                continue
            if all(
                p in self.given or p == node for p in self.graph.predecessors[s] if key in self.graph.nodes[p].writes
            ):
                found.append(s)
        return found

    def arrived(self, key: int, memory: int) -> bool:
        token = self.has[key][memory]
        return token is None or token in self.known

    def run(self, command: Run | HostCall) -> None:
        node = command.token
        place = self.case.places[node]
        device = place[0]
        memory = self.memory[device] if device >= 0 else HOST
        before = self.graph.predecessors[node]
        brought = set()
        for key in self.case.needs(node):
            if self.has.get(key):
                assert memory in self.has[key], "it does not find what it needs"
                self.use(key, memory)
                if self.has[key][memory] is not None:
                    brought.add(self.has[key][memory])
        if isinstance(command, Run):
            assert (command.device, command.queue) == place
            others = {p for p in before if p not in self.known and self.case.places[p] != place}
            after = list(command.after)
            assert len(after) == len(set(after))
            told = {w for t, w in self.handed.items() if t in self.known}
            found = set(after) - told - (self.overwritten(node, memory) - brought)
            assert found == (others | brought) - self.known - told, "it waits for what it needs alone"
            self.tells(command)
        for key in self.graph.nodes[node].writes:
            for m in range(self.case.where.memories):
                assert (key, m) not in self.unused, f"buffer {key} was brought to memory {m} for nobody"
            self.has[key] = {memory: None}
            self.writer[key] = node
        self.order.setdefault(place, []).append(node)
        self.given[node] = command

    def overwritten(self, node: int, memory: int) -> set[int]:
        """Transfers of what a launch turns out to overwrite, if it was asked: nobody asks where it is there."""
        found = {
            self.has[k].get(memory)
            for k in self.graph.nodes[node].writes
            if k in self.has and k not in self.case.needs(node)
        }
        return {token for token in found if token is not None}

    def tells(self, command: Run) -> None:
        """Whether the end of a launch must be heard of: it is the last of its queue, or others wait for it who will
        not hear of it by what it sends them."""
        node, device = command.token, command.device
        mine = self.memory[device]
        elsewhere = [s for s in self.graph.successors[node] if self.case.places[s][0] != device]
        last = self.lanes[device, command.queue][-1] == node
        self.given[node] = command
        hears = mine != HOST and all(
            any(s in self.users_elsewhere(node, key) for key in self.graph.nodes[node].writes) for s in elsewhere
        )
        assert command.notify == (last or (bool(elsewhere) and not hears)), "it is heard of where somebody must"
        if self.far:
            for key in self.graph.nodes[node].writes:
                if found := self.users_elsewhere(node, key):
                    self.promised.setdefault(key, []).extend((node, s) for s in found)

    def begin(self, commands: list[Command]) -> None:
        """First of all comes what takes long: of each queue the large buffers, and what is due before one of them, of
        all queues in turns."""
        lines = [line for (device, _), line in self.lanes.items() if device >= 0]
        wanted: list[tuple[int, int]] = []
        for turn in range(LOOK_AHEAD if self.far else 0):
            for line in lines:
                if any(self.touches(n, LARGE) for n in line[turn:LOOK_AHEAD]):
                    device = self.case.places[line[turn]][0]
                    found = [(key, self.memory[device]) for key in self.first_read(line[turn])]
                    wanted += [place for place in found if place not in wanted and place[1] not in self.has[place[0]]]
        if wanted:
            assert [(c.buffer, self.memory[c.device]) for c in commands if isinstance(c, Upload)] == wanted
            assert len(commands) == len(wanted)

    def touches(self, node: int, nbytes: int) -> bool:
        task = self.graph.nodes[node]
        return any(self.graph.buffers[key].nbytes >= nbytes for key in (*task.reads, *task.writes))

    def first_read(self, node: int) -> list[int]:
        """What a launch finds on the host, of no small size, if it is brought before anything has run."""
        task, first = self.graph.nodes[node], not self.graph.predecessors[node]
        written = {key for p in self.graph.predecessors[node] for key in self.graph.nodes[p].writes}
        return [
            key
            for key in self.case.needs(node)
            if (key in task.reads or first)
            and key not in written
            and self.graph.buffers[key].nbytes >= SMALL
            and self.case.valid.get(key, 0) & 1
        ]

    # between events

    def judge(self) -> None:
        """Everything that can go on does."""
        for (device, _), line in self.lanes.items():
            rest = [n for n in line if n not in self.given]
            if not rest:
                continue
            node = rest[0]
            if device == ON_HOST:
                self.judge_host(node)
                continue
            memory = self.memory[device]
            before = [p for p in self.graph.predecessors[node] if p not in self.known]
            free = all(p in self.given and self.case.places[p][0] == device for p in before)
            needed = [k for k in self.case.needs(node) if self.has.get(k)]
            if free:
                for key in needed:
                    assert memory in self.has[key] or HOST in self.has[key], "what it needs is not on its way"
                ready = all(self.is_there(k, memory, device) for k in needed)
                assert not ready, f"node {node} could be enqueued"
            elif self.far and all(p in self.given and self.case.places[p][0] >= 0 for p in before):
                if node not in self.early:
                    self.judge_early(needed, memory)
                self.early.add(node)
            if self.far:
                self.judge_ahead(rest[:LOOK_AHEAD], memory)
        for key, found in self.promised.items():
            for node, s in found:
                if self.writer.get(key) != node or s in self.given or not self.arrived_at_host(key):
                    continue
                assert self.memory[self.case.places[s][0]] in self.has[key], "what has come to the host goes on"

    def judge_early(self, needed: list[int], memory: int) -> None:
        """All that a launch waits for was enqueued, some of it elsewhere: what it needs is on its way."""
        for key in needed:
            made = self.writer.get(key)
            if memory not in self.has[key] and HOST not in self.has[key]:
                assert made is not None, "it could be on its way"
                assert made not in self.known, "it could be on its way"
                assert not self.owns(made), "it could be on its way"

    def arrived_at_host(self, key: int) -> bool:
        return (
            HOST in self.has[key]
            and self.arrived(key, HOST)
            and (self.has[key][HOST] is not None or self.writer[key] in self.known)
        )

    def is_there(self, key: int, memory: int, device: int) -> bool:
        """Whether contents are where a launch can use them, or can be brought now."""
        if memory in self.has[key]:
            token = self.has[key][memory]
            return token is None or token in self.known or self.given[token].device == device  # type: ignore[union-attr]
        return HOST in self.has[key] and self.arrived(key, HOST)

    def judge_host(self, node: int) -> None:
        done = all(p in self.known for p in self.graph.predecessors[node])
        task = self.graph.nodes[node]
        for key in {*task.reads, *task.writes} if done else task.reads:
            if not self.has.get(key) or HOST in self.has[key]:
                continue
            assert not done, "what it needs is not on its way"
            writers = [p for p in self.graph.predecessors[node] if key in self.graph.nodes[p].writes]
            made = self.writer.get(key)
            if all(p in self.given for p in writers) and (made is None or made in self.known or self.owns(made)):
                raise AssertionError("it could be on its way")
        if done:
            needed = [k for k in {*task.reads, *task.writes} if self.has.get(k)]
            assert not all(self.arrived(k, HOST) for k in needed), f"host function {node} could be called"

    def owns(self, node: int) -> bool:
        """Whether a node's device has its memory to itself."""
        device = self.case.places[node][0]
        return device >= 0 and self.memory.count(self.memory[device]) == 1

    def judge_ahead(self, following: list[int], memory: int) -> None:
        """What the next nodes of a queue read, and has been on the host from the start, is there or comes."""
        for n in following:
            task = self.graph.nodes[n]
            first = not self.graph.predecessors[n]
            for key in self.case.needs(n):
                if not (self.case.valid.get(key, 0) & 1) or not (key in task.reads or first):
                    continue
                if any(key in self.graph.nodes[p].writes for p in range(n)):
                    continue
                assert memory in self.has[key], f"buffer {key} could come for node {n}"

    def end(self) -> None:
        assert not self.unused, f"was brought for nobody: {self.unused}"
        assert len(self.given) >= len(self.graph)


class Started:
    """A run, of which the model hears what the engine hears."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.model = case, Model(case)
        directory = self.directory = Directory()
        directory.valid.update(case.valid)
        backend = self.backend = ChaosBackend(case.where, seed)
        self.start = {key: f"initial {key}" for key in case.valid}
        for m in range(case.where.memories):
            for key, mask in case.valid.items():
                backend.values[m][key] = self.start[key] if mask >> m & 1 else f"stale {m}"

        def overwritten(node: int, key: int) -> bool:
            task, device = case.told.nodes[node], case.places[node][0]
            assert isinstance(task, Launch)
            assert key not in (*task.reads, *task.overwrites), "who asks knows that"
            assert not directory.valid.get(key, 0) >> case.memory(device) & 1, "it need not be brought in any case"
            return case.overwritten(node, key)

        problem = Problem(case.told, case.where, Unit(), (case.queues,) * len(case.where.devices))
        self.state = RunState(problem, case.plan(), directory, overwritten)
        backend.begin(case.graph, self.state.queues)

    def begin(self) -> None:
        commands = self.state.start(0.0)
        self.model.begin(commands)
        self.give(commands)
        if not self.model.far and not self.state.finished:
            self.model.judge()
        self.give(self.state.handle())

    def go_on(self) -> None:
        self.state.validate()
        self.model.judge()
        reports = self.backend.wait()
        self.model.heard(reports)
        self.give(self.state.handle(*reports))

    def give(self, commands: list[Command]) -> None:
        self.model.perform(commands)
        self.backend.perform(commands)

    def check(self, nodes: Collection[int]) -> None:
        """What counts as valid is what is there when these have run."""
        final = expected(self.case.graph, dict(self.start), nodes)
        for key, mask in self.directory.valid.items():
            for m in range(self.case.where.memories):
                if mask >> m & 1:
                    assert self.backend.values[m].get(key) == final[key], f"buffer {key} in memory {m}"
