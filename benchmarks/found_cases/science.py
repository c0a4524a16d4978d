"""Wrong or load-dependent science: plans, simulations and readings of other people's files."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

from found_cases.case import Refused, case, expect, files, manycl

EXAMPLES = Path(__file__).resolve().parents[2] / "manycl" / "examples"


def _problem(example: str, machine: str, **sizes: int) -> Any:
    """An example's problem on a described machine."""
    from manycl.applications.load import load_application
    from manycl.applications.planning import described_machine, problem_of

    application = load_application(str(EXAMPLES / example / f"{example}.json"), {n: str(v) for n, v in sizes.items()})
    problem, _ = problem_of(application, described_machine(machine), {}, {})
    return problem


def _plan(problem: Any, policy: str) -> Any:
    from manycl.plan.policy import StaticPolicy, find

    found = find(policy)
    assert isinstance(found, StaticPolicy)
    return found.plan(problem)


@case(seconds=200)
def mkmd_reservations() -> None:
    """A^2 B B^T C B of MKMD's paper: no kernel is planned behind its own successor's reservation.

    225 ms with such reservations; 171 without them, 176 where the host's memory carries 12.8 GB/s."""
    taken = _plan(_problem("matrix_equation", "mkmd", n=1024, m=8192), "mkmd").makespan
    expect(taken < 0.18, f"{1e3 * taken:.1f} ms")


@case(seconds=300)
def mkmd_fine_phase() -> None:
    """The second phase is never longer than the first."""
    for machine in ("conan", "happycl", "pyschedcl", "mkmd"):
        for heads, beta in ((16, 512), (16, 256), (8, 512)):
            problem = _problem("transformer", machine, H=heads, beta=beta)
            coarse, fine = _plan(problem, "mkmd_coarse").makespan, _plan(problem, "mkmd").makespan
            expect(fine <= coarse * (1 + 1e-9), f"{machine}, H={heads}, beta={beta}: {fine / coarse:.2f} times")


@case(seconds=300)
def host_memory() -> None:
    """BiCGSTAB and Jacobi draw no more from the host's memory than the 12.8 GB/s of MKMD's Table 2."""
    from manycl.machine_file import load_machine
    from manycl.run.simulation.simulate import plan_with
    from manycl.trace import TransferEvent
    from manycl_bench.mkmd import experiments
    from manycl_bench.mkmd.equations import EQUATIONS, MEMORY_BOUND, Equation, problem

    machine = load_machine(experiments.MACHINE)
    for name in MEMORY_BOUND:
        equation = Equation()
        equation.graph(name, *EQUATIONS[name](equation))
        given = problem(name, machine)
        for policy in ("mkmd_coarse", "mkmd", "balance"):
            plan = plan_with(policy, given)
            moved = sum(e.nbytes for e in plan.events if isinstance(e, TransferEvent))
            read = 0.0
            for a in plan.assignments:
                if a.device == 0:
                    split = given.splits.get(a.node)
                    read += equation.nbytes[a.node] * (a.groups / split.groups if split and a.groups else 1.0)
            rate = (moved + read) / plan.makespan
            expect(rate <= 12.8e9 * 1.02, f"{name}, {policy}: {rate / 1e9:.1f} GB/s")


def _busy() -> None:
    while True:
        pass


@case(seconds=300)
def verdicts_under_load() -> None:
    """EP and AESEncrypt may be divided, however busy the machine is."""
    from manycl_bench.libsplit.experiments import Settings, case_of, machine_file

    machine = machine_file("conan")
    others = [multiprocessing.get_context("fork").Process(target=_busy, daemon=True) for _ in range(12)]
    for other in others:
        other.start()
    try:
        for name in ("EP", "AESEncrypt"):
            expect(dict(case_of(name, machine, Settings()).splits), f"{name} is not divided under load")
    finally:
        for other in others:
            other.kill()


@case()
def reasons_aretold() -> None:
    """``int`` subscripts that may overflow: the launch is not divided, and the summary says so with kernel and line."""
    app = {
        "manycl": 1, "parameters": {"n": 65536}, "source": str(EXAMPLES / "heat" / "heat.cl"),
        "buffers": {"a, b": {"type": "float", "shape": ["n", "n"]}},
        "kernels": [{"name": "relax", "global": ["n", "n"], "local": [32, 1], "args": ["a", "b", "n"]}],
        "outputs": ["b"],
    }  # fmt: skip
    with files({"app.json": json.dumps(app)}) as folder:
        ended = manycl("simulate", "app.json", "--machine", "conan", "--policy", "balance", folder=folder)
    said = ended.stdout + ended.stderr
    expect(ended.returncode == 0, said)
    expect("not divided" in said and "relax" in said and "line" in said, f"no reason in: {said[-600:]}")


