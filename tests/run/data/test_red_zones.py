"""Red zones: kernels that write outside of their buffers are named, whatever stands in the way of proving it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from manycl.run.data import red_zones
from manycl.units import PAGE

WRONG = """
import itertools, json, sys
import numpy as np
import manycl as mc

STORES = {
    "int": "x[at[0] + i] = 7",
    "char": "((global char *)x)[4 * (at[0] + i)] = 7",
    "int2": "vstore2((int2)(7, 7), 0, x + at[0] + i)",
    "atomic": "atomic_add(x + at[0] + i, 7)",
    "branch": "if (at[i] == at[0]) x[at[0] + i] = 7; else x[0] = 1",
    "loop": "for (int k = 0; k <= at[0]; k++) x[k + i] = 7",
    "function": "put(x, at[0] + i)",
}
source = "void put(global int *p, int i) { p[i] = 7; }\\n" + "".join(
    f"kernel void w_{name}(global const int *at, global int *x, global int *other) {{"
    f" int i = get_global_id(0); {body}; other[i] = 1; }}\\n"
    for name, body in STORES.items()
)
said = []
with mc.Queue(sys.argv[1], policy=sys.argv[2]) as queue:
    program = mc.Program(source)
    for name, place in itertools.product(STORES, (-3, -1, 8, 60, 66, 1000)):
        if name == "loop" and place < 0:
            continue
        x, other = queue.zeros(64, np.int32, name="x"), queue.zeros(8, np.int32)
        at = queue.array(np.full(8, place, np.int32))
        program.kernel("w_" + name)(queue, (8,), (8,), at, x, other)
        try:
            queue.finish()
            said.append((name, place, ""))
        except mc.ManyclError as error:
            said.append((name, place, str(error)))
    y = queue.zeros(64, np.int32)  # the queue goes on
    program.w_int(queue, (8,), (8,), queue.zeros(8, np.int32), y, queue.zeros(8, np.int32))
    said.append(("right", 0, "" if (y.get()[:8] == 7).all() else "wrong"))
print(json.dumps(said))
"""


@pytest.mark.parametrize(("devices", "own"), [("cpu/2", "1"), ("cpu/1", "0")])
def test_every_wrong_kernel_is_named(devices: str, own: str) -> None:
    environment = {**os.environ, "MANYCL_DEBUG": "5", "MANYCL_ZERO_COPY": own, "MANYCL_MODELS": "0"}
    command = [sys.executable, "-c", WRONG, devices, "in_order"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr[-2000:]
    said = json.loads(ended.stdout)
    assert len(said) == 7 * 6 - 2 + 1
    for name, place, message in said:
        last = place + 7 + (name == "int2")
        if name == "right" or (place >= 0 and last < 64):
            assert not message, (name, place, message)
            continue
        assert f"kernel w_{name} (node 0) failed on cpu0" in message
        assert "it wrote outside of argument 1 (x), x of 256 bytes" in message
        first = 256 if name == "loop" else 4 * (place if place < 0 else max(place, 64))
        assert f"the first at byte {first}" in message, (name, place, message)


def test_the_pattern_is_no_value_that_kernels_write() -> None:
    whole = np.zeros(100 + 2 * PAGE, np.uint8)
    middle = red_zones.around(whole)
    middle[:] = 1
    assert red_zones.look_at_host(whole) is None
    whole[PAGE - 1] ^= 1
    whole[-1] ^= 1
    assert red_zones.look_at_host(whole) == (-1, 2)
    assert red_zones.look_at_host(whole) is None, "they are drawn again"
    assert (middle == 1).all()
    for value in range(256):
        patterns: Any = (red_zones.PATTERN[:4] == value).all()
        assert not patterns
