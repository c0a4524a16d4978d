"""Random kernels with the true sets of bytes that their work-groups read and write.

A kernel is a tree; its text goes to the compilers and to the analysis, and the tree is executed directly. All
accesses are in bounds (buffers are made as large as what is touched; subscripts that spread too far are masked), and
nothing is undefined (such trees are thrown away). Kernel k of seed s is the same whatever else is generated.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from tests.analysis.corpus_case import Argument, Buffer, Case, Launch, Same, table
from tests.analysis.generated.expressions import CType, State, Undefined
from tests.analysis.generated.kernel import TABLE_SIZE, KernelMaker, Parameter
from tests.analysis.generated.statements import DataFlow, Helper, Statement, indented, run_all

PROLOGUE = """#define HASH(x) (((ulong)(x) + 0x2545f491UL) * 0x9e3779b97f4a7c15UL >> 19)
typedef struct { int a; short b; uchar c[2]; uint d; } record;
constant int fixed[8] = {3, 0, 5, 1, 7, 2, 6, 4};
"""
FIXED = np.array([3, 0, 5, 1, 7, 2, 6, 4], np.int64)
LARGEST = 1 << 14  # bytes of a buffer


@dataclass
class Tree:
    """A kernel as it was made."""

    name: str
    parameters: list[Parameter]
    helpers: list[Helper]
    body: list[Statement]

    @property
    def text(self) -> str:
        lines = [line for h in self.helpers for line in h.lines()]
        declared = ", ".join(p.declaration for p in self.parameters)
        return "\n".join([*lines, f"kernel void {self.name}({declared}) {{", *indented(self.body), "}"])


@dataclass(frozen=True)
class Generated(Case):
    """A case that knows its tree; it has one launch."""

    tree: Tree | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Program:
    """Kernels that are compiled together."""

    text: str
    cases: tuple[Generated, ...]


def state_of(launch_sizes: Launch, tree: Tree, scalars: dict[str, int], steering: np.ndarray) -> State:
    """All work-items before the first statement, the first dimension fastest."""
    sizes, local, offset = launch_sizes.global_size, launch_sizes.local_size, launch_sizes.offset
    count = int(np.prod(sizes))
    linear = np.arange(count)
    queries: dict[tuple[str, int], np.ndarray] = {}
    for d in range(3):
        size = sizes[d] if d < len(sizes) else 1
        width = local[d] if d < len(sizes) else 1
        start = offset[d] if d < len(offset) else 0
        at = linear % size
        linear = linear // size
        values = {
            "global_id": at + start,
            "local_id": at % width,
            "group_id": at // width,
            "global_size": size,
            "local_size": width,
            "num_groups": size // width,
            "global_offset": start,
        }
        for name, value in values.items():
            queries[name, d] = np.broadcast_to(np.asarray(value, np.int64), (count,)).copy()
    variables = {name: np.full(count, value, np.int64) for name, value in scalars.items()}
    tables = {"fixed": FIXED, **{p.name: steering for p in tree.parameters if p.role == "table"}}
    return State(count, queries, variables, tables)


def executed(tree: Tree, state: State) -> State:
    run_all(tree.body, state, np.ones(state.count, bool), DataFlow.new(state.count))
    return state


def _sizes(r: random.Random) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Global sizes, local sizes and offsets of at most 64 work-items."""
    dimensions = r.choice([1, 1, 1, 2, 2, 3])
    most = {1: ([1, 2, 3, 4, 5, 8], [2, 3, 4, 5, 6]), 2: ([1, 2, 3, 4], [1, 2, 3]), 3: ([1, 2], [1, 2, 3])}[dimensions]
    local = tuple(r.choice(most[0]) for _ in range(dimensions))
    groups = tuple(r.choice(most[1]) for _ in range(dimensions))
    if max(groups) < 2:
        groups = (2, *groups[1:])
    if np.prod(local) * np.prod(groups) > 64:
        local = tuple(min(w, 2) for w in local)
    offset = tuple(r.choice([0, 0, w, 3]) for w in local) if r.random() < 0.25 else ()
    return tuple(g * w for g, w in zip(groups, local, strict=True)), local, offset


def _scalar(r: random.Random, p: Parameter) -> int:
    return r.randint(1, 7) if p.kind.bits < 64 else r.randint(1, 5)


