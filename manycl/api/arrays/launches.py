"""Launches of the kernels that compute nodes (:mod:`manycl.api.arrays.deferred`): which operations become one kernel,
and how it goes through arrays with strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from manycl.api.arrays import elementwise
from manycl.api.arrays.arrays import Array
from manycl.api.arrays.deferred import ArrayOperation, DType, Index, Number, Operand, compute, materialised
from manycl.api.arrays.elementwise import DIMENSIONS, EACH, ChainForm, ChainStep
from manycl.group_range import GROUP

Shape = tuple[int, ...]


class Chain:
    """The operations that one kernel does: ``inputs`` and ``steps`` of its form, and what is given for the inputs, each
    with its strides along the dimensions of ``shape``, in elements, and the element that it begins with."""

    def __init__(self, node: ArrayOperation, shape: Shape, queue: Any) -> None:
        self.shape = shape
        self._queue = queue
        self.inputs: list[tuple[DType, str]] = []
        self.values: list[Any] = []
        self.strides: list[list[int]] = []
        self.first: list[int] = []
        self.steps: list[ChainStep] = []
        self._found: dict[Any, int] = {}
        last = self._add(node, node.dtype, is_last=True)
        assert last >= 0 or last == -len(self.steps)

    def _add(self, operand: Operand, loop: DType, is_last: bool = False) -> int:
        """Return the number of an operand, as in :class:`Step`."""
        if isinstance(operand, ArrayOperation):
            if id(operand) in self._found:
                return self._found[id(operand)]
            array = operand.computed
            if array is None and not is_last and not self._is_part(operand):
                array = materialised(operand, self._queue)
            if array is None:
                numbers = tuple([self._add(o, t) for o, t in zip(operand.operands, operand.loop, strict=True)])
                self.steps.append(ChainStep(operand.name, operand.loop, numbers, operand.dtype))
                self._found[id(operand)] = -len(self.steps)
                return -len(self.steps)
            operand = array
        if isinstance(operand, Number):
            key: Any = "scalar", loop, elementwise.scalar(operand.value, loop).tobytes()
            return self._input(key, (loop, "scalar"), elementwise.scalar(operand.value, loop), [], 0)
        if isinstance(operand, Index):
            spread = [0] * (len(self.shape) - len(operand.shape)) + list(operand.steps)
            return self._input(("index", *spread), (operand.dtype, "index"), None, spread, 0)
        span, first, steps = operand.layout
        key = span.argument, first, steps, operand.shape, operand.dtype
        spread = [s if e > 1 else 0 for s, e in zip(steps, operand.shape, strict=True)]
        spread = [0] * (len(self.shape) - len(spread)) + spread
        return self._input(key, (operand.dtype, "array"), operand, spread, first)

    def _input(self, key: Any, form: tuple[DType, str], value: Any, strides: list[int], first: int) -> int:
        if key not in self._found:
            self._found[key] = len(self.inputs)
            self.inputs.append(form)
            self.values.append(value)
            self.strides.append(strides)
            self.first.append(first)
        return self._found[key]

    def _is_part(self, node: ArrayOperation) -> bool:
        """Return True for a node that becomes a part of the kernel: nobody has its array, no element is computed twice,
        and its results are not rounded to half."""
        waiting = node.array()
        if waiting is not None:
            compute(waiting)
            return False
        if node.axes or node.dtype == np.float16:
            return False
        return math.prod(node.shape) == math.prod(self.shape) or all(isinstance(o, Index) for o in node.operands)

    def moved(self, strides: Sequence[Sequence[int]]) -> list[int]:
        """Return the inputs that have strides."""
        return [i for i, (_, kind) in enumerate(self.inputs) if kind != "scalar"]


def run(node: ArrayOperation, target: Array) -> None:
    """Enqueue what computes a node into an array of its shape, whose type may be another one. Operands are seen as they
    are before, also where the result is written over them."""
    if not math.prod(node.shape):
        if target.size:  # sums of nothing
            target.fill(target.dtype.type(1 if node.name == "prod" else 0))
        return
    if node.axes:
        fold(node, target)
        return
    chain = Chain(node, target.shape, target.queue)
    inplace = -1
    for i, value in enumerate(chain.values):
        if not isinstance(value, Array) or not value.meets(target):
            continue
        is_same = value.layout[1:] == target.layout[1:] and value.layout[0].argument == target.layout[0].argument
        if is_same and value.shape == target.shape and value.dtype == target.dtype:
            inplace = i
        elif not (is_same and value.shape == target.shape and value.itemsize == target.itemsize):
            chain.values[i] = copy = value.copy()
            compute(copy)
            steps = [s if e > 1 else 0 for s, e in zip(copy.layout[2], copy.shape, strict=True)]
            chain.strides[i], chain.first[i] = [0] * (target.ndim - copy.ndim) + steps, 0
    _launch(chain, target, inplace)


def _launch(chain: Chain, target: Array, inplace: int) -> None:
    """Enqueue a kernel for all elements of the target: several where their strides cannot be those of three
    dimensions."""
    span, first, steps = target.layout
    moved = [i for i, (_, kind) in enumerate(chain.inputs) if kind != "scalar" and i != inplace]
    shape, strides = collapsed(target.shape, [list(steps), *(chain.strides[i] for i in moved)])
    begins = [first, *(chain.first[i] for i in moved)]
    is_plain = len(shape) == 1 and not any(begins) and all(s == [1] for s in strides)
    args: list[Any] = [span]
    for i, value in enumerate(chain.values):
        if i != inplace and value is not None:
            args.append(value.layout[0] if isinstance(value, Array) else value)
    outer, inner = shape[:-DIMENSIONS], shape[-DIMENSIONS:]
    columns, rows, planes = (*reversed(inner), *(1,) * (DIMENSIONS - len(inner)))
    even = min(GROUP, columns & -columns)  # (the largest work-group by which it can be divided)
    local = even if even * 8 >= GROUP else min(GROUP, 1 << (columns - 1).bit_length())
    across = -(-columns // local) * local
    form = ChainForm(tuple(chain.inputs), tuple(chain.steps), target.dtype, not is_plain, inplace)
    kernel = elementwise.kernel(form._replace(is_exact=across == columns))
    args.append(columns)
    if is_plain:
        kernel(target.queue, (across,), (local,), *args)
        return
    args.append(rows)
    for at in product(*map(range, outer)):
        numbers: list[int] = []
        for begin, mine in zip(begins, strides, strict=True):
            ahead = len(mine) - len(inner)
            numbers.append(begin + sum(x * s for x, s in zip(at, mine[:ahead], strict=True)))
            numbers += [0] * (DIMENSIONS - len(inner)) + mine[ahead:]
        kernel(target.queue, (across, rows, planes), (local, 1, 1), *args, *numbers)


def collapsed(shape: Shape, strides: Sequence[Sequence[int]]) -> tuple[Shape, list[list[int]]]:
    """Return the shape and strides of the same elements with as few dimensions as possible, at least one."""
    extents: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for a in [a for a, extent in enumerate(shape) if extent > 1]:
        if extents and all(mine[-1] == theirs[a] * shape[a] for mine, theirs in zip(steps, strides, strict=True)):
            extents[-1] *= shape[a]
            for mine, theirs in zip(steps, strides, strict=True):
                mine[-1] = theirs[a]
            continue
        extents.append(shape[a])
        for mine, theirs in zip(steps, strides, strict=True):
            mine.append(theirs[a])
    return (tuple(extents), steps) if extents else ((1,), [[1] for _ in strides])


def fold(node: ArrayOperation, target: Array) -> None:
    """Enqueue a reduction: block by block, and then the blocks, until one is left of each line."""
    operand: Any = node.operands[0]
    child = (
        operand
        if isinstance(operand, ArrayOperation)
        else ArrayOperation("convert", (operand,), (operand.dtype,), operand.dtype, operand.shape)
    )
    kept = [a for a in range(len(child.shape)) if a not in node.axes]
    chain = Chain(child, child.shape, target.queue)
    moved = [i for i, (_, kind) in enumerate(chain.inputs) if kind != "scalar"]
    order = _as_lines(child.shape, [chain.strides[i] for i in moved], node.axes)
    if order is None:  # no three dimensions: elements are put into lines first
        lines = target.queue.empty([child.shape[a] for a in (*kept, *node.axes)], child.dtype)
        run(child, lines.transpose(np.argsort([*kept, *node.axes]).tolist()))
        after = tuple(range(len(kept), len(child.shape)))
        fold(ArrayOperation(node.name, (lines,), node.loop, node.dtype, node.shape, after), target)
        return
    (outer, count, inner), strides = order
    result = target if target.layout[1:] == (0, _contiguous(target.shape)) else None
    is_met = any(isinstance(v, Array) and v.meets(target) for v in chain.values)
    if result is None or is_met:
        result = target.queue.empty(target.shape, target.dtype)
    _blocks(node, chain, moved, (outer, count, inner), strides, result)
    if result is not target:
        target[...] = result


def _blocks(
    node: ArrayOperation,
    chain: Chain,
    moved: list[int],
    shape: tuple[int, int, int],
    strides: list[list[int]],
    target: Array,
) -> None:
    outer, count, inner = shape
    queue, loop = target.queue, node.loop[0]
    inputs, steps = tuple(chain.inputs), tuple(chain.steps)
    values = [v.layout[0] if isinstance(v, Array) else v for v in chain.values if v is not None]
    begins = [chain.first[i] for i in moved]
    while True:
        columns = inner > 1
        blocks = -(-count // (GROUP if columns else GROUP * EACH))
        result = target if blocks == 1 else queue.empty(outer * blocks * inner, loop)
        natural = [count * inner, inner, 1]
        extents = (outer, count, inner)
        is_plain = not any(begins) and all(
            s == n or e == 1 for mine in strides for s, n, e in zip(mine, natural, extents, strict=True)
        )
        form = ChainForm(inputs, steps, result.dtype, not is_plain, -1, node.name, loop, columns)
        numbers = [count, blocks, *[inner] * columns]
        if not is_plain:
            for begin, mine in zip(begins, strides, strict=True):
                numbers += [begin, *mine]
        if columns:
            local = min(GROUP, 1 << (inner - 1).bit_length())
            size: tuple[int, ...] = (-(-inner // local) * local, blocks, outer)
            elementwise.kernel(form)(queue, size, (local, 1, 1), result, *values, *numbers)
        else:
            elementwise.kernel(form)(queue, (GROUP * blocks, outer), (GROUP, 1), result, *values, *numbers)
        if blocks == 1:
            return
        values, count, inputs, steps = [result], blocks, ((loop, "array"),), ()
        begins, strides = [0], [[count * inner, inner, 1]]


def _as_lines(
    shape: Shape, strides: Sequence[Sequence[int]], axes: Shape
) -> tuple[tuple[int, int, int], list[list[int]]] | None:
    """Return the same elements as three dimensions, of which the middle one has the lines that are put together; None
    where that is not possible."""
    groups: list[tuple[bool, list[int]]] = []
    for a in range(len(shape)):
        if shape[a] == 1:
            continue
        if not groups or groups[-1][0] != (a in axes):
            groups.append((a in axes, []))
        groups[-1][1].append(a)
    kinds = [reduced for reduced, _ in groups]
    if kinds.count(True) > 1 or len(groups) > DIMENSIONS:
        return None
    merged: list[tuple[int, list[int]]] = []
    for _, mine in groups:
        extents, steps = collapsed([shape[a] for a in mine], [[s[a] for a in mine] for s in strides])  # type: ignore[arg-type]
        if len(extents) != 1:
            return None
        merged.append((extents[0], [s[0] for s in steps]))
    none = (1, [0] * len(strides))
    if True not in kinds:
        merged, kinds = [*merged, none], [*kinds, True]
    at = kinds.index(True)
    before, line, behind = (merged[0] if at else none), merged[at], (merged[at + 1] if at + 1 < len(merged) else none)
    if behind is none and line[0] < GROUP < before[0]:  # many short lines: each work-item has one
        before, behind = none, before
    chosen = before, line, behind
    found = chosen[0][0], chosen[1][0], chosen[2][0]
    return found, [[part[1][i] for part in chosen] for i in range(len(strides))]


def _contiguous(shape: Shape) -> Shape:
    steps, size = [], 1
    for extent in reversed(shape):
        steps.append(size)
        size *= extent
    return tuple(steps[::-1])
