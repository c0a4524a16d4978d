"""Import time, and the time to load and plan a 1,000-kernel specification.

import_s: ``import manycl`` and the names of the Python API in a new process, less the bare interpreter's start.
spec_1000_s: reading the file, building the graph and planning it, once with eager and once with heft, on two CPU
sub-devices, in this process (the kernel file's facts are remembered from the first turn). Medians.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import common

KERNELS = 1000
SOURCE = "__kernel void add(__global const float *a, __global const float *b, __global float *c) {\
 int i = get_global_id(0); c[i] = a[i] + b[i]; }"


def specification(folder: Path) -> Path:
    """A thousand explicit kernels: 50 layers of 20, each reading two results of the layer before."""
    (folder / "add.cl").write_text(SOURCE, encoding="utf-8")
    buffers: dict[str, Any] = {f"x{i}": {"type": "float", "shape": ["N"], "init": "random"} for i in range(20)}
    kernels = []
    before = [f"x{i}" for i in range(20)]
    for layer in range(KERNELS // 20):
        names = [f"y{layer}_{i}" for i in range(20)]
        for i, name in enumerate(names):
            buffers[name] = {"type": "float", "shape": ["N"]}
            kernels.append(
                {
                    "id": f"k{layer}_{i}",
                    "name": "add",
                    "source": "add.cl",
                    "global": "N",
                    "local": 64,
                    "args": [before[i], before[(i + 1) % 20], name],
                }
            )
        before = names
    path = folder / "thousand.json"
    document = {
        "manycl": 1,
        "name": "thousand",
        "parameters": {"N": 1024},
        "buffers": buffers,
        "kernels": kernels,
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def main() -> None:
    args = common.parse(__doc__)
    from manycl.applications.load import load_application
    from manycl.drivers.choice import open_devices
    from manycl.model.estimate import ModelEstimates
    from manycl.plan.policy import find
    from manycl.plan.problem import Problem
    from manycl.run.simulation.simulate import plan_with

    machine, _ = open_devices("cpu/2")
    with tempfile.TemporaryDirectory() as folder:
        path = specification(Path(folder))

        def load_and_plan() -> None:
            application = load_application(path)
            graph = application.graph
            assert len(graph) == KERNELS
            for policy in ("eager", "heft"):
                problem = Problem(graph, machine, ModelEstimates(graph, machine), tuple(1 for _ in machine.devices))
                plan = plan_with(find(policy), problem)
                assert len(plan.assignments) == KERNELS

        load_and_plan()
        spec = common.median(lambda: common.seconds(load_and_plan), args.repeats)
    imports = f"import manycl; {'; '.join(f'manycl.{n}' for n in ('Program', 'Queue', 'Array', 'LocalMemory'))}"

    def start(code: str) -> float:
        return common.seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    start(imports)
    import_s = statistics.median(start(imports) - start("pass") for _ in range(args.repeats))
    common.report(args, {"import_s": import_s, "spec_1000_s": spec, "kernels": KERNELS, "repeats": args.repeats})
