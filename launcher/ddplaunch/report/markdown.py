"""Renders a diagnosis as Markdown, short enough for an issue or a chat.

What a job says is put into spans and blocks of code wherever it has a character of markup in it: it mentions
nobody, links nowhere, and shows as it is.
"""

from __future__ import annotations

import re

from ddplaunch.agent.text.printable import printable
from ddplaunch.report import Diagnosis, sources
from ddplaunch.report.pictures import Scene
from ddplaunch.report.sources import Spot
from ddplaunch.report.verdict import culprits, node_names, without_verdict
from ddplaunch.report.words import duration, some

_MARKUP = re.compile(r"[`*_\[\]<>~|\\@#&!]|://|www\.")


def text(diagnosis: Diagnosis) -> str:
    """Return the whole text."""
    job, scene = diagnosis.job, Scene(diagnosis)
    took = f" after {duration(job.ended - job.submitted)}" if job.ended else ""
    state = f"job {span(job.name or str(job.handle))}, {job.state}{took}"
    if not diagnosis.verdicts:
        return f"**ddplaunch:** {span(without_verdict(diagnosis))}\n\n- {state}\n"
    first, *others = diagnosis.verdicts
    lines = [f"**ddplaunch:** {span(first.sentence)}", "", f"- {state}"]
    lines += [f"- culprit: {span(culprits(first, node_names(diagnosis)))}"]
    lines += [f"- victims: {some('rank', first.victims)}"] if first.victims else []
    lines += [f"- because: {span(fact)}" for fact in first.facts]
    lines += [f"- what to do: {span(first.hint)}"] if first.hint else []
    lines += [f"- could not be seen: {span(each)}" for each in sources.unseen(scene)]
    lines += [f"- another verdict: {span(verdict.sentence)}" for verdict in others]
    for spot in sources.spots(scene):
        lines += ["", *_spot(spot)]
    return "\n".join([*lines, "", f"More: {span(f'ddplaunch explain {first.code}')}", ""])


def span(content: str) -> str:
    """Return one line of text, as code if it has a character of markup."""
    line = " ".join(printable(content).split())
    if not _MARKUP.search(line):
        return line
    fence = "`" * (_longest_fence(line) + 1)
    edge = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{edge}{line}{edge}{fence}"


def _spot(spot: Spot) -> list[str]:
    place = span(f"{spot.who} {spot.doing}, {spot.file}:{spot.line}")
    if not spot.text:
        return [place]
    fence = "`" * max(3, _longest_fence(spot.text) + 1)
    return [f"{place}:", f"{fence}python", printable(spot.text), fence]


def _longest_fence(content: str) -> int:
    return max(map(len, re.findall("`+", content)), default=0)
