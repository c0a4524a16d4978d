"""``manycl run``: run an application on the devices of this machine."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from manycl import flags
from manycl.cli import options

HELP = "run an application on every device, with the right answer and a picture of what ran where"
_EPILOG = """\
examples:
  manycl run transformer.json --check
  manycl run transformer.json -D H=8 -D beta=256 --devices cpu/2 --policy clustering --gantt run.html
  manycl run app.json --policy my_policies.py:mine --trace run.jsonl
  manycl run app.json --cluster tcp://10.0.0.5:8786
exit status: 0 done (and checked), 1 a check failed, 2 bad input or a failed run
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    options.add_application(parser)
    options.add_devices(parser)
    options.add_cluster(parser)
    options.add_policy(parser)
    serve = "use the devices of `manycl serve`, which are warm (docs/serve.md)"
    parser.add_argument("--serve", action="store_true", default=None, help=serve)
    merging = "when what parts of a divided kernel write goes to the host: as each has ended, or when it is needed"
    parser.add_argument("--merging", choices=("automatic", "each", "last"), help=f"{merging} (docs/splitting.md)")
    parser.add_argument("--check", action="store_true", help="compare the results with the reference and one device")
    parser.add_argument("--repeat", metavar="N", type=int, default=1, help="run N times, report each (default 1)")
    parser.add_argument("--check-bounds", action="store_true", help=options.CHECK_BOUNDS)
    options.add_gantt(parser)
    parser.add_argument("--perfetto", metavar="FILE", help="trace for ui.perfetto.dev")
    parser.add_argument("--trace", metavar="FILE", help="the run's events as JSON lines (for `manycl report`)")
    parser.add_argument("--save", metavar="DIR", help="save every output there as NAME.npy")
    parser.add_argument("--story", metavar="NODE", help="say why a kernel (name or number) ran where and when it did")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no summary")


def run(args: argparse.Namespace) -> int:
    from manycl.applications.runner import Runner
    from manycl.errors import ManyclError
    from manycl.report.progress import Progress
    from manycl.report.summary import summarise

    if args.repeat < 1:
        raise ManyclError(f"--repeat {args.repeat}: expected at least 1")
    options.writable({"--gantt": args.gantt, "--perfetto": args.perfetto, "--trace": args.trace})
    if args.check_bounds:
        flags.check_all_bounds()
    policy = options.policy(args)
    application = options.application(args)
    _check_targets(args, application)
    told = None if args.story is None else _node(application.graph, args.story)
    with (
        options.cluster(args) as devices,
        Runner(application, devices, serve=args.serve, merging=args.merging, as_planned=args.as_planned) as runner,
    ):
        seconds = []
        for turn in range(args.repeat):
            if turn:
                runner.reset()
            steps = len(runner.graph) if application.iterate is None else application.iterate.times
            with Progress(steps, enabled=not args.quiet) as progress:
                result = _one(runner, args, policy, progress)
            seconds.append(result.details.get("total_seconds", result.seconds))
        outputs = runner.outputs()
        checks = runner.check(outputs) if args.check else []
    trace = result.trace
    _write(args, application, trace, outputs)
    summary = summarise(trace)
    if args.json:
        record: dict[str, Any] = {
            "application": application.name,
            "parameters": dict(application.parameters),
            "seconds": seconds,
            **({"iterations": runner.iterations.times} if runner.iterations is not None else {}),
            "checks": [{"against": c.against, "passed": c.passed, "text": c.text} for c in checks],
            **summary.to_dict(),
        }
        print(json.dumps(record))
    elif not args.quiet:
        if runner.iterations is not None:
            times = runner.iterations.times
            print(f"{times} repetitions in {seconds[-1] * 1e3:.3f} ms; the last one:")
        print(summary.text())
        if len(seconds) > 1:
            print(f"runs: {', '.join(f'{s * 1e3:.3f}' for s in seconds)} ms")
    if told is not None:
        print(result.story(told), file=sys.stderr if args.json else sys.stdout)
    for check in checks:
        print(f"check against {check.text}", file=sys.stderr if args.json else sys.stdout)
    return 0 if all(c.passed for c in checks) else 1


def _node(graph: Any, word: str) -> int:
    """The node that ``--story`` is about: known before anything runs."""
    from manycl.run.engine.explain import node_of

    return node_of(graph, int(word) if word.isdecimal() else word)


def _targets(args: argparse.Namespace, application: Any) -> list[tuple[str, Path]]:
    """Every file that a successful run writes: what asks for it, and its path."""
    named = (("--trace", args.trace), *(("--gantt", path) for path in args.gantt), ("--perfetto", args.perfetto))
    files = [(option, Path(path)) for option, path in named if path]
    files += [(f"output {o.name}", Path(o.path)) for o in application.outputs if o.path]
    if args.save:
        files += [(f"--save, output {o.name}", Path(args.save) / f"{o.name}.npy") for o in application.outputs]
    return files


def _check_targets(args: argparse.Namespace, application: Any) -> None:
    """Fail before the work where a file cannot be written, so that never only some of the files are."""
    from manycl.errors import ManyclError
    from manycl.utilities.user_file import check_writable

    asked: dict[Path, str] = {}
    for what, path in _targets(args, application):
        place = path.absolute()
        if what.startswith("--save"):
            if place.parent != Path(args.save).absolute():
                raise ManyclError(f"{what}: its name is no file name")
            folder = next(p for p in place.parents if p.exists())  # what is missing below it will be made
        else:
            folder = place.parent
        if not folder.is_dir():
            raise ManyclError(f"{what} {path}: {folder} is no folder")
        if place.parent.is_dir():
            check_writable(path, what)
        elif not os.access(folder, os.W_OK):
            raise ManyclError(f"{what} {path}: no permission to write there")
        first = asked.setdefault(place.resolve(), what)
        if first != what:
            raise ManyclError(f"{first} and {what} would write the same file {path}")


def _one(runner: Any, args: argparse.Namespace, policy: tuple[str, dict[str, str]], progress: Any) -> Any:
    """One run, with its joules by meter where there are meters (of repetitions, those of one on average); a failed one
    still leaves its trace and chart behind."""
    from manycl.drivers.meters import measuring
    from manycl.machine import known_counts
    from manycl.model.energy.powers import JOULES
    from manycl.run.engine.engine import RunFailure

    spent = measuring()
    try:
        result = runner.run(
            policy[0],
            queues=known_counts(runner.session.machine, options.queue_counts(args.queues)),
            options=policy[1],
            progress=progress.update,
        )
        part = result.seconds / max(result.seconds, result.details.get("total_seconds", 0.0), 1e-9)
        result.details.update({JOULES: {k: part * j for k, j in found.items()}} if (found := spent()) else {})
        return result
    except RunFailure as failure:
        if args.trace:
            failure.trace.save(args.trace)
        raise


def _write(args: argparse.Namespace, application: Any, trace: Any, outputs: dict[str, Any]) -> None:
    import numpy as np

    if args.trace:
        trace.save(args.trace)
    options.draw(trace, args)
    if args.perfetto:
        from manycl.report.charts.perfetto import write_perfetto

        write_perfetto(trace, args.perfetto)
    for output in application.outputs:
        if output.path:
            np.save(output.path, outputs[output.name])
        if args.save:
            folder = Path(args.save)
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"{output.name}.npy", outputs[output.name])
