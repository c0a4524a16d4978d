"""REPARA's items."""

from __future__ import annotations

import time
from typing import Any

from manycl.applications.planning import described_machine
from manycl.errors import PolicyError
from manycl.plan.policy import StaticPolicy, find, names
from manycl.plan.problem import Problem
from manycl.run.simulation.simulate import plan_with, simulate
from manycl_bench import pyschedcl, repara, repara_real
from papers_items.general import EQUATION
from papers_items.item import DATA, Found, Missing, device, item, machine, milliseconds, problem
from papers_items.mkmd import layered


@item("repara_a", "double, work-groups, local memory decide where kernels run, under every policy", "Eq. 1, 2, 5")
def feasible() -> Found:
    lacking: dict[str, Any] = {"double": False, "max_work_group": 256, "local_memory": "32 KiB"}
    where = machine(
        device("cpu0", "60 GFLOP/s", "20 GB/s", 4), device("gpu0", "6000 GFLOP/s", "200 GB/s", **lacking)
    )  # fmt: skip
    wrong = []
    policies = [name for name in names() if isinstance(find(name), StaticPolicy)]
    for name in policies:
        given = problem(DATA / "feasible.json", {}, where)
        try:
            plan = _plan(name, given)
        except PolicyError:
            continue  # its solver is not here
        wrong += [name] if any(where.machine.devices[a.device].name == "gpu0" for a in plan.assignments) else []
    return Found({"policies": len(policies), "wrong": wrong}, not wrong)


def _plan(name: str, given: Problem) -> Any:
    chosen = find(name)
    assert isinstance(chosen, StaticPolicy)
    return chosen.plan(given)


@item("repara_b", "one large unit or several smaller ones, across devices", "2.1: alternatives of groups")
def groups() -> Found:
    where = machine(
        device("cpu0", "20 GFLOP/s", "20 GB/s", 4), {**device("cpu1", "20 GFLOP/s", "20 GB/s", 4), "memory": "own"}
    )
    given = problem(DATA / "groups.json", {}, where)
    figure: dict[str, Any] = {
        "one_device_ms": 1e3 * min(simulate(given, given.all_on(d, "alone")).makespan for d in where.machine.indices)
    }
    for policy in ("repara", "mkmd", "balance"):
        plan = plan_with(find(policy), given)
        places: dict[int, set[int]] = {}
        for a in plan.assignments:
            places.setdefault(a.node, set()).add(a.device)
        figure |= {f"{policy}_ms": 1e3 * plan.makespan, f"{policy}_in_units": len(plan.in_units)}
        figure[f"{policy}_divided"] = sum(len(of) > 1 for of in places.values())
    ends = [figure[f"{p}_ms"] for p in ("repara", "mkmd", "balance")]
    return Found(figure, max(ends) <= 0.6 * figure["one_device_ms"])


@item(
    "repara_c", "within 1 % of mkmd or better, and eight divisible kernels closed, apart or a head, in 10 s", "2.2: all"
)
def search() -> Found:
    where = described_machine("mkmd")
    given = problem(pyschedcl.SPECIFICATION, {"H": 1, "beta": 512}, where)
    figure = {p: milliseconds(given, p) for p in ("mkmd", "repara")}
    told = _plan("repara", given).details
    figure["transformer_gap_percent"] = 100.0 * (told["model_seconds"] / told["bound"] - 1.0)
    begin = time.process_time()
    eight = _plan("repara", layered(8, 3, reads=0))
    figure["eight_s"] = time.process_time() - begin
    figure["gap_percent"] = 100.0 * (eight.details["model_seconds"] / eight.details["bound"] - 1.0)
    is_good = figure["repara"] <= 1.01 * figure["mkmd"]
    is_closed = eight.details["complete"] and figure["transformer_gap_percent"] <= 1.0
    return Found(figure, is_good and is_closed and figure["eight_s"] <= 10.0)


@item(
    "repara_d", "measured on devices: 95 % of the best of all plans that were run", "3.2: near the best", measured=True
)
def on_devices() -> Found:
    found = repara_real.run("cpu0/2", repara.Settings(), 7, lambda text: None)["summary"]
    return Found(found, found["mean_percent_of_best"] >= 95.0)


@item(
    "repara_e",
    "objectives time, energy and edp: energy takes the fewest joules, edp the least product",
    "5: future work",
)
def energy() -> Found:
    where = described_machine("mkmd")
    figure: dict[str, float] = {}
    for goal in ("time", "energy", "edp"):
        try:
            given = problem(
                EQUATION, {"n": 512, "m": 4096}, where, options={} if goal == "time" else {"objective": goal}
            )
            trace = simulate(given, "repara")
            figure |= {f"{goal}_ms": 1e3 * trace.makespan, f"{goal}_joules": sum(trace.details["joules"].values())}
        except (KeyError, PolicyError) as error:
            raise Missing(f"objectives of plans ({error})") from None
    edp = {goal: figure[f"{goal}_ms"] * figure[f"{goal}_joules"] for goal in ("time", "energy", "edp")}
    is_least = figure["energy_joules"] <= figure["edp_joules"] and edp["edp"] <= min(edp.values()) * 1.001
    return Found({**figure, "energy_of_time": figure["energy_joules"] / figure["time_joules"]}, is_least)
