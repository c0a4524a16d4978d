"""Assembling the kernels, buffers and edges that a file lists to a graph; the same for every format. An edge makes the
consumer's argument the producer's buffer. In the formats that have edges every consumer sees what the producer wrote,
so a consumer that also writes the buffer must come after all others; where that cannot be, the file is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from manycl.analysis.annotations import Annotation
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.applications.application import Contents, Output
from manycl.errors import GraphError, LaunchError
from manycl.expressions import suggest
from manycl.graph.dependences import GraphBuilder, least_first
from manycl.graph.graph import Buffer, BufferArg, BufferKey, Graph, Launch, LocalArg, Placement, Version
from manycl.graph.launch import LaunchOptions, make_launch, with_versions
from manycl.utilities.json_lines import Location

SHOWN_WARNINGS = 20
"""Warnings of one kind that are shown; our own choice."""

DraftArgument = BufferArg | LocalArg | bytes | None
"""As a launch's argument; the key of a BufferArg is an index into the draft's buffers, None comes by an edge."""

DraftVersion = Callable[[Launch, Mapping[BufferKey, Contents]], Version]
"""A function that makes a version of a launch, which has no versions yet; it is also given the contents of the graph's
buffers. Raises SpecificationError and LaunchError."""


@dataclass(slots=True)
class DraftBuffer:
    name: str
    contents: Contents
    place: Location
    given: bool = False  # the file says what it holds at the start


@dataclass(slots=True)
class DraftKernel:
    id: str
    name: str  # for people: the id if the user gave one, otherwise the function's name
    place: Location
    program: ProgramFacts
    kernel: KernelFacts
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    args: list[DraftArgument]
    offset: tuple[int, ...] | None = None
    device: str | Placement = ""
    rank: float | None = None
    component: str = ""
    annotations: tuple[Annotation, ...] = ()
    versions: tuple[DraftVersion, ...] = ()  # the alternatives to the kernel
    partition: int | None = None  # tenths on GPUs, 1 to 9


class EdgeText(NamedTuple):
    """An edge as a file has it: from a kernel's argument (its number or name) to another's."""

    source: tuple[str, str]
    target: tuple[str, str]
    place: Location


@dataclass(frozen=True, slots=True)
class DraftEdge:
    """An edge from ``source`` to ``target``, each a kernel and the position of one of its arguments."""

    source: tuple[int, int]
    target: tuple[int, int]
    place: Location
    replace: bool = False  # the consumer's own buffer gives way to the producer's


@dataclass
class Draft:
    """A file's content before it is a graph; indices are positions in these lists."""

    place: Location
    name: str
    buffers: list[DraftBuffer] = field(default_factory=list)
    kernels: list[DraftKernel] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)  # of the kernels
    edges: list[DraftEdge] = field(default_factory=list)
    orders: list[tuple[int, int, Location]] = field(default_factory=list)  # kernel before kernel, for no data
    replaced: set[int] = field(default_factory=set)  # buffers that gave way to a producer's
    warnings: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)  # warnings of every kind, also those not shown

    def add_id(self, identifier: str, place: Location) -> None:
        """The next kernel's. Raises SpecificationError for one that there is already."""
        if identifier in self.ids:
            raise place.error(f"there are two kernels with the id {identifier!r}")
        self.ids[identifier] = len(self.ids)

    def index(self, identifier: str, place: Location) -> int:
        """The kernel with an id. Raises SpecificationError."""
        if identifier not in self.ids:
            raise place.error(f"there is no kernel with the id {identifier!r:.60}{suggest(identifier, self.ids)}")
        return self.ids[identifier]

    def argument(self, identifier: str, argument: str, place: Location) -> tuple[int, int]:
        """A kernel, and the position of the argument of that number or name. Raises SpecificationError."""
        kernel = self.index(identifier, place)
        facts = self.kernels[kernel].kernel
        names = {a.name: a.index for a in facts.arguments}
        position = int(argument) if argument.isascii() and argument.isdigit() else names.get(argument, -1)
        if not 0 <= position < len(facts.arguments):
            problem = f"kernel {identifier} ({facts.name}) has no argument {argument}"
            raise place.error(problem + suggest(argument, names))
        return kernel, position

    def add_edge(self, edge: EdgeText, *, replace: bool = False) -> None:
        """Raises SpecificationError where it has no ends."""
        source, target = (self.argument(*end, edge.place) for end in (edge.source, edge.target))
        self.edges.append(DraftEdge(source, target, edge.place, replace))

    def warn(self, kind: str, place: Location, message: str) -> None:
        """A few warnings of a kind are shown, the others only counted."""
        self.kinds[kind] += 1
        if self.kinds[kind] <= SHOWN_WARNINGS:
            self.warnings.append(f"{place.show()}: {message}")

    def all_warnings(self) -> tuple[str, ...]:
        hidden = {kind: n - SHOWN_WARNINGS for kind, n in self.kinds.items() if n > SHOWN_WARNINGS}
        return (*self.warnings, *(f"{n} more like this: {kind}" for kind, n in hidden.items()))


