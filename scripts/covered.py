"""A plugin of pytest for scripts/mutate: it finds out which lines each test executes, or runs chosen tests in order."""

from __future__ import annotations

import faulthandler
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

COLLECT, CHOSEN = "MUTANTS_COLLECT", "MUTANTS_CHOSEN"
"""Environment variables: the folder that gets what was found; the file with what to run, and each test's limit (s)."""


def pytest_configure(config: pytest.Config) -> None:
    if (folder := os.environ.get(COLLECT)) and not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Collecting(Path(folder)))
    if chosen := os.environ.get(CHOSEN):
        config.pluginmanager.register(Choosing(json.loads(Path(chosen).read_text(encoding="utf-8"))))


class Collecting:
    """Lines of the package, test by test. What a test asks the guarded process about launches is answered here."""

    def __init__(self, folder: Path) -> None:
        import coverage

        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.coverage = coverage.Coverage(data_file=None, include=["*/manycl/*"], config_file=False)
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        from manycl.analysis import service, worker

        asked = service._answer
        service._answer = lambda question, seconds: (
            worker.answer(question) if isinstance(question, worker.LaunchQuestion) else asked(question, seconds)
        )
        self.coverage.switch_context(item.nodeid)
        begin = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.perf_counter() - begin
            self.coverage.switch_context("")
            service._answer = asked

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write {test: [seconds, {module: [lines]}]} of what passed."""
        self.coverage.stop()
        data, found = self.coverage.get_data(), defaultdict[str, dict[str, list[int]]](dict)
        for path in data.measured_files():
            for line, tests in data.contexts_by_lineno(path).items():
                for test in tests:
                    found[test].setdefault(os.path.relpath(path), []).append(line)
        passed = {t: [s, found[t]] for t, s in self.seconds.items() if t not in self.failed}
        (self.folder / f"{os.getpid()}.json").write_text(json.dumps(passed), encoding="utf-8")


class Choosing:
    """Only the tests of ``limits``, in its order; one that takes longer than its limit (s) ends the process."""

    def __init__(self, limits: dict[str, float]) -> None:
        self.limits = limits

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in self.limits]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        faulthandler.dump_traceback_later(self.limits[item.nodeid], exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
