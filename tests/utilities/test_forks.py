"""Marks of processes."""

from __future__ import annotations

import mmap
import os

import pytest

from manycl.utilities import forks
from manycl.utilities.forks import Mark


@pytest.mark.parametrize("is_wiped", [True, False])
def test_a_mark_is_gone_in_a_process_that_is_forked(is_wiped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_wiped:
        monkeypatch.setattr(forks, "_WIPE_ON_FORK", -1)  # as on a system that does not know it
    mark = Mark()
    assert isinstance(mark.page, mmap.mmap) == is_wiped
    assert mark.page[0]
    child = os.fork()
    if not child:
        os._exit(10 * (not mark.page[0]) + (not Mark().page[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
    assert mark.page[0]
    assert mark.process == os.getpid()