@dataclass(frozen=True)
class Assembled:
    graph: Graph
    contents: dict[BufferKey, Contents]
    keys: dict[int, BufferKey]  # index in the draft -> key, for buffers that are used
    results: tuple[Output, ...]  # what nobody reads after its last write


def assemble(draft: Draft) -> Assembled:
    """Orders the kernels, joins the buffers of edges, checks every launch and infers the dependences."""
    order = _order(draft)
    incoming: dict[int, list[DraftEdge]] = {}
    for edge in draft.edges:
        incoming.setdefault(edge.target[0], []).append(edge)
    for consumer in order:
        _bind(draft, consumer, incoming.get(consumer, []))
    used = {arg.key for k in draft.kernels for arg in k.args if isinstance(arg, BufferArg)}
    builder = GraphBuilder()
    keys: dict[int, BufferKey] = {}
    for index in sorted(used):
        buffer = draft.buffers[index]
        try:
            keys[index] = builder.buffer(buffer.contents.nbytes, buffer.name)
        except GraphError as error:
            raise buffer.place.error(error.message) from None
    launches = _add_launches(draft, order, keys, builder)
    components = _components(draft, order)
    contents = {keys[index]: draft.buffers[index].contents for index in keys}
    _warn_unset(draft, launches, keys)
    for number, unused in enumerate(draft.buffers):
        if number not in used and number not in draft.replaced:
            draft.warn("unused buffers", unused.place, f"buffer {unused.name} is not used")
    graph = builder.build(components, draft.name, draft.all_warnings())
    return Assembled(graph, contents, keys, _results(launches, graph, contents))


def output(graph: Graph, contents: dict[BufferKey, Contents], key: BufferKey, name: str = "", path: str = "") -> Output:
    shape, dtype = contents[key].shape, contents[key].dtype
    return Output(name or graph.buffers[key].name, key, dtype, shape, path)


def partitioned(tenths: int | None) -> tuple[str, int | None]:
    """The preferred kind of device, or the tenths (1 to 9) that a kernel is divided in; of ``partition`` 0 to 10."""
    return {None: ("", None), 0: ("cpu", None), 10: ("gpu", None)}.get(tenths, ("", tenths))


def _order(draft: Draft) -> list[int]:
    """A topological order of the kernels under the edges, as close to the order of the file as they allow."""
    edges = {(e.source[0], e.target[0]): e.place for e in draft.edges}
    edges.update({(before, later): place for before, later, place in draft.orders})
    after: list[set[int]] = [set() for _ in draft.kernels]
    for source, target in edges:
        after[source].add(target)
    _ordered(draft, after, edges)
    for reader, writer, place in _shared(draft, after):
        after[reader].add(writer)
        edges.setdefault((reader, writer), place)
    return _ordered(draft, after, edges)


def _ordered(draft: Draft, after: Sequence[set[int]], places: dict[tuple[int, int], Location]) -> list[int]:
    before = [set[int]() for _ in after]
    for source, targets in enumerate(after):
        for target in targets:
            before[target].add(source)
    order = least_first(before, after)
    if len(order) < len(after):
        cycle = _cycle(before)
        path = " -> ".join(draft.kernels[k].id for k in (*cycle, cycle[0]))
        raise places[cycle[-1], cycle[0]].error(f"the edges form a cycle: {path}")
    return order


