"""One OpenCL world for all tests, whatever the machine has: PoCL and Oclgrind from PyPI, four CPU cores, no caches
but of what is compiled."""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import os
import shutil
import tempfile
import threading
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from manycl import flags
from manycl.plan import tuning
from manycl.utilities.disk_cache import DiskCache
from tests import ROOT

# The drivers read these when they are loaded, so they are set before any test module is imported. pytest-xdist's
# workers inherit them from the controller, and share its folder.
_FOLDER: Path | None = None
if "PYTEST_XDIST_WORKER" not in os.environ:
    _FOLDER = Path(tempfile.mkdtemp(prefix="manycl-tests-"))
    (_FOLDER / "vendors").mkdir()
    (_FOLDER / "pocl").mkdir()
    (_FOLDER / "runtime").mkdir(mode=0o700)
    for name in [n for n in os.environ if n.startswith("MANYCL_") and not n.startswith("MANYCL_TEST_")]:
        del os.environ[name]  # but for how much is tested
    os.environ.pop("PYOPENCL_COMPILER_OUTPUT", None)
    os.environ |= {
        "POCL_CACHE_DIR": str(_FOLDER / "pocl"),  # a crashed build poisons PoCL's cache
        "POCL_MAX_PTHREAD_COUNT": "4",  # four one-core sub-devices on any machine
        "MANYCL_THREADS": "4",  # likewise of the native device
        "POCL_WORK_GROUP_SPECIALIZATION": "0",  # compile once per kernel, not once per size
        "PYOPENCL_NO_CACHE": "1",
        "OPENBLAS_NUM_THREADS": "1",  # a third of the time that a process takes to import NumPy is for its threads
        "MANYCL_DATA": str(_FOLDER / "data"),  # never the user's own
        "MANYCL_MODELS": "0",  # no test learns from another
        "MANYCL_CACHE": str(_FOLDER / "cache"),  # what processes that tests start have compiled, and found out
        "XDG_RUNTIME_DIR": str(_FOLDER / "runtime"),  # no process of other tests, or of the user's, is seen
        "OCLGRIND_NUM_THREADS": "1",  # work-groups one after another: the same run every time
    }
    if "MANYCL_TEST_DEVICES" not in os.environ:
        os.environ["OCL_ICD_VENDORS"] = str(_FOLDER / "vendors")  # empty: only the wheels' drivers

# Python's garbage collector looks through hundreds of thousands of objects of tests and libraries: a sixth of the time
# of tests of graphs, with Python's own thresholds (700, 10, 10)
gc.set_threshold(50_000, 20, 20)

# Policies that search have a twentieth of the effort, where no option says otherwise: no module has read this yet
tuning.PLANNING = tuning.PLANNING._replace(effort=tuning.PLANNING.effort // 20, tree=tuning.PLANNING.tree // 20)

_CACHE = os.environ["MANYCL_CACHE"]
_COMPILED = ("native", "compilers")
"""Caches of what clang makes of one text by one command, which no fault of the tested code can change."""


class _Asking(threading.local):
    """Whether a thread asks a cache of objects."""

    of_objects = False


_asking = _Asking()


def _cache() -> str:
    """In the tests' own processes every analysis is made, but for tests that have a cache folder of their own; what a
    compiler has made of a text is kept for all tests."""
    given = _cache_of_the_environment()
    return "0" if given == _CACHE and not _asking.of_objects else given


def _folder(cache: DiskCache, made: bool = False) -> str | None:
    _asking.of_objects = cache._name in _COMPILED
    try:
        return _folder_of_the_cache(cache, made)
    finally:
        _asking.of_objects = False


_cache_of_the_environment, flags.cache = flags.cache, _cache
_folder_of_the_cache, DiskCache._folder = DiskCache._folder, _folder  # type: ignore[assignment, method-assign]

_sampled_from, _strategies = st.sampled_from, dict[str, Any]()


def _is_plain(value: object) -> bool:
    """Whether a value is told by what is printed of it."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in (str, int, float, bool, type(None)) or isinstance(value, Enum)


def _sampled(elements: Any) -> Any:
    """``sampled_from``, once for the same elements: Hypothesis keeps integers(), lists() and others for who asks again,
    but not these, and looks at each anew, which took a seventh of tests that draw many."""
    if type(elements) not in (list, tuple) or not all(map(_is_plain, elements)):
        return _sampled_from(elements)
    if len(_strategies) > 1 << 12:
        _strategies.clear()
    key = repr(elements)
    found = _strategies.get(key)
    if found is None:
        found = _strategies[key] = _sampled_from(elements)
    return found


st.sampled_from = _sampled

# what reproduces a failure is printed, and belongs into the test as an @example
settings.register_profile("default", deadline=None, print_blob=True)
# the same examples every time: what lands depends on the change, not on luck (Hypothesis's own choice where CI is set)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
# for scripts/mutate, which only asks whether something fails: the same examples every time, and none made smaller
settings.register_profile(
    "mutants", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def pytest_configure(config: pytest.Config) -> None:
    # in pyproject.toml, this line would import pyopencl before the environment above is set
    config.addinivalue_line("filterwarnings", "ignore::pyopencl.CompilerWarning")
    # as an error it would take the place of the failure of a test whose values are long (FlakyStrategyDefinition)
    config.addinivalue_line("filterwarnings", "ignore:Generating overly large repr:hypothesis.errors.HypothesisWarning")


def pytest_collection(session: pytest.Session) -> None:
    """In a fresh checkout pytest rewrites the assertions of all test modules: workers would do that side by side, each
    for all. Every second one begins with the last module, and then finds what the others have left."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if number % 2 and [Path(word).resolve() for word in session.config.args] == [ROOT / "tests"]:
        for path in sorted((ROOT / "tests").rglob("test_*.py"), reverse=True):
            with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it tells
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # what has been loaded stays


def pytest_unconfigure() -> None:
    if _FOLDER is not None:
        shutil.rmtree(_FOLDER, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that a test registers is gone after it."""
    from manycl.plan import policy

    policy.names()  # the built-in ones are registered
    monkeypatch.setattr(policy, "registry", dict(policy.registry))


@pytest.fixture(autouse=True)
def launch_cache(request: pytest.FixtureRequest) -> None:
    """Tests that launch kernels have the launch cache from their first one on, whichever ran before."""
    stage = request.path.relative_to(ROOT / "tests").parts[0]
    if stage in ("api", "applications", "drivers", "run", "stand_in"):
        from manycl.api.dispatch import compiled

        compiled.install()


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands for several devices are collected for a plan, however little they take: as if nothing were known of
    them, or could be guessed."""
    from manycl.run.session.models import Models
    from manycl.run.session.session import Session

    monkeypatch.setattr(Models, "took", lambda *command: math.inf)
    monkeypatch.setattr(Session, "guessed_first", lambda session, launch: math.inf)
