"""``manycl examples``: what can be run at once, written into a folder to be changed."""

from __future__ import annotations

import argparse
import ast
import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from manycl.cli.completion import completed
from manycl.errors import ManyclError

HELP = "list the examples that come with manycl, or write some of them into this folder"
_EPILOG = """\
examples:
  manycl examples                          what there is
  manycl examples transformer              its files are here now, and it says how to run them
  manycl run transformer.json -D H=8 --check --gantt run.html
  manycl examples heat saxpy -o mine       into the folder mine, which is made
a file that is here and says something else is left as it is, and nothing is written (--overwrite does write)
exit status: 0 done, 2 bad input
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    name = parser.add_argument("name", nargs="*", metavar="NAME", help="examples to write; without any: list them")
    completed(name, names)
    parser.add_argument("-o", "--output", metavar="DIR", default=".", help="the folder to write into (default: this)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there and differ")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(args: argparse.Namespace) -> int:
    if not args.name:
        found = [{"name": name, "about": about(name), "run": command(name)} for name in names()]
        width = max(len(name) for name in names())
        lines = [f"{e['name']:{width}}  {e['about']}" for e in found]
        print(json.dumps(found) if args.json else "\n".join([*lines, "manycl examples NAME writes one here"]))
        return 0
    folder = Path(args.output)
    written = {name: _write(name, folder, args.overwrite) for name in _checked(args.name, folder, args.overwrite)}
    if args.json:
        print(json.dumps([{"name": n, "files": [str(p) for p in paths]} for n, paths in written.items()]))
        return 0
    for name, paths in written.items():
        print(f"{name}: {', '.join(map(str, paths))}")
        print(f"  {command(name, folder)}")
    return 0


def names() -> list[str]:
    """The examples that there are."""
    return sorted(e.name for e in _home().iterdir() if e.is_dir() and not e.name.startswith("_"))


def about(name: str) -> str:
    """Return what an example is: one line, from its specification or its Python file."""
    if (specification := _home() / name / f"{name}.json").is_file():
        return str(json.loads(specification.read_text("utf-8"))["description"])
    text = (_home() / name / f"{name}.py").read_text("utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def command(name: str, folder: Path = Path()) -> str:
    """Return how to run an example that was written into a folder."""
    if (_home() / name / f"{name}.json").is_file():
        return f"manycl run {folder / f'{name}.json'} --check"
    knows_manycl = "import manycl" in (_home() / name / f"{name}.py").read_text("utf-8")
    return f"{'python' if knows_manycl else 'manycl exec --'} {folder / f'{name}.py'}"


def _home() -> Traversable:
    return files("manycl") / "examples"


def _files(name: str) -> list[Traversable]:
    return sorted((f for f in (_home() / name).iterdir() if f.is_file()), key=lambda f: f.name)


def _checked(wanted: list[str], folder: Path, overwrite: bool) -> list[str]:
    """The names, each once. Raises ManyclError, before anything is written, for unknown ones and existing files."""
    from manycl.expressions import suggest

    chosen = list(dict.fromkeys(wanted))
    for name in chosen:
        if name not in names():
            raise ManyclError(f"there is no example {name!r}{suggest(name, names())}", hint=", ".join(names()))
    if folder.exists() and not folder.is_dir():
        raise ManyclError(f"{folder} is no folder")
    for file in (file for name in chosen for file in _files(name)):
        path = folder / file.name
        if path.exists() and not overwrite and path.read_bytes() != file.read_bytes():
            raise ManyclError(f"{path} is there, and differs from the example's", hint="--overwrite replaces it")
    return chosen


def _write(name: str, folder: Path, overwrite: bool) -> list[Path]:
    """The files of an example, which are in the folder then."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for file in _files(name):
        paths.append(folder / file.name)
        if overwrite or not paths[-1].exists():
            paths[-1].write_bytes(file.read_bytes())
    return paths
