"""A whole job of one machine and the webhook that its plan names."""

from __future__ import annotations

import time

import pytest
from tests.agent.local.jobs import PRINTS, Job
from tests.agent.local.jobs import _job as _job  # the fixture `job`
from tests.busy import BUSY
from tests.webhook import SECRET, webhook

from ddplaunch.agent.contract import Exit, Files, NotifyPlan
from ddplaunch.agent.hub import notify
from ddplaunch.agent.local import host

RECIPIENT = NotifyPlan(webhook={"env": "THE_URL"})


@pytest.mark.parametrize(
    ("program", "code", "end"),
    [(PRINTS, Exit.OK, "test has finished"), ("raise SystemExit(7)", Exit.WORKER_FAILED, "test has failed")],
)
def test_the_end_is_told(
    job: Job, program: str, code: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, and of a healthy job nothing else; no file of the job has the URL."""
    with webhook() as server:
        monkeypatch.setenv("THE_URL", server.url)
        job.start(program, notify=[RECIPIENT])
        assert code == job.end()

    assert [("end", code)] == [(each["occasion"], each["exit_code"]) for each in server.got]
    assert server.texts()[0].startswith(end)
    files = [path for path in job.folder.rglob("*") if path.is_file()]
    assert [] == [path for path in files if SECRET.encode() in path.read_bytes()]


def test_the_hub_has_time_for_its_last_messages() -> None:
    """Who ends a hub that does not end by itself waits for longer."""
    assert notify.AT_END + 10 <= host.HUB_END


def test_a_webhook_that_hangs_delays_no_job(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the few seconds at its end; the hub's log says that it was not told."""
    with webhook("slow") as server:
        monkeypatch.setenv("THE_URL", server.url)
        begun = time.monotonic()
        job.start(PRINTS, notify=[RECIPIENT])
        assert Exit.OK == job.end()
        assert time.monotonic() - begun < BUSY * (notify.AT_END + 10)

    log = (job.folder / Files.HUB_LOG).read_text()
    assert 1 == log.count("notify[0] got no message: ")
