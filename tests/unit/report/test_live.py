"""Somebody who waits sees who is missing and for how long, and a log is not flooded."""

from __future__ import annotations

import dataclasses
import io
import time

import pytest
from tests.busy import BUSY
from tests.unit.report import conftest as given

from ddplaunch.agent.contract import JobStatus, NodeStatus, NodeWait, Phase, Verdict, codec
from ddplaunch.backends.job import Job, State
from ddplaunch.report import live, progress

AT = given.AT


def waiting_status(**changes: object) -> JobStatus:
    """Node 0 is in the gate and waits for node 1, which nobody has heard of."""
    nodes = [NodeStatus(0, "host0", Phase.GATE, AT + 1), NodeStatus(1, since=AT)]
    return given.status(
        **({"phase": Phase.GATE, "since": AT + 1, "nodes": nodes, "waiting_for": [1]} | changes)
    )


def waiting(**changes: object) -> Job:
    """A job in that state."""
    return given.job(State.RUNNING, status=waiting_status(**changes))


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (given.job(State.PENDING, detail="its hub is not up yet"), "pending for 12 s: its hub is not up yet"),
        (waiting(), "at the gate for 11 s, waits for node 1"),
        (
            waiting(phase=Phase.ENDED, exit_code=20),
            "ended 11 s ago: at the gate, by a fault of a node or the network",
        ),
        (
            waiting(phase=Phase.ENDED, exit_code=20, gate_passed=True),
            "ended 11 s ago: in training, by a fault of a node or the network",
        ),
        (given.job(State.RUNNING, status=given.status()), "running on 2 nodes for 7.0 s"),
        (
            given.job(
                State.RUNNING, status=given.status(), detail="its state in Slurm is SUSPENDED on n[1-2]"
            ),
            "running on 2 nodes for 7.0 s; its state in Slurm is SUSPENDED on n[1-2]",
        ),
        (given.job(State.SUCCEEDED), "succeeded after 1 min 10 s"),
        (given.job(State.FAILED, exit_code=50), "failed after 1 min 10 s: its ranks could not go on"),
        (given.job(State.LOST, detail="its process is gone"), "lost after 1 min 10 s: its process is gone"),
    ],
)
def test_a_job_in_one_line(job: Job, text: str) -> None:
    """Phase, time in it, and for whom it waits."""
    assert text == progress.headline(job, AT + 12)


def test_nodes_that_stand_together_share_a_row() -> None:
    """The odd ones come first, and a thousand nodes in one place take one line."""
    nodes = [NodeStatus(n, "", Phase.RUNNING, AT + n) for n in range(1000)]
    nodes[7] = NodeStatus(7, "", Phase.INIT, AT + 3, "waits for ranks 2, 5")
    nodes[9] = NodeStatus(9, "", Phase.ENDED, AT + 4, exit_code=40)

    rows = progress.rows(given.status(nodes=nodes))

    assert [
        ("node 7", "init_process_group", "7.0 s", "waits for ranks 2, 5"),
        ("node 9", "ended", "6.0 s", "has failed"),
        ("nodes 0-6, 8, 10-999", "running", "10 s", ""),
    ] == [progress.row_text(row, AT + 10) for row in rows]


def test_nodes_that_wait_for_the_same_share_a_row() -> None:
    """Each has its own time; the row has the time that all of them have waited."""
    waits = [([0], [], 12), ([2], [3], 40), ([4, 5], [], 9.4), ([6, 7], [], 120)]
    nodes = [
        NodeStatus(n, "", Phase.RUNNING, AT, waits=NodeWait(AT + 200 - seconds, ranks, others))
        for n, (ranks, others, seconds) in enumerate(waits)
    ]

    assert [("node 1", "waits for rank 3, for 40 s"), ("nodes 0, 2-3", "all wait, for 9.4 s")] == [
        (nodes, detail)
        for nodes, _, _, detail in (
            progress.row_text(row, AT + 200) for row in progress.rows(given.status(nodes=nodes))
        )
    ]


def test_what_the_hub_says_of_a_node_goes_before_its_ranks() -> None:
    """A node that does not answer, or has ended, is not one whose ranks wait."""
    waits = NodeWait(AT, [0], [])
    nodes = [
        NodeStatus(0, "", Phase.RUNNING, AT, "does not answer", waits=waits),
        NodeStatus(1, "", Phase.ENDED, AT, exit_code=40, waits=waits),
    ]

    rows = [progress.row_text(row, AT + 9) for row in progress.rows(given.status(nodes=nodes))]
    assert {"does not answer", "has failed"} == {detail for *_, detail in rows}


