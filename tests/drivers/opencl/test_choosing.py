"""Which of the devices that platforms show are taken, on platforms that are invented."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from manycl.drivers import choice
from manycl.drivers import survey as survey_module
from manycl.drivers.kinds import kinds
from manycl.drivers.opencl import devices
from manycl.errors import DeviceError
from tests.drivers.opencl.test_platforms import POCL

# invented platforms


class Fake(SimpleNamespace):
    """A driver's object: asking for what is not given fails as a driver does."""

    def __getattr__(self, name: str) -> Any:
        raise cl.LogicError(f"clGetDeviceInfo failed: {name}")


def gpu(name: str, vendor: int = 0x10DE, **more: Any) -> Fake:
    values: dict[str, Any] = {
        "name": name,
        "vendor": "NVIDIA Corporation" if vendor == 0x10DE else "Somebody",
        "vendor_id": vendor,
        "type": cl.device_type.GPU,
        "driver_version": "1",
        "max_clock_frequency": 1000,
        "max_compute_units": 10,
        "host_unified_memory": False,
        "global_mem_size": 1 << 30,
        "max_mem_alloc_size": 1 << 28,
        "local_mem_size": 1 << 15,
        "max_work_group_size": 1024,
        "mem_base_addr_align": 1024,
        "double_fp_config": 63,
        "image_support": True,
        "extensions": "cl_khr_fp16 cl_khr_int64_base_atomics",
        "int_ptr": 0,
    }
    return Fake(**(values | more))


def at(bus: int, slot: int = 0, domain: int = 0) -> dict[str, int]:
    return {"pci_bus_id_nv": bus, "pci_slot_id_nv": slot, "pci_domain_id_nv": domain}


def cpu(name: str) -> Fake:
    return gpu(name, 1, type=cl.device_type.CPU, host_unified_memory=True)


