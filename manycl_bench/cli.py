"""``manycl bench``: which experiment, with which settings. A command of :mod:`manycl.cli`, found there by name."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from manycl.cli import options
from manycl.errors import ManyclError
from manycl.report.charts.drawing import check_drawable

if TYPE_CHECKING:
    from manycl.machine import Machine

HELP = (
    "repeat papers' experiments: pyschedcl (on the devices that are here, or on a described machine), repara (on its "
    "machine, simulated), mkmd and libsplit (on their machines, simulated, or on the devices that are here), models "
    "(MKMD's Table 1, here), hopping (its model and its lines of code; with --devices also measured), slices (samples "
    "of slice sizes, for manycl train), clusters (weak and strong scaling on up to 1,024 nodes, simulated)"
)
_EPILOG = """\
examples:
  manycl bench pyschedcl --devices cpu/2 --quick
  manycl bench pyschedcl --output results       writes pyschedcl.json, .md and pictures
  manycl bench pyschedcl --machine pyschedcl    on its machine, simulated; writes pyschedcl_simulated.json, .md
  manycl bench mkmd --output docs/results       writes mkmd.json, mkmd.md and pictures
  manycl bench mkmd --real --devices gpu        the same equations on real devices; writes mkmd_real.json, .md
  manycl bench repara --output docs/results     writes repara.json, repara.md and a picture
  manycl bench repara --devices cpu0/2          planned and measured on real devices; writes repara_real.json, .md
  manycl bench libsplit --output docs/results   writes libsplit.json, libsplit.md and pictures
  manycl bench libsplit --devices cpu/2#0,cpu/2#1@4     on real devices; writes libsplit_real.json, .md
  manycl bench models --output docs/results     writes models.json and models.md
  manycl bench hopping --output docs/results    writes hopping.json, hopping.md and pictures
  manycl bench hopping --devices native/2#0,opencl/2#1  measured as well, on the processor's halves; or cpu,gpu;
                                                several pairs: --devices 'cpu/2#0,cpu/2#1@2;native/2#0,opencl/2#1'
  manycl bench slices --devices gpu0 --output gpu       measures how large slices are that cost little: samples for
                                                manycl train, in gpu/slice_samples.json, which grows kernel by kernel
  manycl bench clusters --output docs/results   writes clusters.json, clusters.md and a picture
options beside --quick, --output and --json, which are for all:
  pyschedcl: --devices or --machine, --heads, --queue-betas, --betas, --most-heads, --queues; simulated,
    --callback-delay; and, on devices, --repeats, --profile and --cold
  mkmd: --repeats (of planning); with --real (turns) also --devices; --quick: without the comparison with the optimum,
    and with --real, as without a GPU, smaller matrices
  models: --devices (one); --quick: fewer launches
  repara: --quick: one size of each benchmark, short searches; with --devices also --repeats
  libsplit: --devices, --applications, --repeats (repetitions); --quick: small sizes, and on devices fewer turns
  hopping: --devices, --applications (benchmarks), --repeats; --quick: sizes of half the paper's times, fewer waits
    (of two halves of a processor some 7 minutes, else 40); where it was stopped, the same command goes on
  slices: --devices (one), --applications (kernels), --repeats; --quick: small sizes, for tests
  clusters: --applications; --quick: no more than 16 nodes
