"""The published accuracy: how a verdict is scored, and that no miss is left out of the page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.corpus import accuracy, peers
from tests.corpus.cases import PORT_TAKEN, Case, cases
from tests.corpus.faults import Fault, Healthy
from tests.corpus.scores import ABSTAINED, PART, RIGHT, WIDE, WRONG, Score
from tests.corpus.why import UNTESTED, WHY

STUCK = Case("disk_hangs", Fault("disk_hangs", "io-stuck", (0, 1), (2,), nproc=3))
CALM = Case("healthy_long", Healthy("long"))


def run(code: str, *ranks: int, words: int = 1, confidence: float = 0.9) -> dict[str, Any]:
    """What one run got."""
    return {"code": code, "ranks": [*ranks], "confidence": confidence, "seconds": 4.0, "words": words}


@pytest.mark.parametrize(
    ("kind", "got"),
    [
        (RIGHT, run("io-stuck", 0, 1)),
        (WIDE, run("rank-in-user-code", 0, 1)),
        (PART, run("io-stuck", 1)),
        (PART, run("rank-in-user-code", 1)),
        (ABSTAINED, run("unknown")),
        (ABSTAINED, run("none", words=0)),
        (ABSTAINED, run("collective-mismatch", confidence=0.5)),
        (WRONG, run("collective-mismatch")),
        (WRONG, run("io-stuck", 0, 1, 2)),
        (WRONG, run("io-stuck", 2)),
        (WRONG, run("rank-killed", 0, 1)),
    ],
)
def test_a_verdict_is_scored_by_what_it_accuses(kind: str, got: dict[str, Any]) -> None:
    """An innocent rank is wrong, and so is a cause that is not true; to say less is neither."""
    assert kind == Score(STUCK, got).kind
    assert (kind in (RIGHT, WIDE) or got["code"] == "rank-killed") == Score(STUCK, got).rank_is_right


def test_a_fault_without_a_culprit_is_right_where_no_rank_is_named() -> None:
    """A fault without a culprit is right where its code is told and no rank."""
    case = Case("unknown", Fault("unknown", "unknown", (), ()))

    assert [RIGHT, WRONG] == [Score(case, got).kind for got in (run("unknown"), run("rank-killed", 0))]


def test_every_miss_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was got instead, how often, and why; a false alarm as well, and what was not measured."""
    row = {"cpus": 2, "torch": "2.15.0", "peers": {"torchrun": [2], "py-spy": None}}
    measured = {
        "programs": {
            "disk_hangs": {**row, "runs": [run("io-stuck", 0, 1), run("unknown"), run("unknown")]},
            "healthy_long": {**row, "runs": [run("rank-in-user-code", 1)]},
        }
    }
    monkeypatch.setitem(WHY, "disk_hangs", "no sign.")
    page = accuracy.page(measured, [STUCK, CALM, Case("new", STUCK.job)], {"programs": {}}, [], {})

    for line in (
        "| right rank | 1 of 3 | 33.3 % |",
        "| a cause or a rank named in a healthy job | 1 of 1 | 100.0 % |",
        "| io-stuck | 3 | unknown 2, io-stuck 1 |",
        "- `disk_hangs`, 2 of 3: io-stuck [0, 1] is true; got unknown (abstained). Why: no sign.",
        "- `healthy_long`, 1 of 1: a false alarm, rank-in-user-code. Why: not explained",
        "| torchrun | 1 | 0 | 0 | 0 | 1 |",
        "| py-spy | 1 | 0 | 0 | 1 | 0 |",
        "| new | 3 | io-stuck [0, 1] | not measured | |",
    ):
        assert line in page.splitlines()


def test_other_versions_of_torch_stand_side_by_side() -> None:
    older = {
        "programs": {
            "disk_hangs": {"cpus": 2, "torch": "2.7.1", "runs": [run("unknown"), run("io-stuck", 0, 1)]}
        }
    }
    page = accuracy.page({"programs": {}}, [STUCK, CALM], {"programs": {}}, [], {"2.7": older})

    assert "| 2.7 | 2 | 1 | 1 (50.0 %) | 1 (50.0 %) | 1 (50.0 %) | 0 (0.0 %) | 0 of 0 |" in page.splitlines()
    assert "What was missed with torch 2.7:\n\n- `disk_hangs`, 1 of 2: io-stuck [0, 1] is true" in page
    assert "## With older torch" not in accuracy.page({"programs": {}}, [STUCK], {"programs": {}}, [], {})


def test_the_runs_of_another_torch_have_a_table_of_their_own() -> None:
    assert accuracy.table_of("2.7.1").name == "corpus-torch-2.7.json"
    assert accuracy.table_of(next(iter(accuracy.load()["programs"].values()))["torch"]) == accuracy.MEASURED


def test_confidences_are_compared_with_what_was_true() -> None:
    said = [
        Score(STUCK, run("io-stuck", 0, 1, confidence=0.95)),
        Score(STUCK, run("io-stuck", 2, confidence=0.9)),
        Score(STUCK, run("rank-in-user-code", 0, 1, confidence=0.5)),
        Score(STUCK, run("unknown", confidence=0.0)),
    ]
    lines = [*accuracy.calibration({"above": said})]

    assert [
        "| 0.9 or more | 1 of 2 (50 %) |",
        "| 0.7 to 0.9 | - |",
        "| less than 0.7 | 1 of 1 (100 %) |",
    ] == lines[2:]


