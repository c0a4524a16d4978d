"""``manycl completion``: what a shell needs to complete manycl's command lines, and the names that argcomplete is told
when somebody presses the tabulator key; none of them raises anything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from manycl import flags
from manycl.errors import ManyclError

HELP = "print what a shell needs to complete command lines of manycl: commands, options, devices, policies, …"
SHELLS = ("bash", "zsh", "fish")
_EPILOG = """\
once and for all:
  bash: echo 'eval "$(manycl completion bash)"' >> ~/.bashrc
  zsh:  echo 'eval "$(manycl completion zsh)"' >> ~/.zshrc         (behind: autoload -U compinit && compinit)
  fish: manycl completion fish > ~/.config/fish/completions/manycl.fish
then, in a new shell, with the tabulator key:
  manycl ru<TAB>                                  run
  manycl run transformer.json --policy h<TAB>     heft
  manycl run transformer.json --devices cpu0,<TAB>
  manycl plan transformer.json --machine c<TAB>   conan  cpu_pair
  manycl examples t<TAB>                          transformer
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    sys.stdout.write(_argcomplete().shellcode(["manycl"], shell=args.shell))
    return 0


def chosen() -> str | None:
    """Return the command of a command line that is being completed, once it is there as a whole."""
    line = flags.completing()
    words = line.split()[1:] if line[-1:].isspace() else line.split()[1:-1]
    return next((word for word in words if not word.startswith("-")), None)


def complete(parser: argparse.ArgumentParser) -> None:
    """Complete the command line and end the process, if a shell wants that."""
    if flags.completing():
        _argcomplete().autocomplete(parser)


def _argcomplete() -> Any:
    try:
        import argcomplete
    except ModuleNotFoundError:
        raise ManyclError("completing needs the package argcomplete", hint="pip install argcomplete") from None
    return argcomplete


Completer = Callable[..., Iterable[str]]


def completed(action: argparse.Action, names: Callable[[], Iterable[str]], *, listed: bool = False) -> None:
    """The values of an option or argument are names that ``names`` tells; ``listed``: several, with commas between.
    Where none fits, files do."""

    def complete(prefix: str, **_: Any) -> Sequence[str]:
        head = prefix[: prefix.rfind(",") + 1] if listed else ""
        try:
            found = [head + name for name in names()]
        except Exception:  # completing is no place to complain
            return []
        return [name for name in found if name.startswith(prefix)]

    action.completer = complete  # type: ignore[attr-defined]


def devices() -> Iterable[str]:
    """``all``, the kinds that are here, and the devices' names."""
    from manycl.drivers.survey import survey

    roots = survey().roots
    return ["all", *dict.fromkeys(r.device.kind for r in roots if not r.why_not), *(r.device.name for r in roots)]


def policies() -> Iterable[str]:
    """The policies that come with manycl."""
    from manycl.plan import policy

    return policy.names()


def machines() -> Iterable[str]:
    """The machines that come with manycl."""
    from manycl.machine_file import shipped_machines

    return shipped_machines()
