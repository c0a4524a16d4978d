"""Directions of arguments against the hand-written table."""

from __future__ import annotations

import pytest

from manycl.analysis import KernelFacts, parse_program
from tests.analysis.reading.direction_corpus import CASES, Case

LETTERS = {"read": "r", "written": "w", "both": "b", "unused": "u"}


def facts(case: Case) -> KernelFacts:
    return parse_program(case.source, path="<case>", options=[f"-cl-std={case.standard}"]).kernels[case.name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_directions(case: Case) -> None:
    found = [argument for argument in facts(case).arguments if argument.direction]
    assert "".join(LETTERS[argument.direction] for argument in found) == case.expected, found
    reasons = [argument.reason for argument in found if argument.reason]
    if case.reason:
        assert reasons
        assert all(case.reason in reason for reason in reasons), reasons
    elif case.runs:
        assert not reasons, "nothing of this needs to be widened"


def test_the_table_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
