"""Fixtures for the tests of native devices, of programs that are written by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from manycl.drivers.native.devices import found_with
from manycl.drivers.native.driver import NativeDriver
from tests.drivers.native import native_entries
from tests.drivers.native.native_commands import Open


@pytest.fixture
def open_driver() -> Iterator[Open]:
    """A device of so many threads, on any cores."""
    made: list[NativeDriver] = []
    compiler = native_entries.compile_entries

    def of(threads: int) -> NativeDriver:
        driver = NativeDriver(found_with(compiler).device, (-1,) * threads, compiler)
        made.append(driver)
        return driver

    yield of
    for driver in made:
        driver.finish()
        driver.release()


@pytest.fixture(params=[1, 2, 5])
def driver(open_driver: Open, request: pytest.FixtureRequest) -> NativeDriver:
    return open_driver(request.param)
