"""``manycl devices``: what is here, what ``--devices`` chooses of it, and machine files."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from manycl import flags
from manycl.cli.options import add_devices, add_machine, writable
from manycl.errors import ManyclError
from manycl.machine import HOST, Device, Machine, Sharing
from manycl.model.transfer import CHUNK, chunk_of
from manycl.report.words import aligned
from manycl.reservations.records import in_force
from manycl.reservations.register import reservations
from manycl.units import format_quantity, show_bytes

if TYPE_CHECKING:
    from manycl.drivers.choice import OpenDevice
    from manycl.drivers.survey import Survey

HELP = "list the devices that are here, or that a machine file describes"


def configure(parser: argparse.ArgumentParser) -> None:
    add_devices(parser)
    add_machine(parser, "show the machine that a file describes instead")
    parser.add_argument("--save", metavar="FILE", help="write the chosen devices as a machine file, to be edited")
    parser.add_argument(
        "--measure", action="store_true", help="measure the chosen devices and their links (seconds), and remember it"
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    if args.machine and (args.devices or args.save or args.measure):
        raise ManyclError("--machine shows a file; --devices, --save and --measure are about this machine")
    writable({"--save": args.save})
    return _described(args) if args.machine else _here(args)


def _described(args: argparse.Namespace) -> int:
    from manycl.machine_file import load_machine

    machine = load_machine(args.machine)
    if args.json:
        print(json.dumps({"machine": dataclasses.asdict(machine)}, indent=2, default=sorted))
        return 0
    print(machine.name)
    _print_machine(machine, measured=True)
    for key, text in machine.notes.items():
        print(f"  {key}: {text}")
    return 0


def _here(args: argparse.Namespace) -> int:
    from manycl.drivers.choice import open_devices
    from manycl.drivers.survey import advice, survey
    from manycl.machine_file import format_machine

    chosen = args.devices if args.devices is not None else flags.devices()
    machine, opened = open_devices(chosen)
    machine, measured = _measured(machine, opened, args.measure)
    found = survey()
    advised = advice(found, machine.devices)
    # what a device shares is proved, not believed; a simulator is not worth starting for it
    shares = {
        r.device.name: None if r.device.simulator else r.device.kind == "cpu" and r.handle.shares_host_memory()
        for r in found.roots
    }
    if args.save:
        names = [f"{machine.memory_name(link.source)}->{machine.memory_name(link.target)}" for link in machine.links]
        assumed = {n: "assumed: nobody has measured it" for n in names if f"{n}.bandwidth" not in machine.notes}
        notes = {**assumed, **machine.notes}
        text = format_machine(dataclasses.replace(machine, notes=notes, sharing=Sharing()))  # which files do not tell
        with open(args.save, "w", encoding="utf-8") as file:
            file.write(text)
    reserved = _reserved(found)
    if args.json:
        record = {
            "reservations": reserved,
            "devices": [
                dataclasses.asdict(r.device)
                | {"shares_host_memory": shares[r.device.name], "in_all": not r.why_not, "why_not": r.why_not}
                for r in found.roots
            ],
            "notes": list(found.notes),
            "advice": [one._asdict() for one in advised],
            "selection": chosen,
            "machine": dataclasses.asdict(machine),
            "measured": measured,
        }
        print(json.dumps(record, indent=2, default=sorted))
        return 0
    rows = [
        (*_row(r.device), _SHARES[shares[r.device.name]], f"no: {r.why_not}" if r.why_not else "yes")
        for r in found.roots
    ]
    print(*aligned([(*_COLUMNS, "HOST MEMORY", "IN all"), *rows]), sep="\n")
    for reservation in reserved:
        print(_told(reservation))
    for note in found.notes:
        print(f"note: {note}")
    for one in advised:
        print(f"hint: {one.what}\n    {one.command}")
    if chosen.strip() != "all" or machine.notes:
        print(f"\nchosen by {chosen}:")
        _print_machine(machine)
        for name in dict.fromkeys(n.rpartition(".")[0] for n in machine.notes):
            at = measured.get([part for part in name.split("->") if part != "host"][-1])
            print(f"measured: {name}{f', {timedelta(seconds=int(time.time() - at))} ago' if at else ''}")
    else:
        _print_links(machine, False)
    _print_sharing(machine)
    return 0


def _reserved(found: Survey) -> list[dict[str, Any]]:
    """Return who has reserved what, and who waits; times by ``time.time``. ``devices``: those that share something with
    it."""
    there = reservations()
    names = {r.name for r in in_force(there)}
    began = time.time() - time.monotonic()
    return [
        {
            "device": r.device,
            "devices": [root.device.name for root in found.roots if root.handle.resources & r.resources],
            "state": "in force" if r.name in names else "waits",
            "pid": r.pid,
            "command": r.command,
            "priority": r.priority,
            "since": r.since,
            "until": None if r.until is None else began + r.until,
        }
        for r in there
    ]


def _told(one: dict[str, Any]) -> str:
    what = f" ({one['device']})" if one["devices"] != [one["device"]] else ""
    times = [
        f"{word} {time.strftime('%H:%M:%S', time.localtime(one[word]))}" for word in ("since", "until") if one[word]
    ]
    priority = [f"priority {one['priority']}"] if one["priority"] else []
    state = "reserved" if one["state"] == "in force" else "wanted"
    words = ", ".join([f"process {one['pid']}", *times, *priority])
    return (
        f"{state}: {', '.join(one['devices']) or 'a device that is not shown here'}{what} by {words}: {one['command']}"
    )


def _measured(machine: Machine, opened: Sequence[OpenDevice], anew: bool) -> tuple[Machine, dict[str, float]]:
    """Return the machine with what has been measured of it, and when that was, by device (``time.time``); ``anew``:
    measure it now, and keep that."""
    from manycl.model.history.history import identity
    from manycl.model.history.measured import on_machine
    from manycl.model.history.store import Store

    if not anew and not flags.learning():
        return on_machine(machine, {}), {}

    store = Store()
    if anew:
        from manycl.report.progress import Progress
        from manycl.run.session.measure import measure, steps

        with Progress(steps(machine), delay=0.2) as progress:
            found = measure(machine, opened, progress.update)
        for device in machine.devices:  # what runs have observed before counts no more
            store.forget_measurements(identity(device))
        for subject, values in found.items():
            store.measured(subject, values)
    last = store.last_measured()
    measured = {d.name: last[identity(d)] for d in machine.devices if identity(d) in last}
    return on_machine(machine, store.measurements()), measured


_COLUMNS = ("NAME", "KIND", "MODEL", "PLATFORM", "UNITS", "CLOCK", "MEMORY")
_SHARES = {True: "shared", False: "own", None: "not tested"}


def _row(device: Device) -> tuple[str, ...]:
    return (
        device.name,
        device.kind,
        device.model or "-",
        f"{device.platform} ({device.driver.rpartition('; ')[2]})" if device.platform else "-",
        str(device.compute_units),
        format_quantity(float(f"{device.clock:.4g}"), "Hz"),
        show_bytes(device.global_memory),
    )


def _print_machine(machine: Machine, *, measured: bool = False) -> None:
    rows = [
        (*_row(d), _computes_in(machine, d), format_quantity(float(f"{d.flops:.3g}"), "FLOP/s"), f"{d.slowdown:g}")
        for d in machine.devices
    ]
    print(*aligned([(*_COLUMNS, "HOST MEMORY", "ESTIMATE", "SLOWDOWN"), *rows]), sep="\n")
    _print_links(machine, measured)


def _computes_in(machine: Machine, device: Device) -> str:
    if device.memory == HOST:
        return "shared"
    owner = machine.memory_name(device.memory)
    return "own" if owner == device.name else f"{owner}'s"


def _print_links(machine: Machine, measured: bool) -> None:
    """``measured``: all of them; else those of which the machine's notes say so."""
    for link in machine.links:
        ends = f"{machine.memory_name(link.source)} -> {machine.memory_name(link.target)}"
        if not measured and f"{ends.replace(' ', '')}.bandwidth" not in machine.notes:
            print(f"link {ends}: nobody has measured it (--measure does, and runs do)")
            continue
        chunk = f", chunks of {show_bytes(link.chunk)}" if link.chunk else ""
        print(f"link {ends}: {_number(link.bandwidth, 'B/s')}, {_number(link.latency, 's')}{chunk}")
    own = {d.memory for d in machine.devices} - {HOST}
    if len(own) > 1:
        known = chunk_of(machine)
        print(f"from device to device: in chunks of {show_bytes(known or CHUNK)}{'' if known else ', as nobody knows'}")


def _print_sharing(machine: Machine) -> None:
    together = machine.sharing
    for memory in sorted(together.half_duplex):
        print(f"link host - {machine.memory_name(memory)}: one direction at a time")
    for words, limits in (("from the host to all devices", together.sends), ("from all devices", together.receives)):
        for value in limits.values():
            print(f"{words} together: {_number(value, 'B/s')}")


def _number(value: float, unit: str) -> str:
    return format_quantity(float(f"{value:.4g}"), unit)
