"""A transformer layer of H heads (PySchedCL, Figure 10) as a host by hand: PyOpenCL, several queues of each device,
events between kernels, one head after another on a device. ``manycl_bench/transformer.json`` says the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from manycl_bench import pyschedcl
from manycl_bench.hopping.lines import python_lines

COMMAND = "manycl run transformer.json -D H=4 -D beta=128 --devices opencl/2 --policy clustering --option queues=3"


class Host:
    """The layer on some devices; ``data``: arrays by name."""

    def __init__(
        self, devices: list[Any], queues: int, source: str, heads: int, beta: int, data: Mapping[str, Any]
    ) -> None:
        self.heads, self.beta, self.data = heads, beta, data
        self.context = cl.Context(devices)
        self.program = cl.Program(self.context, source).build()
        self.queues = [[cl.CommandQueue(self.context, device) for _ in range(queues)] for device in devices]
        self.kernels: dict[str, Any] = {}
        self.buffers: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        for head in range(heads):
            self.make_head(head)

    def make_head(self, head: int) -> None:
        """The buffers and kernels of a head, with their arguments."""
        nbytes = 4 * self.beta * self.beta
        for name in ("WQ", "WK", "WV", "W"):
            self.buffers[f"{name}{head}"] = cl.Buffer(self.context, cl.mem_flags.READ_ONLY, nbytes)
        for name in ("Q", "K", "V", "T", "A", "B", "C", "Z"):
            self.buffers[f"{name}{head}"] = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes)
        self.buffers[f"X{head}"] = cl.Buffer(self.context, cl.mem_flags.READ_ONLY, nbytes)
        self.results[f"Z{head}"] = np.empty((self.beta, self.beta), np.float32)
        self.product("q", "X", "WQ", "Q", head)
        self.product("k", "X", "WK", "K", head)
        self.product("v", "X", "WV", "V", head)
        transpose = cl.Kernel(self.program, "transpose")
        transpose.set_arg(0, self.buffers[f"K{head}"])
        transpose.set_arg(1, self.buffers[f"T{head}"])
        transpose.set_arg(2, np.int32(self.beta))
        transpose.set_arg(3, np.int32(self.beta))
        self.kernels[f"t{head}"] = transpose
        self.product("a", "Q", "T", "A", head)
        softmax = cl.Kernel(self.program, "softmax")
        softmax.set_arg(0, self.buffers[f"A{head}"])
        softmax.set_arg(1, self.buffers[f"B{head}"])
        softmax.set_arg(2, np.int32(self.beta))
        softmax.set_arg(3, np.int32(self.beta))
        softmax.set_arg(4, np.float32(1.0 / self.beta))
        self.kernels[f"b{head}"] = softmax
        self.product("c", "B", "V", "C", head)
        self.product("z", "C", "W", "Z", head)

    def product(self, name: str, left: str, right: str, out: str, head: int) -> None:
        """A matrix product of a head."""
        kernel = cl.Kernel(self.program, "gemm")
        kernel.set_arg(0, self.buffers[f"{left}{head}"])
        kernel.set_arg(1, self.buffers[f"{right}{head}"])
        kernel.set_arg(2, self.buffers[f"{out}{head}"])
        kernel.set_arg(3, np.int32(self.beta))
        kernel.set_arg(4, np.int32(self.beta))
        kernel.set_arg(5, np.int32(self.beta))
        self.kernels[f"{name}{head}"] = kernel

    def write(self, queue: Any, name: str, head: int) -> Any:
        """An input of a head, sent to its device."""
        data = self.data["X" if name == "X" else f"{name}{head}"]
        return cl.enqueue_copy(queue, self.buffers[f"{name}{head}"], data, is_blocking=False)

    def launch(self, queue: Any, name: str, head: int, after: list[Any]) -> Any:
        """A kernel of a head, after others."""
        size, local = ((self.beta,), (min(self.beta, 64),)) if name == "b" else ((self.beta, self.beta), (16, 16))
        return cl.enqueue_nd_range_kernel(queue, self.kernels[f"{name}{head}"], size, local, wait_for=after)

    def run_head(self, head: int, queues: list[Any]) -> Any:
        """Enqueue a head's transfers and kernels, dealt out to a device's queues; the event of its result."""
        count = len(queues)
        first, second, third = queues[0], queues[1 % count], queues[2 % count]
        x = self.write(first, "X", head)
        wq, wk, wv = self.write(first, "WQ", head), self.write(second, "WK", head), self.write(third, "WV", head)
        w = self.write(third, "W", head)
        q = self.launch(first, "q", head, [x, wq])
        k = self.launch(second, "k", head, [x, wk])
        v = self.launch(third, "v", head, [x, wv])
        t = self.launch(second, "t", head, [k])
        a = self.launch(first, "a", head, [q, t])
        b = self.launch(first, "b", head, [a])
        c = self.launch(first, "c", head, [b, v])
        z = self.launch(first, "z", head, [c, w])
        for queue in queues:
            queue.flush()
        return cl.enqueue_copy(
            first, self.results[f"Z{head}"], self.buffers[f"Z{head}"], is_blocking=False, wait_for=[z]
        )

    def run(self) -> dict[str, Any]:
        """All heads, by turns on the devices; their results."""
        ended = [self.run_head(head, self.queues[head % len(self.queues)]) for head in range(self.heads)]
        cl.wait_for_events(ended)
        for queues in self.queues:
            for queue in queues:
                queue.finish()
        return self.results


def lines() -> dict[str, int]:
    """Lines of code that hold something: of the host by hand (this class), and of the specification with a command."""
    text = Path(__file__).read_text(encoding="utf-8")
    host = text[text.index("class Host:") : text.index("def lines(")]
    specified = pyschedcl.SPECIFICATION.read_text(encoding="utf-8").splitlines()
    return {"by_hand": python_lines(host), "specification": sum(bool(line.strip()) for line in specified) + 1}
