"""Finding, choosing and opening devices: on the drivers that are here (PyPI's PoCL and Oclgrind), each case in a
process of its own where the environment matters; and on invented platforms, where what is here is not enough.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from manycl.drivers.opencl import icd
from tests import ROOT

LIBRARIES = Path(cl.__file__).parent / ".libs"
POCL = "Portable Computing Language"


def python(code: str, tmp_path: Path, **environment: str | None) -> Any:
    """What the code prints, as JSON, in a fresh process; None removes a variable."""
    env = dict(os.environ, PYTHONPATH=str(ROOT), TMPDIR=str(tmp_path), POCL_CACHE_DIR=str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir(exist_ok=True)
    env |= {"OCL_ICD_VENDORS": str(tmp_path / "empty"), "MANYCL_DEVICES": ""}
    for name, value in environment.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


OPEN = """
import json, sys
from manycl.errors import DeviceError
from manycl.drivers.choice import open_devices
out = {{}}
for text in {selections!r}:
    try:
        machine, opened = open_devices(text)
    except DeviceError as error:
        out[str(text)] = str(error)
        continue
    assert tuple(o.device for o in opened) == machine.devices
    assert all(o.handle.compute_units == o.device.compute_units for o in opened)
    out[str(text)] = [(d.name, d.platform, d.compute_units, d.memory, d.slowdown) for d in machine.devices]
    out[str(text)].append([(x.source, x.target) for x in machine.links])
