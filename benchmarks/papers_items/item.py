"""What an item is, and what several of them use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from manycl.applications.load import load_application
from manycl.applications.planning import PlanningTarget, described_machine, problem_of
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.run.engine.asking_policies import moving
from manycl.run.simulation.simulate import plan_with, simulate

DATA = Path(__file__).parent
RESULTS = DATA.parents[1] / "docs" / "results"


class Missing(Exception):
    """What is asked cannot be computed: it is not built, or not here."""


class Found(NamedTuple):
    """A figure (numbers by name), and whether it is what is asked."""

    figure: Mapping[str, Any]
    reached: bool


@dataclass(frozen=True)
class Item:
    """``key``, what is ``asked`` and what the ``paper`` says, in words with their numbers. ``measured``: times of this
    machine decide, so it is judged with ``--real`` only, on a machine that nobody else uses."""

    key: str
    asked: str
    paper: str
    find: Callable[[], Found]
    measured: bool


ITEMS: dict[str, Item] = {}


def item(key: str, asked: str, paper: str = "-", *, measured: bool = False) -> Callable[[Any], Any]:
    """A function that finds an item's figure becomes the item."""

    def made(find: Callable[[], Found]) -> Callable[[], Found]:
        ITEMS[key] = Item(key, asked, paper, find, measured)
        return find

    return made


def machine(*devices: Mapping[str, Any], link: str = "2 GB/s", latency: str = "20 us") -> PlanningTarget:
    """A described machine; devices with memories of their own are linked with the host's."""
    lines = ['name = "given"', 'source = "the audit"']
    for device in devices:
        lines += ["[[device]]", *(f"{key} = {json.dumps(value)}" for key, value in device.items())]
    for device in devices:
        if device["memory"] == "own":
            lines += ["[[link]]", 'from = "host"', f'to = "{device["name"]}"', "both_ways = true"]
            lines += [f'bandwidth = "{link}"', f'latency = "{latency}"']
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "given.toml")
        path.write_text("\n".join(lines), encoding="utf-8")
        return described_machine(str(path))


def device(name: str, flops: str, bandwidth: str, units: int = 16, **more: Any) -> dict[str, Any]:
    """One of its devices: ``cpu…`` in the host's memory, others with their own."""
    kind, memory = ("cpu", "host") if name.startswith("cpu") else ("gpu", "own")
    found = {"name": name, "kind": kind, "memory": memory, "compute_units": units, "clock": "1 GHz"}
    return {**found, "flops": flops, "bandwidth": bandwidth, "global_memory": "4 GiB", **more}


def problem(path: Path, parameters: Mapping[str, object], where: PlanningTarget, **of: Any) -> Problem:
    """What a policy is asked of a specification; ``options`` and others as of ``problem_of``."""
    application = load_application(path, {k: str(v) for k, v in parameters.items()})
    return problem_of(application, where, {}, of.pop("options", {}), **of)[0]


def milliseconds(given: Problem, policy: Any, node: int | None = None, **of: Any) -> float:
    """A simulated run's, or until one of its nodes has ended, with the shares of a static policy's plan that may move,
    as in a run."""
    found = find(policy) if isinstance(policy, str) else policy
    if isinstance(found, StaticPolicy):
        policy, of = moving(given, found, plan_with(found, given)), {**of, "anew": found}
    trace = simulate(given, policy, **of)
    return 1e3 * (trace.makespan if node is None else max(e.end for e in trace.kernels() if e.node == node))


def page(name: str) -> dict[str, Any]:
    """The figures of a page of results. Raises Missing where there is none."""
    try:
        found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Missing(f"docs/results/{name}.json: made on a machine with GPUs (scripts/gpu run --page)") from None
    return found


def elsewhere(name: str, **variables: str) -> dict[str, Any]:
    """What a function of ``runs.py`` returns in a process of its own, with these variables. Raises Missing with its
    error."""
    code = f"import json; from papers_items import runs; print(json.dumps(runs.{name}()))"
    words, env = [sys.executable, "-c", code], {**os.environ, "MANYCL_MODELS": "0", **variables}
    done = subprocess.run(words, cwd=DATA.parent, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise Missing(done.stderr.strip().rpartition("\n")[2])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
