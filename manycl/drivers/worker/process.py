"""A worker process: it opens a device, and does with it what another process asks for. One thread reads what is asked
and gives it to the device's driver; each queue has a thread that waits for its commands and tells of their ends. When
the other process is gone, so is this one, at once, whatever the device does."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from manycl.device_syntax import parse
from manycl.drivers import last_words
from manycl.drivers.choice import choose, open_devices
from manycl.drivers.driver import BuildError, Driver, DriverError, End, Event, Program, Queue, Source
from manycl.drivers.survey import survey
from manycl.drivers.worker import messages as m
from manycl.drivers.worker import progress
from manycl.drivers.worker.ends import Ends
from manycl.drivers.worker.messages import Channel
from manycl.drivers.worker.things import HostedThings, words
from manycl.errors import ManyclError
from manycl.graph.graph import LocalArg
from manycl.machine import HOST
from manycl.region import Rectangle
from manycl.utilities.kept import Kept
from manycl.utilities.prompt import be_prompt

_PROGRAMS = 256  # of a device


class Warm:
    """The opened devices and the programs, by their texts, that a worker process keeps from one client to the next."""

    def __init__(self) -> None:
        self._drivers: dict[str, Driver] = {}
        self._programs: dict[int, Kept[Source, Program]] = {}
        self._queues: dict[tuple[int, bool], list[Queue]] = {}

    @staticmethod
    def key(selection: str, own: bool) -> str:
        """Return the key that a device is kept under."""
        return f"{selection} own" if own else selection

    @property
    def devices(self) -> list[str]:
        """Return the open devices that no client has."""
        return list(self._drivers)

    def driver(self, selection: str, name: str, own: bool) -> Driver:
        """The device that a selection means, opened. Raises DeviceError."""
        kept = self._drivers.pop(self.key(selection, own), None)
        if kept is not None:
            return kept
        machine, opened = open_devices(selection)
        if len(opened) != 1:
            raise DriverError(f"{selection} means {len(opened)} devices")
        device = machine.devices[0]
        if device.memory != HOST and not own:
            raise DriverError(f"{name} does not compute in the host's memory")
        memory = HOST + 1 if own else HOST
        return replace(opened[0], device=replace(device, name=name, memory=memory)).open()

    def give_back(self, key: str, driver: Driver) -> None:
        """Take a driver back that nobody uses any more."""
        driver.finish()
        self._drivers[key] = driver

    def program(self, driver: Driver, source: Source) -> Program:
        """Raises BuildError. What a text includes may have changed."""
        if "include" in source.text:
            return driver.build(source)
        programs = self._programs.setdefault(id(driver), Kept(_PROGRAMS))
        found = programs.get(source)
        return programs.keep(source, driver.build(source)) if found is None else found

    def queue(self, driver: Driver, timed: bool) -> Queue:
        """One that is empty: drivers keep the queues that they have made."""
        waiting = self._queues.get((id(driver), timed))
        return waiting.pop() if waiting else driver.queue(timed)

    def put_away(self, driver: Driver, timed: bool, queue: Queue) -> None:
        """Keep a queue in which nothing is under way any more."""
        self._queues.setdefault((id(driver), timed), []).append(queue)


_BUILDERS = 4  # threads


class _HostedKernel:
    """``wrong``: what arguments could not be set to, in words, by their number."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.wrong: dict[int, str] = {}


