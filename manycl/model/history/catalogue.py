"""The contents of a store, kernel by kernel and device by device: for lists, details and export."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from manycl.model.history.history import KernelKey, OnDevice, Shape
from manycl.model.history.store import KernelSeries, Store
from manycl.model.interpolation import Interpolation
from manycl.model.regression import Regression
from manycl.model.work import product


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that was measured: its shape, and the seconds of its runs, the first one first."""

    shape: Shape
    samples: tuple[float, ...]
    typical: float
    predicted: float | None  # the regression's seconds


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel on a device. ``errors``: for each model, the mean relative error in percent of its predictions for
    launches that were measured later, and their number. ``fitted``: the error that each model is believed to have (a
    fraction; infinite: unknown)."""

    key: KernelKey
    device: str
    launches: tuple[Launched, ...]
    regression: Regression | None
    interpolation: Interpolation | None
    errors: dict[str, tuple[float, int]]
    fitted: dict[str, float]

    @property
    def samples(self) -> int:
        return sum(len(x.samples) for x in self.launches)

    @property
    def model(self) -> str:
        """The model that would predict another launch: the one with the least error."""
        return min(self.fitted, key=lambda name: self.fitted[name], default="one size")

    @property
    def error_percent(self) -> float | None:
        """The model's error in percent: in predicting launches measured later, else a sample by the others."""
        error = self.fitted.get(self.model, math.inf)
        return 100 * error if error < math.inf else None

    def to_dict(self) -> dict[str, Any]:
        r = self.regression
        return {
            "kernel": self.key.kernel,
            "text": self.key.text,
            "local_size": self.key.local_size,
            "device": self.device,
            "model": self.model,
            "error_percent": self.error_percent,
            "regression": None
            if r is None
            else {"b1": r.b1, "b2": r.b2, "e": r.e, "samples": r.samples, "refused": r.refused},
            "predicted_before_measured": {m: {"error_percent": e, "times": n} for m, (e, n) in self.errors.items()},
            "launches": [
                {
                    "global_size": x.shape.global_size,
                    "f": x.shape.f,
                    "seconds": x.typical,
                    "samples": x.samples,
                    "regression": x.predicted,
                }
                for x in self.launches
            ],
        }


def entries(store: Store, kernel: str = "", device: str = "") -> list[Entry]:
    """Return the entries of the kernels of a name (empty: all) on the devices whose identity contains a text."""
    rows = store.rows(kernel, device)
    return [_entry(key, where, group) for (key, where), group in groupby(rows, lambda r: (r.key, r.stored.device))]


def _entry(key: KernelKey, device: str, rows: Iterable[KernelSeries]) -> Entry:
    known = OnDevice()
    for row in rows:
        known.restore(row.stored)
    regression, interpolation = known.models()
    fitted = {
        name: error if (error := known.error(name)) is not None else model.error
        for name, model in (("regression", regression), ("interpolation", interpolation))
        if model is not None
    }
    launches = []
    for shape, series in sorted(known.launches.items(), key=lambda x: (product(x[0].global_size) * x[0].f, x[0])):
        items = product(shape.global_size)
        told = regression.seconds(items, items * shape.f) if regression is not None else None
        launches.append(Launched(shape, tuple(series.samples), series.typical, told))
    errors = {
        model: (100 * fmean(c.error for c in compared), len(compared)) for model, compared in known.comparisons.items()
    }
    return Entry(key, device, tuple(launches), regression, interpolation, errors, fitted)
