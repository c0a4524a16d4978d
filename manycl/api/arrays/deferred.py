"""Deferred operations: arrays whose contents are computed when somebody needs them, so that a chain of operations
becomes one kernel.

An array that is the result of an operation has a node in place of a buffer. Nodes refer to what they read: arrays,
numbers and other nodes. A node whose array somebody still has is computed once, into that array; one of which only
another node knows becomes a part of the other's kernel. A write into an array is deferred as well: the array is
deferred then, and its buffer is a hidden array's until the write is enqueued. Whatever else is enqueued on the queue
comes behind all deferred operations (``Queue.settle``), so none of them sees what was written after it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from manycl.api.arrays.arrays import Array
from manycl.errors import ManyclError, anew

DType = np.dtype[Any]

MOST = 24
"""Operations of a kernel, and deferred arrays of a queue, at most; our own choice: a kernel's text stays short, and its
arguments few."""
_lock = threading.RLock()  # of all nodes


class Scalar(NamedTuple):
    """A number. ``dtype``: int and float are weak types, as in NumPy 2."""

    value: Any
    dtype: DType | type
    shape: tuple[int, ...] = ()


class Index(NamedTuple):
    """Numbers that follow from where an element is: the sum of its indices, each times a step."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: DType = np.dtype(np.int64)


