"""What a program is told at its end, of traces made by hand."""

from __future__ import annotations

from typing import Any

from manycl.stand_in.explain import best_single, explanation
from manycl.trace import KernelEvent, Trace


def event(node: int, name: str, device: str, start: float, end: float, groups: int = 0) -> KernelEvent:
    role = "range" if groups else ""
    shown = f"{name} [0:{groups}]" if groups else name
    sizes: Any = {"global_size": (64,), "local_size": None}
    return KernelEvent(node, shown, device, 0, start, end, **sizes, groups=groups, role=role, kernel=name)


def trace(*events: KernelEvent, **details: Any) -> Trace:
    return Trace(events=events, devices=("a", "b"), policy="auto", makespan=9.0, application="", details=details)


def test_the_best_single_device_by_what_launches_took_there() -> None:
    """``f`` takes 4 s on a, as of a quarter of it 1 s, and 2 s on b; ``g`` 1 s on a, and 1.5 s on b."""
    events = (
        event(0, "f", "a", 0, 1, groups=25),
        event(0, "f", "b", 0, 1.5, groups=75),
        event(1, "f", "b", 2, 4),
        event(2, "g", "a", 4, 5),
        event(3, "g", "b", 4, 5.5),
    )
    single = best_single(trace(*events))
    assert single is not None
    assert single.device == "b"
    assert single.seconds == 2 * 2.0 + 2 * 1.5


def test_a_device_that_has_not_run_a_kernel_is_not_guessed_about() -> None:
    events = event(0, "f", "a", 0, 1), event(1, "g", "b", 0, 1)
    assert best_single(trace(*events)) is None
    assert "alone" not in explanation(trace(*events), ())


def test_what_is_told() -> None:
    reason = {"kernel": "g", "path": "", "line": 7, "reason": "it counts\n  with atomics", "launches": 2}
    seen = trace(
        event(0, "f", "a", 0, 1, groups=50),
        event(0, "f", "b", 0, 1, groups=50),
        event(1, "f", "a", 1, 3),
        event(2, "g", "b", 1, 2),
        event(3, "h", "b", 2, 3),
        undivided=[reason],
    )
    lines = explanation(seen, ()).splitlines()
    assert lines[1:4] == [
        "  divided: f x1 of 2: a 50.0 %, b 50.0 %",
        "  not divided: g, line 7: it counts with atomics",
        "  not divided: h x1: it was expected to gain nothing",
    ]
    assert explanation(trace(), ()).splitlines()[1] == "  no kernel was launched"
