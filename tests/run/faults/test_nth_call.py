"""A few of the driver's calls fail, in every graph of ``nth_call.py``: other ones every time."""

from __future__ import annotations

from collections.abc import Sequence
from random import SystemRandom

import pytest

from tests.run.faults.nth_call import CASES, Case, calls_of


def a_few(count: int) -> Sequence[int]:
    return sorted(SystemRandom().sample(range(1, count + 1), min(5, count)))


@pytest.mark.filterwarnings("ignore:.*Pre-build attribute access.*:UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_whichever_call_fails_arrays_are_right_or_lost(case: Case) -> None:
    for number, error in calls_of(case, a_few):
        if error is not None:
            error.add_note(f"call {number} of {case.name!r}: python -m tests.run.faults.nth_call {case.name!r}")
            raise error
