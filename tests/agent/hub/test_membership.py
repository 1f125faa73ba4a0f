"""How long what may pass is waited for, and what the log says of it. Time is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.hub.members import Trial

from ddplaunch.agent.contract import CheckResult, Status
from ddplaunch.agent.hub.closing import TOGETHER
from ddplaunch.agent.hub.membership import PASSES, SETTLE, STALL, UNREACHED

NAME = CheckResult("names", Status.FAIL, "cannot resolve n0", code="dns-not-found", patience=0.0)
PORT = CheckResult("port", Status.FAIL, "port 29500 is held", code="port-in-use", patience=3.0)
SHM = CheckResult("shm", Status.FAIL, "64 MiB", code="shm-too-small")


@pytest.fixture(name="trial")
def _trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path)
    yield trial
    trial.record.close()


@pytest.mark.parametrize(
    ("failed", "seconds", "codes"),
    [
        ([SHM], SETTLE, ["shm-too-small"]),
        ([PORT, NAME], PASSES - 1.0, ["dns-not-found", "port-in-use"]),
        ([PORT, SHM], SETTLE, ["shm-too-small", "port-in-use"]),
    ],
    ids=["cannot pass", "may pass", "both"],
)
def test_a_failure_that_cannot_pass_ends_the_gate_soon_and_one_that_may_has_a_minute(
    trial: Trial, failed: list[CheckResult], seconds: float, codes: list[str]
) -> None:
    for node, check in enumerate(failed):
        trial.comes(node, check)

    assert [] == trial.after(seconds)
    assert codes == trial.after(1.0)


def test_when_all_nodes_are_there_only_a_failure_with_patience_is_waited_for(trial: Trial) -> None:
    trial.comes(1)
    trial.comes(2, NAME)
    trial.now += 10.0
    trial.comes(0, PORT)
    assert trial.over()
    trial.comes(2)
    assert {(0, "port"): PORT} == trial.view.look(trial.now).passing
    assert [] == trial.after(2.0)
    assert not trial.over()
    trial.after(1.0)
    assert trial.over()


def test_the_arrival_of_the_last_node_does_not_restart_the_patience(trial: Trial) -> None:
    trial.comes(0, PORT)
    trial.comes(1)
    trial.now += 10.0
    trial.comes(2)

    assert trial.over()


def test_at_the_deadline_everything_is_certain(trial: Trial) -> None:
    trial.comes(0, PORT)
    trial.now += 110.0
    trial.comes(1, NAME)

    assert [] == trial.view.look(trial.now).verdicts
    trial.now = trial.view.deadline + 0.1
    verdicts = trial.view.look(trial.now).verdicts
    assert ["dns-not-found", "node-missing", "port-in-use"] == [verdict.code for verdict in verdicts]


def test_the_log_says_what_is_waited_for_and_what_has_passed(trial: Trial) -> None:
    """Of late nodes how late they are; of what failed at first how long it took."""
    trial.comes(0, PORT)
    trial.after(40.0)
    trial.comes(0, CheckResult("port", Status.PASS, "29500 is free"))
    trial.comes(1)
    trial.comes(2)

    assert [
        "node 0 checked in: n0",
        "this may be temporary: node 0: port 29500 is held",
        "waiting for nodes 1 and 2; node 0: port 29500 is held (3 s of at most 120 s)",
        "waiting for nodes 1 and 2; node 0: port 29500 is held (33 s of at most 120 s)",
        "it passed after 40 s: node 0: 29500 is free",
        "node 1 checked in: n1, 40 s after the first",
        "node 2 checked in: n2, 40 s after the first",
    ] == trial.said


@pytest.mark.parametrize(("code", "seconds"), [("port-filtered", UNREACHED), ("dns-not-found", PASSES)])
def test_how_long_an_unreached_hub_is_tried_depends_on_why(trial: Trial, code: str, seconds: float) -> None:
    trial.comes(0)
    trial.comes(2)
    trial.hears(1, seconds - 1.0, code)
    assert [] == trial.after(5.0)
    trial.hears(1, seconds, code)
    assert [code] == trial.after(1.0)


def test_a_failure_is_foreseen_for_as_long_as_it_may_pass(trial: Trial) -> None:
    trial.comes(0, PORT)
    trial.comes(1, NAME)
    trial.after(SETTLE)
    assert [None] == [trial.foreseen()]
    trial.after(1.0)
    assert trial.foreseen() == ["dns-not-found", "port-in-use"]
    trial.comes(1)
    trial.after(1.0)
    assert trial.foreseen() == ["port-in-use"]
    trial.comes(0)
    trial.after(1.0)
    assert trial.foreseen() == []


def test_a_certain_failure_is_foreseen_while_the_paths_are_tried(trial: Trial) -> None:
    for node in range(3):
        trial.comes(node, *[NAME] * (node == 2))

    assert trial.over()
    assert trial.foreseen() == ["dns-not-found"]


def test_a_node_that_reports_an_unreached_hub_is_foreseen_to_fail_until_it_comes(trial: Trial) -> None:
    trial.comes(0)
    trial.comes(2)
    trial.hears(1, 3.0)
    trial.after(SETTLE + 1.0)
    assert trial.foreseen() == []
    trial.hears(1, 6.0)
    assert trial.foreseen() == ["port-filtered"]
    trial.comes(1)
    assert [None] == [trial.foreseen()]
    assert trial.over()


def test_all_nodes_that_do_not_reach_the_hub_are_named_when_the_first_gives_up(trial: Trial) -> None:
    trial.comes(0)
    trial.now += UNREACHED
    trial.hears(1, UNREACHED)
    trial.hears(2, UNREACHED - 1.0)

    assert ["port-filtered"] == trial.after(SETTLE + 1.0)
    (verdict,) = trial.view.look(trial.now).verdicts
    assert ([0], "node 1 -> the hub: in vain (and 1 more)") == (verdict.nodes, verdict.sentence)


@pytest.mark.parametrize(("gone", "codes"), [(False, ["mtu-black-hole"]), (True, [])])
def test_an_announced_check_in_that_never_comes_was_lost(trial: Trial, gone: bool, codes: list[str]) -> None:
    trial.comes(0)
    trial.view.note_announced(1)
    if gone:
        trial.view.note_silenced(1)

    assert codes == trial.after(2 * STALL)


def test_a_stopped_node_is_stopped_alone_only_when_the_others_were_not_within_seconds(trial: Trial) -> None:
    for node in range(3):
        trial.comes(node)
    assert not trial.view.is_ending()
    for node in (1, 2):
        trial.view.note_left(node)
        trial.view.note_stopped(node)
        trial.now += 0.6 * TOGETHER
        assert (node == 1) == trial.view.is_ending()
    trial.now -= TOGETHER
    assert trial.view.is_ending()
    assert ([1, 2], [1, 2]) == (trial.view.view().vanished, trial.view.view().stopped)
    trial.comes(1)
    trial.view.note_lost(0)
    assert not trial.view.is_ending()
    assert ([0, 2], [2]) == (trial.view.view().vanished, trial.view.view().stopped)