def test_a_record_of_an_older_agent_is_shown_as_it_is() -> None:
    """Its sentence has the time, too; nodes that say the same share a row."""
    data = codec.dump(given.status())
    for node in data["nodes"]:
        node["detail"] = "all wait, for 12 s"
    old = codec.load(JobStatus, data)

    assert [("nodes 0-1", "all wait, for 12 s")] == [
        (nodes, detail)
        for nodes, _, _, detail in (progress.row_text(row, AT + 9) for row in progress.rows(old))
    ]


@pytest.mark.parametrize(
    ("why", "text"),
    [("deadline", "it hung, and was ended"), ("death", "a worker failed"), ("", "its ranks could not go on")],
)
def test_a_job_whose_ranks_do_not_match_may_hang_or_crash(why: str, text: str) -> None:
    """Both end with the same exit code; a record of an older agent does not say which it was."""
    status = given.status(phase=Phase.ENDED, exit_code=50, decided=50, why=why)

    assert f"failed after 1 min 10 s: {text}" == progress.headline(
        given.job(State.FAILED, exit_code=50, status=status), AT + 12
    )


def said(*moments: tuple[float, Job]) -> list[str]:
    """What a log holds after the job was shown at these seconds."""
    stream = io.StringIO()
    now = [0.0]
    with live.Lines(stream, clock=lambda: AT + now[0]) as view:
        for seconds, job in moments:
            now[0] = seconds
            view.show(job)
    return stream.getvalue().splitlines()


def test_a_change_of_place_is_one_line() -> None:
    running = given.job(State.RUNNING, status=given.status())
    moments = [(1.0 + n / 10, waiting()) for n in range(10)] + [(6.0 + n, running) for n in range(100)]

    assert [
        "ddplaunch: at the gate for 0.0 s, waits for node 1",
        "ddplaunch: running on 2 nodes for 1.0 s",
    ] == said(*moments)


def test_what_would_end_the_job_is_told_while_it_waits() -> None:
    """Once, with what to do about it; and not any more when it has passed."""
    held = Verdict.of("port-in-use", "node 0: port 29500 is held", "gate", nodes=[0], hint="`kill 812`")
    moments = [(1.0, waiting()), (3.0, waiting(verdicts=[held])), (4.0, waiting(verdicts=[held]))]

    assert [
        "ddplaunch: at the gate for 0.0 s, waits for node 1",
        (
            "ddplaunch: at the gate for 2.0 s, waits for node 1; node 0: port 29500 is held; "
            "this may be temporary"
        ),
        "ddplaunch: hint: `kill 812`",
        "ddplaunch: at the gate for 4.0 s, waits for node 1",
    ] == said(*moments, (5.0, waiting()))


def test_a_waiting_job_is_recalled_ever_more_seldom() -> None:
    lines = said(*((float(second), waiting()) for second in range(1, 301)))

    assert [0, 5, 15, 35, 75, 155] == [_seconds(line) for line in lines]


def _seconds(line: str) -> int:
    text = line.removeprefix("ddplaunch: at the gate for ").partition(",")[0]
    minutes, _, rest = text.rpartition(" min ") if " min " in text else ("0", "", text)
    return int(minutes) * 60 + round(float(rest.removesuffix(" s")))


def test_what_other_nodes_do_is_said_beside_the_job() -> None:
    """A node elsewhere than the job is named with what it waits for."""
    nodes = [
        NodeStatus(0, "", Phase.RENDEZVOUS, AT),
        NodeStatus(1, "", Phase.INIT, AT, "waits for ranks 2, 5"),
    ]
    job = given.job(State.RUNNING, status=given.status(phase=Phase.RENDEZVOUS, nodes=nodes))

    assert [
        "ddplaunch: in rendezvous for 5.0 s; node 1 without a process group (waits for ranks 2, 5)"
    ] == said((10.0, job))


def test_nodes_whose_ranks_are_to_start_are_not_called_waiting() -> None:
    """The gate has let them through, and their supervisors have not spoken yet."""
    nodes = [NodeStatus(number, "", Phase.GATE, AT) for number in (0, 1)]
    job = given.job(State.RUNNING, status=given.status(phase=Phase.RENDEZVOUS, nodes=nodes))

    assert ["ddplaunch: in rendezvous for 5.0 s; nodes 0-1 have passed the gate"] == said((10.0, job))


