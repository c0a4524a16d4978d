"""Arrays: which of the operations that people type run on devices, and how fast they are.

Each operation of arrays_figures/operations.py is tried once: *on_devices* (all of its results are arrays of the queue),
*host* (NumPy has computed it, and a warning said so), *silent* (NumPy has, and nothing said so), *refused*. Chains are
timed beside one kernel that does the same, written by hand, in turns: *fused* is the hand's least time over the
chain's, so 1 is level. *numpy*: NumPy's least time over manycl's for the same expression.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from arrays_figures.operations import operations

import manycl as mc
from manycl.errors import ManyclError

TURNS = 15
CHAINS: dict[str, tuple[str, str]] = {
    "triad": ("a + 2.5 * b", "x[i] = a[i] + 2.5f * b[i]"),
    "polynomial": ("((a * 0.5 + 1.5) * a + 2.5) * a - b", "x[i] = ((a[i] * 0.5f + 1.5f) * a[i] + 2.5f) * a[i] - b[i]"),
    "distance": ("np.sqrt(a * a + b * b)", "x[i] = sqrt(a[i] * a[i] + b[i] * b[i])"),
    "choice": ("np.where(a > b, a - b, b)", "x[i] = a[i] > b[i] ? a[i] - b[i] : b[i]"),
}


def classified(queue: mc.Queue) -> dict[str, list[str]]:
    """The operations, by where they run."""
    rng = np.random.default_rng(1)
    names: dict[str, Any] = {"a": rng.random((7, 30), np.float32), "v": rng.random(30, np.float32)}
    names |= {"i": rng.integers(0, 99, 30), "s": rng.random((20, 20), np.float32), "m": names["v"] > 0.4}
    ours = {name: queue.array(value) for name, value in names.items()} | {"np": np, "q": queue}
    found: dict[str, list[str]] = {"on_devices": [], "host": [], "silent": [], "refused": []}
    for operation in operations():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                got = eval(operation, dict(ours))
                queue.finish()
            except (ManyclError, TypeError, ValueError, AttributeError):
                found["refused"].append(operation)
                continue
        parts = got if isinstance(got, tuple | list) else [got]
        on_devices = all(isinstance(part, mc.Array | bool) for part in parts)
        is_told = any("runs on the host" in str(w.message) for w in caught)
        found["host" if is_told else "on_devices" if on_devices else "silent"].append(operation)
    return found


def least(calls: list[Callable[[], Any]], turns: int) -> list[float]:
    """The least seconds of each of several calls, which take turns: others disturb these least."""
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(2 + turns):
        for mine, call in zip(seconds, calls, strict=True):
            start = perf_counter()
            call()
            if turn > 1:
                mine.append(perf_counter() - start)
    return [min(mine) for mine in seconds]


def timed(queue: mc.Queue, n: int, turns: int) -> dict[str, dict[str, float]]:
    """Ratios of each chain."""
    x, y = np.random.default_rng(2).random((2, n), np.float32)
    names = {"np": np, "a": queue.array(x), "b": queue.array(y)}
    texts = "".join(
        f"kernel void {name}(global float *x, global const float *a, global const float *b)"
        f" {{ int i = get_global_id(0); {text}; }}\n"
        for name, (_, text) in CHAINS.items()
    )
    program = mc.Program(texts, "-cl-fp32-correctly-rounded-divide-sqrt")
    found = {}
    for name, (words, _) in CHAINS.items():
        code, kernel = compile(words, name, "eval"), program.kernel(name)

        def by_hand(kernel: Any = kernel) -> mc.Array:
            out = queue.empty(n, np.float32)
            kernel(queue, (n,), (256,), out, names["a"], names["b"])
            queue.finish()
            return out

        def chain(code: Any = code) -> mc.Array:
            out: mc.Array = eval(code, dict(names))
            queue.finish()
            return out

        def numpys(code: Any = code) -> Any:
            return eval(code, {"np": np, "a": x, "b": y})

        assert np.allclose(chain().get(), by_hand().get(), rtol=1e-5, atol=1e-5)  # (kernels by hand may contract)
        assert np.allclose(chain().get(), numpys(), rtol=1e-5, atol=1e-5)  # (kernels by hand may contract)
        hand, fused, host = least([by_hand, chain, numpys], turns)
        found[name] = {"fused": hand / fused, "numpy": host / fused, "seconds": fused}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--size", type=int, default=1 << 22, help="elements of the timed arrays (default: 4 M)")
    parser.add_argument("--quick", action="store_true", help="small arrays, few turns: whether everything runs")
    parser.add_argument(
        "--repeats", type=int, default=TURNS, metavar="N", help=f"turns of the chains (default {TURNS})"
    )
    args = parser.parse_args()
    with mc.Queue(args.devices) as queue:
        where = classified(queue)
        chains = timed(queue, 1 << 12 if args.quick else args.size, args.repeats)
    if args.json:
        counts = {kind: len(found) for kind, found in where.items()}
        print(json.dumps(counts | {"operations": len(operations()), "where": where, "chains": chains}))
        return
    for kind, found in where.items():
        print(f"{kind:11} {len(found):4}  {'' if kind == 'on_devices' else '; '.join(found)}")
    for name, row in chains.items():
        print(f"{name:11} by hand {row['fused']:5.2f}   NumPy {row['numpy']:5.2f}   {row['seconds'] * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
