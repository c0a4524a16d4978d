"""What scripts/check and scripts/test share: the project's folder and, on request, its own environments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOWEST = ("python3.11", "python3.12")
"""Those that the lowest versions of what manycl needs were made for."""


def arguments() -> list[str]:
    """The command line's arguments. ``--install`` among them makes ``.venv`` where there is none, installs the
    project with its tests', checks' and documents' needs, and goes on there; without it, the running Python is used."""
    if sys.version_info < (3, 11):  # noqa: UP036  told here, before pip tells it in twenty lines
        sys.exit(f"manycl needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})")
    script, words = Path(sys.argv[0]).resolve(), sys.argv[1:]
    os.chdir(ROOT)
    if "--install" in words:
        words.remove("--install")
        python = _install(ROOT / ".venv", sys.executable, ".[test,check,docs]", ROOT / "constraints.txt")
        os.execv(python, [python, str(script), *words])
    return words


def lowest() -> str:
    """The Python of ``.venv-lowest``, made or brought up to date: the project and what its tests need, each direct
    requirement in the lowest version that pyproject.toml allows."""
    here = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    base = sys.executable if here in LOWEST else next((p for name in LOWEST if (p := shutil.which(name))), None)
    if base is None:
        sys.exit(f"the lowest versions need one of {', '.join(LOWEST)}; this is {here}")
    folder = ROOT / ".venv-lowest"
    folder.mkdir(exist_ok=True)
    constraints = folder / "lowest.txt"
    constraints.write_text("".join(f"{line}\n" for line in lowest_versions()), encoding="utf-8")
    return _install(folder, base, ".[test]", constraints, "--no-compile")  # few of its modules are imported


def lowest_versions() -> Iterator[str]:
    """Constraints for pip: what manycl and its tests require, in the lowest version."""
    import tomllib  # not here where Python is too old, which is told better

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        if found := re.match(r"([\w.-]+)\s*>=\s*([\w.]+)", requirement):
            yield f"{found[1]}=={found[2]}"


def _install(folder: Path, base: str, what: str, constraints: Path, *options: str) -> str:
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    print(f"installing manycl and what its tests need in {folder.name}", flush=True)
    subprocess.run([*pip, "install", "--quiet", *options, "-c", str(constraints), "-e", what], check=True)
    return str(python)
