"""Fixtures for the tests of the readers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manycl.applications.application import Application
from manycl.applications.load import load_application
from tests.applications.sample_application import KERNELS, SPECIFICATION

Loader = Callable[..., Application]


@pytest.fixture
def specification() -> dict[str, Any]:
    """A copy to change."""
    return copy.deepcopy(SPECIFICATION)


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    """Writes a document beside the kernel file and loads it."""
    (tmp_path / "k.cl").write_text(KERNELS)

    def load_document(document: Any, /, **parameters: object) -> Application:
        path = tmp_path / "app.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document, indent=1))
        return load_application(path, {name: str(value) for name, value in parameters.items()})

    return load_document
