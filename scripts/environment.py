"""What scripts/check and scripts/test share: the project's folder and, on request, its own environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def arguments() -> list[str]:
    """The command line's arguments. ``--install`` among them makes ``.venv`` where there is none, installs the
    project with its tests' and checks' needs, and goes on there; without it, the running Python is used."""
    if sys.version_info < (3, 11):  # noqa: UP036  told here, before pip tells it in twenty lines
        sys.exit(f"manycl needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})")
    script, words = Path(sys.argv[0]).resolve(), sys.argv[1:]
    os.chdir(ROOT)
    if "--install" in words:
        words.remove("--install")
        python = _install()
        os.execv(python, [python, str(script), *words])
    return words


def _install() -> str:
    python = ROOT / ".venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ROOT / ".venv")], check=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    print("installing manycl and what its tests need in .venv", flush=True)
    subprocess.run([*pip, "install", "--quiet", "-e", ".[test,check]"], check=True)
    return str(python)
