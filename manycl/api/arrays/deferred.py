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


class Number(NamedTuple):
    """A number. ``dtype``: int and float are weak types, as in NumPy 2."""

    value: Any
    dtype: DType | type
    shape: tuple[int, ...] = ()


class Index(NamedTuple):
    """Numbers that follow from where an element is: the sum of its indices, each times a step."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: DType = np.dtype(np.int64)


class ArrayOperation:
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
        self.size: int = 1 + sum([o.size for o in operands if isinstance(o, ArrayOperation)])

    def became(self, array: Array) -> None:
        """Note that an array has the contents."""
        self.name, self.operands = "", (array,)

    @property
    def computed(self) -> Array | None:
        """The array that has the contents, if there is one."""
        found = self.operands[0] if not self.name else None
        return found if isinstance(found, Array) else None


Operand = Array | Number | Index | ArrayOperation


def _nobody() -> None:
    return None


class _Write(NamedTuple):
    """A deferred write: ``node``: what is written; ``target``: where, in ``whole``, which has the buffer."""

    node: ArrayOperation
    target: Array
    whole: Array


class Deferred(Array):
    """An array that is not computed yet. It becomes an :class:`Array` when its buffer is asked for. (Its ``_owned`` is
    a node, a write, or the error that computing it has ended with.)"""

    __slots__ = ()

    @property
    def buffer(self) -> Any:  # type: ignore[override]
        return self._whole.buffer

    @property
    def argument(self) -> Any:  # type: ignore[override]
        return self._whole.argument

    @property
    def _whole(self) -> Array:
        """The array that has the buffer. (Deferred writes stay: whatever is enqueued settles them first, and who only
        looks at arrays that are in use may not enqueue anything.)"""
        pending: Any = self._owned
        if isinstance(pending, _Write):
            return pending.whole
        compute(self)
        return self

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __del__(self) -> None:
        """Do nothing: there is no buffer."""


def operand_of(array: Array) -> Array | ArrayOperation:
    """Return what a node refers to for an array: its node, if it has one, else the array."""
    if type(array) is Deferred:
        with _lock:
            pending: Any = array._owned if type(array) is Deferred else None
            if isinstance(pending, ArrayOperation):
                return pending
    compute(array.owner)
    return array


def deferred(queue: Any, node: ArrayOperation) -> Array:
    """Return an array with a node for its contents, computed at once where commands are collected."""
    queue.session.check_open()
    if node.size > MOST:
        node.operands = tuple([materialised(o, queue) if isinstance(o, ArrayOperation) else o for o in node.operands])
        node.size = 1
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


def write(target: Array, node: ArrayOperation) -> None:
    """Have a node's result written to an array, or to a view of one, in the shape that it has there."""
    queue: Any = target.queue
    whole = target.owner
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
        part = target.on(hidden)
        whole.__class__ = Deferred
        whole._owned = _Write(node, part, hidden)  # type: ignore[assignment]
        _wait(queue, whole)


def compute(array: Array) -> None:
    """Enqueue what computes an array, if that has not been done."""
    with _lock:
        if type(array) is not Deferred:
            return
        queue: Any = array.queue
        pending: Any = array._owned
        if isinstance(pending, ManyclError):
            raise anew(pending)
        left = [other for other in _waiting(queue) if other is not array]
        _keep(queue, left)
        before, queue.computing = queue.computing, threading.get_ident()
        try:
            _compute(array, pending, left)
        finally:
            queue.computing = before


def _compute(array: Array, pending: Any, left: list[Array]) -> None:
    from manycl.api.arrays.launches import run

    queue: Any = array.queue
    # (arrays have their buffers before commands are enqueued: these keep alive what they are given)
    if isinstance(pending, _Write):
        _take(array, pending.whole)
        for other in left:
            found: Any = other._owned
            node: ArrayOperation = found.node if isinstance(found, _Write) else found
            if _replace(node, pending.whole, array):
                compute(other)
        _replace(pending.node, pending.whole, array)
        run(pending.node, pending.target.on(array))
        return
    _take(array, queue.empty(array.shape, array.dtype))
    try:
        run(pending, array)
    except ManyclError as error:
        queue.session.buffers.leave(array._owned)
        array.__class__ = Deferred
        failed: Any = error
        array._owned = failed
        raise
    pending.became(array)


def _take(array: Array, other: Array) -> None:
    """Give an array the buffer of another one, which has none then."""
    array.__class__ = Array
    array._own(other._owned)
    del other._owned


def materialised(node: ArrayOperation, queue: Any) -> Array:
    """Return an array with the contents of a node."""
    waiting = node.array()
    if node.name and waiting is not None:
        compute(waiting)
    if (found := node.computed) is None:
        from manycl.api.arrays.launches import run

        array: Array = queue.empty(node.shape, node.dtype)
        run(node, array)
        node.became(array)
        return array
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


def _replace(node: ArrayOperation, whole: Array, hidden: Array) -> bool:
    """Have a node read the same elements of another array; return whether it has read the one."""
    found = [_replace(o, whole, hidden) for o in node.operands if isinstance(o, ArrayOperation)]  # (all of them)
    mine = [isinstance(o, Array) and o.owner is whole for o in node.operands]
    if any(mine):
        pairs = zip(node.operands, mine, strict=True)
        node.operands = tuple([o.on(hidden) if m and isinstance(o, Array) else o for o, m in pairs])
    return any(found) or any(mine)
