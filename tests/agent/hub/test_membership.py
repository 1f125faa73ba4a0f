"""How long what may pass is waited for, and what the log says of it. Time is the test's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.hub.members import Trial

from ddplaunch.agent.contract import CheckResult, Status
from ddplaunch.agent.hub.membership import PASSES, SETTLE, STALL, UNREACHED
from ddplaunch.agent.hub.stopping import TOGETHER

NAME = CheckResult("names", Status.FAIL, "cannot resolve n0", code="dns-not-found", patience=0.0)
PORT = CheckResult("port", Status.FAIL, "port 29500 is held", code="port-in-use", patience=3.0)
SHM = CheckResult("shm", Status.FAIL, "64 MiB", code="shm-too-small")


@pytest.fixture(name="trial")
def _trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path)
    yield trial
    trial.record.close()


def test_what_cannot_pass_is_told_soon(trial: Trial) -> None:
    """Nobody's arrival cures it; but whoever comes in the same moment is heard as well."""
    trial.comes(0, SHM)

    assert [] == trial.after(SETTLE)
    assert ["shm-too-small"] == trial.after(1.0)


def test_what_may_pass_is_given_time_while_others_are_awaited(trial: Trial) -> None:
    """And no more than is of use: a name that is not there after a minute is not on its way."""
    trial.comes(0, PORT)
    trial.comes(1, NAME)

    assert [] == trial.after(PASSES - 1.0)
    assert ["dns-not-found", "port-in-use"] == trial.after(1.0)


def test_all_that_is_wrong_is_told_with_what_cannot_pass(trial: Trial) -> None:
    """What else there is may have passed by the next attempt; who mends the one sees to the other."""
    trial.comes(0, PORT)
    trial.comes(1, SHM)

    assert ["shm-too-small", "port-in-use"] == trial.after(SETTLE + 1.0)


def test_what_is_worth_waiting_for_alone(trial: Trial) -> None:
    """All are here: a name is not waited for any more, a port alone is for a little."""
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


def test_what_was_waited_for_long_enough(trial: Trial) -> None:
    """The last one's arrival does not begin it anew."""
    trial.comes(0, PORT)
    trial.comes(1)
    trial.now += 10.0
    trial.comes(2)

    assert trial.over()


def test_at_the_deadline_nothing_is_waited_for(trial: Trial) -> None:
    """Whoever is not here is missing, and whatever has not passed stands."""
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
        "it may pass: node 0: port 29500 is held",
        "waiting for nodes 1 and 2; node 0: port 29500 is held (3 s of at most 120 s)",
        "waiting for nodes 1 and 2; node 0: port 29500 is held (33 s of at most 120 s)",
        "it passed after 40 s: node 0: 29500 is free",
        "node 1 checked in: n1, 40 s after the first",
        "node 2 checked in: n2, 40 s after the first",
    ] == trial.said


@pytest.mark.parametrize(("code", "seconds"), [("port-filtered", UNREACHED), ("dns-not-found", PASSES)])
def test_a_node_that_cries_is_waited_for(trial: Trial, code: str, seconds: float) -> None:
    """A name may take a minute to appear, a closed port seldom opens."""
    trial.comes(0)
    trial.comes(2)
    trial.hears(1, seconds - 1.0, code)
    assert [] == trial.after(5.0)
    trial.hears(1, seconds, code)
    assert [code] == trial.after(1.0)


def test_what_would_end_the_job_is_foreseen_while_it_may_pass(trial: Trial) -> None:
    """All of it; not in the moment in which others come, and not any more when it has passed."""
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


def test_what_is_certain_is_foreseen_while_paths_are_tried(trial: Trial) -> None:
    """The job ends by it when the nodes have told of the paths, and they may take their time."""
    for node in range(3):
        trial.comes(node, *[NAME] * (node == 2))

    assert trial.over()
    assert trial.foreseen() == ["dns-not-found"]


def test_a_node_that_cries_is_foreseen_to_fail(trial: Trial) -> None:
    """Until it comes. What it cried before the hub was up says nothing: it will come by now."""
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


def test_all_that_cry_are_told_of_when_the_first_one_gives_up(trial: Trial) -> None:
    """Nobody reaches the hub: the fault is node 0's, though one has waited a moment less."""
    trial.comes(0)
    trial.now += UNREACHED
    trial.hears(1, UNREACHED)
    trial.hears(2, UNREACHED - 1.0)

    assert ["port-filtered"] == trial.after(SETTLE + 1.0)
    (verdict,) = trial.view.look(trial.now).verdicts
    assert ([0], "node 1 -> the hub: in vain (and 1 more)") == (verdict.nodes, verdict.sentence)


@pytest.mark.parametrize(("gone", "codes"), [(False, ["mtu-black-hole"]), (True, [])])
def test_an_announcement_without_a_check_in(trial: Trial, gone: bool, codes: list[str]) -> None:
    """A black hole has swallowed it, unless its sender is gone: it was refused, or killed."""
    trial.comes(0)
    trial.view.announced(1)
    if gone:
        trial.view.silenced(1)

    assert codes == trial.after(2 * STALL)


def test_who_is_told_to_stop_is_alone_only_after_a_moment(trial: Trial) -> None:
    """The others may be told as well; not if one of them went away without a word."""
    for node in range(3):
        trial.comes(node)
    assert not trial.view.is_ending()
    for node in (1, 2):
        trial.view.left(node)
        trial.view.stopped(node)
        trial.now += 0.6 * TOGETHER
        assert (node == 1) == trial.view.is_ending()
    trial.now -= TOGETHER
    assert trial.view.is_ending()
    assert ([1, 2], [1, 2]) == (trial.view.view().vanished, trial.view.view().stopped)
    trial.comes(1)
    trial.view.lost(0)
    assert not trial.view.is_ending()
    assert ([0, 2], [2]) == (trial.view.view().vanished, trial.view.view().stopped)