print(json.dumps(out))
"""
RIGHT: dict[str, list[tuple[str, int, float]]] = {
    "all": [("cpu0", 4, 1.0)],
    "cpu": [("cpu0", 4, 1.0)],
    "CPU0": [("cpu0", 4, 1.0)],
    "pocl": [("cpu1", 4, 1.0)],
    "Portable@2.5": [("cpu1", 4, 2.5)],
    "pthread": [("cpu1", 4, 1.0)],
    "opencl/3": [("cpu1.0", 1, 1.0), ("cpu1.1", 1, 1.0), ("cpu1.2", 1, 1.0)],
    "cpu/2": [("cpu0.0", 2, 1.0), ("cpu0.1", 2, 1.0)],
    "cpu/1": [("cpu0.0", 4, 1.0)],
    "cpu/3": [("cpu0.0", 1, 1.0), ("cpu0.1", 1, 1.0), ("cpu0.2", 1, 1.0)],
    "cpu/1+3": [("cpu0.0", 1, 1.0), ("cpu0.1", 3, 1.0)],
    "cpu/1+1": [("cpu0.0", 1, 1.0), ("cpu0.1", 1, 1.0)],
    "all/4#1-2": [("cpu0.1", 1, 1.0), ("cpu0.2", 1, 1.0)],
    "cpu/2#1@4,cpu/2#0": [("cpu0.1", 2, 4.0), ("cpu0.0", 2, 1.0)],
    "cpu0/1+3#1,oclgrind": [("cpu0.1", 3, 1.0), ("cpu2", 1, 1.0)],
    "native": [("cpu0", 4, 1.0)],
    "native/1+2,cpu1/2#0": [("cpu0.0", 1, 1.0), ("cpu0.1", 2, 1.0), ("cpu1.0", 2, 1.0)],
    "ziglang/4#3@2": [("cpu0.3", 1, 2.0)],
}
WRONG: dict[str, str] = {
    "gpu": "no such device",
    "gpu0": "no such device",
    "nonsense": "no such device",
    "cpu,cpu0": "cpu0 is chosen twice",
    "cpu/2#0,cpu/2": "cpu0.0 is chosen twice",
    "cpu/2#0,cpu": "whole and divided",
    "cpu,cpu/2#0": "whole and divided",
    "cpu/2#0,cpu/1+1#1": "divided in two ways",
    "cpu/2#2": "no part 2",
    "cpu/5": "4 compute units, not 5",
    "cpu/2+3": "4 compute units, not 5",
    "opencl/2+3": "4 compute units, not 5",
    "native/1+2,cpu/2#0": "divided in two ways",
    "cpu0.1": "cpu0/2#1",
    "oclgrind/1": "cannot be divided",
}


def test_selections(tmp_path: Path) -> None:
    texts = [*RIGHT, *WRONG]
    out = python(OPEN.format(selections=texts), tmp_path, POCL_MAX_PTHREAD_COUNT="4")
    for text, expected in RIGHT.items():
        *devices, links = out[text]
        assert [(n, u, s) for n, _, u, _, s in devices] == expected, text
        assert all(m == 0 for _, p, _, m, _ in devices if p != "Oclgrind"), "both compute in the host's memory"
        assert len(links) == 2 * len({m for *_, m, _ in devices if m})
    for text, words in WRONG.items():
        assert words in out[text], text
        assert "cpu1: pthread" in out[text], "an error lists what is here"
        assert "for example:" in out[text]


def test_without_zero_copy_every_part_has_a_memory_and_links(tmp_path: Path) -> None:
    environment = {"MANYCL_ZERO_COPY": "0", "POCL_MAX_PTHREAD_COUNT": "4", "MANYCL_DEVICES": "cpu/2"}
    out = python(OPEN.format(selections=[None, "opencl/2"]), tmp_path, **environment)
    for selection, name in (("None", "cpu0"), ("opencl/2", "cpu1")):
        *devices, links = out[selection]
        assert [d[0] for d in devices] == [f"{name}.0", f"{name}.1"]
        assert [d[3] for d in devices] == [1, 2]
        assert links == [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]]


SURVEY = """
import json, os
from manycl.drivers.opencl.icd import prepare
from manycl.drivers.survey import survey
prepare(); prepare()
found = survey()
folder = os.environ.get("OCL_ICD_VENDORS", "")
names = sorted(os.listdir(folder)) if folder else []
print(json.dumps({
    "devices": [(r.device.name, r.device.platform, r.why_not) for r in found.roots],
    "notes": found.notes,
    "folder": folder,
    "icds": {n: open(os.path.join(folder, n)).read().strip() for n in names},
}))
"""


def default_devices(tmp_path: Path) -> Any:
    return python(SURVEY, tmp_path)["devices"]


def test_the_drivers_of_pypi_are_found_without_any_icd_folder(tmp_path: Path) -> None:
    assert default_devices(tmp_path) == [
        ["cpu0", "native", ""],
        ["cpu1", POCL, "the processor that native already shows"],
        ["cpu2", "Oclgrind", "a simulator: only used when named"],
    ]


def test_a_driver_listed_twice_is_one_platform(tmp_path: Path) -> None:
    (library,) = LIBRARIES.glob("libpocl*.so")
    icds = tmp_path / "icds"
    icds.mkdir()
    (icds / "again.icd").write_text(f"{library}\n")
    count = "import pyopencl as cl, json; print(json.dumps([p.name for p in cl.get_platforms()]))"
    assert python(count, tmp_path, OCL_ICD_VENDORS=str(icds)).count(POCL) == 2, "the loader really shows it twice"
    found = python(SURVEY, tmp_path, OCL_ICD_VENDORS=str(icds))
    assert found["devices"] == default_devices(tmp_path)
    assert found["folder"] == str(icds), "a user's own setting is left alone"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A system's folder of ICD files: one that names no library, one that is not text, one that names nothing."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    (folder / "other.icd").write_text("libnone-such.so.1\n")
    (folder / "binary.icd").write_bytes(b"\xff\xfe\x00\n")
    (folder / "blank.icd").write_text("")
    return folder


def test_broken_icd_files_are_harmless_and_nothing_is_set_without_need(tmp_path: Path, system: Path) -> None:
    found = python(SURVEY, tmp_path, OCL_ICD_VENDORS=None, OPENCL_VENDOR_PATH=str(system), LD_LIBRARY_PATH=None)
    assert found["devices"] == default_devices(tmp_path)
    if shutil.which("nvidia-smi") is None:
        assert found["folder"] == ""


def test_nvidia_library_without_icd_file_is_added_beside_the_systems(tmp_path: Path, system: Path) -> None:
    library = tmp_path / "lib" / "libnvidia-opencl.so.1"
    library.parent.mkdir()
    library.write_text("not really a library")
    environment = {"OPENCL_VENDOR_PATH": str(system), "LD_LIBRARY_PATH": str(library.parent)}
    found = python(SURVEY, tmp_path, OCL_ICD_VENDORS=None, **environment)
    assert found["icds"]["nvidia-found.icd"] == str(library)
    assert found["icds"]["other.icd"] == "libnone-such.so.1"
    assert found["devices"] == default_devices(tmp_path)
    assert not Path(found["folder"]).exists(), "removed at exit"

    (system / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    again = python(SURVEY, tmp_path, OCL_ICD_VENDORS=None, **environment)
    assert "nvidia-found.icd" not in again["icds"], "the system's own ICD file names it already"


def test_intels_wheel_is_found_and_what_it_lacks_is_said(tmp_path: Path, system: Path) -> None:
    site = tmp_path / "site"
    info = site / "intel_opencl_rt-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: intel-opencl-rt\nVersion: 1.0\n")
    (info / "RECORD").write_text("libintelocl.so,,\n")
    (site / "libintelocl.so").write_text("a library that does not load")
    environment = {"OPENCL_VENDOR_PATH": str(system), "PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
    found = python(SURVEY, tmp_path, OCL_ICD_VENDORS=None, **environment)
    assert found["icds"]["intel-found.icd"] == str(site / "libintelocl.so")
    assert found["devices"] == default_devices(tmp_path)
    assert any("intel-cmplr-lib-rt" in note for note in found["notes"])

    (system / "intel.icd").write_text("/opt/intel/libintelocl.so\n")
    again = python(SURVEY, tmp_path, OCL_ICD_VENDORS=None, **environment)
    assert "intel-found.icd" not in again["icds"], "the system's own ICD file names it already"


def test_pocl_without_ld_is_left_out_and_said(tmp_path: Path) -> None:
    found = python(SURVEY, tmp_path, PATH=str(tmp_path / "empty"))
    assert [d[1] for d in found["devices"]] == ["native", "Oclgrind"]
    assert any("ld" in n and "binutils" in n for n in found["notes"])
    out = python(OPEN.format(selections=["all", "pocl", "oclgrind"]), tmp_path, PATH=str(tmp_path / "empty"))
    assert out["all"][0][:2] == ["cpu0", "native"]
    assert "binutils" in out["pocl"]
    assert out["oclgrind"][0][0] == "cpu1"


def test_probe_believes_memory_and_not_claims(tmp_path: Path) -> None:
    code = """
