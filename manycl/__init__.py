"""manycl: one OpenCL device made of all the devices of a machine.

>>> import manycl as mc, numpy as np
>>> program = mc.Program(source)                          # parsed and analysed
>>> queue = mc.Queue()                                    # every device of this machine
>>> a, c = queue.array(data), queue.empty(data.shape, np.float32)
>>> program.scale(queue, data.shape, None, c, a, 2.0)     # PyOpenCL's calling convention
>>> c.get()                                               # planned, run, gathered
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

from manycl.utilities.shown import Show, shown_by
from manycl.version import __version__

# where each public name lives; imported when first used, so that `import manycl` stays fast
_HOMES = {
    "Array": "manycl.api.arrays.arrays",
    "Choice": "manycl.plan.policy",
    "CommandStatus": "manycl.api.events",
    "Event": "manycl.api.events",
    "KernelByKernel": "manycl.plan.policy",
    "LocalMemory": "manycl.api.program",
    "Placement": "manycl.graph.graph",
    "Machine": "manycl.machine",
    "ManyclError": "manycl.errors",
    "ParallelFor": "manycl.api.loops.parallel_for",
    "Plan": "manycl.plan.plan",
    "Prepared": "manycl.api.prepared",
    "Program": "manycl.api.program",
    "Queue": "manycl.api.queue",
    "Trace": "manycl.trace",
    "activate": "manycl.stand_in.activate",
    "all_or_any": "manycl.api.loops.access_patterns",
    "continuous_subsections": "manycl.api.loops.access_patterns",
    "dot": "manycl.api.arrays.arithmetic",
    "load_application": "manycl.applications.load",
    "load_ipython_extension": "manycl.api.magics",
    "load_machine": "manycl.machine_file",
    "parallel_for": "manycl.api.loops.parallel_for",
    "reserve": "manycl.api.reserve",
    "sampler": "manycl.api.versions.images",
    "successive_subsections": "manycl.api.loops.access_patterns",
    "trace_all": "manycl.api.recording",
}
_RENAMED = {"policy": ("manycl.plan.policy", "register"), "devices": ("manycl.drivers.survey", "discover")}

__all__ = [
    "__version__",
    "activate",
    "all_or_any",
    "Array",
    "Choice",
    "continuous_subsections",
    "CommandStatus",
    "Event",
    "KernelByKernel",
    "LocalMemory",
    "Machine",
    "ManyclError",
    "ParallelFor",
    "Placement",
    "Plan",
    "Prepared",
    "Program",
    "Queue",
    "Trace",
    "devices",
    "dot",
    "load_application",
    "load_machine",
    "parallel_for",
    "policy",
    "reserve",
    "sampler",
    "successive_subsections",
    "trace_all",
]

if TYPE_CHECKING:
    from manycl.api.arrays.arithmetic import dot
    from manycl.api.arrays.arrays import Array
    from manycl.api.events import CommandStatus, Event
    from manycl.api.loops.access_patterns import all_or_any, continuous_subsections, successive_subsections
    from manycl.api.loops.parallel_for import ParallelFor, parallel_for
    from manycl.api.prepared import Prepared
    from manycl.api.program import LocalMemory, Program
    from manycl.api.queue import Queue
    from manycl.api.recording import trace_all
    from manycl.api.reserve import reserve
    from manycl.api.versions.images import sampler
    from manycl.applications.load import load_application
    from manycl.drivers.survey import discover as devices
    from manycl.errors import ManyclError
    from manycl.graph.graph import Placement
    from manycl.machine import Machine
    from manycl.machine_file import load_machine
    from manycl.plan.plan import Plan
    from manycl.plan.policy import Choice, KernelByKernel
    from manycl.plan.policy import register as policy
    from manycl.stand_in.activate import activate
    from manycl.trace import Trace


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _RENAMED:
        module, attribute = _RENAMED[name]
        value = getattr(importlib.import_module(module), attribute)
    else:
        raise AttributeError(f"module 'manycl' has no attribute {name!r}")
    if isinstance(value, FunctionType):  # (classes have their methods checked)
        from manycl.utilities.checked import checked

        value = checked()(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _show() -> Show:
    from manycl.report.notebook import html

    return html


shown_by(_show)
