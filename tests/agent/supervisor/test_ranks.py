"""One rank: its exceptions from several sources, and how it ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.busy import BUSY

from ddplaunch.agent.contract import Collective, Exited, Frame, Phase, Process, Raised, Rendezvous
from ddplaunch.agent.evidence.ring import Ring
from ddplaunch.agent.supervisor import rank_evidence, rank_roles
from ddplaunch.agent.supervisor.hooks import Line
from ddplaunch.agent.supervisor.rank_roles import Numbers
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc

CAUGHT = Raised("ValueError", "no batch", 100.0, [Frame("load", "train.py", 3)], True, "hook")
FATAL = replace(CAUGHT, at=100.5, handled=False)
LOGGED = replace(CAUGHT, at=100.1, source="log")
OTHER = replace(LOGGED, type="KeyError")
OOM = "OutOfMemoryError"


@pytest.fixture(name="rank")
def _rank() -> Rank:
    return Rank(3, 1, os.getpid())


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([CAUGHT, LOGGED], [CAUGHT]),
        ([LOGGED, CAUGHT], [CAUGHT]),
        ([CAUGHT, FATAL, LOGGED], [FATAL]),
        ([LOGGED, FATAL], [FATAL]),
        ([CAUGHT, replace(CAUGHT, at=500.0)], [CAUGHT]),
        ([LOGGED, replace(LOGGED, at=101.0)], [LOGGED, replace(LOGGED, at=101.0)]),
        ([CAUGHT, replace(LOGGED, at=200.0)], [CAUGHT, replace(LOGGED, at=200.0)]),
        ([CAUGHT, OTHER], [CAUGHT, OTHER]),
        ([replace(LOGGED, type=f"torch.{OOM}"), replace(FATAL, type=OOM)], [replace(FATAL, type=OOM)]),
    ],
    ids=[
        *("caught and logged", "logged and caught", "on its way to be fatal", "fatal and printed"),
        *("asked twice", "logged twice", "logged later", "another type", "a qualified name"),
    ],
)
def test_an_exception_is_told_only_once(rank: Rank, told: list[Raised], expected: list[Raised]) -> None:
    for raised in told:
        rank.add_exception(raised)

    assert rank.raised == expected


def test_only_the_latest_exceptions_are_kept(rank: Rank) -> None:
    """A rank that logs an exception every step does not fill the evidence."""
    for number in range(100):
        rank.add_exception(replace(LOGGED, at=1000.0 + 10 * number))

    assert [raised.at for raised in rank.raised] == [1800.0 + 10 * number for number in range(20)]


@pytest.mark.parametrize(
    ("exit_", "since", "expected"),
    [
        (Exited(10.0, signal=signal.SIGTERM), 9.0, True),
        (Exited(10.0, code=143), 9.0, True),
        (Exited(10.0), 9.0, True),
        (Exited(10.0, code=1), 9.0, False),
        (Exited(10.0, signal=signal.SIGTERM), None, False),
        (Exited(10.0, signal=signal.SIGTERM), 11.0, False),
        (Exited(10.0, signal=signal.SIGKILL), 9.0, False),
        (Exited(40.0, signal=signal.SIGKILL), 9.0, True),
        (Exited(10.0, signal=signal.SIGSEGV), 9.0, False),
    ],
)
def test_a_rank_that_ends_by_sigterm_after_another_was_sent_away(
    rank: Rank, exit_: Exited, since: float | None, expected: bool
) -> None:
    rank.exit = exit_
    rank.excuse(since)

    assert rank.exit.by_us is expected


def test_torchruns_word_counts_where_nobody_saw(rank: Rank) -> None:
    rank.exit = Exited(10.0)
    rank.learn_exit(-9)
    assert rank.exit == Exited(10.0, signal=9)
    rank.learn_exit(1)

    assert rank.exit == Exited(10.0, signal=9)


def test_a_reused_pid_is_another_process(rank: Rank) -> None:
    rank.close()
    rank.started -= 1

    assert rank.look_for_end() is True
    assert rank.exit is not None
    assert (rank.exit.code, rank.exit.signal) == (None, None)


def test_without_pidfds_the_end_is_seen_too() -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    rank = Rank(0, 0, child)
    rank.close()
    assert rank.look_for_end() is False
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

    assert rank.look_for_end() is True
    assert rank.exit is not None
    assert rank.exit.signal == signal.SIGKILL
    os.waitpid(child, 0)


def test_ranks_are_found_below_others_and_not_below_themselves() -> None:
    """A worker's children inherit RANK and are none; processes without RANK are passed through."""
    script = "RANK=2 LOCAL_RANK=1 sh -c 'sleep 60 & wait' & wait"
    launcher = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    try:
        deadline = time.monotonic() + BUSY * 10
        found: list[int] = []
        while not (found and proc.children(found[0])) and time.monotonic() < deadline:
            found = rank_roles.find_numbered([launcher.pid], set())
        (pid,) = found
        assert rank_roles.numbers_of(pid) == Numbers(2, 1)
        assert rank_roles.find_numbered([launcher.pid], {pid}) == []
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


def test_what_a_rank_has_started_is_no_rank_though_it_outlives_it() -> None:
    """As multiprocessing's resource tracker: an orphan with the rank's numbers, and the hook's mark."""
    numbers = {"RANK": "2", "LOCAL_RANK": "1"}
    marks = {"DDPLAUNCH_HOOK": "ddplaunch-1-2,rank=7"}
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=numbers) as worker,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**numbers, **marks}) as tracker,
    ):
        assert [worker.pid] == rank_roles.find_numbered([worker.pid, tracker.pid], set())


