"""``manycl train``: predictors of slice sizes from samples."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manycl.cli import options
from manycl.errors import ManyclError

if TYPE_CHECKING:
    from manycl.model.slices import SliceSample

HELP = "train predictors of how large slices of kernels should be, from samples (needs scikit-learn)"
_EPILOG = """\
examples:
  manycl bench slices --devices native --output cpu     measures samples of one device
  manycl train cpu/slice_samples.json -o slices.json
  manycl train docs/results/slices/*.json -o manycl/model/slices.json     those that come with manycl
a file of samples is a JSON object with `slice_samples`, a list of
  {"kernel": name, "kind": "cpu" or "gpu", "logarithms": [of features], "points": of a slice, "units": compute units}
as `manycl bench slices` writes it; features are Device-Hopping's (Table 1), 3 for CPUs and 2 for GPUs
exit status: 0 done, 2 bad input
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("samples", nargs="+", metavar="FILE", help="samples, as JSON")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="write the predictors there")
    parser.add_argument("--json", action="store_true", help="print how good they are as JSON")


def run(args: argparse.Namespace) -> int:
    from manycl.model.slices import train

    target = Path(args.output)
    options.writable({"--output": args.output})
    found = train([sample for path in args.samples for sample in read_samples(Path(path))])
    found.write(target)
    if args.json:
        print(json.dumps({"output": str(target), **found.about}))
        return 0
    for kind, about in found.about.items():
        print(
            f"{kind}: {about['samples']} samples of {about['kernels']} kernels; predicted without its own samples, a"
            f" kernel's slices are {about['median_factor']:.2f} times off in the median, {about['largest_factor']:.2f}"
            " at most"
        )
    return 0


def read_samples(path: Path) -> list[SliceSample]:
    """The samples in a file. Raises ManyclError for what is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ManyclError(f"{path}: {error}") from None
    rows = value.get("slice_samples") if isinstance(value, dict) else None
    if not isinstance(rows, list):
        raise ManyclError(f"{path} has no slice_samples", hint="manycl bench slices --devices … writes them")
    return [_sample(f"{path}: slice_samples[{index}]", row) for index, row in enumerate(rows)]


def _sample(where: str, row: Any) -> SliceSample:
    from manycl.model.slices import FEATURES, SliceSample

    if not isinstance(row, dict) or row.get("kind") not in FEATURES or not isinstance(row.get("kernel"), str):
        raise ManyclError(f"{where} is no sample: it has a kernel and a kind (cpu or gpu)")
    logarithms: Any = row.get("logarithms")
    points: Any = row.get("points")
    count = len(FEATURES[row["kind"]])
    if not isinstance(logarithms, list) or len(logarithms) != count or not all(map(_is_number, logarithms)):
        raise ManyclError(f"{where}: logarithms are {count} numbers, of {', '.join(FEATURES[row['kind']])}")
    if not _is_number(points) or not points >= 1:
        raise ManyclError(f"{where}: a slice has 1 point at least, not {points!r:.40}")
    units = row.get("units")
    if not isinstance(units, int) or isinstance(units, bool) or units < 1:
        raise ManyclError(f"{where}: a device has 1 compute unit at least, not {units!r:.40}")
    return SliceSample(row["kernel"], row["kind"], tuple(map(float, logarithms)), points / units)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
