"""Device-Hopping's items."""

from __future__ import annotations

from statistics import median
from typing import Any

import hop
import reserve

from manycl.machine import DeviceIndex
from manycl_bench.hopping import model, real
from papers_items.item import DATA, Found, device, elsewhere, item, machine, milliseconds, page, problem

LIVE = {"live": "yes"}
FAST, SLOW = DeviceIndex(0), DeviceIndex(1)
PARTS = (0.2, 0.5, 0.8)
"""When the fast device becomes free, in parts of the time on the slow one."""


def _occupied(units: int, k: float, part: float) -> dict[str, float]:
    """When a kernel ends, in milliseconds, by the perfect scheduler that cannot migrate and by ``hop`` live, where
    another one has its fast device for about a part of its time on the slow one; and the model's speed-up."""
    fast = device("gpu0", "1000 GFLOP/s", "1000 GB/s", units, launch_overhead="5 us", queues=1, memory="host")
    slow = device("cpu0", f"{1000 / k} GFLOP/s", "1000 GB/s", units, launch_overhead="5 us", queues=1)
    where, rounds = machine(fast, slow), 40_000
    size = {"W": max(int(rounds * part * k), 1), "R": rounds}
    given = {p: problem(DATA / "occupied.json", size, where, options=o) for p, o in (("pns", {}), ("hop", LIVE))}
    found = {p: milliseconds(of, p, node=1) for p, of in given.items()}
    taken, alone, slowly = (given["hop"].estimates.launch(*on) for on in ((0, FAST), (1, FAST), (1, SLOW)))
    return {**found, "model": model.speedup(slowly / alone, taken / alone - (slowly / alone - 1.0))}


@item("hopping_a", "by default launches leave a device within 5 ms, with every policy, also one that is reserved, none"
      " wrong; where nobody comes they cost 1 %", "3: any time", measured=True)  # fmt: skip
def leaves() -> Found:
    late = elsewhere("leave_latency")
    wrong = late.pop("wrong")
    late["reserved"] = 1e3 * median(reserve.times_of("cpu", 20, 7, 1 << 14, settling=0.2).then)
    cost = 0.0
    for case in map(hop.Case, hop.LENGTHS):
        moving, staying = (hop.run(case, (5e-6, 3e-5), moves, ends_early=True).seconds for moves in (True, False))
        cost = max(cost, moving / staying - 1.0)
    figure = {**late, "wrong": wrong, "cost_percent": 100.0 * cost}
    return Found(figure, max(late.values()) <= 5.0 and not wrong and figure["cost_percent"] <= 1.0)


@item("hopping_b", "what runs when the fast device is free is cut short or restarted: 98 % of the model", "3.2: Eq. 8")
def restarts() -> Found:
    found = {}
    for k in (2.0, 4.0):
        for part in PARTS:
            of = _occupied(4, k, part)
            found[f"k={k:g} at {part:g}"] = of["pns"] / of["hop"] / of["model"]
    return Found(found, min(found.values()) >= 0.98)


@item("hopping_c", "on 132 units migrating costs at most 2 % over not migrating (2 to 5x)", "4: slices fill a device")
def packets() -> Found:
    found = {}
    for part in PARTS:
        of = _occupied(132, 5.0, part)
        found[f"at {part:g}"] = of["hop"] / of["pns"]
    return Found(found, max(found.values()) <= 1.02)


@item("hopping_d", "parallel_for: min and max of all integers, barriers, structures, batches, races, lines", "5")
def loops() -> Found:
    figure = elsewhere("loops")
    return Found(figure, not figure["wrong"] and not figure["refused"])


@item("hopping_e", "Figure 11 by predicted slices, Table 3 in three sizes, a CPU and a GPU both ways, other runtimes",
      "1.30x, 1.08x, 96 % and 74 % of the bound, 2.44 % where nothing migrates", measured=True)  # fmt: skip
def measured() -> Found:
    quick = real.Settings(parts=(0.25, 0.5, 0.75), repeats=3, seconds=(0.06, 0.12, 0.24))
    here = real.run("native/2#0@2,opencl/2#1", quick, lambda text: None)
    figure: dict[str, Any] = {"page": page("hopping")["summary"], "here": here["summary"]}
    figure["without_three_sizes"] = [n for n in model.TABLE_3 if len(_rows(here, n)) != len(model.INPUTS)]
    # a benchmark whose largest input is too short on the page's devices has fewer sizes there, and says so
    rows = page("hopping")["results"]
    figure["page_sizes"] = sorted({row.get("size", "none") for row in rows})
    figure["page_slow_devices"] = sorted({row["slow"] for row in rows if not real.is_short(row)})
    is_whole = not figure["without_three_sizes"] and set(figure["page_sizes"]) == set(model.INPUTS)
    return Found(figure, is_whole and len(figure["page_slow_devices"]) == 2)


def _rows(found: Any, name: str) -> list[Any]:
    return [row for row in found["results"] if row["benchmark"] == name]
