"""The command line: ``manycl COMMAND``. A module per command, each with HELP, configure and run.

``bench`` is found by name in a package of its own (manycl_bench), which may be missing.

May import stand_in and the stages before."""

from __future__ import annotations

import argparse
import difflib
import faulthandler
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import ModuleType

from manycl import __version__, flags
from manycl.cli import completion
from manycl.errors import ManyclError

# in the order of `manycl --help`; a module per command
COMMANDS = (
    "devices",
    "examples",
    "analyze",
    "doctor",
    "spec",
    "plan",
    "simulate",
    "profile",
    "models",
    "train",
    "run",
    "serve",
    "exec",
    "reserve",
    "report",
    "bench",
    "completion",
)
_EXPERIMENTS = "manycl_bench"
_ELSEWHERE = {
    "bench": f"{_EXPERIMENTS}.cli",
    **{name: f"manycl.cli.kernel_files.{name}" for name in ("analyze", "doctor", "spec")},
    **{name: f"manycl.cli.learning.{name}" for name in ("models", "profile", "train")},
}
_ABOUT = "Run OpenCL kernels on every device of a machine: analyse, plan, run, see."
_EPILOG = """\
examples:
  manycl devices                                   what is here
  manycl examples transformer                      an application to try, written into this folder
  manycl analyze gemm.cl                           what each kernel reads and writes
  manycl doctor gemm.cl                            does it compile, run and give the same everywhere
  manycl spec gemm.cl -o app.json                  a specification to fill in
  manycl run app.json -D N=1024 --check            run it on all devices and check the result
  manycl run app.json --devices cpu/2 --gantt run.html
  manycl serve &                                   keep devices warm for what comes (manycl run --serve)
  manycl exec -- python program.py                 an unmodified PyOpenCL program on all devices
  manycl reserve gpu0 --for 60                     keep other processes away from a device
  manycl plan app.json --machine conan             what would happen on a machine that is not here
  manycl simulate app.json --machine conan --noise 5%
  manycl profile app.json && manycl models list    what its kernels take here, remembered
environment: MANYCL_DEVICES, MANYCL_POLICY, MANYCL_DEBUG, MANYCL_DATA, MANYCL_MODELS, MANYCL_BOUNDS, MANYCL_CHECK,
MANYCL_DEVICE_MEMORY, MANYCL_ZERO_COPY, MANYCL_MERGING (docs/traces.md), MANYCL_APART (docs/splitting.md),
MANYCL_RESERVED (docs/reserve.md), MANYCL_SERVE (docs/serve.md); of `manycl exec`: MANYCL, MANYCL_REAL (docs/exec.md),
MANYCL_CLUSTER (docs/clusters.md)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run; returns the exit status: 0 right, 1 a check failed, 2 bad input, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # a command's module is only imported when it is the one asked for: start-up stays fast
    chosen = next((w for w in words if not w.startswith("-")), None) or completion.chosen()
    parser = argparse.ArgumentParser(
        prog="manycl", description=_ABOUT, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"manycl {__version__}")
    if chosen is not None and chosen not in COMMANDS and words[:1] == [chosen]:
        close = difflib.get_close_matches(chosen, COMMANDS, n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        parser.error(f"there is no command {chosen!r}{meant}: {', '.join(COMMANDS)}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        if chosen in COMMANDS and name != chosen:
            commands.add_parser(name)
            continue
        module = _module(name)
        if module is None:
            if chosen == name:
                parser.error(f"{name} needs the package {_EXPERIMENTS}, which comes with manycl but is not here")
            commands.add_parser(name, help=f"not here: the package {_EXPERIMENTS} is missing")
            continue
        sub = commands.add_parser(
            name, help=module.HELP, description=module.HELP, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.configure(sub)
        sub.set_defaults(run=module.run)
    completion.complete(parser)
    args = parser.parse_args(words)
    formatted, warnings.formatwarning = warnings.formatwarning, _warning
    if not faulthandler.is_enabled():
        with suppress(ValueError, OSError, AttributeError):  # no standard error to write to
            faulthandler.enable(all_threads=False)
    try:
        flags.check()
        with _last_words(args.command):
            return int(args.run(args))
    except MemoryError as error:
        print(f"manycl: not enough memory: {error or 'an allocation failed'}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("manycl: interrupted", file=sys.stderr)
        return 130
    except (ManyclError, OSError) as error:
        print(f"manycl: {error}", file=sys.stderr)
        return 2
    finally:
        warnings.formatwarning = formatted


def _module(command: str) -> ModuleType | None:
    """The module of a command; None where the package that it lies in is missing."""
    try:
        return importlib.import_module(_ELSEWHERE.get(command, f"manycl.cli.{command}"))
    except ModuleNotFoundError as error:
        if error.name == _EXPERIMENTS:
            return None
        raise


def _last_words(command: str) -> AbstractContextManager[None]:
    """Return a context in which a note of running kernels is kept, for the case that a driver ends the process."""
    if command not in ("run", "profile", "bench"):
        return nullcontext()
    from manycl.drivers import last_words

    return last_words.kept()


def _warning(message: Warning | str, category: object, filename: object, lineno: object, line: object = None) -> str:
    """One line, as all other messages; where in the code it was raised helps nobody here."""
    return f"manycl: warning: {message}\n"
