"""The command log of an eager stream, where there is no compiled one (:mod:`manycl.api.dispatch.compiled`)."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.drivers.driver import Event
from manycl.graph.graph import Argument, BufferKey, DeviceTask
from manycl.run.commands.flow_control import PART

Given = tuple[DeviceTask, Sequence[Argument] | None, Event]
"""A command: its node, or one like it; its own arguments where they may differ from that node's; its event."""


class CommandLog(list[Given]):
    """The commands that a device was given. ``ahead``: the predicted seconds of what is not known to be complete;
    beyond ``limit``, the stream is to be paced. ``is_open``: more may be given."""

    __slots__ = ("ahead", "is_open", "limit")

    def __init__(self) -> None:
        super().__init__()
        self.ahead, self.limit, self.is_open = 0.0, PART, True

    def begin(self, written: set[BufferKey]) -> None:
        """Note that another batch begins, the keys of whose written buffers come into a set."""
