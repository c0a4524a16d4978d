"""A driver whose command fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from manycl.drivers.driver import Driver, DriverError


@contextmanager
def failing(driver: Driver, bad: Any) -> Iterator[None]:
    """Make a driver tell that the command of event ``bad`` has failed ("out of order")."""
    done, succeeded = driver.done, driver.succeeded

    def fails(event: Any) -> bool:
        if event == bad:
            raise DriverError("out of order")
        return done(event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "done", fails)
        patch.setattr(driver, "succeeded", lambda events: bad not in events and succeeded(events))
        yield
