"""Messages of the hub, to a real server on loopback and to real commands."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from tests.busy import BUSY
from tests.webhook import SECRET, webhook

from ddplaunch.agent.contract import Env, JobPlan, NotifyPlan, Occasion
from ddplaunch.agent.hub import notify
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.notify import Notifier
from ddplaunch.agent.system import delivery

Made = Callable[..., Notifier]
URL = {"env": "THE_URL"}


@pytest.fixture(name="make")
def _make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    record = JobRecord(JobPlan("digits", 1, 1, [], ["train.py"]), str(tmp_path), 0)
    record.exit_code = 0

    def made(*urls: str, command: list[str] | None = None) -> Notifier:
        plans = [NotifyPlan(command=command)] if command else []
        for number, url in enumerate(urls):
            monkeypatch.setenv(f"URL_{number}", url)
            plans.append(NotifyPlan(webhook={"env": f"URL_{number}"}))
        return Notifier(record, "local://digits/1", plans)

    yield made
    record.close()


def test_a_message_arrives_as_json(make: Made, capfd: pytest.CaptureFixture[str]) -> None:
    with webhook() as server:
        told = make(server.url)
        told.send(Occasion.END)
        told.close()

    assert [("digits has finished (local://digits/1)", f"/{SECRET}")] == [
        (each["text"], each["path"]) for each in server.got
    ]
    assert "" == capfd.readouterr().out


@pytest.mark.parametrize("passing", [500, 429, "hang up"])
def test_what_may_pass_is_tried_again(
    make: Made, passing: int | str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notify, "_PAUSES", tuple(pause and 0.1 for pause in notify._PAUSES))
    with webhook(passing, passing, passing, passing, 200) as server:
        told = make(server.url)
        told.send(Occasion.NOTICE)
        server.wait_for(5)
        told.close()

    assert 5 == len(server.got)
    assert "" == capfd.readouterr().out


@pytest.mark.parametrize(
    ("answer", "tries", "said"),
    [
        (500, 3, "its webhook answers 500"),
        (404, 1, "its webhook answers 404"),
        (302, 1, "its webhook answers 302"),
        ("hang up", 3, "its webhook does not answer: RemoteDisconnected"),
    ],
)
def test_a_webhook_that_fails_is_reported_once(
    make: Made,
    answer: int | str,
    tries: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(notify, "_PAUSES", (0.1, 0.1, None))
    with webhook(answer) as server:
        told = make(server.url)
        told.send(Occasion.NOTICE)
        told.send(Occasion.END)
        server.wait_for(2 * tries)
        told.close()
        told.report()

    assert 2 * tries == len(server.got)
    assert f"notify[0] got no message: {said}\n" == capfd.readouterr().out


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:{port}/" + SECRET, "its webhook does not answer: Connection refused"),
        ("http://no-such-host.invalid/" + SECRET, "its webhook does not answer: "),
        ("http://127.0.0.1:wrong/" + SECRET, "its webhook does not answer: InvalidURL"),
        ("http://127.0.0.1:{port}/a b" + SECRET, "its webhook does not answer: InvalidURL"),
        ("file:///etc/" + SECRET, "its URL does not begin with http:// or https://"),
        (SECRET, "its URL does not begin with http:// or https://"),
    ],
)
def test_no_complaint_quotes_the_url(
    make: Made, url: str, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Who has it can write to the channel."""
    monkeypatch.setattr(notify, "_PAUSES", (0.0, 0.0, None))
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    told = make(url.format(port=port))

    told.send(Occasion.END)
    told.close()

    out = capfd.readouterr().out
    assert out.startswith(f"notify[0] got no message: {said}")
    assert SECRET not in out
    assert 1 == out.count("\n")


def test_a_missing_url_is_reported_by_the_name_of_its_variable(
    make: Made, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = make("http://127.0.0.1")
    monkeypatch.delenv("URL_0")

    told.send(Occasion.END)
    told.close()

    assert "the variable URL_0 is not set on this node\n" in capfd.readouterr().out


def test_a_webhook_that_does_not_answer_holds_nothing_up(
    make: Made, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "AT_END", 2.0)
    with webhook("slow") as slow, webhook() as quick:
        told = make(slow.url, quick.url)
        begun = time.monotonic()
        for _ in range(100):
            told.send(Occasion.NOTICE)
        assert time.monotonic() - begun < BUSY * 0.5
        told.send(Occasion.END)
        quick.wait_for(16)
        told.close()
        assert time.monotonic() - begun < BUSY * (notify.AT_END + 1)

    assert "notify[0] got no message: too many messages wait for it" in capfd.readouterr().out


def test_a_command_reads_the_message_and_never_sees_the_jobs_key(
    make: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Env.KEY, "secret")
    found = tmp_path / "found"
    program = (
        f"import os, sys; open({str(found)!r}, 'w').write(str({Env.KEY!r} in os.environ) + sys.stdin.read())"
    )

    told = make(command=[sys.executable, "-c", program])
    told.send(Occasion.END)
    told.close()

    text = found.read_text()
    assert text.startswith("False{")
    assert "digits has finished (local://digits/1)" == json.loads(text[5:])["text"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/no/such/program"], "its command does not start: No such file or directory"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "its command ends with exit code 3"),
    ],
)
def test_a_command_that_fails_is_reported(
    make: Made, command: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    told = make(command=command)
    told.send(Occasion.END)
    told.close()

    assert f"notify[0] got no message: {said}\n" == capfd.readouterr().out


def test_a_command_is_ended_with_all_that_it_has_started(
    make: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(delivery, "COMMAND", 1.0)
    monkeypatch.setattr(notify, "_PAUSES", (None,))
    pids = tmp_path / "pids"
    told = make(command=["/bin/sh", "-c", f"trap '' TERM; sleep 60 & echo $$ $! > {pids}; wait"])

    told.send(Occasion.END)
    told.close()

    assert "notify[0] got no message: its command has not ended within 1 s\n" == capfd.readouterr().out
    for pid in pids.read_text().split():
        deadline = time.monotonic() + BUSY * 5
        while Path(f"/proc/{pid}").exists() and ") Z" not in Path(f"/proc/{pid}/stat").read_text():
            assert time.monotonic() < deadline, f"{pid} lives"
            time.sleep(0.02)
