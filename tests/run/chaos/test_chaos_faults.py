"""Seeds of ``chaos_faults.py``: those that failed once, and fresh ones."""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.run.chaos.chaos_faults import KINDS, kept, run_seed

SEEDS = 60
"""Of a kind, new ones each time; python -m tests.run.chaos.chaos_faults all 10000 runs more."""


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_goes_wrong_what_counts_as_valid_is_valid(kind: str) -> None:
    first = SystemRandom().randrange(1 << 40)
    for seed in range(first, first + SEEDS):
        try:
            run_seed(kind, seed)
        except Exception as error:
            again = f"python -m tests.run.chaos.chaos_faults {kind!r} 1 {seed}"
            error.add_note(f"{again}; it belongs into chaos_seeds.json")
            raise


@pytest.mark.parametrize(("kind", "seed"), kept())
def test_what_failed_once_is_right(kind: str, seed: int) -> None:
    run_seed(kind, seed)
