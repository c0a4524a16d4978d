"""Launches that migrate while they run, simulated on a GPU of many compute units beside a processor: packets cost
nothing, whatever the devices' speeds are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manycl.cli import main

KERNELS = """
kernel void busy(global float *z, int R) {
    int i = get_global_id(0); float v = z[i];
    for (int r = 0; r < R; r++) v = v * 0.999f + 0.001f;
    z[i] = v;
}
kernel void work(global float *a, int R) {
    int i = get_global_id(0); float v = a[i];
    for (int r = 0; r < R; r++) v = v * 0.999f + 0.001f;
    a[i] = v;
}
"""
DEVICE = """
[[device]]
name = "{name}"
kind = "{kind}"
memory = "host"
compute_units = {units}
clock = "1 GHz"
flops = "{flops} GFLOP/s"
bandwidth = "1000 GB/s"
global_memory = "8 GiB"
launch_overhead = "1 us"
queues = 1
"""


@pytest.mark.parametrize(("ratio", "units"), [(2, 132), (4, 132), (10, 132), (10, 8), (45, 8)])
def test_packets_cost_nothing_on_devices_of_many_units(
    ratio: int, units: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live, a launch ends no more than 3 % later than as it was planned, and than it does whole on the fast device."""
    monkeypatch.setenv("MANYCL_DETERMINISTIC", "0")
    (tmp_path / "k.cl").write_text(KERNELS)
    fast = DEVICE.format(name="fast", kind="gpu", units=132, flops=1000)
    slow = DEVICE.format(name="slow", kind="cpu", units=units, flops=1000 / ratio)
    (tmp_path / "m.toml").write_text(f'name = "pair"\nsource = "own"\n[host]\nbandwidth = "4000 GB/s"\n{fast}{slow}')
    buffers = {name: {"type": "float", "shape": "n"} for name in "za"}
    common = {"global": "n", "local": 64}
    kernels = [
        {"name": "busy", **common, "args": {"z": "z", "R": "W"}, "device": "gpu"},
        {"name": "work", **common, "args": {"a": "a", "R": "R"}},
    ]
    numbers = {"n": 1 << 20, "R": 200_000, "W": 50_000}
    app = {"manycl": 1, "name": "occ", "parameters": numbers, "source": "k.cl", "buffers": buffers, "kernels": kernels}
    (tmp_path / "a.json").write_text(json.dumps(app))

    def seconds(*policy: str) -> float:
        options = [word for option in policy[1:] for word in ("--option", option)]
        where = ["--machine", str(tmp_path / "m.toml"), "--policy", policy[0], "--json", *options]
        assert main(["simulate", str(tmp_path / "a.json"), *where]) == 0
        return float(json.loads(capsys.readouterr().out)["simulated_s"])

    whole, planned = seconds("pns"), seconds("hop")
    assert planned <= whole
    for policy in (("hop", "live=yes"), ("hop", "live=yes", "both=yes")):
        assert seconds(*policy) <= 1.03 * whole
    assert seconds("hop", "live=yes") <= 1.03 * planned
    assert seconds("mig_heft", "live=yes") <= 1.03 * seconds("mig_heft")