every page tells how it came about: command, day, commit, machine, versions, and where its raw figures are
"""
_OWN = {
    "pyschedcl": "devices machine heads queue_betas betas most_heads queues callback_delay repeats profile cold",
    "mkmd": "real repeats",
    "mkmd --real": "real devices repeats",
    "models": "devices",
    "repara": "devices repeats",
    "libsplit": "devices applications repeats",
    "hopping": "devices applications repeats",
    "slices": "devices applications repeats",
    "clusters": "applications",
}
"""The options that an experiment has beside those that all have; the others are refused."""
_WHY = {
    "pyschedcl": "",
    "mkmd": ", which has equations and runs on a simulated machine without --real",
    "mkmd --real": ", which has equations; every run begins with its inputs on the host",
    "models": ", which has seven kernels",
    "repara": ", which begins every run with its inputs on the host",
    "libsplit": ", whose applications have one size",
    "hopping": ", whose benchmarks are as large as it takes",
    "slices": ", whose kernels are as large as it takes",
    "clusters": ", which is simulated",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("experiment", choices=[*dict.fromkeys(name.split()[0] for name in _OWN)], help="which one")
    options.add_devices(parser)
    options.add_machine(parser, "pyschedcl on a described machine, simulated")
    parser.add_argument("--real", action="store_true", help="mkmd on the devices that are here")
    parser.add_argument("--heads", metavar="N,…", help="heads of experiment 1 (default 1 to 16)")
    parser.add_argument("--queue-betas", metavar="N,…", help="beta of experiment 1 (default 256)")
    parser.add_argument("--betas", metavar="N,…", help="beta of experiments 2 and 3 (default 64,128,256,512)")
    parser.add_argument("--most-heads", metavar="N", type=int, help="heads of experiments 2 and 3 (default 16)")
    parser.add_argument("--queues", metavar="N,…", help="queues to try on the fast device (default 2,3,5,8,16)")
    parser.add_argument("--callback-delay", metavar="TIME", help="of late callbacks (default 1.3ms; 0ms: none)")
    parser.add_argument(
        "--applications", metavar="NAME,…", help="those of libsplit, hopping, slices, clusters (default: all)"
    )
    parser.add_argument("--repeats", metavar="N", type=int, help="runs per figure (default 7)")
    parser.add_argument("--profile", action="store_true", help="measure with the devices' clocks on (more overhead)")
    parser.add_argument("--cold", action="store_true", help="every run starts with its inputs on the host")
    parser.add_argument("--quick", action="store_true", help="small sizes: a minute or so on two cores")
    parser.add_argument("--output", metavar="DIR", help="write JSON and figures there")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")


Figures = dict[str, Any]
Say = Callable[[str], None]


class Experiment(NamedTuple):
    """An experiment with its settings: ``run`` tells how far it is, ``write`` puts what it found into a folder (made if
    need be; ``draws``: pictures, too), ``show`` prints it. ``machines``: what it runs on, ``simulated`` or here."""

    run: Callable[[Say], Figures]
    write: Callable[[Figures, Path], None]
    show: Callable[[Figures], None]
    machines: Sequence[Machine]
    simulated: bool = False
    draws: bool = True


def run(args: argparse.Namespace) -> int:
    from manycl_bench import provenance

    _refuse_others(args)
    if args.repeats is not None and args.repeats < 1:
        raise ManyclError(f"--repeats {args.repeats}: expected at least 1")
    chosen = {"mkmd": _mkmd, "models": _models, "repara": _repara, "libsplit": _libsplit, "pyschedcl": _pyschedcl}
    if args.experiment in chosen:
        experiment = chosen[args.experiment](args)
    else:  # a folder of its own
        experiment = import_module(f"manycl_bench.{args.experiment}.command").experiment(args)
    if args.output and experiment.draws:
        check_drawable(f"--output {args.output}")
    made = provenance.made(command(args), *experiment.machines, simulated=experiment.simulated)
    figures = experiment.run((lambda text: None) if args.json else (lambda text: print(text, file=sys.stderr)))
    figures = {"made": made, **figures}
    if args.output:
        experiment.write(figures, Path(args.output))
    if args.json:
        print(json.dumps(figures))
    else:
        experiment.show(figures)
    return 0


_VALUES = ("devices", "machine", "heads", "queue_betas", "betas", "most_heads", "queues", "applications", "repeats")
_SWITCHES = ("real", "profile", "cold", "quick")


def command(args: argparse.Namespace) -> str:
    """What was asked for, as one types it; without ``--json``, which changes nothing."""
    words = ["manycl", "bench", args.experiment]
    for name in (*_SWITCHES, *_VALUES, "output"):
        if _given(args, name):
            words.append(f"--{name.replace('_', '-')}")
            words += [] if getattr(args, name) is True else [str(getattr(args, name))]
    return shlex.join(words)


def _given(args: argparse.Namespace, name: str) -> bool:
    return getattr(args, name) is not None and getattr(args, name) is not False


def _refuse_others(args: argparse.Namespace) -> None:
    """Nothing that was asked for is left out silently."""
    which = "mkmd --real" if args.experiment == "mkmd" and args.real else args.experiment
    for name in (*_VALUES, *_SWITCHES):
        if _given(args, name) and name not in (*_OWN[which].split(), "quick"):
            raise ManyclError(f"--{name.replace('_', '-')} is not for bench {which}{_WHY[which]}")


def _libsplit(args: argparse.Namespace) -> Experiment:
    from manycl_bench.libsplit import experiments, report
    from manycl_bench.libsplit.registry import APPLICATIONS

    names = tuple(args.applications.split(",")) if args.applications else ()
    for name in names:
        if name not in APPLICATIONS:
            raise ManyclError(f"--applications {name}: there is none", hint=f"there are {', '.join(APPLICATIONS)}")
    if args.devices is not None:
        return _libsplit_real(args, names)
    repetitions = args.repeats or (12 if args.quick else 100)
    settings = experiments.Settings(repetitions=repetitions, scale=16 if args.quick else 1, names=names)

    def show(figures: Figures) -> None:
        _show_divided([{"machine": m, **r} for m, of in figures["overall"].items() for r in of])
        show_summary(figures["summary"], 2)

    machines = [experiments.machine_file(name) for name in experiments.MACHINES]
    return Experiment(partial(experiments.run, settings), report.write, show, machines, simulated=True)


def _libsplit_real(args: argparse.Namespace, names: tuple[str, ...]) -> Experiment:
    from manycl.drivers.choice import open_devices
    from manycl_bench.libsplit import real, report

    machine, _ = open_devices(args.devices)
    if len(machine.devices) < 2:
        raise ManyclError(f"--devices {args.devices}: bench libsplit needs two devices at least")
    settings = real.Settings(names=names, large=any(d.kind == "gpu" for d in machine.devices))
    if args.quick:
        settings = replace(settings, turns=3, seconds=2.0, drifting=10)
    if args.repeats is not None:
        settings = replace(settings, repetitions=args.repeats)

    def show(figures: Figures) -> None:
        _show_divided(figures["applications"])
        print(f"drifting load, slowest over mean: {figures['drifting']['drift_imbalance_percent']:.1f} %")

    return Experiment(partial(real.run, args.devices, settings), report.write_real, show, [machine])


_DIVIDED = [
    *("machine", "application", "alone_ms", "uniform_speedup", "profile_speedup", "adaptive_speedup"),
    *("oracle_speedup", "within_oracle_percent", "profile_behind_percent", "iterations", "settled", "profile_settled"),
]


def _show_divided(rows: Sequence[Figures]) -> None:
    """Columns that only simulated or only real experiments have are left out of the other's table."""
    title = "Libsplit's applications: speed-ups over one device"
    show_table([{k: r[k] for k in _DIVIDED if k in r} for r in rows], title)