def test_the_last_nodes_of_a_job_that_ends() -> None:
    """Who is there no more is not counted, and has ended; nothing is said twice, a hint neither."""
    nodes = [NodeStatus(0, "", Phase.ENDED, AT, exit_code=0), NodeStatus(1, "", Phase.RUNNING, AT, "silent")]
    running = given.job(State.RUNNING, status=given.status(since=AT, nodes=nodes))
    told = dataclasses.replace(running, detail="node 1 (pod b): silent", hint="wait")
    status = given.status(phase=Phase.ENDED, since=AT + 12, nodes=nodes, exit_code=40)
    over = dataclasses.replace(told, status=status)

    assert [
        "ddplaunch: running on 1 node for 10 s; node 1: silent; node 0 has finished",
        "ddplaunch: running on 1 node for 11 s; node 1 (pod b): silent; node 0 has finished",
        "ddplaunch: hint: wait",
        "ddplaunch: ended 6.0 s ago: a worker failed; node 1 (pod b): silent",
    ] == said((10.0, running), (11.0, told), *((at, over) for at in (13.0, 18.0)))


def test_numbers_alone_are_no_news() -> None:
    """Nodes that wait say for how long, each by its own clock."""

    def waits(*seconds: float) -> Job:
        nodes = [
            NodeStatus(n, "", Phase.RUNNING, AT, waits=NodeWait(AT - each, [n]))
            for n, each in enumerate(seconds)
        ]
        return given.job(State.RUNNING, status=given.status(nodes=nodes))

    assert 1 == len(said((1.0, waits(8.1, 8.1)), (1.5, waits(8.1, 9.1)), (2.0, waits(9.1, 9.1))))


def test_a_retry_is_a_change() -> None:
    assert 2 == len(said((1.0, waiting()), (1.1, waiting(attempt=1))))


@pytest.fixture(name="terminal")
def _terminal(monkeypatch: pytest.MonkeyPatch) -> given.Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return given.Terminal()


def test_a_terminal_shows_every_group_of_nodes(terminal: given.Terminal) -> None:
    """Who is missing, and for how long, stands at the foot; the ranks' lines scroll by unbroken."""
    long = "[0/0] " + "x" * 300 + " [bold]not markup[/bold]"
    with live.Picture(terminal, clock=lambda: AT + 12) as view:
        view.show(waiting())
        view.line(long)
        until = time.monotonic() + BUSY * 5
        while "waits for node 1" not in terminal.getvalue() and time.monotonic() < until:
            time.sleep(0.02)

    text = terminal.getvalue()
    assert long in text
    assert "local://digits/3" in text
    assert "at the gate for 11 s, waits for node 1" in text
    assert "node 1" in text
    assert "starting" in text


def test_many_groups_leave_room_for_the_log(terminal: given.Terminal) -> None:
    nodes = [NodeStatus(n, "", Phase.GATE, AT, f"detail {n}") for n in range(40)]
    picture = live.Picture(terminal)
    picture.show(waiting(nodes=nodes))

    assert 14 == picture._draw().row_count


@pytest.mark.parametrize(
    ("term", "kind"), [("xterm", live.Picture), ("dumb", live.Lines), (None, live.Lines)]
)
def test_a_terminal_that_cannot_move_its_cursor_gets_lines(
    monkeypatch: pytest.MonkeyPatch, term: str | None, kind: type
) -> None:
    """An editor's shell or a serial line is no place for a picture."""
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)

    assert kind is type(live.view(given.Terminal()))


def test_a_file_gets_lines() -> None:
    assert live.Lines is type(live.view(io.StringIO()))


def test_why_a_job_waits_is_told_with_what_to_do() -> None:
    """Once for each reason: the same one is only recalled, however its numbers change."""

    def pending(detail: str, hint: str) -> Job:
        return given.job(State.PENDING, detail=detail, hint=hint)

    assert [
        "ddplaunch: pending for 1.0 s: 0 of 3 nodes are idle",
        "ddplaunch: hint: nothing is wrong",
        "ddplaunch: pending for 3.0 s: it is held",
        "ddplaunch: hint: release it",
        "ddplaunch: succeeded after 1 min 10 s",
    ] == said(
        (1.0, pending("0 of 3 nodes are idle", "nothing is wrong")),
        (2.0, pending("1 of 3 nodes is idle", "nothing is wrong")),
        (3.0, pending("it is held", "release it")),
        (4.0, given.job(State.SUCCEEDED)),
    )
