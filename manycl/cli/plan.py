"""``manycl plan``: what a policy would do, on this machine or on one that is only described."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

from manycl.cli import options

HELP = "predict what a policy would do with an application, on this machine or one described in a file"
_EPILOG = """\
examples:
  manycl plan transformer.json -D H=8 --devices cpu/2 --policy heft
  manycl plan app.json --machine paper.toml --policy clustering --option resident=1 --gantt plan.html
  manycl plan app.json --policy my_policies.py:mine --save plan.json
  manycl plan app.json --graph graph.svg      # kernels, host functions, and the buffers that pass between them
the table says which times are measured, and which are predicted by what (docs/models.md); manycl profile measures
exit status: 0 done, 2 bad input or an impossible plan
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    options.add_application(parser)
    where = parser.add_mutually_exclusive_group()
    options.add_devices(where)
    options.add_machine(where, "a machine description instead of this machine")
    options.add_policy(parser)
    parser.add_argument("--json", action="store_true", help="print the summary and the plan as JSON")
    parser.add_argument("--save", metavar="FILE.json", help="save the plan")
    options.add_gantt(parser)
    parser.add_argument(
        "--graph",
        metavar="FILE",
        help="the graph drawn: kernels and the devices that run them, host functions, what passes between them;"
        " .svg, .png, .pdf, or .dot for Graphviz",
    )


def run(args: argparse.Namespace) -> int:
    from manycl.applications.planning import described_machine, problem_of, this_machine
    from manycl.plan.search.alternatives import following
    from manycl.report.sources import sources, table
    from manycl.report.summary import summarise
    from manycl.run.engine.divisions import divisions
    from manycl.run.simulation.simulate import plan_with

    options.writable({"--save": args.save, "--gantt": args.gantt, "--graph": args.graph})
    policy, given = options.policy(args)
    application = options.application(args)
    place = described_machine(args.machine) if args.machine else this_machine(args.devices)
    problem, estimates = problem_of(application, place, options.queue_counts(args.queues), given, args.as_planned)
    begin = time.perf_counter()
    plan = plan_with(policy, problem)
    seconds = time.perf_counter() - begin
    problem = following(problem, plan)
    graph = problem.graph
    estimates = estimates.for_graph(graph) if plan.in_units else estimates
    trace = plan.as_trace(application.name, graph.edges)
    trace = replace(trace, details={**trace.details, **divisions(problem, plan, {})})
    if args.save:
        plan.save(args.save)
    options.draw(trace, args)
    if args.graph:
        from manycl.graph.dependences import with_results
        from manycl.graph.versions.units import in_units
        from manycl.report.charts.graph_chart import chart, write_graph

        inputs = [key for key, places in problem.valid.items() if places]
        drawn = with_results(application.graph, application.read_after(1))  # also where nothing has to be moved
        write_graph(chart(in_units(drawn, plan.in_units), plan, inputs), args.graph)
    summary, rests_on = summarise(trace), sources(trace, graph, place.machine, estimates)
    if args.json:
        record = {
            "planning_s": seconds,
            "summary": summary.to_dict(),
            "estimates": [s.to_dict() for s in rests_on],
            "plan": json.loads(plan.to_json()),
        }
        print(json.dumps(record))
    else:
        print(summary.text())
        print(table(rests_on))
        chosen = f": {plan.details['chosen']}" if "chosen" in plan.details else ""
        print(f"planned {len(graph)} nodes in {seconds * 1e3:.1f} ms by {plan.policy}{chosen}")
    return 0
