"""Which real device does what manycl does not know."""

from __future__ import annotations

import pytest

from manycl.drivers.choice import open_devices
from manycl.stand_in.runtime import best


@pytest.mark.parametrize("chosen", ["opencl/2#0", "opencl/2", "opencl"])
def test_parts_count_as_the_device_that_they_are_parts_of(chosen: str) -> None:
    (whole,) = open_devices("opencl")[1]
    device = best(open_devices(chosen)[1])
    assert device.int_ptr == whole.handle.cl.int_ptr  # type: ignore[attr-defined]