class Hosted(HostedThings):
    """The client's things here, all of them; it calls the public functions but ``serve`` and ``close``. ``warm``: what
    is kept for the next one."""

    QUESTIONS = frozenset({"open", "memory", "program", "kernel", "queue", "clock"})
    """What is answered with the value that its function returns, or with its error."""
    COMMANDS = frozenset({"launch", "copy", "fill"})
    """What is given to a queue of the device: its function returns the events."""
    NOTES = frozenset({"hello", "part", "free", "drop"})
    """What is done without an answer."""

    def __init__(self, channel: Channel, warm: Warm) -> None:
        super().__init__()
        self._channel = channel
        self._warm = warm
        self._shared: mmap.mmap | None = None
        self._driver: Driver | None = None
        self._opened = ""
        self._queues: dict[int, Ends] = {}
        self._news = threading.Condition()
        self._builders = ThreadPoolExecutor(_BUILDERS, "manycl-build")

    @property
    def device(self) -> Driver:
        if self._driver is None:
            raise DriverError("no device is open")
        return self._driver

    def serve(self) -> bool:
        """Serve until the client has said goodbye, or is gone; return whether nothing of it is under way."""
        try:
            while True:
                for name, *given in self._channel.receive():
                    if name == "program":  # it takes long
                        self._builders.submit(self._answer, name, *given)
                    elif name in self.QUESTIONS:
                        self._answer(name, *given)
                    elif name in self.COMMANDS:
                        self._command(name, *given)
                    elif name in self.NOTES:
                        getattr(self, name)(*given)
                    else:  # "bye", or nonsense
                        return self._is_settled()
                for queue in self._queues.values():
                    queue.flush()
        except (EOFError, OSError, ManyclError, KeyError, TypeError, ValueError):
            return self._is_settled()

    def close(self) -> None:
        """Drop all of the client but the connection, whose end tells it so."""
        self._builders.shutdown()
        for queue in self._queues.values():
            queue.close()
            self._warm.put_away(self.device, queue.timed, queue.queue)
        for memory in self._memory.values():
            with suppress(DriverError):
                self.device.free(memory)
        for table in (self._memory, self._programs, self._kernels, self._queues):
            table.clear()
        if self._driver is not None:
            self._warm.give_back(self._opened, self._driver)
        self._shared = None

    def _is_settled(self) -> bool:
        return all(queue.is_settled() for queue in self._queues.values())

    def _answer(self, name: str, reply: int, *given: Any) -> None:
        try:
            self._send("reply", reply, getattr(self, name)(*given), None, False)
        except Exception as error:
            self._send("reply", reply, None, words(error), isinstance(error, BuildError))

    def _send(self, *message: Any) -> None:
        with suppress(OSError):  # it is gone, which the reader hears
            self._channel.call(*message)

    # what is asked once

    def hello(self, version: int, nbytes: int) -> None:
        """The first call. Descriptors come with it: of the memory that both share, which has ``nbytes``, of what
        kernels print to (standard output, standard error), and of what is told of faults."""
        if version != m.VERSION:
            raise m.ProtocolError(f"version {version} of the protocol is asked for, this one is {m.VERSION}")
        descriptor, *outputs, words = self._channel.descriptors
        self._channel.descriptors.clear()
        self._shared = mmap.mmap(descriptor, nbytes)
        os.close(descriptor)
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
            os.close(output)
        if last_words.sink.value != 2:  # another client's
            os.close(last_words.sink.value)
        last_words.sink.value = words

    def open(self, selection: str, name: str, own: bool) -> None:
        """``selection`` means one device; ``own``: it is to have a memory of its own. ``name``: what messages call
        it."""
        self._driver = self._warm.driver(selection, name, own)
        self._opened = self._warm.key(selection, own)

    def clock(self) -> float | None:
        return self.device.clock()

    def memory(self, number: int, nbytes: int, offset: int | None) -> None:
        """``offset``: of host memory that becomes the device's (None: new memory)."""
        host = None if offset is None else self._host(offset, nbytes)
        self._memory[number] = self.device.allocate(nbytes, host)

    def free(self, number: int) -> None:
        """Free memory that nothing under way uses."""
        memory = self._memory.pop(number, None)
        if memory is not None and not isinstance(memory, DriverError):
            self.device.free(memory)

    def program(self, number: int, text: str, options: Sequence[str], path: str) -> None:
        self._programs[number] = self._warm.program(self.device, Source(text, tuple(options), path))

    def kernel(self, number: int, program: int, name: str) -> int:
        """The work-items that a work-group of it may have."""
        kernel = self.device.kernel(self._programs[program], name)
        self._kernels[number] = _HostedKernel(kernel)
        return kernel.most_items

    def queue(self, number: int, timed: bool, place: int) -> None:
        """``place``: where in host memory its progress is (:mod:`manycl.drivers.worker.progress`)."""
        queue, words = self._warm.queue(self.device, timed), self._host(place, 8 * progress.WORDS).view(np.uint64)
        self._queues[number] = Ends(self.device, queue, number, timed, self._send, self._news, words)

    # commands

    def _command(self, name: str, number: int, command: int, after: m.Waits, *given: Any) -> None:
        queue = self._queues[number]
        try:
            events = getattr(self, name)(queue.queue, after, *given)
            queue.given(command, events, [(self._queues[q], n) for q, n in after if q in self._queues])
        except Exception as error:
            queue.refused(command, words(error))

    def launch(
        self,
        queue: Queue,
        after: m.Waits,
        number: int,
        sets: Sequence[tuple[int, m.Value]],
        global_size: Sequence[int],
        *sizes: Sequence[int] | None,
    ) -> Sequence[Event]:
        """``sets``: arguments that have changed since the last launch of the kernel, and their values; ``sizes``: the
        work-groups', and the offset."""
        kernel = self._kernels[number]
        self._set(kernel, sets)  # also where it cannot be enqueued: they are not told again
        local, offset = (None if size is None else tuple(size) for size in sizes)
        return [self.device.launch(queue, kernel.kernel, tuple(global_size), local, offset, self._after(after) or None)]

    def copy(
        self, queue: Queue, after: m.Waits, target: m.Place, source: m.Place, rectangles: Sequence[Sequence[int]]
    ) -> Sequence[Event]:
        ends = self._end(target), self._end(source)
        return self.device.copy(queue, *ends, [Rectangle(*rect) for rect in rectangles], self._after(after))

    def fill(
        self, queue: Queue, after: m.Waits, number: int, pattern: str, offset: int, nbytes: int
    ) -> Sequence[Event]:
        """``pattern`` in hexadecimal digits."""
        what = self.of(number), bytes.fromhex(pattern), offset, nbytes
        return [self.device.fill(queue, *what, self._after(after))]

    def _set(self, kernel: _HostedKernel, sets: Sequence[tuple[int, Any]]) -> None:
        """Set all of them; then raise DriverError if one could not be set, now or before."""
        for index, value in sets:
            try:
                kernel.kernel.set(index, self._value(value))
                kernel.wrong.pop(index, None)
            except Exception as error:
                kernel.wrong[index] = words(error)
        if kernel.wrong:
            raise DriverError(next(iter(kernel.wrong.values())))

    def _value(self, value: Any) -> Any:
        if isinstance(value, int):
            return self.of(value)
        return LocalArg(value["local"]) if isinstance(value, dict) else bytes.fromhex(value[0])

    def _after(self, waits: m.Waits) -> list[Event]:
        """The events of commands. Raises DriverError if one has failed."""
        found = [self._queues[queue].event(number) for queue, number in waits if queue in self._queues]
        return [event for event in found if event is not None]

    def _end(self, place: m.Place) -> End:
        number, first, *rest = place
        return End(self._host(first, rest[0])) if number is None else End(self.of(number), first)

    def _host(self, offset: int, nbytes: int) -> Any:
        assert self._shared is not None
        return np.frombuffer(self._shared, np.uint8, nbytes, offset)


