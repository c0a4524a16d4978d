"""C programs find on manycl what they find on PoCL: values, status codes, what objects tell; and end as they would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.c_programs.c_toolchain import by_manycl, compiled, needs_c, plain, ran

pytestmark = needs_c


_PROGRAMS = [("values.c", 0), ("images.c", 0), ("codes.c", 0), ("arguments.c", 0), ("told.c", 7)]


@pytest.mark.parametrize(("name", "code"), _PROGRAMS)
def test_as_plain_pocl(name: str, code: int, tmp_path: Path) -> None:
    program = compiled(name, tmp_path)
    expected = ran(plain(program, tmp_path), code=code).stdout.splitlines()
    assert len(expected) > 10
    seen = ran(by_manycl(program), code=code).stdout.splitlines()
    assert seen == expected


def test_as_plain_divided_and_moved(tmp_path: Path) -> None:
    program = compiled("values.c", tmp_path)
    expected = ran(plain(program, tmp_path)).stdout
    how = by_manycl(program, "--devices", "cpu/2", "--policy", "tenths", "--explain", MANYCL_ZERO_COPY="0")
    ended = ran(how)
    assert ended.stdout == expected
    assert "divided: add" in ended.stderr
    assert "on one device alone: maybe" in ended.stderr


def test_kernels_that_write_images_are_divided(tmp_path: Path) -> None:
    program = compiled("planes.c", tmp_path)
    expected = ran(plain(program, tmp_path)).stdout
    ended = ran(by_manycl(program, "--devices", "opencl/2", "--policy", "balance", "--explain"))
    assert ended.stdout == expected
    assert "divided: blur x4 of 4" in ended.stderr
    assert "on one device alone: order" in ended.stderr


def test_ctrl_c_and_pipes_do_what_they_did(tmp_path: Path) -> None:
    """Python in the process has not taken signals, nor the locale, for itself."""
    program = compiled("quiet.c", tmp_path)
    ended = ran(by_manycl(program))
    assert ended.stdout == ran(plain(program, tmp_path)).stdout
    command, settings = by_manycl(program)
    killed = subprocess.run([*command, "kill"], env=settings, capture_output=True, timeout=200, check=False)
    assert killed.returncode == -signal.SIGINT


def test_programs_that_manycl_leaves_alone(tmp_path: Path) -> None:
    """Without MANYCL=1 the library hands everything on to the one that comes behind it."""
    program = compiled("values.c", tmp_path)
    command, settings = plain(program, tmp_path)
    ran(by_manycl(program))  # the library is there
    folder = next(Path(os.environ["MANYCL_CACHE"], "c_programs").glob("*/libOpenCL.so.1")).parent
    both = settings | {"LD_LIBRARY_PATH": f"{folder}:{settings['LD_LIBRARY_PATH']}", "MANYCL": "0"}
    assert ran((command, both)).stdout == ran((command, settings)).stdout


def test_commands_of_a_kind_keep_nothing(tmp_path: Path) -> None:
    """Neither memory beyond the 64 MiB that an eager stream may keep (an array for each would be twice as much), nor
    descriptors."""
    found = json.loads(ran(by_manycl(compiled("many.c", tmp_path)), "2000").stdout)
    assert len(found) == 5
    assert not {kind: more for kind, more in found.items() if more[0] > 80 << 20 or more[2] > 5}