def _numpy(kind: CType, value: int) -> np.generic:
    found = np.dtype(kind.dtype).type(value)
    assert isinstance(found, np.generic)
    return found


def _arguments(tree: Tree, values: dict[str, int], buffers: dict[str, Buffer], same: dict[str, str]) -> list[Argument]:
    names = [p.name for p in tree.parameters]
    found: list[Argument] = []
    for p in tree.parameters:
        if p.name in same:
            found.append(Same(names.index(same[p.name])))
        elif p.role == "scalar":
            found.append(_numpy(p.kind, values[p.name]))
        else:
            found.append(buffers[p.name])
    return found


def _buffers(
    r: random.Random, tree: Tree, states: list[State], steering: np.ndarray, same: dict[str, str]
) -> dict[str, Buffer]:
    """Buffers that hold what the launches touch, and a little more."""
    needed = dict.fromkeys((p.name for p in tree.parameters if p.role == "data"), 8)
    for s in states:
        for name in needed:
            needed[name] = max(needed[name], s.reached.get(name, 0))
    for twin, root in same.items():
        needed[root] = max(needed[root], needed[twin])
    if max(needed.values()) > LARGEST:
        raise Undefined("a large buffer")
    found = {p.name: table(*steering.tolist()) for p in tree.parameters if p.role == "table"}
    for p in tree.parameters:
        if p.role == "data":
            count = -(-needed[p.name] // p.kind.nbytes) + r.choice([0, 0, 1, 3])
            found[p.name] = Buffer(p.kind.dtype, count, whole=True)
    return found


def _attempt(r: random.Random, name: str) -> tuple[Tree, list[Launch]]:
    shapes = [_sizes(r)]
    maker = KernelMaker(r, name, len(shapes[0][0]))
    tree = Tree(name, maker.parameters, maker.helpers, maker.body())
    r.shuffle(tree.parameters)
    if r.random() < 0.3:  # another launch of the same kernel
        other = _sizes(r)
        shapes += [other] * (len(other[0]) == len(shapes[0][0]))
    steering = np.array([r.randrange(TABLE_SIZE) for _ in range(TABLE_SIZE)], np.int64)
    data = [p for p in tree.parameters if p.role == "data"]
    same: dict[str, str] = {}
    if len(data) > 1 and data[0].kind == data[1].kind and r.random() < 0.15:
        same[data[1].name] = data[0].name
    plain = [Launch(g, w, (), o) for g, w, o in shapes]
    values = [{p.name: _scalar(r, p) for p in tree.parameters if p.role == "scalar"} for _ in plain]
    for shape, scalars in zip(plain, values, strict=True):
        s = state_of(shape, tree, scalars, steering)
        s.measuring = True
        executed(tree, s)
    for fit in maker.fits:
        fit.decide()
    states = [executed(tree, state_of(n, tree, v, steering)) for n, v in zip(plain, values, strict=True)]
    if not all(any(kind != "read" for kind, *_ in s.events) for s in states):
        raise Undefined("a launch that writes nothing")
    buffers = _buffers(r, tree, states, steering, same)
    launches = [
        Launch(n.global_size, n.local_size, tuple(_arguments(tree, v, buffers, same)), n.offset)
        for n, v in zip(plain, values, strict=True)
    ]
    return tree, launches


def kernel(seed: int, k: int) -> tuple[Tree, list[Launch]]:
    """The k-th kernel of the seed and its launches."""
    for attempt in range(1000):
        try:
            return _attempt(random.Random(f"{seed}/{k}/{attempt}"), f"g{seed}_{k}")
        except Undefined:
            continue
    raise AssertionError("no kernel is defined")


def generate(seed: int, kernels: int = 25) -> Program:
    """A program of so many kernels; a case for each launch, whose verdicts are the true ones."""
    made = [kernel(seed, k) for k in range(kernels)]
    text = PROLOGUE + "\n".join(tree.text for tree, _ in made) + "\n"
    cases = []
    for tree, launches in made:
        for one in launches:
            case = Generated(tree.name, "", (one,), (), exact=False, text=text, tree=tree)
            split = tuple(not conflicts(case, one, d) for d in range(len(one.global_size)))
            cases.append(Generated(tree.name, "", (one,), split, repeatable(case, one), False, text=text, tree=tree))
    return Program(text, tuple(cases))


def in_small_programs(seed: int, kernels: int, each: int) -> list[Generated]:
    """The cases of :func:`generate`, whose kernels are compiled ``each`` at a time, which is faster."""
    cases = generate(seed, kernels).cases
    trees = list(dict.fromkeys(id(case.tree) for case in cases))
    texts = {id(case.tree): case.tree.text for case in cases if case.tree is not None}
    programs = {}
    for first in range(0, len(trees), each):
        of = trees[first : first + each]
        programs.update(dict.fromkeys(of, PROLOGUE + "\n".join(texts[tree] for tree in of) + "\n"))
    return [replace(case, text=programs[id(case.tree)]) for case in cases]


def programs(kernels: int = 25) -> st.SearchStrategy[Program]:
    """Programs of so many kernels each; ``generate`` repeats one by the seed in its kernels' names."""
    return st.integers(0, 2**31 - 1).map(lambda seed: generate(seed, kernels))


class Touched:
    """What one launch touches: events of (kind, buffer argument, work-item, first byte, bytes)."""

    def __init__(self, case: Generated, launch: Launch) -> None:
        tree = case.tree
        assert tree is not None
        names = [p.name for p in tree.parameters]
        scalars = {n: int(a) for n, a in zip(names, launch.arguments, strict=True) if isinstance(a, np.generic)}
        steering = [
            b.values for n, b in zip(names, launch.arguments, strict=True) if isinstance(b, Buffer) and b.values
        ]
        self.launch = launch
        self.state = executed(
            tree, state_of(launch, tree, scalars, np.array(steering[0] if steering else (), np.int64))
        )
        roots = {
            n: a.index if isinstance(a, Same) else i
            for i, (n, a) in enumerate(zip(names, launch.arguments, strict=True))
        }
        self.events = [(kind, roots[n], items, at, size) for kind, n, items, at, size in self.state.events]

    def masks(self, chosen: np.ndarray) -> dict[str, dict[int, np.ndarray]]:
        """Per kind and buffer argument a bool per byte, of the chosen work-items."""
        found = {
            k: {i: np.zeros(b.nbytes, bool) for i, b in self.launch.buffers.items()}
            for k in ("read", "write", "atomic")
        }
        for kind, argument, items, at, size in self.events:
            starts = at[chosen[items]]
            for byte in range(size):
                for one in ("read", "write") if kind == "update" else (kind,):
                    found[one][argument][starts + byte] = True
        return found

    def group(self, dimension: int) -> np.ndarray:
        return self.state.queries["group_id", dimension]


@functools.lru_cache(maxsize=64)
def touched_by(case: Generated, launch: Launch) -> Touched:
    """All that the launch touches; computed once."""
    return Touched(case, launch)


def touched(
    case: Generated, launch: Launch, dimension: int, first: int, count: int
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Per buffer argument a bool per byte: read, written, and changed atomically by the groups [first, first + count).

    An argument that passes another's buffer once more counts to that one.
    """
    t = touched_by(case, launch)
    group = t.group(dimension)
    found = t.masks((group >= first) & (group < first + count))
    return found["read"], found["write"], found["atomic"]


def conflicts(case: Generated, launch: Launch, dimension: int) -> bool:
    """Whether groups along the dimension write one byte, or one reads or changes what another writes."""
    each = [touched(case, launch, dimension, g, 1) for g in range(launch.groups[dimension])]
    for i in launch.buffers:
        writes = sum((w[i] | a[i]).astype(int) for _, w, a in each)
        if (writes > 1).any():
            return True
        if any((r[i] & (writes > 0) & ~(w[i] | a[i])).any() for r, w, a in each):
            return True
    return False


def repeatable(case: Generated, launch: Launch) -> bool:
    """Whether no byte is read before the same work-item wrote it, and written; and none is changed atomically."""
    t = touched_by(case, launch)
    own = {i: np.zeros((t.state.count, b.nbytes), bool) for i, b in launch.buffers.items()}
    exposed = {i: np.zeros(b.nbytes, bool) for i, b in launch.buffers.items()}
    for kind, argument, items, at, size in t.events:
        for byte in range(size):
            if kind == "atomic":
                return False
            if kind != "write":
                fresh = ~own[argument][items, at + byte]
                exposed[argument][(at + byte)[fresh]] = True
            if kind != "read":
                own[argument][items, at + byte] = True
    return not any((exposed[i] & own[i].any(axis=0)).any() for i in own)
