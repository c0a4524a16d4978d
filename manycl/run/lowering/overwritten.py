"""Launches that write all of a buffer, so that its old contents need not be moved there; planners use this, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from manycl.analysis import service
from manycl.errors import LaunchError, SourceError
from manycl.graph.access import access_of
from manycl.graph.graph import BufferArg, BufferKey, Graph, HostTask, Launch, Piece
from manycl.graph.known import known_launch
from manycl.graph.work_groups import with_work_groups
from manycl.machine import HOST_BIT, Machine
from manycl.model.transfer import SMALL
from manycl.plan.plan import ON_HOST
from manycl.region import NOTHING, Region, union
from manycl.run.lowering.steps import Lowered
from manycl.utilities.unforeseen import told

LOOKED_AT = 256
"""Different launches of a run that are analysed, at most: each takes a fraction of a millisecond the first time; our
own choice."""
QUESTIONS = 4
"""Launches of a repeated graph about which isl is asked, at most, where the quick analysis gives no answer; our own
choice: this takes seconds, at worst. It takes longer than moving a gigabyte, so isl is not asked about graphs that run
once."""


class Overwritten:
    """The nodes of a lowered graph that write every byte of a buffer, as far as it was proved by ``ask``, before time
    starts; what is not proved is moved. ``whole``: the graph before lowering, with whole buffers. ``repeated``: the
    graph runs again and again; if not, the answer is no for buffers with fewer bytes than SMALL. ``questions``: the
    number of launches about which isl is asked, roughly (None: as many as pay)."""

    def __init__(self, lowered: Lowered, whole: Graph, repeated: bool = False, questions: int | None = None) -> None:
        self._lowered = lowered
        self._buffers = {**whole.buffers, **{b.key: b for b in lowered.temporaries}}
        self._repeated = repeated
        self._proved: set[tuple[int, BufferKey]] = set()
        self._looked_at: set[object] = set()
        self._questions = questions if questions is not None else QUESTIONS if repeated else 0
        self._answers: dict[tuple[int, BufferKey], Region] = {}  # by the id of a launch, and buffer

    def __call__(self, node: int, key: BufferKey) -> bool:
        return (node, key) in self._proved

    def find(self, node: int, key: BufferKey) -> bool:
        """Return whether a node overwrites a buffer; this is found out now."""
        self.ask([(node, key)])
        return self(node, key)

    def ask(self, wanted: Iterable[tuple[int, BufferKey]]) -> None:
        """Find out about nodes and buffers, or pieces of these, before time starts."""
        for node, key in wanted:
            buffer = self._lowered.graph.buffers[key]
            whole, region = key, Region.span(0, buffer.nbytes)
            if isinstance(buffer, Piece):
                whole, region = buffer.whole, buffer.region
            if not region - self.region(node, whole):
                self._proved.add((node, key))

    def region(self, node: int, key: BufferKey) -> Region:
        """Return the bytes of a buffer that a node is known to write."""
        task = self._lowered.graph.nodes[node]
        if self._lowered.step(node).role or (not self._repeated and self._buffers[key].nbytes < SMALL):
            return NOTHING
        # a program without a tree was made by hand
        if not isinstance(task, Launch) or task.versions or not task.program.tree:
            return NOTHING
        name = id(task), key
        if name not in self._answers:
            self._answers[name] = self._find(task, key)
        return self._answers[name]

    def _find(self, task: Launch, key: BufferKey) -> Region:
        task = with_work_groups(task)
        if task.local_size is None:
            return NOTHING
        given = {i: a for i, a in enumerate(task.args) if isinstance(a, BufferArg)}
        try:
            known = known_launch(task, {a.key: self._buffers[a.key].nbytes for a in given.values()})
            name = task.program.tree, task.kernel.name, known.key
            if name not in self._looked_at and len(self._looked_at) == LOOKED_AT:
                return NOTHING
            self._looked_at.add(name)
            facts = service.launched(task.program, task.kernel.name, known)
            mine = {i: a.offset for i, a in given.items() if a.key == key}
            found = [(facts.quick_region(i, "write"), offset) for i, offset in mine.items()]
            if self._questions and any(r is None for r, _ in found):
                self._questions -= 1
                found = [(facts.region(i, "write"), offset) for i, offset in mine.items()]
        except (LaunchError, SourceError):
            return NOTHING
        except Exception as error:
            told(error, f"finding out what {task.name} overwrites")
            return NOTHING
        sure = [r.behind(offset).around() for r, offset in found if r is not None and r.exact]
        return union(region for region, is_just in sure if is_just)


def brought_to_be_overwritten(
    lowered: Lowered, machine: Machine, valid: Mapping[BufferKey, int], repeated: bool
) -> Iterator[tuple[int, BufferKey]]:
    """Yield the nodes and buffers, or pieces, of which it may matter to a run whether the node overwrites the buffer:
    the node changes it without reading it, and its contents are or may be elsewhere. ``valid``: masks of memories.
    ``repeated``: also buffers that the run finds where it uses them, which may be elsewhere when it runs again."""
    at = dict(valid)
    plan = lowered.plan
    memory_of = (
        {a.node: machine.devices[a.device].memory for a in plan.assignments if a.device != ON_HOST} if plan else {}
    )
    touched: set[BufferKey] = set()
    for node, task in enumerate(lowered.graph.nodes):
        memory = memory_of.get(node)
        for key in () if isinstance(task, HostTask) else task.writes:
            if key in task.reads or key in task.overwrites:
                continue
            mask = at.get(key, 0)
            is_elsewhere = bool(mask) and (memory is None or not mask >> memory & 1)
            if is_elsewhere or lowered.room is not None or (repeated and key not in touched):
                yield node, key
        touched.update((*task.reads, *task.writes))
        if not isinstance(task, HostTask):
            # a device chosen during the run: any memory
            at.update(dict.fromkeys(task.writes, 1 << machine.memories if memory is None else 1 << memory))
        else:
            at.update(dict.fromkeys(task.writes, HOST_BIT))


def contents(graph: Graph, keys: Collection[BufferKey]) -> dict[BufferKey, tuple[Region, Region]]:
    """Return for some buffers of a graph the bytes whose contents its nodes may find as they were before it, and those
    that they write for certain. Kernels are analysed for what they overwrite until one of them may find something."""
    sizes = {key: buffer.nbytes for key, buffer in graph.buffers.items()}
    overwritten = Overwritten(Lowered(graph), graph, repeated=True)
    found = dict.fromkeys(keys, (NOTHING, NOTHING))
    for node, task in enumerate(graph.nodes):
        for key, access in access_of(task, sizes).items():
            if key not in found:
                continue
            finds, written = found[key]
            sure = access.writes if access.overwrites else NOTHING
            if not finds and access.writes - sure - written:
                sure = overwritten.region(node, key)
            needs = access.reads | (access.writes - sure)
            found[key] = finds | (needs - written), written | sure
    return found
