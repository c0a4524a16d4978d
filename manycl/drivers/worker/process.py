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
from collections.abc import Callable, Sequence
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
from manycl.errors import ManyclError, anew
from manycl.graph.graph import LocalArg
from manycl.machine import HOST
from manycl.region import Box
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
        """Nobody uses it any more."""
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
        """Nothing is under way in it any more."""
        self._queues.setdefault((id(driver), timed), []).append(queue)


_BUILDERS = 4  # threads


class _HostedKernel:
    """``wrong``: what arguments could not be set to, in words, by their number."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.wrong: dict[int, str] = {}


class Hosted:
    """All that one client has here. ``warm``: what is kept for the next one."""

    def __init__(self, channel: Channel, warm: Warm) -> None:
        self._channel = channel
        self._warm = warm
        self._shared: mmap.mmap | None = None
        self._driver: Driver | None = None
        self._opened = ""
        self._memory: dict[int, Any] = {}
        self._programs: dict[int, Any] = {}
        self._kernels: dict[int, _HostedKernel] = {}
        self._queues: dict[int, Ends] = {}
        self._news = threading.Condition()
        self._builders = ThreadPoolExecutor(_BUILDERS, "manycl-build")
        self._acts: dict[type[Any], Callable[[Any], None]] = {
            m.Hello: self._hello,
            m.OpenWorker: self._open,
            m.MakePart: self._part,
            m.FreeMemory: self._free,
            m.Dropped: self._drop,
            m.AskProgram: self._build,
            **dict.fromkeys((m.GiveLaunch, m.GiveCopy, m.GiveFill), self._command),
            **dict.fromkeys((m.AskMemory, m.AskKernel, m.AskQueue, m.AskClock), self._answered),
        }
        self._commands: dict[type[Any], Callable[[Queue, Any], Sequence[Event]]] = {
            m.GiveLaunch: self._launch,
            m.GiveCopy: self._copy,
            m.GiveFill: self._fill,
        }
        self._answers: dict[type[Any], Callable[[Any], Any]] = {
            m.AskMemory: self._allocate,
            m.AskProgram: self._built,
            m.AskKernel: self._make_kernel,
            m.AskQueue: self._make_queue,
            m.AskClock: lambda _: self.driver.clock(),
        }

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            raise DriverError("no device is open")
        return self._driver

    def serve(self) -> bool:
        """Until the client has said goodbye, or is gone: whether nothing of it is under way."""
        try:
            while True:
                for message in self._channel.receive():
                    if type(message) is m.Bye:
                        return self._is_settled()
                    self._acts[type(message)](message)
                for queue in self._queues.values():
                    queue.flush()
        except (EOFError, OSError, ManyclError, KeyError):
            return self._is_settled()

    def close(self) -> None:
        """Nothing of the client stays here but the connection, whose end tells it so."""
        self._builders.shutdown()
        for queue in self._queues.values():
            queue.close()
            self._warm.put_away(self.driver, queue.timed, queue.queue)
        for memory in self._memory.values():
            with suppress(DriverError):
                self.driver.free(memory)
        for table in (self._memory, self._programs, self._kernels, self._queues):
            table.clear()
        if self._driver is not None:
            self._warm.give_back(self._opened, self._driver)
        self._shared = None

    def _is_settled(self) -> bool:
        return all(queue.is_settled() for queue in self._queues.values())

    # what is asked once

    def _hello(self, asked: m.Hello) -> None:
        if asked.version != m.VERSION:
            raise m.ProtocolError(f"version {asked.version} of the protocol is asked for, this one is {m.VERSION}")
        descriptor, *outputs, words = self._channel.descriptors
        self._channel.descriptors.clear()
        self._shared = mmap.mmap(descriptor, asked.nbytes)
        os.close(descriptor)
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
            os.close(output)
        if last_words.sink.value != 2:  # another client's
            os.close(last_words.sink.value)
        last_words.sink.value = words

    def _open(self, asked: m.OpenWorker) -> None:
        try:
            self._driver = self._warm.driver(asked.selection, asked.name, asked.own)
            self._opened = self._warm.key(asked.selection, asked.own)
            self._answer(asked.reply, None)
        except ManyclError as error:
            self._fails(asked.reply, error)

    def _answered(self, asked: Any) -> None:
        try:
            self._answer(asked.reply, self._answers[type(asked)](asked))
        except Exception as error:
            self._fails(asked.reply, error)

    def _allocate(self, asked: m.AskMemory) -> None:
        host = None if asked.offset is None else self._host(asked.offset, asked.nbytes)
        self._memory[asked.memory] = self.driver.allocate(asked.nbytes, host)

    def _make_kernel(self, asked: m.AskKernel) -> int:
        kernel = self.driver.kernel(self._programs[asked.program], asked.name)
        self._kernels[asked.kernel] = _HostedKernel(kernel)
        return kernel.most_items

    def _make_queue(self, asked: m.AskQueue) -> None:
        queue = self._warm.queue(self.driver, asked.timed)
        words = self._host(asked.progress, 8 * progress.WORDS).view(np.uint64)
        self._queues[asked.queue] = Ends(self.driver, queue, asked.queue, asked.timed, self._send, self._news, words)

    def _build(self, asked: m.AskProgram) -> None:
        self._builders.submit(self._answered, asked)

    def _built(self, asked: m.AskProgram) -> None:
        source = Source(asked.text, tuple(asked.options), asked.path)
        self._programs[asked.program] = self._warm.program(self.driver, source)

    def _part(self, asked: m.MakePart) -> None:
        try:
            self._memory[asked.memory] = self.driver.part(self._of(asked.whole), asked.offset, asked.nbytes)
        except DriverError as error:
            self._memory[asked.memory] = error  # for who uses it

    def _free(self, asked: m.FreeMemory) -> None:
        memory = self._memory.pop(asked.memory, None)
        if memory is not None and not isinstance(memory, DriverError):
            self.driver.free(memory)

    def _drop(self, asked: m.Dropped) -> None:
        tables: dict[str, dict[int, Any]] = {"memory": self._memory, "program": self._programs, "kernel": self._kernels}
        tables[asked.kind].pop(asked.number, None)

    # commands

    def _command(self, asked: Any) -> None:
        queue = self._queues[asked.queue]
        try:
            events = self._commands[type(asked)](queue.queue, asked)
            queue.given(asked.number, events, self._waits(asked.after))
        except Exception as error:
            queue.refused(asked.number, _words(error))

    def _launch(self, queue: Queue, asked: m.GiveLaunch) -> Sequence[Event]:
        kernel = self._kernels[asked.kernel]
        self._set(kernel, asked.sets)
        local, offset = (None if size is None else tuple(size) for size in (asked.local_size, asked.offset))
        after = self._after(asked.after) or None
        return [self.driver.launch(queue, kernel.kernel, tuple(asked.global_size), local, offset, after)]

    def _copy(self, queue: Queue, asked: m.GiveCopy) -> Sequence[Event]:
        ends, boxes = (self._end(asked.target), self._end(asked.source)), [Box(*box) for box in asked.boxes]
        return self.driver.copy(queue, *ends, boxes, self._after(asked.after))

    def _fill(self, queue: Queue, asked: m.GiveFill) -> Sequence[Event]:
        what = self._of(asked.memory), bytes.fromhex(asked.pattern), asked.offset, asked.nbytes
        return [self.driver.fill(queue, *what, self._after(asked.after))]

    def _set(self, kernel: _HostedKernel, sets: Sequence[tuple[int, Any]]) -> None:
        """All of them; then raise DriverError if one could not be set, now or before."""
        for index, value in sets:
            try:
                kernel.kernel.set(index, self._value(value))
                kernel.wrong.pop(index, None)
            except Exception as error:
                kernel.wrong[index] = _words(error)
        if kernel.wrong:
            raise DriverError(next(iter(kernel.wrong.values())))

    def _value(self, value: Any) -> Any:
        if isinstance(value, int):
            return self._of(value)
        return LocalArg(value["local"]) if isinstance(value, dict) else bytes.fromhex(value[0])

    def _after(self, waits: m.Waits) -> list[Any]:
        """The events of commands. Raises DriverError if one has failed."""
        found = [self._queues[queue].event(number) for queue, number in waits if queue in self._queues]
        return [event for event in found if event is not None]

    def _waits(self, waits: m.Waits) -> list[tuple[Ends, int]]:
        return [(self._queues[queue], number) for queue, number in waits if queue in self._queues]

    def _of(self, number: int) -> Any:
        memory = self._memory.get(number)
        if memory is None:
            raise DriverError("the memory has been freed")
        if isinstance(memory, DriverError):
            raise anew(memory)
        return memory

    def _end(self, place: m.Place) -> End:
        number, first, *rest = place
        return End(self._host(first, rest[0])) if number is None else End(self._of(number), first)

    def _host(self, offset: int, nbytes: int) -> Any:
        assert self._shared is not None
        return np.frombuffer(self._shared, np.uint8, nbytes, offset)

    # answers

    def _answer(self, reply: int, value: Any) -> None:
        self._send(m.Reply(reply, value, None))

    def _fails(self, reply: int, error: Exception) -> None:
        self._send(m.Reply(reply, None, _words(error), isinstance(error, BuildError)))

    def _send(self, message: m.Message) -> None:
        with suppress(OSError):  # it is gone, which the reader hears
            self._channel.send(m.encode(message))


def _words(error: Exception) -> str:
    return (error.message if isinstance(error, ManyclError) else f"{type(error).__name__}: {error}") or "it failed"


def serve_clients(descriptor: int) -> None:
    """Of a process of the service, which has a connection to that: one client after another, until one has left the
    device at work, or the service has ended."""
    _prepare()
    control, warm, frozen = Channel(socket.socket(fileno=descriptor)), Warm(), 0
    with suppress(EOFError, OSError, m.ProtocolError):
        with suppress(ManyclError):
            survey()
        gc.freeze()  # what has been loaded stays: to look through it for each client takes 20 ms
        control.send(m.encode(m.Idle(())))
        while True:
            for message in control.receive():
                if type(message) is m.AskMachine:
                    control.send(m.encode(_machine(message)))
                elif type(message) is m.TakeClient:
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
                    control.send(m.encode(m.Idle(warm.devices)))
                    client.close()  # (behind that: whoever has waited for it, and asks for a process, gets this one)
    os._exit(0)


def _machine(asked: m.AskMachine) -> m.Reply:
    try:
        items = [replace(item, own_process=False) for item in parse(asked.selection)]
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
        return m.Reply(asked.reply, error.hint, error.message)
    return m.Reply(asked.reply, described, None)


def _be_quiet() -> None:
    """What kernels print goes to the client that there is."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _prepare() -> None:
    be_prompt()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who uses the device
    threading.current_thread().name = "manycl-worker"


def main(descriptor: int) -> None:
    """Of the process that has a connection to who asks."""
    _prepare()
    Hosted(Channel(socket.socket(fileno=descriptor)), Warm()).serve()
    os._exit(0)  # whatever is under way: nobody waits for it
