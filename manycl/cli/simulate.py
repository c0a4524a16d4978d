"""``manycl simulate``: the real engine on a machine that is only described, with models that are exact or are not."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manycl.cli import options
from manycl.errors import ManyclError
from manycl.machine import DeviceIndex

if TYPE_CHECKING:
    from manycl.graph.graph import Graph
    from manycl.machine import Machine
    from manycl.report.sources import EstimateSource
    from manycl.run.simulation.disturbance import Disturbance

HELP = "run the engine on a simulated machine: exact models, or noise, drift, interference and faults"
_EPILOG = """\
examples:
  manycl simulate transformer.json -D H=8 --machine pyschedcl --policy clustering
  manycl simulate app.json --machine mkmd --noise 5% --seed 3 --gantt run.html
  manycl simulate app.json --machine conan --policy eager --interference gpu1=3@2ms-5ms
  manycl simulate app.json --machine conan --drift gpu=2@10ms     every GPU evenly slower, twice at 10 ms
  manycl simulate app.json --machine repara --fault gpu0@5ms      gpu0 stops answering
  manycl simulate app.json --devices cpu/2                        this machine, as far as it was measured
  manycl simulate --machines                                      the machines that come with manycl
the policy plans with the undisturbed models; the same seed gives the same run (docs/machines.md)
exit status: 0 done, 1 the run failed as it was asked to, 2 bad input
"""


class _List(argparse.Action):
    """``--machines`` needs no application."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from manycl.machine_file import load_machine, shipped_machines

        machines = {name: load_machine(path) for name, path in shipped_machines().items()}
        for name, machine in machines.items():
            print(f"{name:12} {machine.name} ({', '.join(d.name for d in machine.devices)})")
        parser.exit()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    options.add_application(parser)
    parser.add_argument("--machines", action=_List, nargs=0, help="list the machines that come with manycl, and end")
    where = parser.add_mutually_exclusive_group()
    options.add_machine(where, "the machine to simulate; default: this machine")
    options.add_devices(where)
    options.add_policy(parser)
    parser.add_argument("--plan", metavar="FILE.json", help="follow a plan that was saved, instead of a policy")
    parser.add_argument("--noise", metavar="PART", default="0", help="standard deviation of all times, e.g. 5%%")
    for name, form, text in (
        ("--drift", "DEVICE=FACTOR@TIME", "evenly slower, so many times at that time"),
        ("--interference", "DEVICE=FACTOR@TIME-TIME", "so many times slower between two times"),
        ("--fault", "DEVICE@TIME|NODE", "a device that is lost, or a node (number or name) that fails"),
    ):
        parser.add_argument(name, metavar=form, action="append", default=[], help=text)
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the noise (default 0)")
    text = "from a command's end until the host starts what waits for it elsewhere (default: measured, else 50us)"
    parser.add_argument("--callback-delay", metavar="TIME", help=text)
    text = "same-queue: transfers are in the kernels' queues, as in a program with one queue (default: own-queues)"
    parser.add_argument("--transfers", choices=["own-queues", "same-queue"], default="own-queues", help=text)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--trace", metavar="FILE.jsonl", help="save the trace, for manycl report")
    options.add_gantt(parser)


def run(args: argparse.Namespace) -> int:
    from manycl.applications.planning import described_machine, problem_of, this_machine
    from manycl.plan.plan import Plan
    from manycl.plan.policy import StaticPolicy, find
    from manycl.plan.problem import HANDOVER
    from manycl.plan.search.alternatives import following
    from manycl.report.sources import sources
    from manycl.run.engine.asking_policies import moving
    from manycl.run.engine.engine import RunFailure
    from manycl.run.simulation.simulate import plan_with, simulate

    options.writable({"--trace": args.trace, "--gantt": args.gantt})
    if args.plan and args.policy:
        raise ManyclError("--plan and --policy: one of them decides")
    name, given = ("", {}) if args.plan else options.policy(args)
    place = described_machine(args.machine) if args.machine else this_machine(args.devices)
    application = options.application(args)
    machine = place.machine
    late = HANDOVER if args.callback_delay is None else options.seconds(args.callback_delay, "--callback-delay")
    problem, estimates = problem_of(
        application,
        place,
        options.queue_counts(args.queues),
        given,
        args.as_planned,
        handover=late,
        in_kernel_queues=args.transfers == "same-queue",
    )
    graph = problem.graph
    disturbed = disturbance(args, machine, graph)
    planned: Plan | None = None
    anew: StaticPolicy | None = None
    if args.plan:
        planned = _read_plan(args.plan)
    elif isinstance(policy := find(name), StaticPolicy):
        planned, anew = moving(problem, policy, plan_with(policy, problem)), policy
    try:
        trace, failure = simulate(problem, planned or name, disturbance=disturbed, anew=anew), ""
    except RunFailure as failed:
        decided = planned.policy if planned else name
        trace, failure = replace(failed.trace, kind="simulation", policy=decided), str(failed)
    if args.trace:
        trace.save(args.trace)
    options.draw(trace, args)
    if planned is not None and planned.in_units:
        graph = following(problem, planned).graph
        estimates = estimates.for_graph(graph)
    rests_on = sources(trace, graph, machine, estimates)
    _report(args, machine, trace, None if planned is None else planned.makespan, rests_on, failure)
    return 1 if failure else 0


