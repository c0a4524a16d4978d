"""Figures of matplotlib as files, without a display; the same figure gives the same bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manycl.errors import ManyclError

_DATES: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}


def check_drawable(what: str) -> None:
    """Raises :class:`ManyclError` where matplotlib is not installed, which draws ``what`` (a file, as the user named
    it): known before the work is done."""
    if find_spec("matplotlib") is None:
        raise ManyclError(
            f"{what}: pictures are drawn by matplotlib, which is not installed",
            hint="pip install -e '.[plot]' in the checkout (or matplotlib); .html charts and .dot graphs need neither",
        )


def check_kind(path: str | Path, what: str, suffixes: Sequence[str]) -> None:
    """Raises :class:`ManyclError` for a file whose name ends with none of these; all but the first are pictures."""
    suffix = Path(path).suffix.lower()
    if suffix not in suffixes:
        raise ManyclError(f"{path}: not a known kind of {what}", hint=f"end the name in {', '.join(suffixes)}")
    if suffix != suffixes[0]:
        check_drawable(str(path))


def drawn(figure: Callable[[], Any], kind: str, font_size: float) -> bytes:
    """The figure that is made, as ``png``, ``svg`` or ``pdf``. Raises :class:`ManyclError` without matplotlib."""
    check_drawable(f".{kind}")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    settings: dict[str, Any] = {
        "svg.hashsalt": "manycl",
        "font.size": font_size,
        "font.family": "DejaVu Sans",
        "hatch.linewidth": 0.6,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # a name in letters that the font does not have is drawn as boxes; that is no reason to fail
        warnings.filterwarnings("ignore", message="Glyph")
        made = figure()
        FigureCanvasAgg(made)
        out = io.BytesIO()
        made.savefig(out, format=kind, dpi=150, metadata=_DATES[kind], bbox_inches="tight")
    return out.getvalue()
