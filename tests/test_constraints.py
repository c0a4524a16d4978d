"""constraints.txt names a version of all that the README's commands install, and one that pyproject.toml allows."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = [Requirement(line) for line in (*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["check"], *EXTRAS["docs"])]
LINES = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
VERSIONS = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}


def needed(requirement: Requirement, extra: str = "") -> Iterator[Requirement]:
    """A requirement, if it is one here, and all that it requires in turn where it is installed."""
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
        return
    yield requirement
    try:
        required = importlib.metadata.requires(requirement.name) or []
    except importlib.metadata.PackageNotFoundError:
        return  # a check's, where only tests are installed
    for line in required:
        for wanted in ("", *requirement.extras):
            yield from needed(Requirement(line), wanted)


def test_every_line_is_an_exact_version() -> None:
    assert len(VERSIONS) == len(LINES)
    assert all(version and not set(version) & set("*,<>=!~; ") for version in VERSIONS.values())


@pytest.mark.parametrize("direct", DIRECT, ids=lambda requirement: requirement.name)
def test_all_that_is_needed_is_there_in_a_version_that_will_do(direct: Requirement) -> None:
    for requirement in needed(direct):
        version = VERSIONS.get(canonicalize_name(requirement.name))
        assert version is not None, f"constraints.txt lacks {requirement.name}, which {direct.name} needs"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} is not {version}"


def test_the_commands_use_it() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "pip install -q -c constraints.txt -e ." in readme
    assert 'ROOT / "constraints.txt"' in (ROOT / "scripts" / "environment.py").read_text(encoding="utf-8")


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    code = "import environment; print(*environment.lowest_versions(), sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "scripts", capture_output=True, text=True, check=True)
    lowest = dict(line.split("==") for line in run.stdout.splitlines())
    tested = [Requirement(line) for line in (*PROJECT["dependencies"], *EXTRAS["test"])]
    bounded = {r.name: r.specifier for r in tested if r.specifier}
    assert lowest.keys() == bounded.keys(), "a bound that is not NAME>=VERSION"
    for name, version in lowest.items():
        assert bounded[name].contains(version)
        assert [s.version for s in bounded[name] if s.operator == ">="] == [version]
