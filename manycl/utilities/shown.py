"""How values of any stage are shown in notebooks: that is the report's business, which is found by name when a notebook
asks for it."""

from __future__ import annotations

import importlib


def html(value: object) -> str:
    """HTML for a value that :mod:`manycl.report.notebook` knows."""
    shown: str = importlib.import_module("manycl.report.notebook").html(value)
    return shown