class Node:
    """An operation on operands, which are converted to the types ``loop``; its result has a shape and a type. ``fold``:
    how elements along the dimensions ``axes`` of the only operand are put together, in the type ``loop``. ``array``: a
    weak reference to the array that it is the contents of. ``size``: operations that the kernel has."""

    __slots__ = ("array", "axes", "dtype", "fold", "loop", "name", "operands", "shape", "size")

    def __init__(
        self,
        name: str,
        operands: tuple[Operand, ...],
        loop: tuple[DType, ...],
        dtype: DType,
        shape: tuple[int, ...],
        axes: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.loop = loop
        self.dtype = dtype
        self.shape = shape
        self.axes = axes
        self.array: Any = _nobody
        self.operands = operands
        self.size = 1 + sum([o.size for o in operands if isinstance(o, Node)])
        if self.size > MOST:
            self.operands = tuple([materialised(o) if isinstance(o, Node) else o for o in operands])
            self.size = 1


    def became(self, array: Array) -> None:
        """Note that an array has the contents."""
        self.name, self.operands = "", (array,)

    @property
    def computed(self) -> Array | None:
        """The array that has the contents, if there is one."""
        found: Any = self.operands[0] if not self.name else None
        return found


Operand = Array | Scalar | Index | Node


def _nobody() -> None:
    return None


class _Write(NamedTuple):
    """A deferred write: ``node``: what is written; ``target``: where, in ``whole``, which has the buffer."""

    node: Node
    target: Array
    whole: Array


class Deferred(Array):
    """An array that is not computed yet. It becomes an :class:`Array` when its buffer is asked for. (Its ``_owned`` is
    a node, a write, or the error that computing it has ended with.)"""

    __slots__ = ()

    @property
    def buffer(self) -> Any:  # type: ignore[override]
        compute(self)
        return self.buffer

    @property
    def argument(self) -> Any:  # type: ignore[override]
        compute(self)
        return self.argument

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __del__(self) -> None:
        """Do nothing: there is no buffer."""


def operand_of(array: Array) -> Array | Node:
    """Return what a node refers to for an array: its node, if it has one, else the array."""
    if type(array) is Deferred:
        with _lock:
            pending: Any = array._owned if type(array) is Deferred else None
            if isinstance(pending, Node):
                return pending
        compute(array)
    return array


def deferred(queue: Any, node: Node) -> Array:
    """Return an array with a node for its contents, computed at once where commands are collected."""
    queue.session.check_open()
    if queue.is_collecting:
        from manycl.api.arrays.launches import run

        array: Array = queue.empty(node.shape, node.dtype)
        run(node, array)
        return array
    array = Deferred.__new__(Deferred)
    array.queue, array.shape, array.dtype = queue, node.shape, node.dtype
    array._owned = node  # type: ignore[assignment]
    node.array = ref(array)
    _wait(queue, array)
    return array


def write(target: Array, node: Node) -> None:
    """Have a node's result written to an array, or to a view of one, in the shape that it has there."""
    queue, whole = target.queue, target.owner
    if not target.size:
        return
    compute(whole)
    if queue.is_collecting:
        from manycl.api.arrays.launches import run

        run(node, target)
        return
    with _lock:
        hidden = Array.__new__(Array)
        hidden.queue, hidden.shape, hidden.dtype = whole.queue, whole.shape, whole.dtype
        hidden._own(whole._owned)
        for other in _waiting(queue):
            pending: Any = other._owned
            _replace(pending.node if isinstance(pending, _Write) else pending, whole, hidden)
        _replace(node, whole, hidden)
        part = hidden if target is whole else target.on(hidden)
        whole.__class__ = Deferred
        whole._owned = _Write(node, part, hidden)  # type: ignore[assignment]
        _wait(queue, whole)


def compute(array: Array) -> None:
    """Enqueue what computes an array, if that has not been done."""
    with _lock:
        if type(array) is not Deferred:
            return
        queue, pending = array.queue, array._owned
        if isinstance(pending, ManyclError):
            raise anew(pending)
        left = [other for other in _waiting(queue) if other is not array]
        _keep(queue, left)
        before, queue.computing = queue.computing, threading.get_ident()
        try:
            _compute(array, pending, left)
        except ManyclError as error:
            if type(array) is Deferred and isinstance(array._owned, Node):
                array._owned = error  # type: ignore[assignment]
            raise
        finally:
            queue.computing = before


def _compute(array: Array, pending: Any, left: list[Array]) -> None:
    from manycl.api.arrays.launches import run

    if isinstance(pending, Node):
        target = array.queue.empty(array.shape, array.dtype)
        run(pending, target)
        _take(array, target)
        pending.became(array)
        return
    try:
        for other in left:
            found: Any = other._owned
            if type(other) is Deferred and _reads(found.node if isinstance(found, _Write) else found, pending.whole):
                compute(other)
        run(pending.node, pending.target)
    finally:
        _take(array, pending.whole)


def _take(array: Array, other: Array) -> None:
    """Give an array the buffer of another one, which has none then."""
    array.__class__ = Array
    array._own(other._owned)
    del other._owned


def materialised(node: Node) -> Array:
    """Return an array with the contents of a node."""
    waiting = node.array()
    if node.name and waiting is not None:
        compute(waiting)
    if (found := node.computed) is None:
        from manycl.api.arrays.launches import run

        queue = next(o.queue for o in _leaves(node) if isinstance(o, Array))
        found = queue.empty(node.shape, node.dtype)
        run(node, found)
        node.became(found)
    return found


def settle(queue: Any) -> None:
    """Enqueue all deferred operations of a queue."""
    if queue.computing == threading.get_ident():
        return
    with _lock:
        for array in _waiting(queue):
            compute(array)
        _keep(queue, _waiting(queue))


def _keep(queue: Any, left: list[Array]) -> None:
    """Note which deferred arrays there are. The launch cache is not asked while there are some, as compiled code would
    not settle."""
    queue.deferred[:] = [ref(other) for other in left]
    if not left and queue.resting is not None:
        queue.resting.update(queue.launches)
        queue.launches, queue.resting = queue.resting, None


def _wait(queue: Any, array: Array) -> None:
    with _lock:
        if queue.resting is None:
            queue.resting, queue.launches = queue.launches, {}
        queue.deferred.append(ref(array))
        if len(queue.deferred) > MOST:
            alive = _waiting(queue)
            _keep(queue, alive)
            if len(alive) > MOST // 2:
                for other in alive[: MOST // 2]:
                    compute(other)


def _waiting(queue: Any) -> list[Array]:
    return [array for r in queue.deferred if (array := r()) is not None and type(array) is Deferred]


def _leaves(node: Node) -> Iterator[Operand]:
    for operand in node.operands:
        if isinstance(operand, Node):
            yield from _leaves(operand)
        else:
            yield operand


def _reads(node: Node, whole: Array) -> bool:
    return any(isinstance(o, Array) and o.owner is whole for o in _leaves(node))


def _replace(node: Node, whole: Array, hidden: Array) -> None:
    """Have a node read the same elements of another array."""
    for operand in node.operands:
        if isinstance(operand, Node):
            _replace(operand, whole, hidden)
    node.operands = tuple(
        [
            (hidden if o is whole else o.on(hidden)) if isinstance(o, Array) and o.owner is whole else o
            for o in node.operands
        ]
    )


