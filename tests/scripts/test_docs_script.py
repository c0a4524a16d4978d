"""scripts/docs: the texts are within their limits, and what is not is told."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT

DOCS = ROOT / "scripts" / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script's functions: what it does when it is run stands below them."""
    code = DOCS.read_text(encoding="utf-8").partition("\nwords = environment.arguments()")[0]
    loader = SourceFileLoader("docs_script", str(DOCS))
    found = module_from_spec(spec_from_loader("docs_script", loader))  # type: ignore[arg-type]
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        exec(compile(code, str(DOCS), "exec"), found.__dict__)
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return found


def test_the_texts_are_short_and_plain() -> None:
    done = subprocess.run([sys.executable, str(DOCS), "--prose"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_sentences_are_those_of_prose(script: ModuleType) -> None:
    text = "# Not this\n\nOne here. Two `a. b` there: [x](y.md).\n\n| no. | No table. |\n\n```\nNo. Code.\n```\n"
    text += "\n- Three.\n- Four.\n"
    assert len(script.sentences(text)) == 4


def test_dead_links_are_found(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="here">a</h1><a href="b.html#there">b</a> <a href="#here">a</a>')
    (tmp_path / "b.html").write_text(
        '<a href="a.html#nowhere">a</a> <img src="none.png"> <a href="https://x.org">x</a>'
    )
    assert sorted(script.dead_links(tmp_path)) == ["a.html: b.html#there", "b.html: a.html#nowhere", "b.html: none.png"]