def serve_clients(descriptor: int) -> None:
    """Run a process of the service, which has a connection to that: serve one client after another, until one has left
    the device at work, or the service has ended. It tells by ``idle(devices)`` that it has no client, and what it has
    open; ``take()`` comes with the connection to a client."""
    _prepare()
    control, warm, frozen = Channel(socket.socket(fileno=descriptor)), Warm(), 0
    with suppress(EOFError, OSError, m.ProtocolError):
        with suppress(ManyclError):
            survey()
        gc.freeze()  # what has been loaded stays: to look through it for each client takes 20 ms
        control.call("idle", ())
        while True:
            for name, *given in control.receive():
                if name == "machine":
                    control.call("reply", *_machine(*given))
                elif name == "take":
                    client = Channel(socket.socket(fileno=control.descriptors.pop(0)))
                    hosted = Hosted(client, warm)
                    if not hosted.serve():
                        os._exit(0)  # what is left at work ends with the process
                    hosted.close()
                    del hosted
                    gc.collect()
                    if frozen != len(warm.devices):
                        frozen = len(warm.devices)
                        gc.freeze()
                    _be_quiet()
                    control.call("idle", warm.devices)
                    client.close()  # (behind that: whoever has waited for it, and asks for a process, gets this one)
    os._exit(0)


def _machine(reply: int, selection: str) -> tuple[Any, ...]:
    """Return the answer to which devices a selection means: of each its fields, the selection that means it, whether it
    computes in the host's memory, and its resources."""
    try:
        items = [replace(item, own_process=False) for item in parse(selection)]
        described = [
            (
                asdict(one.device),
                one.selection,
                one.device.kind == "cpu" and one.handle.shares_host_memory(),
                sorted(one.handle.resources),
            )
            for one in choose(items)
        ]
    except ManyclError as error:
        return reply, error.hint, error.message, False
    return reply, described, None, False


def _be_quiet() -> None:
    """Send what kernels print to the client that there is."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _prepare() -> None:
    be_prompt()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who uses the device
    threading.current_thread().name = "manycl-worker"


def main(descriptor: int) -> None:
    """Run the process that has a connection to who asks."""
    _prepare()
    Hosted(Channel(socket.socket(fileno=descriptor)), Warm()).serve()
    os._exit(0)  # whatever is under way: nobody waits for it
