"""Renders a diagnosis as one HTML file without scripts and external files, readable years later.

The page is `report.html`, a template of Jinja2. Every value in it is made printable and escaped, because log
lines and exceptions may hold any text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.report import Diagnosis, gate_results, rank_table, sentence, sources, words
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
        pieces=sentence.pieces,
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
