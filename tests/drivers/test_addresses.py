"""Where bytes of the host lie."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from manycl.drivers.addresses import address_of


@pytest.mark.parametrize("first", [0, 1, 100])
@pytest.mark.parametrize("is_writable", [True, False])
def test_it_is_what_numpy_tells(first: int, is_writable: bool) -> None:
    whole = np.arange(100, dtype=np.uint8)
    data = whole[first:]
    data.flags.writeable = is_writable
    before = sys.getrefcount(whole), sys.getrefcount(data)
    assert address_of(data) == data.ctypes.data
    assert (sys.getrefcount(whole), sys.getrefcount(data)) == before
