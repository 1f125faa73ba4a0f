"""A terminal that shows how a job proceeds, whatever its size, and however large the job is."""

from __future__ import annotations

import io

import pytest
from tests.unit.report import conftest as given

from ddplaunch.agent.contract import JobPace, JobStatus, NodeStatus, NodeWait, Phase, RankPace, Verdict
from ddplaunch.backends.job import Job, State
from ddplaunch.report import board, live

AT = given.AT
LARGE = """\
local://digits/3  running on 128 nodes for 1 h 3 min
submitted 2023-11-14 22:13:20

rank-in-user-code: rank 43 has been in evaluate() (train.py:140) for 96 s, the others wait in all_reduce
  rank 43 at fault
  ranks 0-42, 44-1023 can only wait
  hint: call evaluate() on all ranks, or none
`ddplaunch diagnose local://digits/3` says why

node 5            running  1 h 3 min  waits for rank 43, for 10 s
nodes 0-4, 6-127  running  1 h 3 min  all wait, for 10 s

a step takes 420 ms, 2.4 a second; rank 43 is in collectives 8% of the last minute, the others 60%
1,024 ranks; in collectives least: rank 43 8%, rank 7 40%

22:14:00  notice: rank-in-user-code
22:13:20  starting for 0.0 s"""


def large() -> Job:
    """A job of 1,024 ranks on 128 nodes, of which one rank keeps all others waiting."""
    nodes = [
        NodeStatus(
            node,
            f"n{node}",
            Phase.RUNNING,
            AT + 5,
            waits=NodeWait(
                AT + (3790 if node % 2 else 3789), *(([40], [43]) if node == 5 else ([8 * node], []))
            ),
        )
        for node in range(128)
    ]
    verdict = Verdict.of(
        "rank-in-user-code",
        "rank 43 has been in evaluate() (train.py:140) for 96 s, the others wait in all_reduce",
        "run",
        nodes=[5],
        ranks=[43],
        victims=[rank for rank in range(1024) if rank != 43],
        hint="call evaluate() on all ranks, or none",
    )
    pace = JobPace(1024, 0.42, 0.6, 0.0, [RankPace(43, 0.42, 0.08), RankPace(7, 0.42, 0.4)])
    status = given.status(nodes=nodes, verdicts=[verdict], pace=pace)
    return given.job(State.RUNNING, status=status)


def drawn(job: Job, width: int = 110, height: int = 50, changes: tuple[str, ...] = ()) -> list[str]:
    """The lines of a window of that size, an hour later."""
    return [line.text for line in live.window(board.make_board(job, AT + 3800), changes, width, height)]


def test_a_thousand_ranks_that_wait_for_one_fit_a_screen() -> None:
    """What is wrong first, the odd node above the many, and the newest change above older ones."""
    assert LARGE.splitlines() == drawn(
        large(), changes=("22:13:20  starting for 0.0 s", "22:14:00  notice: rank-in-user-code")
    )


@pytest.mark.parametrize("height", [1, 2, 5, 9, 24])
@pytest.mark.parametrize("width", [10, 50, 200])
def test_no_window_is_too_small(width: int, height: int) -> None:
    """What matters most is at the top, and no line is drawn below the window."""
    nodes = [NodeStatus(node, "", Phase.RUNNING, AT, f"detail {node}") for node in range(40)]
    job = given.job(State.RUNNING, status=given.status(nodes=nodes, verdicts=[given.VERDICT]))

    lines = drawn(job, width, height, tuple(f"change {number}" for number in range(300)))

    assert height == len(lines)
    assert lines[0].startswith("local://digits/3")


def test_what_does_not_fit_is_counted() -> None:
    """Of forty different nodes in a small window, the first are shown."""
    nodes = [NodeStatus(node, "", Phase.RUNNING, AT, f"detail {node}") for node in range(40)]
    lines = drawn(given.job(State.RUNNING, status=given.status(nodes=nodes)), height=15)

    assert "… and 29 lines more" == lines[-1]
    assert ["node 0", "node 10"] == [lines[place][:7].strip() for place in (3, 13)]


@pytest.mark.parametrize(
    ("lengths", "room", "given_lines"),
    [
        ([2, 10, 1], 20, [2, 10, 1]),
        ([2, 10, 10], 12, [2, 7, 3]),
        ([9, 9, 9], 7, [3, 3, 1]),
        ([1, 1], 0, [0, 0]),
        ([], 5, []),
    ],
)
def test_each_section_gets_some_lines_before_one_gets_many(
    lengths: list[int], room: int, given_lines: list[int]
) -> None:
    assert given_lines == live.fitted(lengths, room)


def shown(*jobs: Job) -> str:
    """What a terminal gets while these jobs are shown."""
    terminal = given.Terminal()
    with live.Screen(terminal, clock=lambda: AT + 3800) as view:
        for job in jobs:
            view.show(job)
    return terminal.getvalue()


def status(**changes: object) -> JobStatus:
    """Two nodes of which one is odd."""
    nodes = [NodeStatus(0, "", Phase.RUNNING, AT), NodeStatus(1, "", Phase.RUNNING, AT, "waits for rank 0")]
    return given.status(nodes=nodes, **changes)


@pytest.mark.parametrize("no_color", [False, True])
def test_the_terminal_is_given_back(monkeypatch: pytest.MonkeyPatch, *, no_color: bool) -> None:
    """The screen is another one than before, without colours for a user who wants none."""
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")

    text = shown(given.job(State.RUNNING, status=status()))

    assert text.startswith("\x1b[?1049h")
    assert text.rindex("\x1b[?1049l") > text.rindex("waits for rank 0")
    assert no_color == ("\x1b[33m" not in text)


def test_a_log_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    assert live.Lines is type(live.full_screen(io.StringIO())) is type(live.full_screen(given.Terminal()))
