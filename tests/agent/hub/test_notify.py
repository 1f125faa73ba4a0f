"""What nodes and people are told: notices, and messages for outside."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.hub.sessions import HUNG, Hub

from ddplaunch.agent.contract import Exit, JobPlan, Occasion, Verdict
from ddplaunch.agent.hub import notify


def nobody_starts(hub: Hub, times: int) -> None:
    """Beats without a rank, until the hub has asked so many times for evidence, and gets it."""
    while len(hub.wires[0].got("collect")) < times:
        hub.beats()
        hub.ticks(1.0)
    hub.answers(0)
    hub.answers(1)


def test_before_any_rank_is_seen_the_hub_says_that_it_waits(hub: Hub) -> None:
    """Every minute, and nobody gets a notice; after five minutes it may hang, and they do."""
    for minute in range(1, 6):
        assert [] == hub.wires[0].got("notice")
        nobody_starts(hub, minute)

    said = [text for text in hub.events if text.startswith("waiting for the ranks to start")]
    assert 4 == len(said)
    assert "waiting for the ranks to start: none has been seen for 60 s" == said[0]
    (notice,) = hub.wires[1].got("notice")
    assert ["unknown"] == [each["code"] for each in notice["verdicts"]]


def test_ranks_that_start_late_withdraw_no_notice(hub: Hub) -> None:
    nobody_starts(hub, 1)
    hub.beats(*(replace(each, stuck_for=0.0, still_for=0.0) for each in HUNG))
    hub.ticks(1.0)

    assert hub.events[-1].startswith("waiting for the ranks to start")
    assert [] == hub.wires[0].got("notice")


PLAN = JobPlan("digits", 2, 4, [], ["train.py"])
HANG = Verdict.of(
    "rank-missing", "rank 3 is not in all_reduce", "run", nodes=[0], ranks=[3], hint="look at it"
)


def made(occasion: str, *verdicts: Verdict, exit_code: int | None = None, **plan: Any) -> dict[str, Any]:
    """The message, of the second attempt."""
    values = {**PLAN.__dict__, **plan}
    return notify.compose(occasion, JobPlan(**values), 1, "local://digits/3", verdicts, exit_code, 5.0)


@pytest.mark.parametrize(
    ("expected", "occasion", "verdicts", "exit_code"),
    [
        ("goes on, with a notice: rank-missing: rank 3 is not in all_reduce", Occasion.NOTICE, [HANG], None),
        ("goes on: the notice is withdrawn", Occasion.WITHDRAWN, [], None),
        ("has finished", Occasion.END, [], Exit.OK),
        ("was stopped", Occasion.END, [], Exit.STOPPED),
        ("has failed", Occasion.END, [], Exit.WORKER_FAILED),
        (
            "hung and was ended: rank-missing: rank 3 is not in all_reduce, and 1 more",
            Occasion.END,
            [HANG, HANG],
            Exit.HANG,
        ),
    ],
)
def test_a_sentence_says_which_job_did_what(
    expected: str, occasion: str, verdicts: list[Verdict], exit_code: int | None
) -> None:
    assert f"digits {expected} (local://digits/3)" == made(occasion, *verdicts, exit_code=exit_code)["text"]


def test_ranks_that_crashed_over_their_calls_did_not_hang() -> None:
    said = notify.compose(Occasion.END, PLAN, 1, "local://digits/3", [], Exit.HANG, 5.0, "death")["text"]

    assert "digits has failed (local://digits/3)" == said


def test_an_attempt_of_several_is_named() -> None:
    """Attempts count from 0, and people from 1."""
    text = made(Occasion.END, exit_code=Exit.NODE_AT_FAULT, retries=2)["text"]

    assert "digits, attempt 1, has failed, for a node or the network (local://digits/3)" == text


def test_a_program_gets_all_that_is_known() -> None:
    body = notify.encode(made(Occasion.END, HANG, exit_code=Exit.HANG), "json")

    assert json.loads(body) == {
        "occasion": "end",
        "text": "digits hung and was ended: rank-missing: rank 3 is not in all_reduce (local://digits/3)",
        "job": "digits",
        "handle": "local://digits/3",
        "attempt": 1,
        "nodes": 2,
        "exit_code": 50,
        "verdicts": [
            {
                "code": "rank-missing",
                "sentence": "rank 3 is not in all_reduce",
                "nodes": [0],
                "ranks": [3],
                "hint": "look at it",
            }
        ],
        "at": 5.0,
    }


def test_slack_gets_text_without_mentions_or_links() -> None:
    """A rank's own words may be in it, and `<!channel>` would notify everybody."""
    calls = Verdict.of("rank-failed", "rank 0 raised <!channel> & died", "run")

    body = json.loads(notify.encode(made(Occasion.NOTICE, calls), "slack"))

    assert list(body) == ["text"]
    assert "raised &lt;!channel&gt; &amp; died (" in body["text"]


def test_a_message_of_a_huge_job_stays_small() -> None:
    huge = Verdict.of("rank-missing", "x" * 100_000, "run", nodes=list(range(10_000)))

    assert len(notify.encode(made(Occasion.END, *[huge] * 100, exit_code=50), "json")) < 40_000
