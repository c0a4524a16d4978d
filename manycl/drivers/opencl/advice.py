"""Advice on OpenCL's drivers, which would do better with another package: GPUs that the system sees and no driver
shows, faster runtimes, known defects."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from manycl.drivers.driver import Advice
from manycl.drivers.opencl.icd import vendors_are_set
from manycl.machine import NATIVE, Device

INTEL = "pip install intel-opencl-rt intel-cmplr-lib-rt"
_POCL = "portable computing"
_DISPLAYS = "0x03"  # how the class of a display or 3D controller begins on the PCI bus


class Vendor(NamedTuple):
    """A vendor of GPUs: ``number`` on the PCI bus, ``words`` that are in the names of its devices or their
    platforms."""

    number: str
    name: str
    words: tuple[str, ...]
    command: str


VENDORS = (
    Vendor(
        "0x10de",
        "NVIDIA",
        ("nvidia",),
        "Debian: apt install nvidia-opencl-icd; Ubuntu: libnvidia-compute of the driver's version; in a container: "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility when it is started",
    ),
    Vendor(
        "0x1002",
        "AMD",
        ("amd", "advanced micro", "radeon", "gfx"),
        "AMD's repository: apt install rocm-opencl-runtime; Debian and Ubuntu: apt install mesa-opencl-icd",
    ),
    Vendor("0x8086", "Intel", ("intel",), "Debian and Ubuntu: apt install intel-opencl-icd"),
)


def advise(devices: Sequence[Device], chosen: Sequence[Device]) -> list[Advice]:
    """Return advice, as :attr:`manycl.drivers.kinds.Kind.advise`."""
    return [*_graphics(devices), *_processor(devices), *_defects(chosen)]


def seen(system: Path = Path("/")) -> Iterator[tuple[Vendor, str]]:
    """The vendors of GPUs that the system sees, and where: whatever OpenCL shows. Nothing is started."""
    cards = [card for card in (system / "sys/class/drm").glob("card[0-9]*") if "-" not in card.name]
    devices = [*(system / "sys/bus/pci/devices").glob("*"), *(card / "device" for card in cards)]
    found: dict[str, str] = {}
    for folder in devices:
        with suppress(OSError):
            number = (folder / "vendor").read_text().strip()
            kind = (folder / "class").read_text().strip()
            if kind.startswith(_DISPLAYS):
                found.setdefault(number, str(folder))
    if any((system / "proc/driver/nvidia/gpus").glob("*")):
        found.setdefault("0x10de", "/proc/driver/nvidia")
    if (system / "dev/kfd").exists():
        found.setdefault("0x1002", "/dev/kfd")
    for vendor in VENDORS:
        if vendor.number in found:
            yield vendor, found[vendor.number]


def _graphics(devices: Sequence[Device]) -> Iterator[Advice]:
    for vendor, place in seen():
        shown = (d for d in devices if d.kind != "cpu" and not d.simulator)
        texts = [f"{d.model} {d.platform}".lower() for d in shown]
        if not any(word in text for word in vendor.words for text in texts):
            words = f"the system has a GPU of {vendor.name} ({place}), and no OpenCL driver shows it"
            if vendors_are_set():
                words += " (OCL_ICD_VENDORS is set: only what it names is looked at)"
            yield Advice(words, vendor.command)


def _processor(devices: Sequence[Device]) -> Iterator[Advice]:
    """Native devices are faster still; they need Linux."""
    processors = [d for d in devices if d.kind == "cpu" and not d.simulator]
    if any(d.platform == NATIVE or "intel" in d.platform.lower() for d in processors):
        return
    if processors and platform.machine() in ("x86_64", "AMD64") and platform.system() != "Linux":
        yield Advice("Intel's runtime computes 2 to 20 times as fast as PoCL, on AMD's processors, too", INTEL)


def _defects(chosen: Sequence[Device]) -> Iterator[Advice]:
    if any(_POCL in d.platform.lower() for d in chosen):
        yield Advice(
            "PoCL computes some kernels wrongly: those with barriers in loops under conditions may leave results out, "
            "vstore_half3 writes a fourth element, and structs that are arguments may be changed for all work-items",
            "--devices native, or oclgrind to compare with",
        )
