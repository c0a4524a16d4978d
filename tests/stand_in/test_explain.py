"""What a program is told at its end, of traces made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from manycl import Program, Queue
from manycl.stand_in.explain import Kernels, best_single, explanation
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
    told = explanation(trace(*events), ()).splitlines()[-1]
    assert told == "  kernels ran for 1.00 s; how long one device alone would have taken is not known"


def test_what_is_told() -> None:
    reason = "line:7: it counts\n  with atomics"
    whole = {"kernel": "g", "launches": 2, "divided": False, "reason": reason, "numbers": {}}
    seen = trace(
        event(0, "f", "a", 0, 1, groups=50),
        event(0, "f", "b", 0, 1, groups=50),
        event(1, "f", "a", 1, 3),
        event(2, "g", "b", 1, 2),
        event(3, "h", "b", 2, 3),
        event(4, "h", "a", 3, 6),
        replace(event(5, "copy", "a", 6, 7), global_size=()),
        divisions=[whole],
    )
    assert explanation(seen, ()).splitlines()[1:] == [
        "  divided: f x1 of 2: a 50.0 %, b 50.0 %",
        "  not divided: g x1, 1.00 s on b: line:7: it counts with atomics",
        "  not divided: h x2, 2.00 s each on a, b: nobody has looked at it",
        "  kernels ran for 6.00 s; how long one device alone would have taken is not known",
    ]
    assert explanation(trace(), ()).splitlines()[1] == "  no kernel was launched"


def test_what_was_gained() -> None:
    """``f`` takes 4 s on each device; half of it ran on each, which promises nothing until it has run whole."""
    both = event(0, "f", "a", 0, 2, groups=50), event(0, "f", "b", 0, 2, groups=50)
    told = explanation(trace(*both), ()).splitlines()[-1]
    assert told == "  kernels ran for 2.00 s; how long one device alone would have taken is not known"
    told = explanation(trace(*both, event(1, "f", "a", 2, 6)), ()).splitlines()[-1]
    assert told == (
        "  kernels ran for 6.00 s; a alone would have taken 8.00 s, as far as can be told: 1.33 times as long"
    )
    told = explanation(trace(event(0, "f", "b", 0, 2)), ()).splitlines()[-1]
    assert told == "  kernels ran for 2.00 s, all of them on b"


SOURCE = """
__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2; }
__kernel void alone(__global float *a) { a[0] += 1; }

__kernel void mixed(__global int *count, __global int *out) { out[atomic_inc(count)] = get_global_id(0); }
"""


@pytest.mark.parametrize("policy", ["auto", "eager"])
@pytest.mark.parametrize("devices", ["cpu", "cpu/2"])
def test_what_nobody_has_looked_at_is_asked(devices: str, policy: str) -> None:
    """Launches that are too short for a plan, or went to a device at once."""
    queue = Queue(devices, policy=policy)
    program = Program(SOURCE)
    kernels = Kernels()
    with queue:
        data, count, out = (queue.zeros(1 << 12, kind) for kind in (np.float32, np.int32, np.int32))
        for _ in range(3):
            program.twice(queue, (1 << 10,), (64,), data)
            program.mixed(queue, (1 << 10,), (64,), count, out)
            program.alone(queue, (1,), (1,), data)
            data.get()
        kernels.stop()
        lines = explanation(kernels.trace, (), kernels).splitlines()[1:]
    submitted = [line for line in lines if line.startswith(("  eager: ", "  planned: "))]
    if policy != "auto" and not devices.endswith("u"):
        assert submitted == [f"  planned: policy {policy} was asked for"]
    assert submitted
    lines = [line for line in lines if line not in submitted]
    told = {line.split()[1 if devices.endswith("u") else 2]: line for line in lines[:-1]}
    assert told.keys() == {"twice", "mixed", "alone"}
    if devices.endswith("u"):
        assert told["twice"].endswith(" on cpu0; several devices could share it")
        assert "; several could not: line 5: " in told["mixed"]
        assert told["alone"].endswith("; several could not: it has one work-group")
        assert lines[-1].startswith("  kernels ran for ")
    else:
        assert "too short to gain" in told["twice"]
        assert "count: atomic inc in line 5" in told["mixed"]
        assert told["alone"].endswith(": it has one work-group")
    assert all(f" {name} x3, " in line for name, line in told.items())