def _read_plan(path: str) -> Any:
    from manycl.plan.plan import Plan

    try:
        return Plan.from_json(Path(path).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ManyclError(f"--plan {path}: {error}") from None


def _report(
    args: argparse.Namespace,
    machine: Machine,
    trace: Any,
    planned: float | None,
    rests_on: Sequence[EstimateSource],
    failure: str,
) -> None:
    from manycl.report.sources import in_words
    from manycl.report.summary import summarise
    from manycl.report.words import seconds

    summary = summarise(trace)
    if args.json:
        record = {
            "machine": machine.name,
            "seed": args.seed,
            "planned_s": planned,
            "simulated_s": summary.makespan,
            "failure": failure,
            "summary": summary.to_dict(),
            "estimates": [s.to_dict() for s in rests_on],
        }
        print(json.dumps(record))
        return
    print(summary.text())
    print(f"times of {in_words(rests_on)}")
    if failure:
        print(failure)
    elif planned is not None:
        more = f"{100 * (summary.makespan / planned - 1):+.3g} %" if planned else ""
        print(f"planned {seconds(planned)}, simulated {seconds(summary.makespan)} {more}".rstrip())


def disturbance(args: argparse.Namespace, machine: Machine, graph: Graph) -> Disturbance:
    """Return what ``--noise``, ``--drift``, ``--interference``, ``--fault`` and ``--seed`` ask for."""
    from manycl.run.simulation.disturbance import Disturbance, Slowdown, drift

    slowdowns: list[Slowdown] = []
    for word in args.drift:
        device, factor, times = _slowdown(word, "--drift", 1)
        for d in _devices(machine, device, f"--drift {word}"):
            slowdowns += drift(d, factor, times[0])
    for word in args.interference:
        device, factor, times = _slowdown(word, "--interference", 2)
        if times[0] >= times[1]:
            raise ManyclError(f"--interference {word}: it ends before it begins")
        for d in _devices(machine, device, f"--interference {word}"):
            slowdowns.append(Slowdown(d, factor, *times))
    lost: dict[int, float] = {}
    failing: dict[int, str] = {}
    for word in args.fault:
        device, at, time = word.partition("@")
        if at:
            moment = options.seconds(time, f"--fault {word}")
            lost |= {d: min(moment, lost.get(d, moment)) for d in _devices(machine, device, f"--fault {word}")}
        else:
            failing[_node(graph, word)] = "a fault that was asked for"
    return Disturbance(_part(args.noise), tuple(slowdowns), lost, failing, args.seed)


def _part(text: str) -> float:
    """``5%`` or ``0.05``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 10 or (value >= 1 and not text.endswith("%")):
        hint = f"{text}% or {100 * value:g}%?" if 1 <= value <= 10 else ""
        raise ManyclError(f"--noise {text}: expected a part, such as 5% or 0.05", hint=hint)
    return value


def _slowdown(word: str, option: str, count: int) -> tuple[str, float, list[float]]:
    """``DEVICE=FACTOR@TIME`` or ``DEVICE=FACTOR@TIME-TIME``."""
    device, _, rest = word.partition("=")
    text, _, times = rest.partition("@")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not device or not 0.001 <= factor <= 1000 or not times or len(times.split("-")) != count:
        form = "DEVICE=FACTOR@TIME" + "-TIME" * (count - 1)
        raise ManyclError(f"{option} {word}: expected {form}, such as gpu0=2@{'-'.join(('2ms', '5ms')[:count])}")
    return device, factor, [options.seconds(t, f"{option} {word}") for t in times.split("-")]


def _devices(machine: Machine, wanted: str, where: str) -> Sequence[DeviceIndex]:
    """By name, by what they are parts of, or by kind."""
    from manycl.graph.versions.feasible import matches

    found = [i for i, d in machine.numbered() if matches(d, wanted)]
    if not found:
        raise ManyclError(f"{where}: no device is {wanted!r}; there are {', '.join(d.name for d in machine.devices)}")
    return found


def _node(graph: Graph, wanted: str) -> int:
    """By number, or the first of a name."""
    named = next((n for n, task in enumerate(graph.nodes) if task.name == wanted), None)
    if named is not None:
        return named
    if wanted.isdecimal() and int(wanted) < len(graph):
        return int(wanted)
    raise ManyclError(
        f"--fault {wanted}: no node is called that; there are numbers 0 to {len(graph) - 1}, or DEVICE@TIME"
    )
