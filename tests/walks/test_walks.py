"""How far a run goes through the house: calls and modules of manycl that the common runs pass, each with its bound.

A bound is the count when it was last lowered, and a tenth more: a run may take an end of another one with it. Where
shares move, the numbers of packets and of pieces that change places differ from run to run, so those bounds are a
quarter above what was seen. One of three processes has to keep to them, as waits go other ways on a busy machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WALK = Path(__file__).with_name("walk.py")
BOUNDS = {
    "one_device": {"first": (2360, 98), "second process": (535, 66), "steady": (66, 16)},
    "one_of_two": {"second process": (430, 72), "steady": (64, 19)},
    "divided": {"first": (11550, 194), "steady": (160, 40)},
    "prepared": {"first": (5520, 168), "run 5": (183, 39), "steady": (80, 30)},
    "moving": {"run 2": (4000, 61), "steady": (2800, 61)},
    "unmodified": {"steady": (60, 18)},
}
"""Calls and modules; second process: of the first run of one that finds what another one has left on disk; steady: the
least of the second half of the runs, as these wait in other ways where the machine is busy."""
OWN_MEMORIES = {"divided", "moving"}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_run_stays_within_its_bounds(name: str, tmp_path: Path) -> None:
    for place in range(3):
        found = counts(name, tmp_path / str(place))
        beyond = [run for run, most in BOUNDS[name].items() if found[run][0] > most[0] or found[run][1] > most[1]]
        if not beyond:
            return
    raise AssertionError((beyond, found))


def counts(name: str, place: Path) -> dict[str, tuple[int, int]]:
    """Return the calls and modules of a program's runs that have bounds."""
    own = {"MANYCL_DATA": str(place), "MANYCL_CACHE": str(place / "cache")}
    own["MANYCL_MODELS"] = str(int(name == "one_of_two"))
    own["MANYCL_ZERO_COPY"] = str(int(name not in OWN_MEMORIES))
    how = ["-m", "manycl", "exec", str(WALK)] if name == "unmodified" else [str(WALK)]
    command = [sys.executable, *how, name]

    def walked() -> list[tuple[str, list[int]]]:
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout).items())

    runs = walked()
    later = [found for _, found in runs[len(runs) // 2 :]]
    steady = min(calls for calls, _ in later), min(modules for _, modules in later)
    counted = {"first": runs[0][1], "steady": steady, **dict(runs)}
    if "second process" in BOUNDS[name]:
        counted["second process"] = walked()[0][1]
    return {run: (counted[run][0], counted[run][1]) for run in BOUNDS[name]}
