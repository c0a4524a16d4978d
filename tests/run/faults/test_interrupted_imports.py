"""Ctrl-C while an extension module is imported: it counts, and the next use works. (Imported half, and then again, such
modules abort the process.)"""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import importlib.machinery, os, signal, sys
import numpy as np
import manycl as mc

class Pressed:
    def find_spec(self, name, path, target=None):
        if name != sys.argv[1]:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            os.kill(os.getpid(), signal.SIGINT)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Pressed())
program = mc.Program("kernel void inc(global int *x) { x[get_global_id(0)] += 1; }")
for turn in ("interrupted", "not interrupted"):
    try:
        queue = mc.Queue("cpu/2", policy="mkmd")
        x = queue.zeros(1 << 16, np.int32)
        program.inc(queue, (1 << 16,), (64,), x)
        print(int(x.get().sum()))
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("module", ["islpy._isl", "pyopencl._cl"])
def test_an_import_that_is_interrupted_is_whole(module: str) -> None:
    run = subprocess.run([sys.executable, "-c", CODE, module], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout.split()) == (0, ["interrupted", str(1 << 16)]), run.stderr
