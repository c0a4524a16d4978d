"""What would be better on a machine: as invented systems show it, and on the command line."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from manycl.drivers.native import devices as native
from manycl.drivers.native.compiler import clang
from manycl.drivers.opencl import advice
from manycl.machine import Device
from tests import ROOT

NATIVE = Device("cpu0", "cpu", "Processor", "native")
POCL = Device("cpu1", "cpu", "pthread", "Portable Computing Language")
SIMULATOR = Device("cpu2", "cpu", "Simulator", "Oclgrind", simulator=True)


def card(system: Path, name: str, vendor: str, kind: str = "0x030000") -> None:
    folder = system / "sys/bus/pci/devices" / name
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def names(system: Path) -> list[str]:
    return [vendor.name for vendor, _ in advice.seen(system)]


def test_a_system_without_gpus(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    card(tmp_path, "0000:00:1f.0", "0x8086", "0x060100")  # a bridge
    card(tmp_path, "0000:00:02.0", "0x1234")  # an emulated display
    assert names(tmp_path) == []


@pytest.mark.parametrize(("vendor", "name"), [("0x10de", "NVIDIA"), ("0x1002", "AMD"), ("0x8086", "Intel")])
@pytest.mark.parametrize("kind", ["0x030000", "0x030200", "0x038000"])
def test_displays_and_3d_controllers_are_seen(vendor: str, name: str, kind: str, tmp_path: Path) -> None:
    card(tmp_path, "0000:01:00.0", vendor, kind)
    assert names(tmp_path) == [name]


def test_drivers_of_the_system_are_seen_where_the_bus_is_not(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert names(tmp_path) == ["NVIDIA", "AMD"]


def test_cards_are_seen_and_their_connectors_are_none(tmp_path: Path) -> None:
    device = tmp_path / "sys/class/drm/card0/device"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x8086\n")
    (device / "class").write_text("0x030000\n")
    (tmp_path / "sys/class/drm/card0-HDMI-A-1").mkdir()
    assert names(tmp_path) == ["Intel"]


def graphics(devices: Sequence[Device], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands, where the system has a GPU of NVIDIA's and one of AMD's."""
    there = [(vendor, "here") for vendor in advice.VENDORS if vendor.name != "Intel"]
    monkeypatch.setattr(advice, "seen", lambda: iter(there))
    return [one.command for one in advice.advise(devices, [])]


def test_gpus_that_no_driver_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia = Device("gpu0", "gpu", "H200", "NVIDIA CUDA")
    radeon = Device("gpu0", "gpu", "gfx1030", "Clover")
    first, second = graphics([NATIVE, POCL], monkeypatch)
    assert "nvidia-opencl-icd" in first
    assert "rocm-opencl-runtime" in second
    assert graphics([NATIVE, nvidia], monkeypatch) == [second]
    assert graphics([NATIVE, radeon], monkeypatch) == [first]
    assert graphics([NATIVE, radeon, nvidia], monkeypatch) == []


def processor(devices: Sequence[Device], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(advice, "seen", lambda: iter(()))
    return [one.command for one in advice.advise(devices, [])]


def test_intels_runtime_is_advised_where_nothing_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    assert processor([POCL, SIMULATOR], monkeypatch) == [advice.INTEL]
    assert processor([POCL, Device("cpu0", "cpu", "Xeon", "Intel(R) OpenCL")], monkeypatch) == []
    assert processor([POCL, NATIVE], monkeypatch) == []
    monkeypatch.setattr(platform, "system", lambda: "Linux")  # a native device can be had
    assert processor([POCL], monkeypatch) == []


def test_what_pocl_computes_wrongly_is_told_where_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "seen", lambda: iter(()))
    assert advice.advise([NATIVE, POCL], [NATIVE]) == []
    (one,) = advice.advise([NATIVE, POCL], [POCL])
    assert "wrongly" in one.what


def test_why_nothing_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MANYCL_CLANG", raising=False)
    assert native.advise([NATIVE, POCL], []) == []
    (one,) = native.advise([POCL], [])
    assert "there is no compiler" in one.what
    assert "pip install ziglang" in one.command
    assert "MANYCL_CLANG" in one.command
    monkeypatch.setenv("MANYCL_CLANG", "nonesuch")
    (one,) = native.advise([POCL], [])
    assert "nonesuch" in one.what
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    (one,) = native.advise([POCL], [])
    assert "riscv64" in one.what


def test_a_compiler_that_does_not_work_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_CLANG", "true")
    clang._found.cache_clear()
    (one,) = native.advise([NATIVE, POCL], [NATIVE])
    assert "no clang that works" in one.what
    assert "MANYCL_CLANG" in one.command


def record(*words: str, **environment: str) -> Any:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MANYCL_DEVICES": "", **environment}
    command = [sys.executable, "-m", "manycl", "devices", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


def test_the_command_tells_it() -> None:
    found = record("--json", MANYCL_CLANG="nonesuch")
    assert any("nonesuch" in one["what"] and "ziglang" in one["command"] for one in found["advice"])
    text = record("--devices", "pocl")
    assert "hint: PoCL computes some kernels wrongly" in text
