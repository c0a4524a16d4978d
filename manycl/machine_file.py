"""Machine files: TOML descriptions of machines that are not here, with a unit in every quantity and sources. The format
is described, key by key, in docs/machines.md. Reading is strict: an unknown key, a missing unit or a link to a device
that is not described is a MachineError that names the file and the key."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from manycl.errors import MachineError
from manycl.machine import ALIGNMENT, HOST, Device, Link, Machine, Network
from manycl.units import format_bytes, format_quantity, parse_bytes, parse_quantity

_WORDS = ("model", "platform", "driver", "event_domain", "lacks")
_QUANTITIES = {"clock": "Hz", "flops": "FLOP/s", "bandwidth": "B/s"} | dict.fromkeys(
    ("launch_overhead", "enqueuing", "enqueuing_copy"), "s"
)
_BYTES = ("global_memory", "max_allocation", "local_memory")
_COUNTS = ("compute_units", "max_work_group", "queues", "alignment")
_FLAGS = ("double", "simulator")
_RARE_FLAGS = ("shortens",)
_POWERS = ("idle_power", "power")
_QUANTITIES |= dict.fromkeys(_POWERS, "W")
_REQUIRED = ("name", "kind", "memory", "compute_units", "clock", "flops", "bandwidth", "global_memory")
_DEVICE_KEYS = ("name", "kind", *_WORDS, "memory", *_COUNTS, *_QUANTITIES, *_BYTES, *_FLAGS, *_RARE_FLAGS, "slowdown")
_DEVICE_KEYS += ("kernel_power", "count")
_HOST_KEYS = ("bandwidth",)
_NETWORK_KEYS = ("bandwidth", "latency", "rack", "oversubscription")
_LINK_KEYS = ("from", "to", "both_ways", "bandwidth", "latency", "chunk", "energy")
_KIND_VALUES: dict[str, dict[str, Any]] = {  # where a file does not say
    "cpu": {"queues": 1, "launch_overhead": 5e-6},
    "gpu": {"queues": 16, "launch_overhead": 10e-6},
    "accelerator": {"queues": 1, "launch_overhead": 10e-6},
    "node": {"queues": 1, "launch_overhead": 0.5e-3},
}
_MAY_BE_ZERO = ("launch_overhead", "enqueuing", "enqueuing_copy", "latency", "local_memory", *_POWERS, "energy")
_MOST = 10**6  # of a count
_MOST_BYTES = 2**60
_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
Number = TypeVar("Number", int, float)
_RESERVED = ("host", "own", "machine", "network")


def shipped_machines() -> dict[str, Path]:
    """The machine files that come with manycl, by name, sorted."""
    found = (Path(__file__).parent / "machines").glob("*.toml")
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def load_machine(path: str | Path) -> Machine:
    """The machine that a file describes; the name of one that comes with manycl will do, where no file is called that.

    Raises MachineError, naming file and key, for all that is wrong."""
    shipped = shipped_machines()
    if str(path) in shipped and not Path(path).is_file():
        path = shipped[str(path)]
    elif isinstance(path, str) and path.isidentifier() and not Path(path).is_file():
        close = difflib.get_close_matches(path, shipped, n=1)
        guess = f"did you mean {close[0]!r}? " if close else ""
        raise MachineError(
            f"{path}: neither a file nor a machine that comes with manycl",
            hint=f"{guess}there are {', '.join(shipped)}",
        )
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path that cannot be one
        raise MachineError(f"{path}: cannot be read: {error}") from None
    return parse_machine(text, str(path))


def parse_machine(text: str, path: str = "machine") -> Machine:
    """Return the machine of a text, as :func:`load_machine`. Memories are numbered in the order of the devices."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError, so is a number of 5,000 digits
        raise MachineError(f"{path}: not TOML: {error or 'nested too deeply'}", hint="see docs/machines.md") from None
    return _MachineReader(path).machine(table)


