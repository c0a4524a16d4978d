"""``manycl reserve``: devices for one process, or for whoever does not use manycl."""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from manycl import flags
from manycl.cli import completion
from manycl.cli.completion import completed
from manycl.errors import ManyclError
from manycl.reservations.hold import Hold
from manycl.reservations.records import Reservation, for_children

HELP = "keep a device from all other processes of this user, while a command runs or for some time"
_EPILOG = """\
examples:
  manycl reserve gpu0 --for 60                     for a minute, or until Ctrl-C
  manycl reserve cpu/2#0 -- python program.py      while the program runs, which may use it
  manycl reserve gpu --priority 1 -- ./benchmark   also where somebody with a lower priority has it
Queues of other processes leave the device and use what else they have, or wait; `manycl devices` shows who has what
(docs/reserve.md). Exit status: the command's; without one 0.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.usage = "manycl reserve DEVICE [--for SECONDS] [--priority N] [-- COMMAND ...]"
    device = parser.add_argument("device", metavar="DEVICE", help="what to reserve, in the syntax of --devices")
    completed(device, completion.devices, listed=True)
    parser.add_argument("--for", dest="seconds", metavar="SECONDS", type=float, help="give it back after so long")
    parser.add_argument(
        "--priority", metavar="N", type=int, default=0, help="before those with lower ones, which leave it (default: 0)"
    )
    words = "give up if the device is not free after so long (default: wait)"
    parser.add_argument("--timeout", metavar="SECONDS", type=float, help=words)
    words = "do not wait until others have left the device"
    parser.add_argument("--no-wait", dest="wait", action="store_false", help=words)
    parser.set_defaults(command_line=[])
    parse = parser.parse_known_args

    def parse_before_command(args: Sequence[str], namespace: argparse.Namespace) -> Any:
        """Split the command off, which is all behind ``--``: argparse would end DEVICE's options there, but not begin
        COMMAND."""
        words = list(args)
        end = words.index("--") if "--" in words else len(words)
        found, rest = parse(words[:end], namespace)
        found.command_line = words[end + 1 :]
        return found, rest

    parser.parse_known_args = parse_before_command  # type: ignore[method-assign,assignment]


def run(args: argparse.Namespace) -> int:
    from manycl.api.reserve import wanted

    words = args.command_line
    if words and shutil.which(words[0]) is None:
        raise ManyclError(f"{words[0]}: there is no such program")
    hold = Hold(wanted(args.device, args.seconds, args.priority, shlex.join(words) or "manycl reserve"))
    with _ended_by_signals():
        try:
            hold.begin(_waits, args.wait, args.timeout)
            print(f"manycl: {args.device} is reserved{_until(hold.reservation)}", file=sys.stderr, flush=True)
            return _command(hold, words) if words else _sleep(hold)
        finally:
            hold.end()


def _command(hold: Hold, words: Sequence[str]) -> int:
    """Run it, and give the device back when it or the time ends. Ctrl-C goes to both; the command says what it does."""
    try:
        child = subprocess.Popen(words, env=flags.inherited(()) | {flags.RESERVATION: for_children()})
    except OSError as error:
        raise ManyclError(f"{words[0]}: {error.strerror}") from None
    while True:
        try:
            code = child.wait(_left(hold))
        except subprocess.TimeoutExpired:
            print("manycl: the time is over: the device is not reserved any more", file=sys.stderr)
            hold.end()
        except KeyboardInterrupt:
            continue
        except SystemExit:
            child.terminate()
        else:
            return 128 - code if code < 0 else code


def _sleep(hold: Hold) -> int:
    """Wait until the time is over, or Ctrl-C is pressed."""
    was_in_force = True
    while (left := _left(hold)) is None or left > 0:
        time.sleep(1.0 if left is None else min(left, 1.0))
        is_in_force = hold.is_in_force
        if was_in_force and not is_in_force and _left(hold) != 0.0:  # else its time is over
            print("manycl: somebody with a higher priority has reserved the device", file=sys.stderr, flush=True)
        was_in_force = is_in_force
    return 0


def _left(hold: Hold) -> float | None:
    """Seconds until the time is over; None where there is no end."""
    r = hold.reservation
    return None if r is None or r.until is None else max(r.until - time.monotonic(), 0.0)


def _until(r: Reservation | None) -> str:
    return "" if r is None or r.until is None else f" for {r.seconds:g} s"


def _waits(others: Sequence[Reservation]) -> None:
    for other in others:
        print(f"manycl: waiting for {other}", file=sys.stderr, flush=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have signals that ask a process to end do what Ctrl-C does."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
