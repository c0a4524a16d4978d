"""Opening the workers of a Dask cluster as the devices of one machine."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import math
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any, NoReturn
from urllib.parse import urlsplit

import distributed
import numpy as np

from manycl.cluster.commands import NodeDevices
from manycl.cluster.dask_client import DaskClient
from manycl.cluster.driver import NodeDriver
from manycl.cluster.link import NodeLink
from manycl.cluster.node import NodePlugin
from manycl.drivers.choice import OpenDevice, Opened, joined
from manycl.drivers.driver import Driver, DriverError, End, Handle
from manycl.drivers.survey import in_use, refuse_forked
from manycl.errors import DeviceError
from manycl.machine import HOST, Device, Link, Machine
from manycl.region import Rectangle
from manycl.run.data.host_memory import ram_bytes

_ROUNDS = 8
"""Questions by which the latency of a connection is measured."""
_PATIENCE = 10.0
"""Seconds in which a scheduler has to answer."""
_NBYTES = 1 << 18
"""Bytes by which its bandwidth is."""


class Nodes:
    """The nodes of a session. ``session``: what they know it by; ``tags``: numbers of exchanges, of which each has its
    own."""

    def __init__(self, client: DaskClient, addresses: Sequence[str]) -> None:
        self.client, self.session = client, uuid.uuid4().hex
        self.tags = itertools.count(1)
        self.links = [
            NodeLink(client, address, f"node{place}", self._losing(place), self._unreached(place))
            for place, address in enumerate(addresses)
        ]

    async def open(self) -> list[dict[str, Any]]:
        """Return what the nodes say that they are. Raises DeviceError."""
        addresses = [link.address for link in self.links]
        opening = [link.open(self.session, place, addresses) for place, link in enumerate(self.links)]
        found = await asyncio.gather(*opening, return_exceptions=True)
        faults = [one for one in found if isinstance(one, BaseException)]
        if faults:
            for link, one in zip(self.links, found, strict=True):
                if not isinstance(one, BaseException):
                    link.end()
            raise faults[0]
        return [one for one in found if not isinstance(one, BaseException)]

    def flush(self) -> None:
        """Send what is held back for any node."""
        for link in self.links:
            link.flush()

    def _losing(self, place: int) -> Callable[[str], None]:
        def lost(words: str) -> None:
            for other in self.links:
                other.lose(place, words)

        return lost

    def _unreached(self, place: int) -> Callable[[int, str], None]:
        def unreachable(other: int, words: str) -> None:
            said = f"{self.links[place].name} and {self.links[other].name} cannot reach each other: {words}"
            self.links[other].lose(place, said)

        return unreachable


class NodeHandle(Handle):
    """The node that is number ``place``."""

    resources = frozenset[str]()
    compute_units = 1

    @property
    def cl(self) -> NoReturn:
        """PyOpenCL's device. Raises DriverError: there is none in this process."""
        raise DriverError("a node's devices are those of other processes")

    def __init__(self, nodes: Nodes, place: int) -> None:
        self._nodes, self._place = nodes, place

    def shares_host_memory(self) -> bool:
        return False

    def can_copy(self, other: Handle) -> bool:
        return isinstance(other, NodeHandle)

    waits_for = can_copy

    def divide(self, division: tuple[int, ...]) -> Sequence[Handle]:
        raise DriverError("a node divides its work over its devices itself")

    def open(self, device: Device) -> Driver:
        return NodeDriver(device, self._nodes, self._place)


@contextmanager
def connected(address: str) -> Iterator[DaskClient]:
    """Have a Dask client of the scheduler at an address. Raises DeviceError where there is none."""
    try:
        client = distributed.Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise DeviceError(f"no Dask scheduler can be reached at {address}: {error}") from None
    with client:
        yield client


def opened(client: DaskClient, make: Callable[[], NodeDevices]) -> Opened:
    """Return the workers that a Dask client's cluster has now as devices. ``make``: opens a worker's own devices; it is
    called there. Raises DeviceError."""
    refuse_forked()
    if client.asynchronous:
        raise DeviceError("an asynchronous Dask client cannot be used", hint="Client(address), without asynchronous")
    _warn_of_openness(client)
    client.register_plugin(NodePlugin(make))
    workers: dict[str, dict[str, Any]] = client.run(_about)
    if not workers:
        raise DeviceError("the Dask cluster has no worker", hint="client.wait_for_workers(1)")
    addresses = sorted(workers)
    nodes = Nodes(client, addresses)
    found: list[dict[str, Any]] = client.sync(nodes.open)
    in_use()
    devices = []
    for place, (address, fields) in enumerate(zip(addresses, found, strict=True)):
        link, about = nodes.links[place], workers[address]
        link.measure(_ROUNDS)
        device = Device(
            name=link.name,
            kind="node",
            platform="Dask",
            memory=1 + place,
            global_memory=about["memory"],
            max_allocation=about["memory"],
            launch_overhead=link.latency,
            **fields,
        )
        devices.append(OpenDevice(device, NodeHandle(nodes, place)))
    machine, found_devices = joined(devices)
    return Opened(replace(machine, links=_links(machine, [one.open() for one in found_devices])), found_devices)


def _links(machine: Machine, drivers: Sequence[Driver]) -> tuple[Link, ...]:
    """Return a machine's links as they are measured between the client and its nodes. Between two nodes the slower of
    their links is taken for theirs: a measurement of each pair would take longer than most runs."""
    ways = {HOST: (math.inf, 0.0)}
    for driver in drivers:
        assert isinstance(driver, NodeDriver)
        memory, queue, host = driver.allocate(_NBYTES), driver.queue(False), np.zeros(_NBYTES, np.uint8)
        ends, rows, taken = (End(memory), End(host)), (Rectangle(0, _NBYTES),), []
        for target, source in (ends, *2 * (ends, ends[::-1])):  # the first one allocates
            begin = perf_counter()
            (event,) = driver.copy(queue, target, source, rows, ())
            driver.flush(queue)
            driver.wait(event)
            taken.append(perf_counter() - begin)
        driver.free(memory)
        latency = driver.link.latency
        ways[driver.device.memory] = _NBYTES / max(min(taken) - 2 * latency, min(taken) / 2), latency
    both = [(x, ways[x.source], ways[x.target]) for x in machine.links]
    return tuple(replace(x, bandwidth=min(a[0], b[0]), latency=max(a[1], b[1])) for x, a, b in both)


def _about(dask_worker: Any) -> dict[str, Any]:
    """Return what is known of a worker before its devices are open; called there."""
    limit = dask_worker.memory_manager.memory_limit
    return {"memory": int(min(limit or ram_bytes(), ram_bytes()))}


def _warn_of_openness(client: DaskClient) -> None:
    """Warn of a scheduler that others can reach, and hear, as its connections are not encrypted."""
    address = str(client.scheduler.address)
    where = urlsplit(address)
    if where.scheme not in ("tcp", "ws"):
        return
    try:
        is_here = ipaddress.ip_address(where.hostname or "").is_loopback
    except ValueError:
        is_here = where.hostname == "localhost"
    if not is_here:
        warnings.warn(
            f"the Dask scheduler at {address} is not on this machine's loopback, and its connections are not encrypted:"
            " whoever can reach it can run code on its workers, and read and change what they are sent"
            " (dask.distributed's Security has TLS)",
            RuntimeWarning,
            stacklevel=4,
        )