def _cycle(before: Sequence[set[int]]) -> list[int]:
    """A cycle among kernels, from the first of them on."""
    try:
        TopologicalSorter(dict(enumerate(before))).prepare()
    except CycleError as error:
        cycle: list[int] = error.args[1][1:]
        start = cycle.index(min(cycle))
        return cycle[start:] + cycle[:start]
    raise AssertionError("there is a cycle")


def _shared(draft: Draft, after: Sequence[set[int]]) -> Iterable[tuple[int, int, Location]]:
    """Yield the kernels of which one must come before the other, with the place of the edge, because a consumer of an
    edge overwrites what other consumers read."""
    consumers: dict[tuple[int, int], list[DraftEdge]] = {}
    for edge in draft.edges:
        consumers.setdefault(edge.source, []).append(edge)
    for source, edges in consumers.items():
        writers = [e for e in edges if draft.kernels[e.target[0]].kernel.arguments[e.target[1]].writes]
        others = {e.target[0] for e in edges}
        for edge in writers if len(others) > 1 else ():
            writer = edge.target[0]
            later = _reachable(after, writer)
            blocked = sorted(({e.target[0] for e in writers} | (others & later)) - {writer})
            if blocked:
                name = draft.kernels[source[0]].id
                raise edge.place.error(
                    f"kernel {draft.kernels[writer].id} overwrites what kernel {name} hands to it and,"
                    f" later or at the same time, to kernel {draft.kernels[blocked[0]].id}",
                    hint="give one of them a copy in a buffer of its own",
                )
            yield from ((other, writer, edge.place) for other in sorted(others - {writer}))


def _reachable(after: Sequence[set[int]], start: int) -> set[int]:
    seen: set[int] = set()
    todo = [start]
    while todo:
        todo.extend(new := after[todo.pop()] - seen)
        seen |= new
    return seen


def _bind(draft: Draft, consumer: int, edges: list[DraftEdge]) -> None:
    """Puts the producers' buffers in place of the consumer's arguments; its producers are bound already."""
    kernel = draft.kernels[consumer]
    bound: set[int] = set()
    for edge in edges:
        position = edge.target[1]
        argument = kernel.kernel.arguments[position]
        if position in bound:
            raise edge.place.error(f"argument {position} ({argument.name}) of kernel {kernel.id} has an edge already")
        bound.add(position)
        source = draft.kernels[edge.source[0]].args[edge.source[1]]
        if not isinstance(source, BufferArg) or argument.kind != "buffer":
            wrong, at = (kernel, position)
            if not isinstance(source, BufferArg):
                wrong, at = draft.kernels[edge.source[0]], edge.source[1]
            raise edge.place.error(f"argument {at} of kernel {wrong.id} is no buffer")
        own = kernel.args[position]
        if isinstance(own, BufferArg) and own != source:
            _check_replaced(draft, edge, own.key, source.key)
            draft.replaced.add(own.key)
        kernel.args[position] = source
        _warn_idle_edge(draft, edge)
    for position, value in enumerate(kernel.args):
        if value is None:
            name = kernel.kernel.arguments[position].name
            raise kernel.place.at("args").error(f"argument {position} ({name}) is null, and no edge leads to it")


def _check_replaced(draft: Draft, edge: DraftEdge, own: int, source: int) -> None:
    mine, theirs = draft.buffers[own], draft.buffers[source]
    if not edge.replace:
        raise edge.place.error(f"the edge joins two buffers, {theirs.name} and {mine.name}", hint="give null for one")
    if mine.contents.nbytes > theirs.contents.nbytes:
        raise edge.place.error(
            f"{mine.name} has {mine.contents.nbytes} bytes, but {theirs.name}, where its data come from,"
            f" only {theirs.contents.nbytes}"
        )


