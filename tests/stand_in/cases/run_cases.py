"""Runs all cases with the PyOpenCL that this process has, on the first platform that is no simulator; prints what each
found, as JSON: its value, or the class and code of its error. ``--plain``: without those that need not be compared, and
drivers are prepared first, as manycl does (PoCL may have to be told what processor this is)."""

from __future__ import annotations

import faulthandler
import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

import manycl

KINDS = ("cases", "expected")
COMPARED, OTHERS = (sorted(path.stem for path in Path(__file__).parent.glob(f"{kind}_*.py")) for kind in KINDS)


def plain(value: Any) -> Any:
    """As JSON has it; objects by their class."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and value != value:
        return "nan"
    return value if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__


def outcome(case: Any, ctx: Any, queue: Any) -> Any:
    try:
        return plain(case(ctx, queue))
    except cl.Error as error:
        try:
            return [type(error).__name__, cl.status_code.to_string(error.code), error.routine]
        except AttributeError:
            return [type(error).__name__, str(error)]
    except Exception as error:
        return [type(error).__name__]


def main() -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    is_plain = sys.argv[1:] == ["--plain"]
    if is_plain:
        manycl.devices()
    platform = next(p for p in cl.get_platforms() if "oclgrind" not in p.name.lower())
    found: dict[str, Any] = {"platform": platform.name}
    for name in COMPARED if is_plain else [*COMPARED, *OTHERS]:
        module = importlib.import_module(name)
        ctx = cl.Context(platform.get_devices())  # each file has its own
        for case, function in list(vars(module).items()):
            if case.startswith("case_"):
                print(case, file=sys.stderr, flush=True)
                found[f"{name}.{case}"] = outcome(function, ctx, cl.CommandQueue(ctx))
    print(json.dumps(found))


main()
