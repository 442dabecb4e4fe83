"""The documents as a site (``make docs``): these pages, and one for each package from its
docstrings."""

import builtins
from glob import glob
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from docutils.nodes import document
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "vgrads"
author = "The vgrads developers"
copyright = f"2026, {author}"
version = release = installed("vgrads")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
if not tags.has("sourceless"):  # noqa: F821 of Sphinx
    extensions.append("sphinx.ext.viewcode")
exclude_patterns = ["site"]
templates_path = ["templates"]
myst_heading_anchors = 3
myst_links_external_new_tab = True
suppress_warnings = ["myst.header", "misc.highlighting_failure", "ref.python"]

toc_object_entries = (
    False  # the navigation names modules; with all they hold each page takes seconds
)
autosummary_generate = True
# each of these gets a page, and its modules stand on it
autosummary_context = {
    "packages": [
        str(Path(path).parent).replace("/", ".")
        for path in glob("vgrads/**/__init__.py", root_dir=ROOT, recursive=True)  # noqa: PTH207 links too
    ]
}
autodoc_typehints = "description"
autodoc_use_type_comments = False  # there are none, and they are looked for in every function
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
default_role = None

html_theme = "furo"
html_title = f"vgrads {version}"
html_static_path: list[str] = []


def look_up_whole_names(_: Sphinx, doctree: document) -> None:
    """Look types up by their whole names, and leave those of other projects (``float``,
    ``numpy.ndarray``) as text. Sphinx would compare each with the end of every name of this site,
    which took half of its time."""
    for reference in list(doctree.findall(pending_xref)):
        name = reference.get("reftarget", "")
        if not reference.get("refspecific"):
            continue
        if name.startswith("vgrads"):
            reference["refspecific"] = False
        elif "." in name or hasattr(builtins, name):
            reference.replace_self(reference.children)


def drop_navigation(_: Sphinx, name: str, __: str, context: dict[str, Any], ___: object) -> None:
    """Leave out the navigation of pages that show the source of a module, which are five in six:
    making it took a third of the time. Each part of the source links to its description."""
    if name.startswith("_modules/"):
        del context["toctree"]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", look_up_whole_names)
    app.connect("html-page-context", drop_navigation, priority=0)  # before that of the theme
