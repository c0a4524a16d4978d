"""How values of any stage are shown in notebooks: by the report, which is found by name when a notebook asks."""

from __future__ import annotations

import importlib


def html(value: object) -> str:
    """HTML for a value that :mod:`manycl.report.notebook` knows."""
    shown: str = importlib.import_module("manycl.report.notebook").html(value)
    return shown
