"""Who is told of a job that hangs, and of one that does not: real torchrun, a real webhook."""

from __future__ import annotations

from pathlib import Path

from tests.local.conftest import Desk
from tests.webhook import SECRET, webhook

MORE = "watchdog: {notice_after: 4s, kill_after: 25s}\nnotify: [{webhook: {env: THE_URL}}]\n"


def test_a_hang_is_told_when_it_is_seen_and_when_it_ends_the_job(desk: Desk) -> None:
    """With the rank and the handle; no file of the job and no line of ours has the URL."""
    with webhook() as server:
        desk.env["THE_URL"] = server.url
        done = desk.call("submit", desk.job("--hang-at", "1", more=MORE), "--wait", seconds=90)

    handle = done.stdout.strip()
    *_, notice, end = server.got  # a slow start may have had its own notice
    assert ["notice", "end"] == [notice["occasion"], end["occasion"]]
    for told in (notice, end):
        assert [[1]] == [verdict["ranks"] for verdict in told["verdicts"]]
        assert told["text"].endswith(f"({handle})")
    assert server.texts()[-2].startswith("tiny goes on, with a notice: ")
    assert server.texts()[-1].startswith("tiny hung and was ended: ")
    folder = desk.folder / "state/ddplaunch/jobs" / handle.removeprefix("local://")
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert [] == [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in done.stdout + done.stderr


def test_a_pause_that_ends_is_withdrawn(desk: Desk) -> None:
    """The notice, its withdrawal, and the good end."""
    with webhook() as server:
        desk.env["THE_URL"] = server.url
        more = MORE.replace("notice_after: 4s, kill_after: 25s", "notice_after: 2s, kill_after: 60s")
        job = desk.job("--pause-at", "2", "--steps", "80", "--pause", "0.1", more=more)
        desk.call("submit", job, "--wait", seconds=90)

    assert ["notice", "withdrawn", "end"] == [each["occasion"] for each in server.got][-3:]
    assert server.texts()[-1].startswith("tiny has finished (local://tiny/")
