"""A Gantt chart as one HTML file that needs nothing else: no network, no library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from manycl.report.charts import lanes as lanes_of
from manycl.report.charts.lanes import HOST_COLOUR, TRANSFER_COLOUR, Lane
from manycl.report.summary import DEVICES, LINKS, Summary, device_row, link_row, summarise
from manycl.report.words import count, percent, printable, seconds
from manycl.trace import FailureEvent, HostEvent, KernelEvent, Trace, TransferEvent

_MOST_PATH = 20


def page(trace: Trace) -> str:
    """The page: tables of the summary above an interactive chart. Every text of the trace is escaped."""
    summary = summarise(trace)
    data, subtitle = _data(trace, summary), _subtitle(summary)
    folder = files("manycl.report.charts")
    parts = {
        "title": text(trace.application or "application"),
        "subtitle": text(subtitle),
        "failures": "".join(map(_failure, summary.failures)),
        "tables": tables(summary),
        "path": _path(summary),
        "data": _embed(data),
        "script": (folder / "page.js").read_text(encoding="utf-8"),
    }
    template = (folder / "page.html").read_text(encoding="utf-8")
    # one pass: what is filled in is never searched for places itself
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def text(words: str) -> str:
    """Words as HTML."""
    return escape(printable(words))


def _embed(data: Any) -> str:
    """JSON that is safe inside a script element whatever it holds: no ``</script>``, ``<!--`` or ``]]>``."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _subtitle(summary: Summary) -> str:
    words = [f"{summary.kind}, policy {summary.policy}", f"makespan {seconds(summary.makespan)}"]
    if summary.compiled:
        words.append(f"and {seconds(summary.compiled)} of compiling left out")
    words.append(count(summary.kernels, "kernel"))
    if summary.host_tasks:
        words.append(f"{count(summary.host_tasks, 'host function')} ({seconds(summary.host_seconds)})")
    return " · ".join(words)


def _failure(words: str) -> str:
    lines = "\n".join(map(text, words.splitlines()))
    return f'<p class="failure">FAILED: {lines}</p>\n'


def tables(summary: Summary) -> str:
    """Return what devices and links did."""
    return _devices(summary) + _links(summary)


def _devices(summary: Summary) -> str:
    bar = '<span class="share"><i style="width:{:.1f}%"></i></span>'
    return table(DEVICES, [(*map(text, device_row(d)), bar.format(100 * d.share)) for d in summary.devices])


def _links(summary: Summary) -> str:
    return table(LINKS, [tuple(map(text, link_row(link, "→"))) for link in summary.links])


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """The cells of ``rows`` are HTML already."""
    if not rows:
        return ""
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table>\n<tr>{''.join(f'<th>{h}</th>' for h in head)}</tr>\n{body}</table>\n"


def _path(summary: Summary) -> str:
    path = summary.path
    if not path.nodes:
        return ""
    runs = list(path.runs())
    names = " → ".join(runs[:_MOST_PATH]) + (" → ..." if len(runs) > _MOST_PATH else "")
    length = f"{seconds(path.seconds)}, {percent(path.share)} of the makespan, {count(len(path.nodes), 'node')}"
    return f"<p>Longest path ({length}): {text(names)}</p>"


class _Strings:
    """Texts that occur many times, each stored once."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.index.setdefault(printable(text), len(self.index))


def _data(trace: Trace, summary: Summary) -> dict[str, Any]:
    """Return what the script draws: times in nanoseconds, one array per field of a lane."""
    strings = _Strings()
    style = lanes_of.styles(map(lanes_of.function, trace.kernels()))
    number = {name: i for i, name in enumerate(style)}
    looks = [{"name": printable(n), "colour": s.colour, "pattern": s.pattern} for n, s in style.items()]
    looks.append({"name": "transfers", "colour": TRANSFER_COLOUR, "pattern": 0})
    looks.append({"name": "host functions", "colour": HOST_COLOUR, "pattern": 0})
    count, total = [0] * len(looks), [0] * len(looks)
    rows = []
    for lane in lanes_of.lanes(trace):
        row = _lane(lane, number, strings)
        for look, length in zip(row["look"], row["length"], strict=True):
            count[look] += 1
            total[look] += length
        rows.append(row)
    for entry, n, ns in zip(looks, count, total, strict=True):
        entry |= {"count": n, "total": ns}
    start, end = lanes_of.extent(trace)
    return {
        "start": _ns(start),
        "end": max(_ns(end), _ns(start) + 1),
        "looks": looks,
        "lanes": rows,
        "strings": list(strings.index),
        "edges": [node for edge in trace.edges for node in edge],
        "path": summary.path.nodes,
        "failures": [_ns(e.time) for e in trace.events if isinstance(e, FailureEvent)],
    }


def _ns(value: float) -> int:
    return round(value * 1e9)


def _lane(lane: Lane, number: dict[str, int], strings: _Strings) -> dict[str, Any]:
    kernels = [b for b in lane.bars if isinstance(b, KernelEvent)]
    transfers = [b for b in lane.bars if isinstance(b, TransferEvent)]
    hosts = [b for b in lane.bars if isinstance(b, HostEvent)]
    count = len(lane.bars)
    out: dict[str, Any] = {
        "group": lane.group,
        "label": lane.label,
        "rows": lane.rows,
        "row": lane.row_of,
        "start": [_ns(b.start) for b in lane.bars],
        "length": [max(0, _ns(b.end) - _ns(b.start)) for b in lane.bars],
        "name": [strings(b.name) for b in lane.bars],
    }
    if transfers:
        return out | {"kind": "transfer", "look": [len(number)] * count, "bytes": [b.nbytes for b in transfers]}
    if hosts:
        return out | {"kind": "host", "look": [len(number) + 1] * count, "node": [b.node for b in hosts]}
    return out | {
        "kind": "kernel",
        "look": [number[lanes_of.function(b)] for b in kernels],
        "node": [b.node for b in kernels],
        "component": [b.component for b in kernels],
        "sizes": [strings(_sizes(b)) for b in kernels],
    }


def _sizes(kernel: KernelEvent) -> str:
    if not kernel.global_size:
        return "no kernel"  # a copy or fill
    local = "chosen by the driver" if kernel.local_size is None else _times(kernel.local_size)
    return f"NDRange {_times(kernel.global_size)}, work-groups {local}"


def _times(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes))
