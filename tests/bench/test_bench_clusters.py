"""``manycl bench clusters``: a small version of it finds what the page says, and no more is moved than has to be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manycl.machine_file import format_machine, parse_machine
from manycl_bench.clusters import experiments
from manycl_bench.clusters.experiments import CASES, Settings
from tests import ROOT

PAGE = json.loads((ROOT / "docs" / "results" / "clusters.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return experiments.run(Settings(nodes=(1, 4), planned=(4,)), lambda text: None)


@pytest.mark.parametrize("key", ["weak", "client", "strong"])
def test_the_page_says_what_is_simulated_now(small: dict[str, Any], key: str) -> None:
    on_page = {(row["application"], row["nodes"]): row for row in PAGE[key]}
    assert small[key]
    for row in small[key]:
        assert on_page[row["application"], row["nodes"]] == pytest.approx(row)


def test_a_stencils_nodes_exchange_rows_and_nothing_else() -> None:
    """Five exchanges of a row each way between neighbours, or deeper ones that are fewer: never more bytes than those
    of the steps' rows and of the rows that are computed twice."""
    (case,) = (c for c in CASES if c.name == "stencil")
    parameters = {"n": 4096, "rows": 4096 * 4, "steps": 6}
    found = experiments.scaled(case, 4, parameters)
    row, cuts, exchanges = 4096 * 4, 3, 5
    assert found["mbytes"] == pytest.approx(2 * cuts * exchanges * row / 1e6)
    assert found["transfers"] == 2 * cuts * exchanges


def test_the_machine_of_the_page_is_a_file_of_few_lines() -> None:
    machine = experiments.machine_of(4096)
    assert len(machine.devices) == machine.memories - 1 == 4096
    assert len(experiments.MACHINE.read_text(encoding="utf-8").splitlines()) < 30
    assert parse_machine(format_machine(machine)) == machine