def _mkmd(args: argparse.Namespace) -> Experiment:
    from manycl.machine_file import load_machine
    from manycl_bench.mkmd import experiments, report

    if args.real:
        return _mkmd_real(args)
    settings = experiments.Settings(**({} if args.repeats is None else {"repeats": args.repeats}))
    if args.quick:
        settings = replace(settings, optimum=0.0)

    def show(figures: Figures) -> None:
        rows = [{title: r[key] for title, key in _EQUATIONS.items()} for r in figures["equations"]]
        show_table(rows, "MKMD's equations: speed-ups over in order; busy and planned: balance")
        show_summary(figures["summary"], 3)

    machine = load_machine(experiments.MACHINE)
    return Experiment(partial(experiments.run, settings), report.write, show, [machine], simulated=True)


_EQUATIONS = {
    "equation": "equation",
    "in order ms": "in_order_ms",
    "coarse": "coarse_speedup",
    "mkmd": "mkmd_speedup",
    "balance": "balance_speedup",
    "paper": "paper_speedup",
    "busy": "balance_busy",
    "planned ms": "balance_planning_ms",
}


def _mkmd_real(args: argparse.Namespace) -> Experiment:
    from manycl.drivers.choice import open_devices
    from manycl_bench.mkmd import real

    machine, _ = open_devices(args.devices)
    otherwise = real.LARGE if any(d.kind == "gpu" for d in machine.devices) else real.SMALL
    settings = real.Settings(n=real.QUICK if args.quick else otherwise)
    if args.repeats is not None:
        settings = replace(settings, repeats=args.repeats)

    def show(figures: Figures) -> None:
        shown = ("equation", "in_order_ms", "by_hand_speedup", *(f"{p}_speedup" for p in settings.policies))
        title = f"MKMD's equations, {settings.n} rows: speed-ups over in order on the fastest device"
        show_table([{k: r[k] for k in shown} for r in figures["equations"]], title)
        show_summary(figures["summary"], 3)

    return Experiment(partial(real.run, args.devices, settings), real.write, show, [machine], draws=False)


def _models(args: argparse.Namespace) -> Experiment:
    from manycl.drivers.choice import open_devices
    from manycl_bench import model_error

    machine, _ = open_devices(args.devices or model_error.DEVICE)
    settings = model_error.Settings(device=args.devices or model_error.DEVICE)
    if machine.devices[0].kind == "gpu":
        settings = replace(settings, large=True, wide=False, turns=0)
    if args.quick:
        settings = replace(
            settings, unseen=50 if settings.large else 20, runs=2, turns=min(settings.turns, 3), ranged=8
        )

    def show(figures: Figures) -> None:
        rows = [{"kernel": k, **v} for k, v in model_error.rows(figures).items()]
        show_table(rows, "MKMD's Table 1: mean errors of predicted times in percent")
        show_summary({k: v for k, v in figures.items() if isinstance(v, float)}, 2)

    return Experiment(partial(model_error.run, settings), model_error.write, show, [machine])


