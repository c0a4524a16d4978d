"""The part of a queue that knows its devices, and which operations on arrays are deferred."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from manycl.run.recovery.device_events import DeviceEvents, DeviceLeaves

if TYPE_CHECKING:  # run/ loads drivers: it is imported when a queue opens devices
    from manycl.api.submission import Submission
    from manycl.run.session.session import Session


class DeferringQueue:
    """The base class of queues. ``deferred``: weak references to arrays that are not computed yet; ``resting``: the
    launch cache, while there are some; ``computing``: the id of the thread that enqueues what computes them."""

    __slots__ = ()
    session: Session
    enqueued: Submission
    preparing: dict[int, Submission]
    deferred: list[Any]
    resting: dict[object, Any] | None
    computing: int

    @property
    def is_collecting(self) -> bool:
        """True while commands are collected for later, or for a task component: operations are not deferred."""
        return bool(self.preparing) or self.enqueued.is_in_component

    def settle(self) -> None:
        """Enqueue the operations on arrays that are deferred: what comes now may change what they read."""
        if self.deferred:
            from manycl.api.arrays.deferred import settle

            settle(self)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices."""
        return tuple(d.name for d in self.session.machine.devices)

    @property
    def excluded(self) -> dict[str, str]:
        """The devices that have failed for good and are left out, and what was wrong with each."""
        return dict(self.session.devices.excluded)

    @property
    def device_events(self) -> DeviceEvents:
        """The session's device events, by which any thread reports devices that leave and come."""
        return self.session.devices.events

    @property
    def away(self) -> Mapping[str, DeviceLeaves]:
        """The devices that have left, and how."""
        return self.session.devices.events.away
