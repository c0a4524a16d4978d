"""Room for a run in the devices' memories: buffers that the run does not use are evicted, largest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manycl.errors import RunError
from manycl.graph.graph import BufferArg, BufferKey, HostTask
from manycl.machine import HOST, HOST_BIT, DeviceIndex
from manycl.run.lowering.steps import Lowered

if TYPE_CHECKING:
    from manycl.run.engine.playback import Playback
    from manycl.run.session.device_set import DeviceSet
    from manycl.run.session.session_data import SessionData


def make_room(devices: DeviceSet, data: SessionData, lowered: Lowered, state: Playback) -> None:
    """Evict buffers of earlier runs where a device with memory of its own would not hold all that a run needs there.
    From a device that cannot hold all of the run in any case, every buffer is evicted that the run does not find valid
    there: the run keeps track of the rest itself. ``state.full`` gets the devices that may have too little room. Raises
    RunError where the run's own buffers do not fit."""
    memory = devices.backend.memory
    for limited in state.limited:
        for key in memory.allocated(limited).keys() - state.held(limited):
            if key in state.buffers:
                memory.evict(key, limited)
            else:
                data.buffers.evict(key, devices.machine.devices[limited].memory)
    limits = lowered.room.limits if lowered.room is not None else {}
    sizes = {b.key: b.nbytes for b in (*lowered.graph.buffers.values(), *lowered.temporaries)}
    total = sum(sizes.values())
    for index, device in devices.machine.numbered():
        if device.memory == HOST or not state.queues[index] or index in limits:
            continue
        held = memory.allocated(index)
        if sum(held.values()) + total <= device.global_memory:
            continue  # nearly always
        state.full |= {index}
        wanted = _used(lowered, index)
        needed = sum(memory.nbytes(key) for key in wanted)
        if needed > device.global_memory:
            raise RunError(
                f"the run needs {needed:,} bytes of buffers on {device.name}, which has {device.global_memory:,}",
                hint="run it in parts, use more devices, or smaller arrays: a run's buffers stay where it uses them",
            )
        over = sum(n for key, n in held.items() if key not in wanted) + needed - device.global_memory
        for key, nbytes in sorted(held.items(), key=lambda item: -item[1]):
            if over > 0 and key not in wanted:
                _evict_pieces(devices, data, lowered, key, device.memory)
                data.buffers.evict(key, device.memory)
                over -= nbytes


def _evict_pieces(devices: DeviceSet, data: SessionData, lowered: Lowered, key: BufferKey, memory: int) -> None:
    """Evict a buffer whose pieces the directory keeps track of now, because other devices use it in this run."""
    valid = data.directory.valid
    for piece, region in lowered.cut.get(key, {}).items():
        mask = valid.get(piece, 0)
        if mask == 1 << memory:
            devices.backend.move(key, [(memory, region)])
            mask |= HOST_BIT
        if mask:
            valid[piece] = mask & ~(1 << memory)


def _used(lowered: Lowered, device: DeviceIndex) -> set[BufferKey]:
    """Return the buffers that a run's launches use on a device; all where devices are chosen in the run."""
    nodes = lowered.graph.nodes
    plan = lowered.plan
    mine = range(len(nodes)) if plan is None else [a.node for a in plan.assignments if a.device == device]
    tasks = (nodes[n] for n in mine)
    return {a.key for t in tasks if not isinstance(t, HostTask) for a in t.args if isinstance(a, BufferArg)}