def _repara(args: argparse.Namespace) -> Experiment:
    from manycl.machine_file import load_machine
    from manycl_bench import repara, repara_report

    settings = repara.Settings(sample=30, effort=8_000, sizes=1) if args.quick else repara.Settings()
    if args.devices is not None:
        return _repara_real(args, settings)
    if args.repeats is not None:
        raise ManyclError("bench repara is simulated, always alike: no --repeats without --devices")

    def show(figures: Figures) -> None:
        shown = ("benchmark", "size", "ms", "best_ms", "balance_ms", "percent_of_best", "percentile", "plans_run")
        rows = [{k: r[k] for k in shown} for r in figures["results"]]
        show_table(rows, "REPARA's benchmarks: the plan that repara chose")
        show_summary(figures["summary"], 3)

    machine = load_machine(repara.MACHINE)
    return Experiment(partial(repara.run, settings), repara_report.write, show, [machine], simulated=True)


def _repara_real(args: argparse.Namespace, settings: Any) -> Experiment:
    from manycl.drivers.choice import open_devices
    from manycl_bench import repara_real

    def show(figures: Figures) -> None:
        shown = ("benchmark", "size", "planned_ms", "ms", "off_percent", "alone_ms", "best_ms", "percent_of_best")
        show_table([{k: r[k] for k in shown} for r in figures["results"]], "REPARA's benchmarks on devices")
        show_summary(figures["summary"], 1)

    machine, _ = open_devices(args.devices)
    run = partial(repara_real.run, args.devices, settings, args.repeats or 7)
    return Experiment(run, repara_real.write, show, [machine], draws=False)


def _pyschedcl(args: argparse.Namespace) -> Experiment:
    from manycl_bench import pyschedcl, pyschedcl_report

    chosen: dict[str, Any] = {"profile": args.profile, "cold": args.cold, "machine": args.machine}
    if args.machine is not None:
        for name in ("devices", "repeats", "profile", "cold"):
            if _given(args, name):
                raise ManyclError(f"--machine is simulated, always from the host and always alike: no --{name} with it")
    if args.callback_delay is not None:
        if args.machine is None:
            raise ManyclError("--callback-delay is simulated: give a --machine, too")
        chosen["callback_delay"] = options.seconds(args.callback_delay, "--callback-delay")
    if args.quick:
        chosen |= {"heads": (1, 4), "queue_betas": (64,), "betas": (32, 64), "most_heads": 4, "queues": (2, 4)}
        chosen |= {"repeats": 3}
    for name in ("heads", "queue_betas", "betas", "queues"):
        text = getattr(args, name)
        if text is not None:
            chosen[name] = _numbers(text, f"--{name.replace('_', '-')}")
    for name in ("most_heads", "repeats"):
        value = getattr(args, name)
        if value is not None:
            if value < 1:
                raise ManyclError(f"--{name.replace('_', '-')} {value}: expected at least 1")
            chosen[name] = value
    bad = [b for b in (*chosen.get("betas", ()), *chosen.get("queue_betas", ())) if b % 16 or (b > 64 and b % 64)]
    if bad:
        raise ManyclError(f"beta {bad[0]}: expected 16, 32, 48, or a multiple of 64 (the kernels' work-groups)")
    settings = pyschedcl.Settings(**chosen)

    machine = pyschedcl.machine_of(args.devices, settings)

    def show(figures: Figures) -> None:
        print("devices: " + "; ".join(figures["made"]["devices"]))
        for title, rows in pyschedcl_report.rows_to_print(figures):
            show_table(rows, title)
        show_summary(figures["summary"], 2)

    write = partial(pyschedcl_report.write, args.devices, settings)
    return Experiment(partial(pyschedcl.run, args.devices, settings), write, show, [machine], args.machine is not None)


def _numbers(text: str, option: str) -> Sequence[int]:
    words = text.split(",")
    if not all(w.strip().isdigit() and int(w) > 0 for w in words):
        raise ManyclError(f"{option} {text}: expected numbers from 1 on, separated by commas")
    return tuple(int(w) for w in words)


def show_summary(values: Mapping[str, float | None], digits: int) -> None:
    for key, value in values.items():
        print(f"{key}: {'-' if value is None else f'{value:.{digits}f}'}")


def show_table(rows: Sequence[Figures], title: str) -> None:
    """Print a table as aligned lines; columns are named by their keys."""
    from manycl.report.summary import table

    head = [key.replace("_", " ") for key in rows[0]] if rows else []
    cells = [[f"{v:.2f}" if isinstance(v, float) else "-" if v is None else str(v) for v in r.values()] for r in rows]
    print(f"\n{title}\n", *table(head, cells), "", sep="\n")
