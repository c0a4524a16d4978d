"""The five papers, item by item of issue 42: what is asked, what the paper says, and the figure that is computed here.

Figures are simulated where they can be, else of small runs on this machine's processor; those that times of this
machine decide are judged with --real only, which takes minutes and a machine that nobody else uses. States: *reached*;
*wrong*: the figure is not what is asked; *missing*: what is asked is not there (why, in words); *measured*: of --real.
`missing` and `wrong` count them. docs/papers.md has the papers line by line.
"""

from __future__ import annotations

import time
import traceback
from typing import Any

import common
from papers_items import general, hopping, libsplit, mkmd, pyschedcl, repara
from papers_items.item import ITEMS, Item, Missing

assert all((general, hopping, libsplit, mkmd, pyschedcl, repara))  # importing them fills ITEMS
NOT_THERE = (Missing, ImportError, AttributeError, TypeError, FileNotFoundError)
"""Raised where an item needs what is not built."""


def row(item: Item, real: bool) -> dict[str, Any]:
    """One item: its figure and state."""
    told = {"asked": item.asked, "paper": item.paper, "figure": None}
    if item.measured and not real:
        return {**told, "state": "measured"}
    begin = time.process_time()
    try:
        figure, reached = item.find()
        told |= {"figure": rounded(figure), "state": "reached" if reached else "wrong"}
    except NOT_THERE as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        told |= {"state": "missing", "why": f"{error} ({at.filename.rpartition('/')[2]}:{at.lineno})"}
    return {**told, "processor_s": round(time.process_time() - begin, 1)}


def rounded(value: Any) -> Any:
    """With five digits."""
    if isinstance(value, dict):
        return {key: rounded(of) for key, of in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--real", action="store_true", help="also what times of this machine decide")
    parser.add_argument("--items", default=",".join(ITEMS), metavar="KEY,…", help="these (default: all)")
    args = parser.parse_args()
    rows = {}
    for key in args.items.split(","):
        rows[key] = row(ITEMS[key], args.real)
        if not args.json:
            print(f"{key}: {rows[key]['state']}: {rows[key].get('why') or rows[key]['figure']}", flush=True)
    states = [r["state"] for r in rows.values()]
    common.report(args, {state: states.count(state) for state in ("reached", "wrong", "missing", "measured")}, rows)


if __name__ == "__main__":
    main()
