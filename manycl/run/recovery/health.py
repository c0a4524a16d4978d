"""Health of devices: those that fail for good are left out of later runs and all policies."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from manycl.drivers.choice import joined
from manycl.errors import DeviceError
from manycl.run.executor.lanes import Lanes
from manycl.utilities.logs import logger

if TYPE_CHECKING:
    from manycl.run.data.coherence import Directory
    from manycl.run.session.device_set import DeviceSet

log = logger(__name__)


def examine(devices: DeviceSet, directory: Directory) -> None:
    """Ask every device, after a failure, to allocate a few bytes, and leave out those that fail. What an eager stream
    has been given ends first: devices and memories get other numbers."""
    devices.end_stream()
    found = {lanes.device.name: reason for lanes in devices.backend.lanes if (reason := lanes.probe())}
    if not found:
        return
    devices.excluded.update(found)
    lost = arrange(devices, directory)
    for name, reason in found.items():
        left = ", ".join(d.name for d in devices.machine.devices) or "none"
        words = f"; lost with it: {', '.join(lost)}" if lost else ""
        said = f"{name} does not work any more ({reason}) and is left out; devices that are left: {left}{words}"
        log.warning("%s", said)
        warnings.warn(said, RuntimeWarning, stacklevel=2)


def admit(devices: DeviceSet, directory: Directory, name: str) -> None:
    """Use a device again that was left out, from a new context on, which it has alone: what those share that it was
    used with may be damaged for it. Raises DeviceError if it still does not work."""
    if name not in devices.excluded:
        raise DeviceError(f"{name} was not left out", hint=f"left out are: {', '.join(devices.excluded) or 'none'}")
    renewed = [o if o.device.name != name else replace(o, handle=o.handle.among({})) for o in devices.opened]
    everything, opened = joined(renewed)
    lanes = Lanes(next(o for o in opened if o.device.name == name).open(), devices.backend.profile)
    if reason := lanes.probe():
        lanes.release()
        raise DeviceError(f"{name} still does not work: {reason}")
    del devices.excluded[name]
    devices.everything, devices.opened = everything, opened
    arrange(devices, directory, lanes)
    log.info("%s is used again", name)


def arrange(devices: DeviceSet, directory: Directory, new: Lanes | None = None) -> list[str]:
    """Rearrange a session to its devices less those that are left out. Return the names of buffers whose contents
    were nowhere else."""
    with suppress(Exception):  # a failure to learn from a failed run is not worth another error
        devices.learn()
    before, names = devices.machine, [o.device.name for o in devices.opened if o.device.name not in devices.excluded]
    lanes = {x.device.name: x for x in devices.backend.lanes}
    if new is not None:
        lanes[new.device.name] = new
    after = devices.restrict(names)
    numbers = {0: 0} | {d.memory: a.memory for d in before.devices for a in after.devices if a.name == d.name}
    lost = sorted(directory.renumber(numbers))
    devices.backend.rearrange(after, [lanes[name] for name in names])
    reasons = "; ".join(f"{name}: {reason}" for name, reason in devices.excluded.items())
    for key in lost:
        directory.lose(key, f"they were only on a device that has failed for good ({reasons})")
    return [devices.backend.memory.name(key) for key in lost]
