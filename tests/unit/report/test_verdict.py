"""A diagnosis reads at three in the morning, without colour and in any terminal."""

from __future__ import annotations

import dataclasses

import pytest
from tests.agent.diagnosis import build
from tests.unit.report import conftest as given

from ddplaunch.agent.contract import (
    Exited,
    JobEvidence,
    JobStatus,
    NodeEvidence,
    NodeStatus,
    Phase,
    Stand,
    Verdict,
)
from ddplaunch.backends.job import State
from ddplaunch.report import Diagnosis, diagnose, verdict
from ddplaunch.report.words import Paint

WHOLE = """\
rank 0 has been in evaluate() (train.py:140) for 96 s, the others wait in barrier

  culprit     rank 0 on node 0 (host0)
  victims     ranks 1-3
  because     rank 0 has burnt 96 s of CPU
              ranks 1-3 stand in barrier 17
  hint        call evaluate() on all ranks, or none
  confidence  90%
  more        ddplaunch explain rank-in-user-code

  job         local://digits/3, submitted 2023-11-14 22:13:20, failed after 1 min 10 s
  evidence    2023-11-14 22:14:20, of 4 ranks on 2 nodes
  unseen      py-spy: not permitted (ptrace) (node 1)"""


def test_the_sentence_comes_first(diagnosis: Diagnosis) -> None:
    """Then whose fault it is, why, what to do, and where to read on."""
    assert WHOLE == verdict.diagnosis_text(diagnosis)


def test_a_culprit_that_never_came_has_a_name(diagnosis: Diagnosis) -> None:
    """There is no check-in of it; the hub knows it from the scheduler."""
    nodes = [NodeStatus(0, "n0"), NodeStatus(1, "n1"), NodeStatus(2, "host2")]
    status = JobStatus("digits", 0, Phase.ENDED, given.AT, nodes, given.AT, given.AT)
    job = dataclasses.replace(diagnosis.job, status=status)
    lost = dataclasses.replace(given.VERDICT, nodes=[2], ranks=[])
    text = verdict.diagnosis_text(dataclasses.replace(diagnosis, job=job, verdicts=[lost]))

    assert "  culprit     node 2 (host2)" in text.splitlines()


@pytest.mark.parametrize(
    ("confidence", "victims", "text"),
    [
        (0.7, [], "not decided: ranks 0-1 disagree, and either side may be wrong"),
        (0.95, [], "ranks 0-1"),
        (0.7, [2], "ranks 0-1"),
    ],
    ids=["a tie", "certain", "others are victims"],
)
def test_of_two_camps_none_is_accused(confidence: float, victims: list[int], text: str) -> None:
    tied = Verdict.of(
        "collective-mismatch", "they differ", "run", ranks=[0, 1], victims=victims, confidence=confidence
    )

    assert text == verdict.culprits(tied)


def test_nodes_without_a_gate_have_the_names_of_their_evidence(diagnosis: Diagnosis) -> None:
    """As those of a job that ddplaunch did not start: nobody has checked in."""
    assert diagnosis.bundle is not None
    assert diagnosis.evidence is not None
    nodes = [dataclasses.replace(each, host=f"llm-{each.node}-x8k2d") for each in diagnosis.evidence.evidence]
    evidence = dataclasses.replace(diagnosis.evidence, evidence=nodes)
    bundle = dataclasses.replace(diagnosis.bundle, check_ins=[], evidence=evidence)
    text = verdict.diagnosis_text(dataclasses.replace(diagnosis, bundle=bundle))

    assert "  culprit     rank 0 on node 0 (llm-0-x8k2d)" in text.splitlines()


