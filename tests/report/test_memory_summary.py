"""What a memory limit was predicted to cost is in the summary."""

from __future__ import annotations

import json

from manycl.report.summary import summarise
from manycl.trace import Trace


def test_limited_devices_are_shown() -> None:
    device = {
        "name": "gpu0",
        "limit": 16 << 20,
        "needed": 64 << 20,
        "again": 1 << 20,
        "leave": 2 << 20,
        "seconds": 0.01,
    }
    trace = Trace((), ("gpu0",), "auto", 1.0, "run", details={"memory": [device]})
    summary = summarise(trace)
    assert "gpu0    16.8 MB  67.1 MB  1.05 MB  2.10 MB    10.0 ms" in summary.text()
    assert json.loads(json.dumps(summary.to_dict()))["memory"] == [device]
    assert "memory" not in summarise(Trace((), ("gpu0",), "auto", 1.0, "run")).text()
