"""Pages of results: how they came about, tables that lose nothing, and pages that say what their JSON says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manycl.cli import main
from manycl.machine import Device, Machine
from manycl_bench import model_error, pages, provenance, pyschedcl_report, repara_real, repara_report
from manycl_bench.cli import show_table
from manycl_bench.clusters import report as clusters_report
from manycl_bench.hopping import report as hopping_report
from manycl_bench.libsplit import report as libsplit_report
from manycl_bench.mkmd import real, report
from tests import ROOT

RESULTS = ROOT / "docs" / "results"
PAGES: dict[str, Callable[[Any], Iterator[str]]] = {
    "clusters": clusters_report.page,
    "hopping": hopping_report.page,
    "libsplit": libsplit_report.page,
    "libsplit_real": libsplit_report.real_page,
    "mkmd": report.page,
    "mkmd_real": real.page,
    "models": model_error.page,
    "models_gpu": model_error.page,
    "pyschedcl": pyschedcl_report.page,
    "pyschedcl_simulated": pyschedcl_report.page,
    "repara": repara_report.page,
    "repara_real": repara_real.page,
}
ROWS = ("command", "date", "commit", "ran on", "devices", "versions", "raw figures", "spread")


@pytest.mark.parametrize("name", sorted(p.stem for p in RESULTS.glob("*.md")))
def test_a_page_is_what_its_raw_figures_say(name: str) -> None:
    """A page whose text or figures were changed alone is stale."""
    figures = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert pages.render(PAGES[name](figures)) == page
    header = dict(re.findall(r"^\| ([a-z ]+) \| (.+) \|$", page, re.MULTILINE))
    assert set(ROWS) <= header.keys()
    assert "manycl bench" in figures["made"]["command"]
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page):
        assert (RESULTS / picture).is_file(), picture


def test_what_is_known_of_a_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_POLICY", "heft")
    monkeypatch.setenv("MANYCL_DATA", "/somewhere/private")
    pair = Machine((Device("cpu0.0", "cpu", "Xeon", "Driver", "1.2"), Device("cpu0.1", "cpu", "Xeon", "Driver", "1.2")))
    made = provenance.made("manycl bench models", pair, simulated=False)
    assert "MANYCL_POLICY=heft " in made["command"]
    assert made["command"].endswith(" manycl bench models")
    assert "private" not in json.dumps(made)
    assert made["devices"] == ["cpu0.0, cpu0.1: Xeon (Driver, 1.2)"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", made["date"])
    assert made["machine"]["cores"] >= 1
    assert {"python", "numpy"} <= made["versions"].keys()
    text = "\n".join(provenance.header({"made": made}, "models", "`samples`", "none"))
    assert "cpu0.0, cpu0.1: Xeon" in text
    assert provenance.made("x", pair, simulated=True)["simulated"] == "this machine"


def test_what_is_not_known_is_said_to_be() -> None:
    lines = list(provenance.header({}, "x", "`samples`", "none"))
    assert sum("not known" in line for line in lines) == 6
    remarks = provenance.header({"made": {"remarks": "measured again in spring"}}, "x", "`samples`", "none")
    assert "| remarks | measured again in spring |" in remarks


def test_a_commit_is_the_packages_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where manycl is installed into somebody else's checkout, that one's commit says nothing."""
    assert provenance.commit() is None or re.match(r"[0-9a-f]{10}", provenance.commit() or "")
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "manycl_bench" / "provenance.py"))
    (tmp_path / "manycl_bench").mkdir()
    assert provenance.commit() is None
    (tmp_path / "COMMIT").write_text("0123456789\n", encoding="utf-8")  # carried without Git
    assert provenance.commit() == "0123456789"


def test_the_spread_is_half_of_the_middle_half() -> None:
    assert provenance.with_spread([10.0, 9.0, 11.0, 8.0, 12.0]) == "10.00 ± 10 %"
    assert provenance.with_spread([10.0, 12.0]) == "11.00"


def test_a_printed_table_has_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(
        [{"name": "a b", "time_of_all_ms": 1.25, "off": None}, {"name": "c", "time_of_all_ms": 10.0, "off": 3}], "All"
    )
    lines = capsys.readouterr().out.split("\n")
    assert lines[1:] == [
        "All",
        "",
        "name  time of all ms  off",
        "a b             1.25    -",
        "c              10.00    3",
        "",
        "",
    ]
    show_table([], "None")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mkmd", "--cold"], "--cold is not for bench mkmd, which has equations"),
        (["mkmd", "--profile"], "--profile is not for bench mkmd"),
        (["mkmd", "--devices", "cpu"], "without --real"),
        (["mkmd", "--real", "--cold"], "begins with its inputs on the host"),
        (["mkmd", "--real", "--machine", "conan"], "--machine is not for bench mkmd --real"),
        (["mkmd", "--most-heads", "0"], "--most-heads is not for bench mkmd"),
        (["repara", "--repeats", "3"], "no --repeats without --devices"),
        (["models", "--real"], "--real is not for bench models"),
        (["models", "--queues", "2"], "which has seven kernels"),
        (["libsplit", "--cold"], "--cold is not for bench libsplit"),
        (["pyschedcl", "--applications", "EP"], "--applications is not for bench pyschedcl"),
        (["pyschedcl", "--machine", "pyschedcl", "--cold"], "no --cold with it"),
        (["pyschedcl", "--machine", "pyschedcl", "--devices", "cpu"], "no --devices with it"),
        (["pyschedcl", "--betas", "100"], "beta 100"),
        (["pyschedcl", "--repeats", "0"], "at least 1"),
    ],
)
def test_nothing_that_was_asked_for_is_left_out(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err


def test_json_is_read_as_it_was_written(tmp_path: Path) -> None:
    figures = {
        "a": 1.5,
        "b": [1, 2],
        "c": [[1.0], []],
        "d": {},
        "e": [{"f": None}],
        "g": "x\n",
        "h": (3, "y"),
        "i": True,
    }
    pages.write(tmp_path, "x", figures)
    assert json.loads((tmp_path / "x.json").read_text()) == json.loads(json.dumps(figures))
    assert '"b": [1, 2]' in (tmp_path / "x.json").read_text()