class _MachineReader:
    """Reads one file: knows its name for the messages, and gathers the sources as it goes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.notes: dict[str, str] = {}
        self.memories = 0  # the number of the last one

    def machine(self, table: dict[str, Any]) -> Machine:
        self.only(table, ("name", "source", "host", "memory", "device", "link", "network"), "")
        name = self.word(table, "name", "", "a machine")
        self.source(table, "machine", ())
        bandwidth = self.host(table)
        memories: dict[str, int] = {"host": HOST}
        for number, entry in enumerate(self.tables(table, "memory")):
            self.only(entry, ("name", "source"), f"memory {number + 1}")
            name_of = self.name(entry, f"memory {number + 1}", memories)
            self.memories = memories[name_of] = len(memories)
            self.source(entry, name_of, ())
        hosts = tuple(memories)[1:]
        devices: list[Device] = []
        for number, entry in enumerate(self.tables(table, "device")):
            devices += self.devices(entry, number, memories)
        if not devices:
            raise self.error("device", "a machine has at least one [[device]]")
        links: list[Link] = []
        for number, entry in enumerate(self.tables(table, "link")):
            links.extend(self.links(entry, number, memories))
        network = self.network(table) if "network" in table else None
        machine = Machine(tuple(devices), tuple(links), name, self.notes, bandwidth, hosts, network=network)
        self.check_links(machine, memories)
        self.check_host(bandwidth, devices, links)
        return machine

    def host(self, table: dict[str, Any]) -> float:
        """Return what the host's memory carries; without a limit where a file does not say."""
        if "host" not in table:
            return math.inf
        found = table["host"]
        if not isinstance(found, dict):
            raise self.error("host", "is written [host], once")
        self.only(found, (*_HOST_KEYS, "source"), "host")
        self.source(found, "host", _HOST_KEYS)
        return self.quantity(found, "bandwidth", "host", "B/s")

    def network(self, table: dict[str, Any]) -> Network:
        found = table["network"]
        if not isinstance(found, dict):
            raise self.error("network", "is written [network], once")
        self.only(found, (*_NETWORK_KEYS, "source"), "network")
        self.source(found, "network", _NETWORK_KEYS)
        return Network(
            self.quantity(found, "bandwidth", "network", "B/s"),
            self.quantity(found, "latency", "network", "s"),
            self.count(found, "rack", "network") if "rack" in found else 0,
            self.factor(found, "oversubscription", "network"),
        )

    def devices(self, table: dict[str, Any], number: int, memories: dict[str, int]) -> list[Device]:
        """Return the device that a table describes, or the ``count`` of them, which have numbers behind its name."""
        if "count" not in table:
            return [self.device(table, number, memories)]
        count, where = self.count(table, "count", f"device {number + 1}"), f"device {number + 1}"
        name = self.word(table, "name", where, "")
        alike = {key: value for key, value in table.items() if key not in ("count", "source")}
        self.source(table, name, _DEVICE_KEYS)
        first = self.device({**alike, "name": f"{name}0"}, number, memories)
        found = [first]
        for place in range(1, count):
            other = self.name({"name": f"{name}{place}"}, where, memories)
            memories[other] = self.memory(table["memory"], f"{where}.memory", memories)
            found.append(replace(first, name=other, memory=memories[other]))
        return found

    def device(self, table: dict[str, Any], number: int, memories: dict[str, int]) -> Device:
        where = f"device {number + 1}"
        name = self.name(table, where, memories)
        where = f"device {name}"
        self.only(table, (*_DEVICE_KEYS, "source"), where)
        for key in _REQUIRED:
            if key not in table:
                raise self.error(f"{where}.{key}", "is missing")
        kind = table["kind"]
        if not isinstance(kind, str) or kind not in _KIND_VALUES:
            raise self.error(f"{where}.kind", f"{_show(kind)} is not one of {', '.join(_KIND_VALUES)}")
        memories[name] = self.memory(table["memory"], f"{where}.memory", memories)
        values = dict(_KIND_VALUES[kind])
        values |= {k: self.word(table, k, where, "") for k in _WORDS if k in table}
        values |= {k: self.quantity(table, k, where, unit) for k, unit in _QUANTITIES.items() if k in table}
        values |= {k: self.bytes(table, k, where) for k in _BYTES if k in table}
        values |= {k: self.count(table, k, where) for k in _COUNTS if k in table}
        values |= {k: self.flag(table, k, where) for k in (*_FLAGS, *_RARE_FLAGS) if k in table}
        if kernels := table.get("kernel_power"):
            if not isinstance(kernels, dict):
                raise self.error(
                    f"{where}.kernel_power", "is written [device.kernel_power], with a power for each kernel"
                )
            values["kernel_power"] = {k: self.quantity(kernels, k, f"{where}.kernel_power", "W") for k in kernels}
        values.setdefault("max_allocation", max(values["global_memory"] // 4, 1))
        values["slowdown"] = self.factor(table, "slowdown", f"device {name}")
        self.source(table, name, _DEVICE_KEYS)
        return Device(name=name, kind=kind, memory=memories[name], **values)

    def name(self, table: dict[str, Any], where: str, known: Mapping[str, int]) -> str:
        name = self.word(table, "name", where, "")
        if not _NAME.fullmatch(name) or name in _RESERVED or name in known:
            raise self.error(f"{where}.name", f"{name!r} is not a new name such as gpu0")
        return name

    def memory(self, value: Any, where: str, memories: Mapping[str, int]) -> int:
        if value == "own":
            self.memories += 1
            return self.memories
        if isinstance(value, str) and value in memories:
            return memories[value]
        raise self.error(where, f"{_show(value)} is not own, host or the name of a device described before")

    def links(self, table: dict[str, Any], number: int, memories: Mapping[str, int]) -> list[Link]:
        where = f"link {number + 1}"
        self.only(table, (*_LINK_KEYS, "source"), where)
        ends = []
        for key in ("from", "to"):
            end = self.word(table, key, where, "")
            if end not in memories:
                raise self.error(f"{where}.{key}", f"{end!r} is not host or one of {', '.join(list(memories)[1:])}")
            ends.append(end)
        a, b = memories[ends[0]], memories[ends[1]]
        if a == b:
            raise self.error(where, f"{ends[0]} and {ends[1]} are one memory and need no link")
        bandwidth = self.quantity(table, "bandwidth", where, "B/s")
        latency = self.quantity(table, "latency", where, "s")
        chunk = self.bytes(table, "chunk", where) if "chunk" in table else 0
        energy = self.quantity(table, "energy", where, "J/B") if "energy" in table else 0.0
        both = self.flag(table, "both_ways", where) if "both_ways" in table else False
        names = _owners(memories)
        self.source(table, f"{names[a]}->{names[b]}", _LINK_KEYS)
        pairs = [(a, b), (b, a)] if both else [(a, b)]
        return [Link(*pair, bandwidth, latency, chunk, energy) for pair in pairs]

    def check_links(self, machine: Machine, memories: Mapping[str, int]) -> None:
        """No link twice; from the host to every memory and back, by way of other hosts' memories or not, as whatever
        has no link goes by hosts."""
        names = _owners(memories)
        for (a, b), count in Counter((x.source, x.target) for x in machine.links).items():
            if count > 1:
                raise self.error("link", f"{names[a]} to {names[b]} is described twice")
        routes = machine.routes
        for memory, name in names.items():
            for a, b in ((HOST, memory), (memory, HOST)):
                if memory != HOST and not routes.by_links(a, b):
                    raise self.error("link", f"{name} has a memory of its own: {names[a]} to {names[b]} is missing")

    def check_host(self, bandwidth: float, devices: list[Device], links: list[Link]) -> None:
        """Check that nothing alone draws more of the host's memory than it carries."""
        for device in devices:
            if device.memory == HOST and device.bandwidth > bandwidth:
                raise self.error(f"device {device.name}.bandwidth", "is more than the host's memory carries")
        for number, link in enumerate(links):
            if link.bandwidth > bandwidth and HOST in (link.source, link.target):
                raise self.error(f"link {number + 1}.bandwidth", "is more than the host's memory carries")

    # single values

    def word(self, table: Mapping[str, Any], key: str, where: str, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str) or (not value and key in ("name", "from", "to")):
            raise self.error(_join(where, key), "is missing" if key not in table else f"{_show(value)} is not a text")
        return value

    def quantity(self, table: Mapping[str, Any], key: str, where: str, unit: str) -> float:
        value = self.measure(table, key, where, unit, lambda text: parse_quantity(text, unit))
        if value == 0 and key not in _MAY_BE_ZERO:
            raise self.error(_join(where, key), f"{table[key]!r} is not above zero")
        return value

    def bytes(self, table: Mapping[str, Any], key: str, where: str) -> int:
        value = self.measure(table, key, where, "B", parse_bytes)
        if not (0 if key in _MAY_BE_ZERO else 1) <= value <= _MOST_BYTES:
            raise self.error(_join(where, key), f"{table[key]!r} is not above zero, or too much to be true")
        return value

    def measure(
        self, table: Mapping[str, Any], key: str, where: str, unit: str, parse: Callable[[str], Number]
    ) -> Number:
        value = table.get(key)
        if not isinstance(value, str):
            problem = "is missing" if key not in table else f"{_show(value)} needs quotation marks and a unit of {unit}"
            raise self.error(_join(where, key), problem)
        try:
            return parse(value)
        except ValueError as error:
            raise self.error(_join(where, key), str(error)) from None

    def count(self, table: Mapping[str, Any], key: str, where: str) -> int:
        return self.plain(table[key], int, f"a whole number from 1 to {_MOST}", _join(where, key))

    def flag(self, table: Mapping[str, Any], key: str, where: str) -> bool:
        value = table[key]
        if not isinstance(value, bool):
            raise self.error(_join(where, key), f"{_show(value)} is neither true nor false")
        return value

    def factor(self, table: Mapping[str, Any], key: str, where: str) -> float:
        return self.plain(table.get(key, 1.0), float, f"a number from 1 to {_MOST}", f"{where}.{key}")

    def plain(self, value: Any, kind: type[Number], what: str, where: str) -> Number:
        """A number without a unit."""
        if isinstance(value, bool) or not isinstance(value, (kind, int)) or not 1 <= value <= _MOST:
            raise self.error(where, f"{_show(value)} is not {what}")
        return kind(value)

    # structure

    def tables(self, table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self.error(key, f"is written [[{key}]], once for each")
        return value

    def only(self, table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        for key in table:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                guess = f" (did you mean {close[0]!r}?)" if close else ""
                raise self.error(_join(where, key), f"is not a key{guess}; there are {', '.join(known)}")

    def source(self, table: Mapping[str, Any], subject: str, keys: tuple[str, ...]) -> None:
        """``source``: where all numbers of a table come from (a text), or where each comes from (a table)."""
        value = table.get("source")
        if isinstance(value, str):
            self.note(subject, value)
        elif isinstance(value, dict) and keys:
            for key, text in value.items():
                if key not in keys or not isinstance(text, str):
                    raise self.error(f"{subject}.source.{key}", "is not the source of a key of this table")
                self.note(f"{subject}.{key}", text)
        elif value is not None:
            raise self.error(
                f"{subject}.source", "is a text" + (", or a table with a text for each key" if keys else "")
            )

    def note(self, key: str, text: str) -> None:
        if key in self.notes:
            raise self.error(key, "has two sources: is it described twice?")
        self.notes[key] = text

    def error(self, where: str, problem: str) -> MachineError:
        return MachineError(f"{self.path}: {where}: {problem}", hint="docs/machines.md describes every key")


def _owners(memories: Mapping[str, int]) -> dict[int, str]:
    """Return what each memory is called: host, or the first device in it."""
    out: dict[int, str] = {}
    for name, memory in memories.items():
        out.setdefault(memory, name)
    return out


def _show(value: object) -> str:
    """A value for a message; Python refuses to print integers of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:60]}…"


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def format_machine(machine: Machine) -> str:
    """The text of a machine file that reads back as an equal machine. Raises MachineError for one that no file can
    describe: names that are none, memories not numbered in the order of the devices, a memory without links to the
    host, notes about nothing."""
    lines = [f"name = {_string(machine.name)}"]
    if "machine" in machine.notes:
        lines.append(f"source = {_string(machine.notes['machine'])}")
    if machine.host_bandwidth < math.inf:
        lines += ["", "[host]", f"bandwidth = {_string(format_quantity(machine.host_bandwidth, 'B/s'))}"]
        lines += _source_lines(machine.notes, "host", "host", _HOST_KEYS)
    owners = dict(enumerate(("host", *machine.hosts)))
    for name in machine.hosts:
        lines += ["", "[[memory]]", f"name = {_string(name)}"]
        lines += _source_lines(machine.notes, name, "memory", ())
    for name, alike in _alike(machine):
        device = alike[0]
        lines += ["", "[[device]]", *_device_lines(replace(device, name=name), owners)]
        lines += [f"count = {len(alike)}"] if name != device.name else []
        owners |= {d.memory: d.name for d in alike if d.memory not in owners or owners[d.memory] == name}
        lines += _source_lines(machine.notes, name, "device", _DEVICE_KEYS)
        if device.kernel_power:
            powers = ((k, format_quantity(p, "W")) for k, p in device.kernel_power.items())
            lines += ["[device.kernel_power]", *(f"{_string(k)} = {_string(p)}" for k, p in powers)]
    if machine.network is not None:
        found = machine.network
        lines += ["", "[network]", f"bandwidth = {_string(format_quantity(found.bandwidth, 'B/s'))}"]
        lines.append(f"latency = {_string(format_quantity(found.latency, 's'))}")
        lines += [f"rack = {found.rack}"] if found.rack else []
        lines += [f"oversubscription = {found.oversubscription!r}"] if found.oversubscription != 1.0 else []
        lines += _source_lines(machine.notes, "network", "network", _NETWORK_KEYS)
    for link in machine.links:
        ends = [owners.get(m, "") for m in (link.source, link.target)]
        lines += ["", "[[link]]", f"from = {_string(ends[0])}", f"to = {_string(ends[1])}"]
        lines.append(f"bandwidth = {_string(format_quantity(link.bandwidth, 'B/s'))}")
        lines.append(f"latency = {_string(format_quantity(link.latency, 's'))}")
        lines += [f"chunk = {_string(format_bytes(link.chunk))}"] if link.chunk else []
        lines += [f"energy = {_string(format_quantity(link.energy, 'J/B'))}"] if link.energy else []
        lines += _source_lines(machine.notes, f"{ends[0]}->{ends[1]}", "link", _LINK_KEYS)
    text = "\n".join(lines) + "\n"
    if parse_machine(text, machine.name) != machine:
        raise MachineError(f"{machine.name}: no machine file can describe this machine exactly")
    return text


def _alike(machine: Machine) -> Iterator[tuple[str, list[Device]]]:
    """Yield the devices that a table describes, with its name: several, if they are nodes or have a source together."""
    devices, at, noted = machine.devices, 0, {subject.partition(".")[0] for subject in machine.notes}
    while at < len(devices):
        first, alike = devices[at], [devices[at]]
        base, step = first.name.removesuffix("0"), 0
        if base != first.name and (base in noted or first.kind == "node") and first.name not in noted:
            for d in devices[at + 1 :]:
                step = d.memory - first.memory if len(alike) == 1 else step
                if d != replace(first, name=f"{base}{len(alike)}", memory=first.memory + step * len(alike)):
                    break
                if d.name in noted or step != (first.memory > len(machine.hosts)):
                    break
                alike.append(d)
        is_one = len(alike) == 1 and base not in noted
        yield (first.name if is_one else base), alike
        at += len(alike)


def _device_lines(device: Device, owners: dict[int, str]) -> list[str]:
    memory = owners.get(device.memory, "own")
    owners.setdefault(device.memory, device.name)
    out = {"name": _string(device.name), "kind": _string(device.kind)}
    out |= {k: _string(getattr(device, k)) for k in _WORDS if getattr(device, k)}
    out["memory"] = _string(memory)
    out |= {k: str(getattr(device, k)) for k in _COUNTS if k != "alignment"}
    amounts = {
        k: (getattr(device, k), unit) for k, unit in _QUANTITIES.items() if k not in _POWERS or getattr(device, k)
    }
    out |= {k: _string(format_quantity(*amount)) for k, amount in amounts.items()}
    out |= {k: _string(format_bytes(getattr(device, k))) for k in _BYTES}
    out |= {k: str(getattr(device, k)).lower() for k in _FLAGS}
    out |= {k: "true" for k in _RARE_FLAGS if getattr(device, k)}
    if device.alignment != ALIGNMENT:
        out["alignment"] = str(device.alignment)
    if device.slowdown != 1.0:
        out["slowdown"] = repr(float(device.slowdown))
    return [f"{k} = {v}" for k, v in out.items()]


def _source_lines(notes: Mapping[str, str], subject: str, table: str, keys: tuple[str, ...]) -> list[str]:
    if subject in notes:
        return [f"source = {_string(notes[subject])}"]
    sources = {k: notes[f"{subject}.{k}"] for k in keys if f"{subject}.{k}" in notes}
    return [f"[{table}.source]", *(f"{k} = {_string(v)}" for k, v in sources.items())] if sources else []


def _string(text: str) -> str:
    """A TOML basic string: JSON's, but for the one control character that JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
