"""REPARA's items."""

from __future__ import annotations

import time
from typing import Any

from manycl.applications.planning import described_machine
from manycl.errors import PolicyError
from manycl.plan.policy import StaticPolicy, find, names
from manycl.plan.problem import Problem
from manycl_bench import pyschedcl, repara
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
    raise Missing("alternatives of groups of nodes")


@item("repara_c", "within 1 % of mkmd or better, and eight divisible kernels closed, in 10 s", "2.2: the whole tree")
def search() -> Found:
    where = described_machine("mkmd")
    given = problem(pyschedcl.SPECIFICATION, {"H": 1, "beta": 512}, where)
    figure = {p: milliseconds(given, p) for p in ("mkmd", "repara")}
    begin = time.process_time()
    eight = _plan("repara", layered(8, 3, reads=0))
    figure["eight_s"] = time.process_time() - begin
    figure["gap_percent"] = 100.0 * (eight.details["model_seconds"] / eight.details["bound"] - 1.0)
    is_good = figure["repara"] <= 1.01 * figure["mkmd"]
    return Found(figure, is_good and eight.details["complete"] and figure["eight_s"] <= 10.0)


@item("repara_d", "planned against measured makespans on devices", "3.2: within a few % of all plans", measured=True)
def on_devices() -> Found:
    found = repara.measured("cpu0/2", repara.Settings(sizes=1), lambda text: None)  # type: ignore[attr-defined]
    return Found(found["summary"], True)


@item("repara_e", "objectives time, energy, edp; held-out plans within 10 % of measured joules", "5: future work")
def energy() -> Found:
    from manycl.plan import objectives  # type: ignore[attr-defined]

    raise Missing(f"the item reads no figure of {objectives.__name__} yet")
