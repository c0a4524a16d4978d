"""``%load_ext manycl``: magic commands for OpenCL C in IPython and Jupyter. ``%%cl [-o OPTIONS]`` compiles a cell, and
its kernels become names of the notebook, as ``%%cl_kernel`` of PyOpenCL's extension has it; ``%cl_load FILE [-o
OPTIONS]`` does so for a file, and with ``-e`` puts the file into the next cell instead. Nothing of IPython's has to be
imported for what the shell does here."""

from __future__ import annotations

import getopt
import shlex
from pathlib import Path
from typing import Any

from manycl.api.kernel_files import read_source
from manycl.api.program import Program
from manycl.errors import ManyclError


class MagicError(ManyclError):
    """An error of a cell or a command. IPython shows its message alone, and the rest of the cell does not run."""

    def _render_traceback_(self) -> list[str]:
        return [f"manycl: {self}"]


def load_ipython_extension(shell: Any) -> None:
    """Register the commands: IPython calls this for ``%load_ext manycl``."""
    magics = Magics(shell)
    shell.register_magic_function(magics.cl, magic_kind="cell", magic_name="cl")
    shell.register_magic_function(magics.cl_load, magic_kind="line", magic_name="cl_load")


class Magics:
    """The commands of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def cl(self, line: str, cell: str) -> None:
        """``%%cl [-o OPTIONS]``: compile the cell as OpenCL C; its kernels become names of the notebook. ``-o`` takes
        build options, as in ``-o "-D N=16 -cl-std=CL2.0"``, and may be given several times."""
        options, rest = _words("%%cl", line, "o:")
        if rest:
            raise MagicError(f"%%cl: what is {rest[0]!r}?", hint='%%cl -o "-D N=16"')
        path = f"<cell {self._shell.execution_count}>"
        self._define("\n" + cell, _build_options(options), path)  # lines count from that of %%cl

    def cl_load(self, line: str) -> None:
        """``%cl_load FILE [-o OPTIONS] [-e]``: compile a file of OpenCL C; its kernels become names of the notebook.
        ``-e``: put it into the next cell, under ``%%cl``, to be edited there."""
        options, rest = _words("%cl_load", line, "o:e")
        if len(rest) != 1:
            raise MagicError("%cl_load: one file of OpenCL C", hint="%cl_load kernels.cl")
        try:
            source = read_source(Path(rest[0]).expanduser())
        except ManyclError as error:
            raise MagicError(f"%cl_load {error.message}") from None
        build_options = _build_options(options)
        if "-e" not in dict(options):
            self._define(source, build_options, str(Path(rest[0]).expanduser()))
            return
        given = f" -o {shlex.quote(shlex.join(build_options))}" if build_options else ""
        self._shell.set_next_input(f"%%cl{given}\n{source}")

    def _define(self, source: str, options: list[str], path: str) -> None:
        try:
            program = Program(source, options, path=path)
        except ManyclError as error:
            raise MagicError(str(error)) from None
        for name in program.facts.kernels:
            self._shell.user_ns[name] = program.kernel(name)


def _words(magic: str, line: str, letters: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options and the other words of a line."""
    try:
        return getopt.gnu_getopt(shlex.split(line), letters)
    except (getopt.GetoptError, ValueError) as error:
        raise MagicError(f"{magic} {line}: {error}") from None


def _build_options(options: list[tuple[str, str]]) -> list[str]:
    try:
        return [word for letter, value in options if letter == "-o" for word in shlex.split(value)]
    except ValueError as error:
        raise MagicError(f"-o: {error}") from None
