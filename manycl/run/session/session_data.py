"""The data of a session: its buffers, where they are valid, and what is kept for graphs that run again."""

from __future__ import annotations

from collections import deque

from manycl.graph.graph import BufferKey, Graph
from manycl.plan.merging import Merging
from manycl.run.data.buffers import Buffers
from manycl.run.data.coherence import Directory
from manycl.run.graph_cache.lowering_cache import LoweringCache
from manycl.run.session.device_set import DeviceSet
from manycl.utilities.kept import PLANS


class SessionData:
    """The data on ``devices``. ``merging``: when results of launches' parts are written to the host's memory;
    ``as_planned``: static plans run as they are (:class:`manycl.plan.problem.Problem`); ``checkpoint``: as of a
    :class:`~manycl.run.session.session.Session`."""

    def __init__(self, devices: DeviceSet, merging: Merging, as_planned: bool = False, checkpoint: int = 0) -> None:
        memory = devices.backend.memory
        self.merging: Merging = merging
        self.as_planned, self.checkpoint = as_planned, checkpoint
        self.directory = Directory(memory.name)
        self.buffers = Buffers(devices, self.directory)
        self.steps = LoweringCache(memory, self.buffers.discard)
        """The steps of plans that have run."""
        self.unneeded: deque[tuple[Graph, frozenset[BufferKey]]] = deque(maxlen=PLANS)
        """For graphs that have run: the buffers whose contents no node reads before it overwrites them."""
