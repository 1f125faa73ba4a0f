"""Whatever a bundle holds, the report stays a report: no markup, no escape, no mark of direction gets out."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.unit.report import conftest as given
from tests.unit.report.pages import read

from ddplaunch.agent.contract import JobStatus, NodeStatus, Verdict
from ddplaunch.backends.job import State
from ddplaunch.cli.jobs import table as jobs_table
from ddplaunch.report import Diagnosis, board, gate_results, html, verdict

EVIL = (
    "</title></style><script>alert(1)</script><a href=\"javascript:x\" onload='y'>"
    "\x1b]0;x\x07\x9b2J\u202e\u2066&lt;"
)


def poisoned(value: Any) -> Any:
    """The same with EVIL in every text. A verdict is read from its JSON, as one from outside is."""
    if isinstance(value, Verdict):
        return poisoned(value.written()).read()
    if isinstance(value, str):
        return EVIL
    if isinstance(value, (list, tuple)):
        return type(value)(map(poisoned, value))
    if isinstance(value, dict):
        return {poisoned(key): poisoned(each) for key, each in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {field.name: poisoned(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **found)
    return value


def hostile(diagnosis: Diagnosis) -> Diagnosis:
    """As of a job every word of which is an attack."""
    return dataclasses.replace(
        diagnosis,
        job=given.job(detail=EVIL),
        bundle=poisoned(diagnosis.bundle),
        verdicts=[poisoned(each) for each in diagnosis.verdicts],
    )


def test_no_markup_gets_into_the_page(diagnosis: Diagnosis) -> None:
    """Tags nest as ours do, nothing is fetched or run, and no attribute is added."""
    page = html.page(hostile(diagnosis), EVIL)
    found, ours = read(page), read(html.page(diagnosis))

    assert found.tags <= ours.tags | {"br"}
    assert ([], False) == (found.fetched, "<script" in page)
    assert "alert(1)" in found.text


def test_no_text_is_obeyed_by_a_terminal_or_turned_around(diagnosis: Diagnosis) -> None:
    """In the page, and on the terminal."""
    evil = hostile(diagnosis)
    assert evil.bundle is not None
    status = poisoned(JobStatus("", 0, "gate", 0.0, [NodeStatus(0)], 0.0, 0.0, verdicts=diagnosis.verdicts))
    running = dataclasses.replace(given.job(State.RUNNING, detail=EVIL, hint=EVIL), status=status)
    table = gate_results.checks_text(evil.bundle, names=verdict.node_names(evil))
    shown = (
        board.board_text(board.make_board(running, 1.0)),
        board.board_text(board.make_board(evil.job, 1.0)),
        jobs_table([running, evil.job], 1.0),
    )
    for text in (html.page(evil, EVIL), verdict.diagnosis_text(evil), table, *shown):
        assert "\\u202e" in text
        assert text.replace("\n", "").isprintable()