@case()
def uploads_ahead() -> None:
    """The simulated engine takes what a plan in order says, not half as long again."""
    from manycl.run.simulation.foresee import foresee

    problem = _problem("transformer", "pyschedcl", H=16, beta=512)
    plan = _plan(problem, "in_order")
    engine = foresee(problem, plan).makespan
    expect(engine <= 1.15 * plan.makespan, f"plan {1e3 * plan.makespan:.1f} ms, engine {1e3 * engine:.1f} ms")


@case()
def simulated_faults_of_split_plans() -> None:
    """A divided plan is simulated with a device that is lost."""
    words = (
        "simulate",
        str(EXAMPLES / "matrix_equation" / "matrix_equation.json"),
        "--machine",
        "mkmd",
        "--policy",
        "balance",
    )
    ended = manycl(*words, "--fault", "gpu0@1ms")
    if "split" in ended.stderr and "fault" in ended.stderr:
        raise Refused(ended.stderr)


@case(seconds=300)
def simulate_runs_the_engine() -> None:
    """``manycl simulate`` runs the engine for every policy, as the README says."""
    from manycl.plan.policy import find, names
    from manycl.run.simulation import foresee, simulate

    ran: list[str] = []
    real = vars(foresee)["execute"]

    def noted(*words: Any, **more: Any) -> Any:
        ran.append("engine")
        return real(*words, **more)

    vars(foresee)["execute"] = noted
    problem = _problem("transformer", "conan", H=4)
    for name in names():
        if name in ("optimal", "repara"):
            continue
        ran.clear()
        policy = find(name)
        simulate.simulate(problem, policy.plan(problem) if hasattr(policy, "plan") else policy)
        expect(ran, f"{name} is simulated by other rules")


@case(seconds=280)
def auto_is_never_slower_than_one_device() -> None:
    """``auto`` does not choose divisions that are slower than the fastest device alone."""
    from manycl.plan.policies.auto import Auto
    from manycl_bench.libsplit.experiments import Settings, alone, case_of, machine_file
    from manycl_bench.libsplit.simulated import seconds_of

    machine = machine_file("conan")
    for name in ("SPMV", "CORR"):
        small = case_of(name, machine, Settings())
        _, single = alone(small, 8)
        seconds = seconds_of(small, Auto(), 8, {})
        expect(sum(seconds) <= 1.03 * sum(single), f"{name}: {sum(single) / sum(seconds):.2f}x")


SCALE = "kernel void scale(global const float *x, global float *y) { int i = get_global_id(0); y[i] = 2 * x[i] + 1; }"
INFO = {
    "name": "scale", "src": "scale.cl", "workDimension": 1, "globalWorkSize": "[n]", "localWorkSize": [16],
    "inputBuffers": [{"pos": 0, "type": "float", "size": "n", "break": 1}],
    "outputBuffers": [{"pos": 1, "type": "float", "size": "n", "break": 1}],
}  # fmt: skip


@case()
def published_layout() -> None:
    """PySchedCL's own layout: sources in ``kernel_src``, information files in ``database/info``, a ``dag.graph``."""
    line = '%d scale.json {"n":256,"partition":%d}\n'
    graph = line % (1, 10) + line % (2, 3) + "---\n1 1->2 0\n---\n"
    contents = {
        "database/info/scale.json": json.dumps(INFO), "kernel_src/scale.cl": SCALE, "dags/one/dag.graph": graph,
    }  # fmt: skip
    with files(contents) as folder:
        ended = manycl("run", "dags/one", "--devices", "cpu/2", "--check", "--quiet", folder=folder)
        if ended.returncode:
            raise Refused(ended.stderr)


@case()
def tenths() -> None:
    """``partition`` 1 to 9 divides a kernel between the two kinds of devices in tenths."""
    graph = '1 scale.json {"n":65536,"partition":3}\n---\n---\n'
    with files({"info/scale.json": json.dumps(INFO), "src/scale.cl": SCALE, "dag.graph": graph}) as folder:
        words = ("plan", ".", "--machine", "pyschedcl", "--json")
        ended = manycl(*words, folder=folder)
        if ended.returncode:
            raise Refused(ended.stderr)
        shown = json.loads(ended.stdout)
    groups: dict[str, int] = {}
    for a in shown["plan"]["assignments"]:
        kind = shown["plan"]["devices"][a["device"]][:3]
        groups[kind] = groups.get(kind, 0) + int(a.get("groups") or 0)
    total = sum(groups.values())
    expect(total and round(10 * groups.get("gpu", 0) / total) == 3, f"groups by kind of device: {groups}")