import json
import pyopencl as cl
from manycl.drivers.opencl.devices import shares_host_memory
from manycl.drivers.survey import survey
device = next(r for r in survey().roots if r.driver == "OpenCL").handle.cl
true = shares_host_memory(device)
real = cl.Buffer
class Copying:  # a device that copies the host's memory when the buffer is made
    def __new__(kind, context, flags, size=0, hostbuf=None):
        if flags & cl.mem_flags.USE_HOST_PTR:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return real(context, flags, size, hostbuf=hostbuf)
cl.Buffer = Copying
print(json.dumps([true, shares_host_memory(device)]))
"""
    assert python(code, tmp_path) == [True, False]


# what can be told without loading OpenCL


ALONE = """
import json, sys
import manycl
from manycl.drivers.choice import open_devices
from manycl.drivers.survey import processor_alone, survey
with manycl.Queue({selection!r}) as queue:
    loaded = sorted({{"pyopencl", "pytools"}} & set(sys.modules))
    found = queue.session.machine.devices[0]
alone, whole = processor_alone(), survey()
print(json.dumps({{
    "loaded": loaded,
    "same": alone is not None and alone.roots[0].device == whole.roots[0].device,
    "all": [r.device.name for r in whole.roots if not r.why_not],
    "found": [found.name, found.platform],
}}))
"""


@pytest.mark.parametrize("selection", ["all", "cpu", "cpu0", "native", "cpu/2", "cpu@2"])
def test_the_processor_is_opened_without_opencls_libraries(selection: str, tmp_path: Path) -> None:
    found = python(ALONE.format(selection=selection), tmp_path, OCL_ICD_VENDORS=None, POCL_DEVICES=None)
    if found["all"] == ["cpu0"] and shutil.which("nvidia-smi") is None:
        assert found["loaded"] == []
        assert found["same"]
    assert found["found"] == ["cpu0.0" if "/" in selection else "cpu0", "native"]


@pytest.mark.parametrize("variable", ["OCL_ICD_VENDORS", "POCL_DEVICES", "OPENCL_VENDOR_PATH"])
def test_where_a_variable_may_add_devices_all_are_asked(variable: str, tmp_path: Path) -> None:
    environment = {"OCL_ICD_VENDORS": None, variable: "pthread" if variable == "POCL_DEVICES" else str(tmp_path)}
    found = python(ALONE.format(selection="all"), tmp_path, **environment)
    assert "pyopencl" in found["loaded"]
    assert found["found"] == ["cpu0", "native"]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PyOpenCL's folder of libraries, with no driver but PyPI's, on a system that has none."""
    libraries = tmp_path / "pyopencl" / ".libs"
    libraries.mkdir(parents=True)
    for name in ("libOpenCL-1.so.1", "pocl.icd", "oclgrind.icd"):
        (libraries / name).touch()
    spec = SimpleNamespace(origin=str(libraries.parent / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr(icd, "_SYSTEM_ICDS", str(tmp_path / "vendors"))
    monkeypatch.setattr(icd, "nvidia_library", lambda: "")
    for name in icd._CHANGING:
        monkeypatch.delenv(name, raising=False)
    return libraries


def test_only_pypis_drivers_show_nothing_but_processors(wheel: Path) -> None:
    assert icd.only_processors()


def test_any_other_driver_may_show_more(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel / "cuda.icd").touch()
    assert not icd.only_processors()
    (wheel / "cuda.icd").unlink()
    (tmp_path / "vendors").mkdir()
    assert icd.only_processors()
    (tmp_path / "vendors" / "mesa.icd").touch()
    assert not icd.only_processors()
    (tmp_path / "vendors" / "mesa.icd").unlink()
    monkeypatch.setattr(icd, "nvidia_library", lambda: "libnvidia-opencl.so.1")
    assert not icd.only_processors()


def test_another_loader_may_look_elsewhere(wheel: Path) -> None:
    (wheel / "libOpenCL-1.so.1").unlink()
    assert not icd.only_processors()


def test_a_damaged_cache_of_pyopencl_is_told_and_passed_by(tmp_path: Path) -> None:
    text = """
import numpy as np, manycl as mc
queue = mc.Queue("opencl")
x = queue.zeros(4, np.int32)
mc.Program("kernel void f(global int *x) { x[get_global_id(0)] += 17; }").f(queue, (4,), None, x)
print(x.get())
"""
    env = {name: value for name, value in os.environ.items() if name != "PYOPENCL_NO_CACHE"}
    env |= {"XDG_CACHE_HOME": str(tmp_path)}
    for told in (False, True):
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=env, check=True)
        assert done.stdout.split() == ["[17", "17", "17", "17]"]
        assert ("PyOpenCL's cache is damaged" in done.stderr) is told
        caches = list(tmp_path.glob("pytools/*"))
        assert caches
        for file in caches:
            file.write_bytes(b"damaged" * 100)