@pytest.mark.parametrize(("restarts", "hasty"), [(0, 1), (1, 0)])
def test_a_failure_of_an_earlier_round_is_no_accusation_before_time(restarts: int, hasty: int) -> None:
    """A program that torchrun restarts has failed before it comes to its fault."""
    case = Case("again", Fault("again", "io-stuck", (0,), (1,), restarts=restarts))
    row = {"cpus": 2, "torch": "2.15.0", "runs": [{**run("io-stuck", 0), "early": ["rank-failed"]}]}
    page = accuracy.page({"programs": {"again": row}}, [case], {"programs": {}}, [], {})

    assert f"| a rank accused before anything went wrong | {hasty} of 1 | {100 * hasty:.1f} % |" in page


def test_what_is_said_from_outside_is_on_the_page() -> None:
    """A line for each program, and a healthy one that is accused counts."""

    def asked(code: str, *ranks: int, seconds: float | None = 8.0) -> dict[str, Any]:
        return {"code": code, "ranks": list(ranks), "confidence": 0.6, "seconds": seconds}

    seen = {
        "py-spy": asked("io-stuck", 0, 1),
        "none": asked("slow", 1),
        "forbidden": asked("none"),
        "load": 9.0,
    }
    ended = dict.fromkeys(("py-spy", "none", "forbidden"), asked("ended", seconds=None))
    row = {"cpus": 2, "torch": "2.15.0", "runs": []}
    rows = {
        "disk_hangs": {**row, "outside": {**seen, "server": asked("io-stuck", 0, 1) | {"load": 2.0}}},
        "gone": {**row, "outside": {**ended, "load": 3.0}},
        "dumped": {**row, "outside": {"files": asked("unknown", 1) | {"load": 4.0}}},
        "healthy_long": {**row, "outside": {**seen, "none": asked("slow", 1)}},
    }
    cases = [STUCK, CALM, Case("gone", STUCK.job), Case("dumped", STUCK.job)]
    page = accuracy.page({"programs": rows}, cases, {"programs": {}}, [], {})

    for line in (
        (
            "3 programs with a fault and 1 healthy ones, under a load of 3.0 to 9.0, a median of 9.0, "
            "3 of them in the first three ways; those with a debug server, or with dumps, were run "
            "separately, under a load of 2.0 to 4.0, a median of 3.0."
        ),
        "| with py-spy | 1 | 1 | 1 | 1 | 0 | 0 | 0 | 0 | 1 of 1 | 0 of 1 | 8.0 |",
        "| without py-spy | 1 | 1 | 0 | 0 | 1 | 0 | 0 | 0 | 0 of 1 | 1 of 1 | 8.0 |",
        "| without the right to trace | 1 | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 of 1 | 0 of 1 | 8.0 |",
        "| without it, with torch's debug server | 0 | 1 | 1 | 1 | 0 | 0 | 0 | 0 | 0 of 0 | 0 of 0 | 8.0 |",
        "| without it, with dumps in files | 0 | 1 | 0 | 0 | 1 | 0 | 0 | 0 | 0 of 0 | 0 of 0 | 8.0 |",
        "| gone | io-stuck [0, 1] | 3.0 |" + " ended before |  |  |" * 3 + " not asked |  |  |" * 2,
    ):
        assert line in page.splitlines()


def test_some_programs_are_measured_again() -> None:
    """Their rows are new, the others stay, peers are kept, and a program that is gone is forgotten."""
    a, b = {"runs": [1], "peers": {"py-spy": [0]}}, {"runs": [2]}
    old = {"programs": {"a": a, "b": b, "gone": {"runs": []}}}
    new = accuracy.merge(old, {"a": {"runs": [3]}}, ["a", "b", "c"])

    assert {"a": {"runs": [3], "peers": {"py-spy": [0]}}, "b": {"runs": [2]}} == new["programs"]
    assert new == json.loads(accuracy.text(new))


def test_each_program_has_a_name_of_its_own() -> None:
    """Each program has one of its own; a miss is explained for programs that there are."""
    names = [case.name for case in cases()]

    assert len(names) == len(set(names))
    assert {*WHY, *UNTESTED, PORT_TAKEN} <= set(names)


def test_torchruns_earliest_failure_counts() -> None:
    """The earlier one counts."""
    block = (
        "Root Cause (first observed failure):\n[0]:\n  time : {}\n  host : h\n  rank : {} (local_rank: 1)\n"
    )

    later, earlier = block.format("2026-11-24_12:00:02", 1), block.format("2026-11-24_12:00:01", 3)
    assert [3] == peers.root_cause([later, earlier])
    assert peers.root_cause(["[W1124] connection closed by peer"]) is None


def test_the_rank_that_is_at_another_line_is_the_odd_one() -> None:
    """More than half of the ranks must be at one line; the others are named."""
    assert [1] == peers.odd_ones({0: "a:1", 1: "b:2", 2: "a:1"}, 3)
    assert [peers.odd_ones(each, 2) for each in ({0: "a", 1: "b"}, {0: "a", 1: "a"}, {})] == [None] * 3


def test_the_analyser_names_ranks() -> None:
    """Missing ones and culprits of a mismatch."""
    assert [0, 2, 3] == peers.analysed("missing ranks: {2, 3}\nerror msg: Culprit rank 0; Error type: X\n")
    assert peers.analysed("tabulate is not installed.") is None