def test_a_silence_that_is_explained(diagnosis: Diagnosis) -> None:
    """The reason says it all, and the node is none that was looked at."""
    assert diagnosis.bundle is not None
    assert diagnosis.evidence is not None
    blind = NodeEvidence(2, "llm-2", given.AT, Phase.STARTING, missing=["pod llm-2: no answer"])
    nodes = [*diagnosis.evidence.evidence, blind]
    evidence = dataclasses.replace(diagnosis.evidence, evidence=nodes, silent=[2, 3])
    bundle = dataclasses.replace(diagnosis.bundle, evidence=evidence)
    lines = verdict.diagnosis_text(dataclasses.replace(diagnosis, bundle=bundle)).splitlines()

    assert "  evidence    2023-11-14 22:14:20, of 4 ranks on 2 nodes" in lines
    assert "  silent      node 3 gave no evidence in time" in lines
    assert "              pod llm-2: no answer (node 2)" in lines


def test_several_verdicts_keep_their_order(diagnosis: Diagnosis) -> None:
    """What must be mended first stands first."""
    second = dataclasses.replace(given.VERDICT.saying("rank 3 waits for its data"), code="rank-in-dataloader")
    text = verdict.diagnosis_text(dataclasses.replace(diagnosis, verdicts=[given.VERDICT, second]))

    assert text.index("rank 0 has been in evaluate()") < text.index("rank 3 waits for its data")


def test_colour_changes_no_word(diagnosis: Diagnosis) -> None:
    import re

    painted = verdict.diagnosis_text(diagnosis, Paint(on=True))

    assert painted != WHOLE
    assert WHOLE == re.sub(r"\x1b\[[0-9;]*m", "", painted)


def test_a_narrow_terminal_folds_lines_under_their_label(diagnosis: Diagnosis) -> None:
    """Folded text stays in its column, and no path or name is broken."""
    long = given.VERDICT.with_facts(["fact " * 30 + "/a/path-with-hyphens/" + "x" * 40])
    text = verdict.diagnosis_text(dataclasses.replace(diagnosis, verdicts=[long]), width=64)

    path = " " * 14 + "/a/path-with-hyphens/" + "x" * 40
    lines = text.splitlines()
    assert path in lines
    assert {True} == {len(line) <= 64 for line in lines if line != path}
    assert {" " * 14} == {line[:14] for line in lines if line.strip().startswith("fact")}


@pytest.mark.parametrize(
    ("nodes", "ranks", "names", "text"),
    [
        ([1], [3], [], "rank 3 on node 1"),
        ([1], [3], ["n7", "n9"], "rank 3 on node 1 (n9)"),
        ([0, 1], [], [], "nodes 0 and 1"),
        ([0, 1], [], ["n7", "n9"], "nodes 0 (n7) and 1 (n9)"),
        ([], [2, 3], [], "ranks 2-3"),
        ([], [], [], "not known"),
    ],
)
def test_culprits_are_ranks_or_nodes(nodes: list[int], ranks: list[int], names: list[str], text: str) -> None:
    """A gate's verdict names nodes, a run's names ranks; nodes by their names, where they have some."""
    assert text == verdict.culprits(Verdict.of("unknown", "", "run", nodes=nodes, ranks=ranks), names)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (State.SUCCEEDED, "nothing is wrong: the job succeeded"),
        (State.RUNNING, "no verdict: nothing is known to be wrong with this job"),
        (State.LOST, "no verdict: the job was lost; its process 7 is gone"),
        (State.FAILED, "no verdict: the job failed and left no evidence that decides; its log may say more"),
    ],
)
def test_no_verdict_is_said_too(state: State, text: str) -> None:
    """Nobody has to guess what an empty answer means."""
    detail = "its process 7 is gone" if state is State.LOST else ""

    assert text == verdict.diagnosis_text(diagnose(given.job(state, detail=detail), None)).splitlines()[0]


