"""Renders the page that a browser shows of a job that is going on.

It loads nothing from elsewhere. Its script asks once a second for the part that changes. Without the script
the page loads itself again every few seconds. Every value is made printable and escaped.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ddplaunch.agent.text.printable import printable
from ddplaunch.report.board import Board

REFRESH = 5
"""Seconds between two loads of the page in a browser without scripts."""
_MOST_ROWS = 200
"""Groups of nodes to show. The odd ones come first."""


def page(shown: Board, changes: Sequence[str]) -> str:
    """Return the whole page. The newest of the `changes` comes first."""
    return _render(shown, changes, whole=True)


def part(shown: Board, changes: Sequence[str]) -> str:
    """Return the part that changes."""
    return _render(shown, changes, whole=False)


def security_policy() -> str:
    """Return the Content-Security-Policy, which lets the page run its own script and style and nothing
    else.
    """
    return (
        f"default-src 'none'; style-src '{_digest('css')}'; script-src '{_digest('js')}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _render(shown: Board, changes: Sequence[str], *, whole: bool) -> str:
    return _template().render(
        shown=shown,
        changes=changes,
        whole=whole,
        most=_MOST_ROWS,
        refresh=REFRESH,
        style=Markup(_text("css")),  # noqa: S704 - our own files
        script=Markup(_text("js")),  # noqa: S704
    )


@functools.cache
def _template() -> Template:
    return Environment(
        loader=PackageLoader("ddplaunch", "report"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
    ).get_template("live_page.html")


def _printable(value: object) -> object:
    return value if isinstance(value, Markup) else printable(str(value))


@functools.cache
def _text(kind: str) -> str:
    return files("ddplaunch.report").joinpath(f"live_page.{kind}").read_text("utf-8")


def _digest(kind: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(_text(kind).encode()).digest()).decode()
