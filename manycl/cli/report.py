"""``manycl report``: what a trace says, as text, JSON, chart or Perfetto file."""

from __future__ import annotations

import argparse
import json

from manycl.cli import options

HELP = "summarise, draw or compare the traces that `manycl run --trace` wrote"
_EPILOG = """\
examples:
  manycl report run.jsonl
  manycl report run.jsonl --gantt run.html --gantt run.png --perfetto run.json
  manycl report eager.jsonl --compare heft.jsonl
exit status: 0 done, 2 bad input
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("trace", metavar="TRACE", help="a trace: JSON lines, as `manycl run --trace` writes them")
    options.add_gantt(parser)
    parser.add_argument("--perfetto", metavar="FILE", help="trace for ui.perfetto.dev")
    parser.add_argument("--compare", metavar="OTHER", help="a second trace to set beside the first")
    parser.add_argument("--json", action="store_true", help="print the summary or comparison as JSON")


def run(args: argparse.Namespace) -> int:
    from manycl.report.charts.perfetto import write_perfetto
    from manycl.report.summary import Summary, TraceComparison, compare, summarise
    from manycl.trace import Trace

    options.writable({"--gantt": args.gantt, "--perfetto": args.perfetto})
    trace = Trace.load(args.trace)
    other = Trace.load(args.compare) if args.compare else None
    shown: Summary | TraceComparison = summarise(trace) if other is None else compare(trace, other)
    options.draw(trace, args)
    if args.perfetto:
        write_perfetto(trace, args.perfetto)
    print(json.dumps(shown.to_dict()) if args.json else shown.text())
    return 0