def test_nothing_of_a_job_commands_the_terminal(diagnosis: Diagnosis) -> None:
    """An exception's message with escapes and line breaks is shown as such, on its one line."""
    wild = Verdict.of("rank-failed", "rank 0: \x1b[2J\nhint: rm -rf", "run", hint="\x07\r")
    text = verdict.diagnosis_text(dataclasses.replace(diagnosis, verdicts=[wild]))

    assert r"rank 0: \x1b[2J\nhint: rm -rf" == text.splitlines()[0]
    assert r"  hint        \x07\r" in text.splitlines()


def test_a_job_that_is_well_shows_its_pace(diagnosis: Diagnosis) -> None:
    """The rank first that waits least for the others; a verdict has of it what matters."""
    waits = [Stand("collective", 30), Stand("", 10)]
    loads = [Stand("loader", 30), Stand("collective", 10)]
    ranks = [given.rank(0, step_times=[0.5], stands=waits), given.rank(1, step_times=[0.5], stands=loads)]
    node = NodeEvidence(0, "host0", given.AT, Phase.RUNNING, ranks)
    evidence = JobEvidence("digits", 1, 2, "asked", given.AT, [node])
    assert diagnosis.bundle is not None
    bundle = dataclasses.replace(diagnosis.bundle, evidence=evidence)
    well = dataclasses.replace(diagnosis, verdicts=[], bundle=bundle)

    assert verdict.diagnosis_text(well).endswith(
        "  pace        rank 1: a step takes 0.5 s; of the last 40 s 25% in collectives, 75% waiting for data"
        "\n"
        "              rank 0: a step takes 0.5 s; of the last 40 s 75% in collectives, 0% waiting for data"
    )
    assert "pace" not in verdict.diagnosis_text(dataclasses.replace(well, verdicts=diagnosis.verdicts))


@pytest.mark.parametrize(
    ("still_for", "text"),
    [
        (0.5, "nothing is wrong: the job moves"),
        (8.0, "no verdict: nothing is known to be wrong with this job"),
    ],
)
def test_a_job_that_moves_is_said_to_move(diagnosis: Diagnosis, still_for: float, text: str) -> None:
    """Of one that has just stopped moving nobody knows yet."""
    node = NodeEvidence(0, "host0", given.AT, Phase.RUNNING, [given.rank(0, still_for=still_for)])
    assert diagnosis.bundle is not None
    evidence = JobEvidence("digits", 1, 1, "asked", given.AT, [node])
    bundle = dataclasses.replace(diagnosis.bundle, evidence=evidence)
    running = dataclasses.replace(diagnosis, job=given.job(State.RUNNING), verdicts=[], bundle=bundle)

    assert text == verdict.diagnosis_text(running).splitlines()[0]


def test_a_job_without_a_verdict_shows_where_its_ranks_were() -> None:
    """Those that were ended with it as well, by what was seen before; who had ended by itself is left out."""
    stopped, failed = Exited(given.AT, None, 15, by_us=True), Exited(given.AT, 1, None)
    ranks = [
        build.rank(0, build.in_evaluate(), alive=False, exit=stopped),
        *(build.rank(number, build.in_collective()) for number in (1, 2)),
        build.rank(3, []),
        build.rank(4, build.in_evaluate(), alive=False, exit=failed),
    ]

    assert ["ranks 1-2: all_reduce 17 (train.py:92)", "rank 0: evaluate (eval.py:140)"] == verdict.places(
        build.job(*ranks)
    )


def test_many_places_are_counted() -> None:
    ranks = [build.rank(number, build.in_collective(line=number)) for number in range(10)]
    assert "and 2 more places" == verdict.places(build.job(*ranks))[-1]


def test_a_job_that_waits_says_why_and_what_to_do() -> None:
    """That is no verdict, but what somebody who asks wants to know."""
    job = given.job(State.PENDING, detail="it is held", hint="`scontrol release 7` lets it go")

    lines = verdict.diagnosis_text(Diagnosis(job, None, [])).splitlines()

    assert ["no verdict: the job is pending; it is held", "", f"hint: {job.hint}"] == lines[:3]
