"""How Sphinx makes the site of this folder: `make site`. Why so: docs/decisions/0036-site.md.

The pages are written for a forge, and nothing in them is for Sphinx. What it needs beside them is found here:
the navigation is that of README.md, page by page, and a link that leaves this folder leads to the forge.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

project = "ddplaunch"
PACKAGE = (ROOT / "launcher" / "ddplaunch" / "__init__.py").read_text("utf-8")
version = release = re.findall(r'^__version__ = "(.+)"', PACKAGE, re.MULTILINE)[0]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
nitpicky = True

# Markdown as a forge reads it: nothing of MyST's own. With its `gfm_only` nothing would check relative links.
myst_disable_syntax = ["myst_block_break", "myst_line_comment", "myst_role", "myst_target"]
myst_enable_extensions = ["alert", "gfm_autolink", "strikethrough", "tasklist"]
myst_heading_anchors = 6
smartquotes = False

html_theme = "furo"
html_title = f"ddplaunch {release}"
html_copy_source = False
html_use_index = False
html_show_sphinx = False
pygments_style = "default"
pygments_dark_style = "github-dark"

# Where what lies outside docs/ can be read, as `https://forge/owner/name/blob/v1.0`. Without it, what
# lies there is named and not linked.
SOURCE = os.environ.get("DDPLAUNCH_SITE_SOURCE", "").rstrip("/")


def setup(app: Sphinx) -> None:
    """Sphinx calls this. Its own collectors of pages and files, at 500, come after ours."""
    app.connect("doctree-read", lead_links, priority=400)
    app.connect("doctree-read", add_navigation, priority=400)
    app.connect("build-finished", add_files)


def lead_links(app: Sphinx, doctree: nodes.document) -> None:
    """Let links to files lead where they lead on a forge; each is checked to be there."""
    here = DOCS / Path(app.env.docname).parent
    links = [*doctree.findall(addnodes.download_reference), *doctree.findall(addnodes.pending_xref)]
    for link in links:
        written = str(link["reftarget"])
        if link.get("refdomain") == "doc":
            if not Path(written).is_absolute():
                continue  # one of the pages: Sphinx resolves it
            written += ".md"
        path = Path(os.path.normpath(here / written))
        if not path.exists():
            continue  # Sphinx says so
        if path.is_relative_to(DOCS):
            lead(link, written)
        elif SOURCE:
            lead(link, f"{SOURCE}/{path.relative_to(ROOT).as_posix()}")
        else:
            link.replace_self(link.children)


def lead(link: nodes.Element, uri: str) -> None:
    """Make a plain link of it."""
    link.replace_self(nodes.reference("", "", *link.children, refuri=uri, internal=False))


def add_navigation(app: Sphinx, doctree: nodes.document) -> None:
    """Take each README.md for the table of contents of what it links, section by section."""
    page = app.env.docname
    if Path(page).name != "README":
        return
    seen = {page}
    top = next(iter(doctree.findall(nodes.section)))
    for part in [each for each in top if isinstance(each, nodes.section)] or [top]:
        pages = [
            link["reftarget"] for link in part.findall(addnodes.pending_xref) if link["refdomain"] == "doc"
        ]
        pages = [each for each in dict.fromkeys(pages) if each not in seen]
        seen.update(pages)
        caption = None if part is top else part[0].astext().split(":")[0]
        part += toctree(page, pages, caption)


def toctree(parent: str, pages: list[str], caption: str | None) -> nodes.Element:
    """What the directive of this name makes, hidden."""
    node: dict[str, Any] = {
        "parent": parent,
        "entries": [(None, page) for page in pages],
        "includefiles": pages,
        "maxdepth": -1,
        "caption": caption,
        "rawcaption": caption,
        "rawentries": [],
        "hidden": True,
        "titlesonly": True,
        "glob": False,
        "includehidden": False,
        "numbered": 0,
    }
    return nodes.compound("", addnodes.toctree("", **node), classes=["toctree-wrapper"])


def add_files(app: Sphinx, error: Exception | None) -> None:
    """Put data beside the pages, as in docs/, and each README.html also where a folder is asked for."""
    if error is not None:
        return
    site = Path(app.outdir)
    for path in DOCS.rglob("*.json"):
        shutil.copyfile(path, site / path.relative_to(DOCS))
    for page in site.rglob("README.html"):
        shutil.copyfile(page, page.with_name("index.html"))
