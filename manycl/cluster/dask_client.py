"""The part of a Dask client that is used: Dask itself is imported when a program has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class DaskClient(Protocol):
    """A ``dask.distributed.Client``, of whatever cluster."""

    scheduler: Any
    security: Any
    loop: Any

    @property
    def asynchronous(self) -> bool: ...
    def sync(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...
    def persist(self, collections: Any) -> Any: ...
    def who_has(self, futures: Any) -> Any: ...
    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...
    def register_plugin(self, plugin: Any) -> Any: ...