def _warn_idle_edge(draft: Draft, edge: DraftEdge) -> None:
    source, target = draft.kernels[edge.source[0]], draft.kernels[edge.target[0]]
    kind = "edges without data"
    if not source.kernel.arguments[edge.source[1]].writes:
        name = source.kernel.arguments[edge.source[1]].name
        draft.warn(kind, edge.place, f"kernel {source.id} never writes {name}; the edge only orders")
    if not target.kernel.arguments[edge.target[1]].reads:
        name = target.kernel.arguments[edge.target[1]].name
        draft.warn(kind, edge.place, f"kernel {target.id} never reads {name}; the edge only orders")


def _add_launches(draft: Draft, order: list[int], keys: dict[int, BufferKey], builder: GraphBuilder) -> list[Launch]:
    position = {kernel: node for node, kernel in enumerate(order)}
    buffers = {keys[i]: Buffer(keys[i], draft.buffers[i].contents.nbytes, draft.buffers[i].name) for i in keys}
    contents = {keys[i]: draft.buffers[i].contents for i in keys}
    dtypes = {key: of.dtype for key, of in contents.items()}
    after: dict[int, set[int]] = {}
    for edge in draft.edges:
        after.setdefault(edge.target[0], set()).add(position[edge.source[0]])
    for before, later, _ in draft.orders:
        after.setdefault(later, set()).add(position[before])
    launches = []
    for index in order:
        k = draft.kernels[index]
        try:
            launch = make_launch(
                k.program,
                k.kernel.name,
                k.global_size,
                k.local_size,
                [BufferArg(keys[a.key]) if isinstance(a, BufferArg) else a for a in k.args],
                buffers=buffers,
                dtypes=dtypes,
                options=LaunchOptions(
                    name=k.name,
                    device=k.device,
                    rank=k.rank,
                    global_offset=k.offset,
                    annotations=k.annotations,
                    partition=k.partition,
                ),
            )
            if k.versions:
                launch = with_versions(launch, [version(launch, contents) for version in k.versions])
        except LaunchError as error:
            raise k.place.error(error.message, error.hint) from None
        builder.add(launch, sorted(after.get(index, ())))
        launches.append(launch)
    return launches


def _components(draft: Draft, order: list[int]) -> tuple[tuple[int, ...], ...]:
    """The nodes of every component; kernels in none form one each. Empty when nobody declared any."""
    if not any(k.component for k in draft.kernels):
        return ()
    members: dict[str, list[int]] = {}
    for node, index in enumerate(order):
        kernel = draft.kernels[index]
        group = members.setdefault(kernel.component or f"\0{node}", [])
        if group and draft.kernels[order[group[0]]].device != kernel.device:
            first = draft.kernels[order[group[0]]]
            raise kernel.place.error(
                f"kernels {first.id} and {kernel.id} of one component prefer different devices"
                f" ({first.device or 'any'}, {kernel.device or 'any'})"
            )
        group.append(node)
    return tuple(tuple(group) for group in members.values())


def _warn_unset(draft: Draft, launches: list[Launch], keys: dict[int, BufferKey]) -> None:
    unset = {keys[i]: draft.buffers[i] for i in keys if not draft.buffers[i].given}
    for launch in launches:
        for key in launch.reads:
            buffer = unset.pop(key, None)
            if buffer is not None and key not in launch.writes:  # otherwise zeros to add to, or scratch
                draft.warn(
                    "buffers read before they are written",
                    buffer.place,
                    f"buffer {buffer.name} is read by {launch.name} before anything is written to it"
                    " and has no initial contents: it holds zeros",
                )
        for key in launch.writes:
            unset.pop(key, None)


def _results(launches: list[Launch], graph: Graph, contents: dict[BufferKey, Contents]) -> tuple[Output, ...]:
    read: dict[BufferKey, int] = {}
    written: dict[BufferKey, int] = {}
    for node, launch in enumerate(launches):
        read.update((key, node) for key in launch.reads)
        written.update((key, node) for key in launch.writes)
    return tuple(output(graph, contents, key) for key in sorted(written) if written[key] >= read.get(key, -1))
