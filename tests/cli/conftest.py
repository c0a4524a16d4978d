"""Fixtures for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what is learned is kept: not there yet, nobody else's, and used."""
    monkeypatch.setenv("MANYCL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MANYCL_MODELS", "1")
    monkeypatch.delenv("MANYCL_DEVICES", raising=False)
    return tmp_path / "data"
