"""A message about a job, for people outside: one sentence, the handle, and what is known. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

from ddplaunch.agent.contract import Exit, JobPlan, Occasion, Verdict
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text import mentions

_SENTENCE = 1000
"""Characters of a sentence; a rank may have had a part in it."""
_VERDICTS, _NUMBERS = 8, 64
"""Verdicts in a message, and nodes or ranks of each."""
_SLACK = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
"""By these Slack would take a text for a link or a mention."""


def of(
    occasion: str,
    plan: JobPlan,
    attempt: int,
    handle: str,
    verdicts: Sequence[Verdict],
    exit_code: Optional[int],
    at: float,
) -> dict[str, Any]:
    """Return the message of an occasion, of plain data."""
    shown = [_short(each) for each in verdicts[:_VERDICTS]]
    return {
        "occasion": occasion,
        "text": _sentence(occasion, plan, attempt, shown, exit_code) + (f" ({handle})" if handle else ""),
        "job": plan.job,
        "handle": handle,
        "attempt": attempt,
        "nodes": plan.nodes,
        "exit_code": exit_code,
        "verdicts": [
            {
                "code": each.code,
                "sentence": each.sentence,
                "nodes": each.nodes[:_NUMBERS],
                "ranks": each.ranks[:_NUMBERS],
                "hint": each.hint,
            }
            for each in shown
        ],
        "at": round(at, 3),
    }


def _sentence(
    occasion: str, plan: JobPlan, attempt: int, verdicts: Sequence[Verdict], exit_code: Optional[int]
) -> str:
    which = f", attempt {attempt}," if plan.retries else ""
    if occasion == Occasion.WITHDRAWN:
        return f"{plan.job}{which} goes on: the notice is withdrawn"
    goes_on = occasion == Occasion.NOTICE
    what = "goes on, with a notice" if goes_on else phrases.ended(exit_code or Exit.OK)
    more = f", and {len(verdicts) - 1} more" if len(verdicts) > 1 else ""
    why = f": {verdicts[0].code}: {verdicts[0].sentence}{more}" if verdicts else ""
    return f"{plan.job}{which} {what}{why}"


def _short(verdict: Verdict) -> Verdict:
    return replace(verdict, sentence=mentions.cut(verdict.wording, _SENTENCE, verdict.machines or {}))


def encoded(message: dict[str, Any], form: str) -> bytes:
    """Return what a recipient gets, in the form that it wants."""
    body = {"text": message["text"].translate(_SLACK)} if form == "slack" else message
    return json.dumps(body).encode()
