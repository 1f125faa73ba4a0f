"""Renders a diagnosis as one HTML file without scripts and external files, readable years later.

The page is `report.html`, a template of Jinja2. Every value in it is made printable and escaped, because log
lines and exceptions may hold any text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ddplaunch.agent.contract import RankEvidence
from ddplaunch.agent.diagnosis.run import stacks
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.printable import printable
from ddplaunch.report import checks, reachability, words
from ddplaunch.report.diagnosis import Diagnosis
from ddplaunch.report.verdict import culprits, missing, node_names


def page(diagnosis: Diagnosis, otherwise: str = "no verdict") -> str:
    """Return the page; `otherwise` is its headline if there is no verdict."""
    environment = Environment(
        loader=PackageLoader("ddplaunch", "report"),
        extensions=["jinja2.ext.do"],
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html").render(
        job=diagnosis.job,
        verdicts=diagnosis.verdicts,
        otherwise=otherwise,
        bundle=diagnosis.bundle,
        evidence=diagnosis.evidence,
        missing=missing(diagnosis),
        names=node_names(diagnosis),
        checks=checks,
        culprits=culprits,
        filled=_filled,
        name_nodes=phrases.nodes,
        picture=reachability.picture,
        where=_where,
        words=words,
    )


def _printable(value: object) -> object:
    """Return `value` as printable text; Markup is made of such text already."""
    return value if isinstance(value, Markup) else printable(str(value), lines=True)


def _filled(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the columns of a table that are not empty."""
    return [head for head in rows[0] if any(row[head] != "" for row in rows)]


def _where(rank: RankEvidence) -> str:
    """Return the innermost place in the user's own code; the collective shows where in torch a rank waits."""
    frames = stacks.main(rank.stacks)
    frame = stacks.user_frame(frames) or next(iter(frames), None)
    return phrases.place(frame) if frame else ""
