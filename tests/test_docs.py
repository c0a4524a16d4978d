"""The documents name what there is: every path in the pages for contributors, and every link between pages, leads
somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def is_path(word: str) -> bool:
    """What stands in a folder of the project, or is called like one of its files."""
    folder, slash, _ = word.partition("/")
    return " " not in word and (
        (bool(slash) and (ROOT / folder).is_dir()) or re.fullmatch(r"\w+\.(md|py)", word) is not None
    )


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_page_has_two_versions() -> None:
    """What a merge leaves where two changes met."""
    assert not [page.name for page in PAGES if re.search(r"^(<{7}|>{7}) ", page.read_text("utf-8"), re.MULTILINE)]


@pytest.mark.parametrize(
    ("names", "least"), [("contributing", 100), ("glossary", 60), ("decisions/*", 60), ("papers", 90)]
)
def test_paths_for_contributors_are_there(names: str, least: int) -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob(f"{names}.md")]
    named = {path for page in pages for path in CODE.findall(page) if is_path(path)}
    assert len(named) >= least
    missing = [path for path in sorted(named) if not (ROOT / path).exists()]
    # a file that was named with its folder before may be named alone after it
    assert [path for path in missing if "/" in path or not any(n.endswith(f"/{path}") for n in named)] == []


def test_each_line_of_the_papers_names_what_shows_it() -> None:
    """A test, a page of results or a benchmark."""
    lines = re.findall(r"^\| (?!where|---)(.+) \|$", (ROOT / "docs" / "papers.md").read_text("utf-8"), re.MULTILINE)
    shows = re.compile(r"`(?:tests/.*test_\w+\.py|docs/results/\w+\.md|benchmarks/.+\.py)`")
    assert len(lines) >= 75
    assert [line for line in lines if not shows.fullmatch(line.rpartition(" | ")[2].split(", ")[0])] == []


def test_the_glossary_is_in_order_and_names_a_module_for_each_term() -> None:
    entries = re.findall(
        r"^- (\*\*.*(?:\n  .*)*)", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    terms = [re.findall(r"\*\*([^*]+)\*\*", entry)[0] for entry in entries]
    assert terms == sorted(set(terms))
    assert [term for term, entry in zip(terms, entries, strict=True) if "`manycl" not in entry] == []


def folders() -> dict[str, str]:
    """Of each folder of modules, what the docstring of its ``__init__`` says first."""
    found = {}
    for package in ("manycl", "manycl_bench", "manycl_c"):
        for init in sorted((ROOT / package).rglob("__init__.py")):
            said = (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
            found[init.parent.relative_to(ROOT).as_posix()] = " ".join(said.split())
    return found


def test_the_table_of_folders_is_what_their_docstrings_say() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[`([\w/]+)/`\]\(\.\./\1\) \| (.+) \|$", page, re.MULTILINE))
    shown = {f: said for f, said in folders().items() if f.count("/") < 2 or f.startswith("manycl/run/")}
    assert rows == {folder: said.replace("|", "\\|") for folder, said in shown.items()}


def test_the_design_is_read_in_five_minutes_and_its_decisions_have_their_pages() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert len(page.encode()) <= 12_000
    decisions = re.findall(r"^\d+\. \*\*.*(?:\n   .*)*", page.partition("## Decisions")[2], re.MULTILINE)
    assert len(decisions) == 10
    assert [d for d in decisions if len(d.split()) > 120 or "(decisions/" not in d] == []
    linked = set(re.findall(r"\]\((decisions/[^)]+)\)", page))
    assert linked == {f"decisions/{p.name}" for p in (ROOT / "docs" / "decisions").iterdir()}


def test_docstrings_begin_with_what_things_are_or_do() -> None:
    """And not with a word of a sentence that has lost its noun."""
    lost = re.compile(r"(What|Who|Whose|Of|As|How|Which|Where|When|Whether|Until|Once|Nothing|Nobody|The same)\b")
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for path in (ROOT / "manycl").rglob("*.py"):
        said = [ast.get_docstring(n) for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, kinds)]
        found += [(path.relative_to(ROOT).as_posix(), words) for words in said if words and lost.match(words)]
    assert found == []


def test_folders_and_files_fit_on_a_page() -> None:
    """Those of the product, and of tests, benchmarks and scripts."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if re.search(r"\.py$|^scripts/\w+$", name)]
    assert len(files) > 1000
    in_folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in files)
    assert {folder: count for folder, count in in_folders.items() if count > 15} == {}
    lengths = {path.relative_to(ROOT).as_posix(): path.read_bytes().count(b"\n") for path in files if path.exists()}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        leads = page if not path else page.parent / path
        assert leads.exists(), target
        assert not anchor or anchor in anchors(leads), target


def test_what_is_to_be_installed_can_be() -> None:
    """manycl is in no index: who reads this has a checkout, whose extras are those of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = 0
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "manycl").rglob("*.py")]
    for path in [*texts, *(ROOT / "manycl_bench").rglob("*.py")]:
        text = path.read_text()
        assert not re.search(r"pip install (?:-\S+ )*['\"]?manycl\b", text), path
        for extra in re.findall(r"pip install -e '\.\[(\w+)\]'", text):
            assert extra in extras, path
            found += 1
    assert found > 5
