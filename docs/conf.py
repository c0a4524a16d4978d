"""The site's build: Sphinx with MyST from these pages, without the network (``scripts/docs``)."""

import re
from pathlib import Path

from manycl import __version__

ROOT = Path(__file__).resolve().parent.parent
project = "manycl"
author = "manycl maintainers"
project_copyright = "manycl maintainers. MIT licence"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"manycl {version}"
html_static_path = ["_static"]
html_css_files = ["manycl.css"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # a page may begin with a part of another one
nitpicky = False

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120  # seconds of a cell
nb_execution_show_tb = True

autodoc_typehints = "description"
autodoc_member_order = "bysource"
autosummary_generate = False


def leave_out_links(app, name, source):
    """Have links to folders and to files outside of this folder as plain text: the site has pages only."""
    page = Path(app.env.doc2path(name)).parent

    def plain(found):
        target = found[2].partition("#")[0]
        path = page / target
        outside = target and not re.match(r"\w+:", target) and not path.resolve().is_relative_to(ROOT / "docs")
        return found[1] if outside or path.suffix == ".json" else found[0]

    source[0] = re.sub(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)", plain, source[0])


def setup(app):
    """Connect what this file adds to Sphinx."""
    app.connect("source-read", leave_out_links)
