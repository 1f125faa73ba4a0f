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
    assert ["notice", "end"] == [each["occasion"] for each in server.got]
    for told in server.got:
        assert [[1]] == [verdict["ranks"] for verdict in told["verdicts"]]
        assert told["text"].endswith(f"({handle})")
    assert server.texts()[0].startswith("tiny goes on, with a notice: ")
    assert server.texts()[1].startswith("tiny has failed with exit code 50: ")
    folder = desk.folder / "state/ddplaunch/jobs" / handle.removeprefix("local://")
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert [] == [path for path in files if SECRET.encode() in path.read_bytes()]
    assert SECRET not in done.stdout + done.stderr


def test_a_pause_that_ends_is_withdrawn(desk: Desk) -> None:
    """The notice, its withdrawal, and the good end."""
    with webhook() as server:
        desk.env["THE_URL"] = server.url
        more = MORE.replace("notice_after: 4s, kill_after: 25s", "notice_after: 2s, kill_after: 60s")
        desk.call("submit", desk.job("--pause-at", "2", more=more), "--wait", seconds=90)

    assert ["notice", "withdrawn", "end"] == [each["occasion"] for each in server.got]
    assert server.texts()[-1].startswith("tiny has finished (local://tiny/")
