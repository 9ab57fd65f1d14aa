"""Sphinx configuration. The source folder is the repository: scripts/docs builds it."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generated

project = "roofline"
release = metadata.version("roofline")
root_doc = "docs/index"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
]
include_patterns = ["docs/**", "notebooks/*.ipynb", "benchmarks/*.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "build", "roofline", "tests"]

# Notebooks are shown without outputs; the test run executes them.
nb_execution_mode = "off"
myst_heading_anchors = 4

autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "code"
smartquotes = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Args of the run", "params_style")]
toc_object_entries = False

html_theme = "furo"
html_title = f"roofline {release}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_copyright = False
html_show_sourcelink = False


def insert_generated(app: Any, page: str, source: list[str]) -> None:
    """Put the generated parts of a page in the place of their markers."""
    source[0] = re.sub(
        r"^<!-- generated: (\w+) -->$",
        lambda marker: getattr(generated, marker[1])(),
        source[0],
        flags=re.MULTILINE,
    )


def redirect(app: Any, error: Exception | None) -> None:
    """Make the root of the site lead to its first page."""
    if error is None and app.builder.name == "html":
        page = '<meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Any) -> None:
    """Register the handlers."""
    app.connect("source-read", insert_generated)
    app.connect("build-finished", redirect)