def platform(name: str, version: str, *devices: Fake, error: bool = False) -> Fake:
    def get_devices() -> list[Fake]:
        if error:
            raise cl.RuntimeError("clGetDeviceIDs failed: DEVICE_NOT_FOUND")
        return list(devices)

    return Fake(name=name, version=version, get_devices=get_devices)


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The survey of invented platforms."""

    def of(*platforms: Fake, ld: bool = True) -> Any:
        monkeypatch.setattr(cl, "get_platforms", lambda: list(platforms))
        monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/ld" if ld else None)
        monkeypatch.setattr(survey_module, "kinds", lambda: [k for k in kinds() if k.name == "OpenCL"])
        monkeypatch.setattr(devices, "prepare", lambda: None)
        monkeypatch.setattr(devices, "intel_library", lambda: "")
        monkeypatch.setattr(devices, "pip_pocl", lambda: "PoCL 3.0")
        return survey_module.survey.__wrapped__()

    return of


def default(found: Any) -> list[tuple[str, str, str]]:
    return [(r.device.name, r.device.model, r.device.platform) for r in found.roots if not r.why_not]


def test_no_platform_and_no_device(look: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert look().roots == ()
    assert look(platform("Clover", "1"), platform("NVIDIA CUDA", "3.0", error=True)).roots == ()


def test_all_has_a_gpu_once_and_by_its_vendors_driver(look: Callable[..., Any]) -> None:
    found = look(
        platform(POCL, "OpenCL 3.0 PoCL 5.0", cpu("pthread"), gpu("A", **at(1)), gpu("B", **at(2))),
        platform("NVIDIA CUDA", "OpenCL 3.0 CUDA", gpu("NVIDIA A", **at(1)), gpu("NVIDIA B", **at(2))),
    )
    assert default(found) == [
        ("cpu0", "pthread", POCL),
        ("gpu0", "NVIDIA A", "NVIDIA CUDA"),
        ("gpu1", "NVIDIA B", "NVIDIA CUDA"),
    ]
    assert [(r.device.name, r.why_not) for r in found.roots[3:]] == [
        ("gpu2", "the device that NVIDIA CUDA already shows"),
        ("gpu3", "the device that NVIDIA CUDA already shows"),
    ]
    assert [r.device.memory for r in found.roots] == [0, 1, 2, 3, 4]


def test_different_gpus_of_different_platforms_are_all_there(look: Callable[..., Any]) -> None:
    radeon = gpu("gfx1030", 0x1002, topology_amd=SimpleNamespace(bus=3, device=0, function=0))
    found = look(platform("NVIDIA CUDA", "3", gpu("N", **at(1))), platform("AMD APP", "2", radeon))
    assert [d[1] for d in default(found)] == ["gfx1030", "N"]


def test_instances_of_one_divided_gpu_are_different_devices(look: Callable[..., Any]) -> None:
    found = look(platform("NVIDIA CUDA", "3", gpu("H200 MIG", **at(1)), gpu("H200 MIG", **at(1))))
    assert [d[0] for d in default(found)] == ["gpu0", "gpu1"]


def test_a_gpu_whose_place_is_unknown_is_not_taken_twice(look: Callable[..., Any]) -> None:
    found = look(platform(POCL, "5", gpu("Adreno", 0x5143)), platform("QUALCOMM", "3", gpu("QUALCOMM A", 0x5143)))
    assert [d[1] for d in default(found)] == ["QUALCOMM A"]
    assert "perhaps the device that QUALCOMM" in found.roots[1].why_not


def test_one_cpu_and_intels_runtime_first_then_pypis_pocl(look: Callable[..., Any]) -> None:
    found = look(
        platform("Intel(R) OpenCL", "OpenCL 3.1", cpu("Xeon")),
        platform(POCL, "OpenCL 3.0 PoCL 5.0", cpu("pthread-5")),
        platform(POCL, "OpenCL 3.0 PoCL 3.0-rc2", cpu("pthread-3")),
        platform("Oclgrind", "OpenCL 1.2", gpu("Oclgrind Simulator", 0x42, type=cl.device_type.ALL)),
    )
    assert default(found) == [("cpu0", "Xeon", "Intel(R) OpenCL")]
    assert [r.device.model for r in found.roots[1:]] == ["pthread-3", "pthread-5", "Oclgrind Simulator"]
    assert [r.device.simulator for r in found.roots] == [False, False, False, True]


def test_a_device_that_does_not_answer_is_left_out_and_said(look: Callable[..., Any]) -> None:
    mute = Fake(name="mute", type=cl.device_type.GPU)
    found = look(platform("Broken", "1", mute), Fake(), platform(POCL, "PoCL 3.0", cpu("pthread")))
    assert [d[1] for d in default(found)] == ["pthread"]
    assert any("Broken" in n for n in found.notes)


def test_an_unknown_clock_does_not_make_a_device_useless(look: Callable[..., Any]) -> None:
    (root,) = look(platform(POCL, "PoCL 3.0", gpu("c", type=cl.device_type.CPU, max_clock_frequency=0))).roots
    assert (root.device.clock, root.device.flops) == (1e9, 2e10)


def test_without_ld_only_pocls_cpu_devices_are_left_out(look: Callable[..., Any]) -> None:
    found = look(platform(POCL, "PoCL 5.0", cpu("pthread"), gpu("A", **at(1))), ld=False)
    assert [d[1] for d in default(found)] == ["A"]


def choose(found: Any, selection: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(choice, "survey", lambda: found)
    monkeypatch.setattr(choice, "processor_alone", lambda: None)
    monkeypatch.setattr(devices, "shares_host_memory", lambda device: False)
    machine, _ = choice.open_devices(selection)
    return [d.model for d in machine.devices]


def test_part_of_a_name(look: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = look(
        platform(POCL, "PoCL 3.0", cpu("pthread-Intel Xeon")),
        platform("Intel(R) OpenCL", "3.1", cpu("Xeon")),
        platform("Intel(R) OpenCL Graphics", "3.0", gpu("Arc", 0x8086)),
        platform("Intel(R) FPGA Emulation Platform", "1.2", cpu("emulator")),
    )
    assert choose(found, "intel", monkeypatch) == ["Xeon", "Arc"], "platforms before models, no simulator"
    assert choose(found, "xeon", monkeypatch) == ["Xeon"], "one processor once"
    assert choose(found, "fpga", monkeypatch) == ["emulator"], "a simulator by its name"
    assert choose(found, "all", monkeypatch) == ["Xeon", "Arc"]


def test_intels_processor_is_one_device(look: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sub-devices share all cores."""
    xeon = cpu("Xeon")
    xeon.platform = Fake(name="Intel(R) OpenCL")
    xeon.create_sub_devices = lambda how: [Fake(max_compute_units=5), Fake(max_compute_units=5)]
    found = look(platform("Intel(R) OpenCL", "3.1", xeon))
    assert choose(found, "intel", monkeypatch) == ["Xeon"]
    for selection in ("intel/2", "opencl/2", "cpu/2", "cpu/1+3"):
        with pytest.raises(DeviceError, match="same cores"):
            choose(found, selection, monkeypatch)
    xeon.platform = Fake(name=POCL)
    assert choose(look(platform(POCL, "3.1", xeon)), "opencl/2", monkeypatch) == ["Xeon", "Xeon"]


def test_a_device_is_divided_once_for_all_items(look: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def create_sub_devices(how: list[int]) -> list[Fake]:
        calls.append(how)
        return [Fake(max_compute_units=5), Fake(max_compute_units=5)]

    divisible = cpu("ten units")
    divisible.create_sub_devices = create_sub_devices
    choose(look(platform(POCL, "PoCL 3.0", divisible)), "cpu/2#1@2,cpu/2#0", monkeypatch)
    assert calls == [[cl.device_partition_property.EQUALLY, 5]]
