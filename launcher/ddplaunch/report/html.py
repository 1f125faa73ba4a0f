"""Renders HTML: a diagnosis as one file without scripts and external files, and a job that is going on.

The first must be readable years later. The pages are templates of Jinja2. Every value in them is made
printable and escaped, because log lines and exceptions may hold any text.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.saying import Subject, spelled_parts
from ddplaunch.report import Diagnosis, gate_results, rank_table, sources, words
from ddplaunch.report.board import Board
from ddplaunch.report.pictures import Scene, make_pictures
from ddplaunch.report.verdict import culprits, node_names

_STACKS = 64
"""The most different stacks that are shown; the bundle has all."""
_EVENTS = 300
"""The most events that are shown."""


def page(diagnosis: Diagnosis, otherwise: str = "no verdict") -> str:
    """Return the page; `otherwise` is its headline if there is no verdict."""
    environment = Environment(
        loader=PackageLoader("ddplaunch", "report"),
        extensions=["jinja2.ext.do"],
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    evidence, verdicts = diagnosis.evidence, diagnosis.verdicts
    scene = Scene(diagnosis)
    view = scene.view
    at_fault = verdicts[0].ranks if verdicts else []
    style = resources.files("ddplaunch.report.pictures").joinpath("pictures.css").read_text("utf-8")
    whole = environment.get_template("report.html").render(
        job=diagnosis.job,
        verdicts=verdicts,
        otherwise=otherwise,
        bundle=diagnosis.bundle,
        evidence=evidence,
        view=view,
        at_fault=at_fault,
        pictures=make_pictures(scene),
        spots=sources.spots(scene),
        pieces=pieces,
        sources=sources.sources(scene),
        unseen=sources.unseen(scene),
        stacks=rank_table.groups(view, at_fault)[:_STACKS] if view else [],
        merged=rank_table.merged(view, at_fault) if view else [],
        ranks=rank_table.rows(view, at_fault) if view else [],
        ended=rank_table.ended,
        names=node_names(diagnosis),
        checks=gate_results,
        culprits=culprits,
        filled=_filled,
        name_nodes=phrases.nodes,
        words=words,
        most_events=_EVENTS,
        style=Markup(style),  # noqa: S704 a file of ours
    )
    return whole.lstrip()


def _printable(value: object) -> object:
    """Return `value` as printable text; Markup is made of such text already."""
    return value if isinstance(value, Markup) else printable(str(value), lines=True)


def _filled(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the columns of a table that are not empty."""
    return [head for head in rows[0] if any(row[head] != "" for row in rows)]


# --- a verdict's sentence, in which a page sets the culprits off

_MOST = 64
"""The most culprits that are set off one by one."""


class Piece(NamedTuple):
    """A part of a sentence; `culprit`: it names those at fault, and nobody else."""

    text: str
    culprit: bool


def pieces(verdict: Verdict) -> list[Piece]:
    """Return the sentence in pieces, which together are the sentence."""
    found: list[Piece] = []
    for part, shown in zip(verdict.text, spelled_parts(verdict.text, verdict.machines), strict=True):
        culprit = isinstance(part, Subject) and _is_culprit(verdict, part)
        if found and not culprit and not found[-1].culprit:
            found[-1] = Piece(found[-1].text + shown, False)
        else:
            found.append(Piece(shown, culprit))
    return found


def _is_culprit(verdict: Verdict, subject: Subject) -> bool:
    """Whether the subject is all of the culprits, or one."""
    noun, culprits = ("rank", verdict.ranks) if verdict.ranks else ("node", verdict.nodes)
    if subject.noun != noun or any(part.address for part in subject.parts):
        return False
    if subject.count == 1:
        return next(subject.numbers) in culprits[:_MOST]
    return subject.count == len(culprits) and list(subject.numbers) == sorted(culprits)


# --- the page that a browser shows of a job that is going on
#
# It loads nothing from elsewhere. Its script asks once a second for the part that changes. Without the
# script the page loads itself again every few seconds.

REFRESH = 5
"""Seconds between two loads of the page in a browser without scripts."""
_MOST_ROWS = 200
"""Groups of nodes to show. The odd ones come first."""


def live_page(shown: Board, changes: Sequence[str]) -> str:
    """Return the whole page. The newest of the `changes` comes first."""
    return _render_live(shown, changes, whole=True)


def live_part(shown: Board, changes: Sequence[str]) -> str:
    """Return the part that changes."""
    return _render_live(shown, changes, whole=False)


def security_policy() -> str:
    """Return the Content-Security-Policy, which lets the page run its own script and style and nothing
    else.
    """
    return (
        f"default-src 'none'; style-src '{_digest('css')}'; script-src '{_digest('js')}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _render_live(shown: Board, changes: Sequence[str], *, whole: bool) -> str:
    return _live_template().render(
        shown=shown,
        changes=changes,
        whole=whole,
        most=_MOST_ROWS,
        refresh=REFRESH,
        style=Markup(_live_text("css")),  # noqa: S704 - our own files
        script=Markup(_live_text("js")),  # noqa: S704
    )


@functools.cache
def _live_template() -> Template:
    return Environment(
        loader=PackageLoader("ddplaunch", "report"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
    ).get_template("live_page.html")


@functools.cache
def _live_text(kind: str) -> str:
    return files("ddplaunch.report").joinpath(f"live_page.{kind}").read_text("utf-8")


def _digest(kind: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(_live_text(kind).encode()).digest()).decode()
