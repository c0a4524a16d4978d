"""Device-Hopping's benchmarks written by hand: right whenever they migrate; and how many lines that takes."""

from __future__ import annotations

import itertools
import textwrap
from typing import Any

import pytest

from manycl_bench.hopping import lines
from manycl_bench.hopping.data import CASES
from manycl_bench.hopping.hand.programs import PROGRAMS
from manycl_bench.hopping.model import TABLE_3

cl = pytest.importorskip("pyopencl")


@pytest.fixture(scope="module")
def device() -> Any:
    for platform in cl.get_platforms():
        if "Portable" in platform.name:
            return platform.get_devices()[0]
    pytest.skip("no PoCL here")


@pytest.mark.parametrize("looks", [0, 1, 3, 10**9])
@pytest.mark.parametrize("name", TABLE_3)
def test_results_are_right_whenever_the_fast_device_becomes_free(device: Any, name: str, looks: int) -> None:
    """At the first look, while the first slice runs, later, and never."""
    case = CASES[name](40_000)
    results: dict[str, Any] = {}
    asked = itertools.count()
    more = {"results": results} if name in ("MD5Hash", "Reduction") else {}
    done = PROGRAMS[name](device, device, lambda: next(asked) >= looks, **case.given, **more)
    assert case.check({**case.given, **results}) == []
    assert sum(done.done_by.values()) == done.program.points
    if looks == 0:
        assert done.done_by["slow"] == 0
    if looks == 10**9:
        assert done.done_by["fast"] == 0


def test_lines_of_python_are_those_with_code() -> None:
    text = textwrap.dedent('''
        """A docstring
        of two lines."""

        import os  # not counted
        from os import (
            path,
        )

        X = 1
        """What X is."""


        def f(a,
              b):
            # a comment
            body = """
            int x = 1;

            // nothing
            #define Y 2
            x++;
            """
            return (a +
                    b, body)
        ''')
    assert lines.python_lines(text) == 8  # X, two of def, body =, two of C, two of return


def test_lines_of_c_are_those_with_code() -> None:
    assert lines.c_lines("/* a\nb */ int x;\n\n#define N 1\n// c\n{\n  y = 2; /* d */\n}\n") == 4


def test_table_4() -> None:
    table = lines.table()
    assert [row.name for row in table] == list(TABLE_3) == list(lines.PAPER)
    for row in table:
        assert 0 < row.loop < row.migration < row.by_hand
        assert row.fewer_percent > 70.0
    assert round(min(100 * (1 - loop / hand) for hand, _, loop in lines.PAPER.values())) == 88
