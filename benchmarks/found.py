"""What testing from outside found wrong, run again: one key a reproduction, and how many ended how.

Each reproduction is a small program in a process of its own (``found_cases/``). It is ``right``, ``wrong`` (a result, a
plan or a message is not what it must be), ``crashed`` (an exception that is none of manycl's, or a signal), ``hung``,
``silent`` (a process ended, and did not say of what) or ``refused_though_valid``. These are their numbers, too: all 0.

``reports``: of each report of somebody who tried manycl, and ``kinds``: of each kind of fault, how the worst of its
reproductions ended. ``corpus``, ``fuzz``, ``mutants``, ``conformance``: what the runs that take hours have written down
(null: nothing is kept). ``--quick``: only reproductions that take few seconds each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import common
from found_cases.case import CASES, Case, Refused, Silent, Wrong

OUTCOMES = {0: "right", 3: "wrong", 4: "refused_though_valid", 5: "silent"}
BAD = ("wrong", "crashed", "hung", "silent", "refused_though_valid")
"""The first is the worst."""
REPORTS = {
    "comment_in_macro": ("comments_in_macros",),
    "comment_in_macro_wrong": ("statements_behind_comments_in_macros",),
    "div_zero": ("divisions_without_a_value",),
    "faults/local2": ("local_memory_that_is_too_little", "faults_in_kernels"),
    "faults/lost": ("whatever_overwrites_heals",),
    "faults/prep_lost": ("prepared_graphs_run_after_failures",),
    "faults/worker_kill": ("killed_device",),
    "large_table": ("large_table",),
    "line_comment_continued": ("line_comments_that_go_on",),
    "pointer_to_vector": ("pointer_to_vector",),
    "push_macro": ("macros_that_are_put_aside",),
    "same_name_in_two_scopes": ("same_name_in_two_scopes",),
    "sampler_beside_buffers": ("sampler_beside_buffers",),
    "scans_keep_their_buffers": ("dropped_buffers_of_programs",),
    "statement_expression_in_array_initializer": ("statement_expression_in_array_initializer",),
    "users/02_oob": (
        "out_of_bounds_far",
        "out_of_bounds_by_one",
        "arrays_of_kernels_are_left",
        "local_array_that_ends",
    ),
    "users/03_race": ("races_run_whole",),
    "users/05_loop": ("endless_kernel",),
    "users/divs": ("divisions_without_a_value",),
    "users/lost": ("refused_launches_keep_contents",),
    "users/opt_cl": ("programs_are_refused_in_opencls_words",),
    "users/rec": ("recursion",),
    "users/spec": ("integers_at_their_edges", "divisions_without_a_value"),
    "users/wrong_cl": ("programs_are_refused_in_opencls_words",),
    "vector_splat_at_the_end": ("vector_splat_at_the_end",),
}
"""By report, the reproductions of what it tells."""
KINDS = {
    "preprocessing": (
        *("comments_in_macros", "statements_behind_comments_in_macros", "line_comments_that_go_on"),
        *("macros_that_are_put_aside", "include_of_working_folder", "function_like_option"),
    ),
    "compiled_natively": (
        *("pointer_to_vector", "same_name_in_two_scopes", "statement_expression_in_array_initializer"),
        *("sampler_beside_buffers", "vector_splat_at_the_end", "large_table", "valid_sources"),
    ),
    "integers": ("divisions_without_a_value", "integers_at_their_edges"),
    "deaths": (
        "faults_in_kernels",
        "recursion",
        "arrays_of_kernels_are_left",
        "local_array_that_ends",
        "killed_device",
    ),
    "what_cannot_run": (
        *("refused_launches_keep_contents", "programs_are_refused_in_opencls_words", "whatever_overwrites_heals"),
        *("prepared_graphs_run_after_failures", "local_memory_that_is_too_little", "dropped_buffers_of_programs"),
        *("arguments_of_wrong_types", "cache_folder_of_others", "unusable_cache", "unwritable_home"),
    ),
    "messages": ("two_charts", "least_and_greatest_in_loops", "unknown_settings", "tenths", "several_errors"),
}
"""By kind of fault, its reproductions."""
RESULTS = {
    "corpus": "benchmarks/corpus_results.json",
    "fuzz": "tests/fuzz/results.json",
    "mutants": "scripts/mutants_results.json",
    "conformance": "docs/conformance.json",
}
"""Files that longer runs are kept in: those of ``stages.py corpus --output`` and of ``scripts``."""
QUICK = 120
"""Seconds that reproductions may take before they count as hung which ``--quick`` runs."""


def load() -> None:
    """Register all cases."""
    from found_cases import messages, processes, reading, results, science, stopped

    _ = messages, processes, reading, results, science, stopped


def run_here(name: str) -> int:
    """One reproduction, in this process; the exit status says how it ended."""
    try:
        CASES[name].body()
    except Wrong as error:
        print(f"wrong: {error}", file=sys.stderr)
        return 3
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 4
    except Silent as error:
        print(f"silent: {error}", file=sys.stderr)
        return 5
    return 0


def run_apart(case: Case, loudly: bool) -> str:
    """How one reproduction ends in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="manycl-found-") as data:
        apart = {"MANYCL_MODELS": "0", "MANYCL_DATA": data, "POCL_MAX_PTHREAD_COUNT": "4"}
        environment = (
            {n: v for n, v in os.environ.items() if not n.startswith("MANYCL_")} | apart | dict(case.environment)
        )
        command = [sys.executable, __file__, "--case", case.name]
        try:
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=case.seconds)
        except subprocess.TimeoutExpired:
            return "hung"
    outcome = OUTCOMES.get(ended.returncode, "crashed")
    if outcome != "right" and loudly:
        common.progress(ended.stderr.strip()[-1500:])
    return outcome


def worst(outcomes: Mapping[str, str], cases: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """How the worst of the reproductions behind each key ended, where all of them have run."""
    ran = {key: [outcomes[name] for name in names] for key, names in cases.items() if outcomes.keys() >= set(names)}
    return {key: next((bad for bad in BAD if bad in found), "right") for key, found in ran.items()}


def results() -> dict[str, Any]:
    """What longer runs have left."""
    places = {name: Path(__file__).parents[1] / path for name, path in RESULTS.items()}
    return {n: json.loads(p.read_text(encoding="utf-8")) if p.exists() else None for n, p in places.items()}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--case", metavar="NAME", help="run one reproduction in this process")
    parser.add_argument("--only", metavar="TEXT", default="", help="only those whose name contains TEXT")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and their children, ignore it
    load()
    if args.case:
        sys.exit(run_here(args.case))
    unknown = {name for names in (REPORTS | KINDS).values() for name in names} - CASES.keys()
    assert not unknown, f"there are no reproductions {unknown}"
    outcomes: dict[str, str] = {}
    for case in CASES.values():
        if args.only in case.name and (not args.quick or case.seconds <= QUICK):
            outcomes[case.name] = run_apart(case, loudly=not args.json)
            common.progress(f"{case.name}: {outcomes[case.name]}")
    counts = {bad: list(outcomes.values()).count(bad) for bad in BAD}
    told = {"reports": worst(outcomes, REPORTS), "kinds": worst(outcomes, KINDS)}
    common.report(args, {**outcomes, **counts}, {**told, **results()})
    if any(counts.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