def test_a_rank_is_out_of_init_as_soon_as_its_call_has_returned(rank: Rank) -> None:
    """Not when it next answers: an answer that was on its way says still that there is no group."""
    late = {"at": time.time() - 1.0, "initialized": False}
    phases = [rank.phase]
    rank.note_passed()
    rank.learn(late)
    phases += [rank.phase]
    rank.counted = (3, 3)
    phases += [rank.phase]
    rank.learn({"at": time.time() + 1.0, "initialized": False})
    phases += [rank.phase]

    assert [Phase.INIT, Phase.FIRST, Phase.RUNNING, Phase.FINALIZING] == phases


@pytest.mark.parametrize(
    ("call", "initialized", "answered", "expected"),
    [
        (None, None, None, None),
        (Rendezvous("env", 0.0, backend="gloo"), None, None, 1800.0),
        (Rendezvous("env", 0.0, backend="nccl"), None, None, 600.0),
        (Rendezvous("env", 0.0, backend="nccl", timeout=60.0), None, None, 60.0),
        (Rendezvous("env", 0.0, backend="gloo"), True, 3600.0, 3600.0),
        (Rendezvous("env", 0.0, backend="gloo", timeout=7200.0), True, None, 7200.0),
        (None, True, None, 1800.0),
    ],
    ids=["no group", "gloo", "nccl", "given", "its groups", "old torch", "no hook at init"],
)
def test_torch_lets_a_rank_wait_as_long_as_its_call_or_its_groups_say(
    rank: Rank,
    call: Rendezvous | None,
    initialized: bool | None,
    answered: float | None,
    expected: float | None,
) -> None:
    rank.rendezvous, rank.initialized, rank.was_initialized = call, initialized, bool(initialized)
    rank.group_timeout = answered

    assert expected == rank.timeout


def test_lines_that_differ_in_numbers_alone_repeat(rank: Rank) -> None:
    said = []
    for line in (
        " 2%|▎    | 20/1000 [00:04<03:17,  4.95it/s]",
        " 13%|█▊  | 130/1000 [01:14<03:17, 12it/s]",
        "loss",
    ):
        rank.note_lines([line.encode()])
        said.append(rank.repeats)
        rank.repeats = True

    assert [False, True, False] == said


def test_a_child_that_was_reaped_is_known_for_a_while(rank: Rank) -> None:
    """Its end is the program's word; that it has just been, ours."""
    now = time.monotonic()
    rank.note_children([7, 8], now - 5)
    rank.note_children([8], now - 4)
    told = [[7, "tokenizer", -9], [8, "writer", None], [9, "an earlier one", -9]]

    children = rank_evidence.with_processes(rank, [Process(8, "S")], told, now)
    rank.progress.note_deed(now + 90)
    later = rank_evidence.with_processes(rank, [], [[7, "tokenizer", -9]], now + 100)

    assert [Process(8, "S", name="writer"), Process(7, "X", name="tokenizer", exit_signal=9)] == children
    assert [] == later


def test_of_children_that_are_gone_the_last_are_kept(rank: Rank) -> None:
    for number in range(100):
        rank.note_children([number], float(number))

    assert ([*range(67, 99)], [99]) == ([*rank.gone], rank.children)


CALLED = {"type": "sys.exit", "message": "3", "at": 90.0, "frames": [["main", "/job/train.py", 57]]}
"""A call of sys.exit, as the hook tells it."""


@pytest.mark.parametrize(
    ("told", "code", "called", "is_known"),
    [
        (CALLED, 3, 80.0, True),
        (CALLED, 0, 80.0, False),
        (CALLED, 3, 95.0, False),
        ({**CALLED, "at": 60.0}, 3, 50.0, False),
        ({**CALLED, "message": "'no data'"}, 1, 80.0, True),
        ({**CALLED, "message": "-1"}, 255, 80.0, True),
        ({**CALLED, "message": ""}, 0, 80.0, True),
        ({**CALLED, "message": "True"}, 1, 80.0, True),
    ],
    ids=["it", "another code", "a collective since", "long before", "a message", "negative", "none", "bool"],
)
def test_a_call_of_exit_is_known_as_the_end_unless_the_program_has_gone_on(
    rank: Rank, told: dict[str, Any], code: int, called: float, is_known: bool
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rank.line = Line(ours, rank.pid)
        rank.line.ending, rank.line.left = 91.0, [told]
        rank.exit = Exited(91.5, code)
        rank.ring = Ring([Collective("0", 7, "all_reduce", at=called)])
        left = rank_evidence.evidence_so_far(rank).left

        rank.raised.append(Raised("ValueError", "", 91.2))
        assert [] == rank_evidence.evidence_so_far(rank).left

    assert ([Frame("main", "/job/train.py", 57)] if is_known else []) == [
        frame for each in left for frame in each.frames
    ]


@pytest.mark.parametrize(
    ("line", "code", "at_once"),
    [
        ({}, 0, True),
        ({"ending": 99.0}, 0, False),
        ({"closed_at": 60.0}, 0, False),
        ({"thread": 0}, 0, False),
        ({"role": "child"}, 0, False),
        ({}, 1, False),
    ],
    ids=[
        "os._exit",
        "its Python said that it shuts down",
        "the program had closed our connection",
        "its hook never answered",
        "multiprocessing has forked it",
        "a failure",
    ],
)
def test_a_rank_that_ended_well_without_the_end_of_its_python(
    rank: Rank, line: dict[str, Any], code: int, at_once: bool
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rank.line = Line(ours, rank.pid)
        for name, value in {"role": "rank", "thread": 12, "closed_at": 100.0, **line}.items():
            setattr(rank.line, name, value)
        rank.initialized, rank.exit = True, Exited(100.2, code)
        end = rank_evidence.evidence_so_far(rank).exit

    assert end is not None
    assert at_once == end.at_once
