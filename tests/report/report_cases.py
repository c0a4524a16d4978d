"""Traces to report on: a transformer layer on three devices, and random small ones."""

from __future__ import annotations

from hypothesis import strategies as st

from manycl.trace import Event, FailureEvent, HostEvent, KernelEvent, Trace, TransferEvent

DEVICES = ("cpu0.0", "cpu0.1", "gpu0")
_SECONDS = {"gemm": 400e-6, "transpose": 60e-6, "softmax": 90e-6}
_SLOWER = {"cpu0.0": 6.0, "cpu0.1": 6.0, "gpu0": 1.0}


def transformer(heads: int = 8, beta: int = 256) -> Trace:
    """A transformer layer: per head three projections, K transposed, the score, its softmax, the weighted sum; two
    heads on each CPU device, the others on four queues of the GPU; then the heads are concatenated on the host."""
    events: list[Event] = []
    edges: list[tuple[int, int]] = []
    free: dict[tuple[str, int], float] = {}
    link = {"up": 0.0, "down": 0.0}
    node = 0
    nbytes = 4 * beta * beta
    ends: list[float] = []
    sinks: list[int] = []
    for head in range(heads):
        on_cpu = head % 4 == 3
        device = DEVICES[(head // 4) % 2] if on_cpu else "gpu0"
        queues = [0] if on_cpu else [0, 1, 2, 3]
        ready = 0.0
        if not on_cpu:
            for name in ("x", f"wq{head}", f"wk{head}", f"wv{head}"):
                start = link["up"]
                link["up"] = start + 20e-6 + nbytes / 12e9
                events.append(TransferEvent(head, name, "host", "gpu0", nbytes, start, link["up"]))
            ready = link["up"]
        names = ["gemm", "gemm", "gemm", "transpose", "gemm", "softmax", "gemm"]
        before = [(), (), (), (1,), (0, 3), (4,), (2, 5)]
        done: list[float] = []
        for i, (name, needs) in enumerate(zip(names, before, strict=True)):
            queue = queues[(i + head) % len(queues)]
            start = max([ready, free.get((device, queue), 0.0), *(done[n] for n in needs)]) + 4e-6
            end = start + _SECONDS[name] * _SLOWER[device] * (1 + 0.05 * ((node * 7) % 5))
            free[device, queue] = end
            done.append(end)
            events.append(KernelEvent(node + i, name, device, queue, start, end, (beta, beta), (16, 16), head))
            edges += [(node + n, node + i) for n in needs]
        end = done[-1]
        if not on_cpu:
            start = max(end, link["down"])
            end = link["down"] = start + 20e-6 + nbytes / 10e9
            events.append(TransferEvent(100 + head, f"z{head}", "gpu0", "host", nbytes, start, end))
        ends.append(end)
        sinks.append(node + len(names) - 1)
        node += len(names)
    start = max(ends)
    events.append(HostEvent(node, "concatenate", start, start + 300e-6))
    edges += [(sink, node) for sink in sinks]
    return Trace(
        events=tuple(sorted(events, key=lambda e: e.start)),  # type: ignore[union-attr]
        devices=DEVICES,
        policy="clustering",
        makespan=start + 320e-6,
        application="transformer layer, 8 heads, beta 256",
        edges=tuple(edges),
    )


NASTY = "</script><img src=x onerror=alert(1)>&amp;\"'{{data}}$_1$ \x1b[31m \u2028 \ud800 <!--"
"""A name that would break a page, an SVG file, a terminal, a template or a formula if it got through."""


def nasty() -> Trace:
    events = (
        KernelEvent(0, NASTY, NASTY, 0, 0.0, 1e-3, (64,), None),
        KernelEvent(1, "_private", NASTY, 1, 1e-3, 2e-3, (64, 2), (8, 1)),
        TransferEvent(0, NASTY, "host", NASTY, 4096, 0.0, 1e-4),
        HostEvent(2, NASTY, 2e-3, 3e-3),
        FailureEvent(3e-3, 2, NASTY, NASTY, NASTY),
    )
    return Trace(events, (NASTY,), NASTY, 3e-3, application=NASTY, edges=((0, 1), (1, 2)))


_times = st.floats(0, 1, allow_nan=False)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Up to eight nodes and five transfers, anywhere in time, with edges from low to high nodes."""
    count = draw(st.integers(0, 8))
    events: list[Event] = []
    for node in range(count):
        start, end = sorted((draw(_times), draw(_times)))
        name = draw(st.sampled_from("abc"))
        if draw(st.booleans()):
            device, queue = draw(st.sampled_from(DEVICES)), draw(st.integers(0, 2))
            kernel = draw(st.sampled_from(["", "f", "g"]))
            events.append(KernelEvent(node, name, device, queue, start, end, (1,), None, kernel=kernel))
        else:
            events.append(HostEvent(node, name, start, end))
    for _ in range(draw(st.integers(0, 5))):
        start, end = sorted((draw(_times), draw(_times)))
        ends = draw(st.sampled_from([("host", "gpu0"), ("gpu0", "host"), ("gpu0", "gpu0")]))
        events.append(TransferEvent(0, "b", *ends, draw(st.integers(0, 10**9)), start, end))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    makespan = draw(st.sampled_from([0.0, 0.5, 1.0]))
    return Trace(tuple(events), DEVICES, "p", makespan, edges=tuple(sorted(edges)))
