"""A Dask cluster of two processes on this machine, each of which computes with a processor in two parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def cluster(workers: int = 2, security: Any = None) -> Iterator[Any]:
    """Have a client of a cluster; its processes, ports and files are gone afterwards. ``security``: Dask's."""
    import distributed  # of the extra: a failure to import it is these tests' alone

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0", "host": "127.0.0.1"}
    options |= {"security": security, "protocol": "tls"} if security is not None else {}
    with (
        distributed.LocalCluster(**options, env={"MANYCL_DEVICES": "cpu/2"}, memory_limit=0) as started,
        distributed.Client(started) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    with cluster() as found:
        yield found
