"""The Events of a job in Kubernetes, and files that go with a pod."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent.contract import (
    SOURCE_MARK,
    SOURCE_TIME,
    Env,
    Exit,
    JobPlan,
    NotifyPlan,
    Occasion,
    Verdict,
)
from ddplaunch.agent.hub import notify
from ddplaunch.agent.hub.job_record import JobRecord
from ddplaunch.agent.hub.notify import Notifier
from ddplaunch.agent.platforms import kubernetes

PLAN = JobPlan("digits", 2, 4, [], ["train.py"], platform="kubernetes", notify=[NotifyPlan(events=True)])
HANG = Verdict.of("rank-missing", "rank 3 is not in all_reduce", "run", nodes=[0], ranks=[3])
POD = {
    Env.NAMESPACE: "lab",
    Env.NAMES: "digits-{node}.digits.$(DDPLAUNCH_NAMESPACE).svc.{domain}",
    Env.UID: "17-4",
}
TOKEN = "eyJ.of.the.pod"
FORBIDDEN = {"kind": "Status", "message": "cannot create\x1b[2J"}


def made(occasion: str, *verdicts: Verdict, exit_code: int | None = None) -> dict[str, Any]:
    """Return the message."""
    return notify.compose(occasion, PLAN, 0, "kubernetes://lab/digits", verdicts, exit_code, 86400.5)


def test_an_event_names_the_job_and_says_the_sentence() -> None:
    event = kubernetes.event(made(Occasion.NOTICE, HANG), POD)

    assert event.pop("reportingInstance")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "digits-", "namespace": "lab"},
        "eventTime": "1970-01-02T00:00:00.000000Z",
        "reportingController": "ddplaunch",
        "action": "Watch",
        "reason": "Notice",
        "regarding": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "lab",
            "name": "digits",
            "uid": "17-4",
        },
        "note": "digits goes on, with a notice: rank-missing: rank 3 is not in all_reduce"
        " (kubernetes://lab/digits)",
        "type": "Warning",
    }


def test_an_event_of_a_jobset_is_about_the_job_in_it() -> None:
    names = POD[Env.NAMES].replace("digits-{", "digits-node-0-{")
    event = kubernetes.event(made(Occasion.NOTICE, HANG), {**POD, Env.NAMES: names})

    assert "digits-node-0" == event["regarding"]["name"]


@pytest.mark.parametrize(
    ("occasion", "exit_code", "reason", "kind"),
    [
        (Occasion.WITHDRAWN, None, "NoticeWithdrawn", "Normal"),
        (Occasion.END, Exit.OK, "Ended", "Normal"),
        (Occasion.END, Exit.STOPPED, "Ended", "Normal"),
        (Occasion.END, Exit.HANG, "Ended", "Warning"),
    ],
)
def test_only_a_fault_is_a_warning(occasion: str, exit_code: int | None, reason: str, kind: str) -> None:
    event = kubernetes.event(made(occasion, exit_code=exit_code), POD)

    assert (reason, kind) == (event["reason"], event["type"])


def test_an_event_is_cut_to_1024_bytes_and_escaped() -> None:
    long = made(Occasion.NOTICE, Verdict.of("rank-failed", "é\x1b[2J" + "é" * 900, "run"))

    note = kubernetes.event(long, POD)["note"]
    assert 990 < len(note.encode()) <= 1000
    assert note.isprintable()


@pytest.mark.parametrize("answer", [b"", b"oops", b"[]", b"7", b"null", b"{}", b"\xff"])
def test_an_answer_of_the_api_server_without_a_sentence_adds_none(answer: bytes) -> None:
    assert "" == kubernetes._answer_words(answer)


class Api:
    """An API server on loopback whose certificate, its own, lies in the folder of the service account."""

    def __init__(self, account: Path, status: int) -> None:
        words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext subjectAltName=IP:127.0.0.1"
        files = ["-keyout", f"{account}/key.pem", "-out", f"{account}/ca.crt"]
        subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True)
        self.got: list[tuple[str, str, Any]] = []
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                got.append((self.path, self.headers["Authorization"], body["reason"]))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(FORBIDDEN).encode())

            def log_message(self, *_: object) -> None:
                """Stay silent."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(account / "ca.crt", account / "key.pem")
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self._thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self) -> int:
        """Return the port at which it serves."""
        self._thread.start()
        return int(self.server.server_port)

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture(name="account")
def _account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a service account, with a token in it."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text(TOKEN)
    monkeypatch.setattr(kubernetes, "ACCOUNT", str(folder))
    return folder


@pytest.fixture(name="tell")
def _tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that has a pod's hub tell a notice and the end, to an API server at that port."""
    proxy = {"https_proxy": "http://127.0.0.1:9", "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
    for name, value in {**POD, **proxy}.items():
        monkeypatch.setenv(name, value)

    def tell(port: int) -> None:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        record = JobRecord(PLAN, str(tmp_path), 0)
        notifier = Notifier(record, "kubernetes://lab/digits", PLAN.notify or [])
        notifier.send(Occasion.NOTICE)
        record.exit_code = Exit.OK
        notifier.send(Occasion.END)
        notifier.close()
        record.close()

    return tell


@pytest.mark.parametrize(
    ("status", "log"),
    [
        (201, ""),
        (403, "the Job's Events got no message: the API server answers 403: cannot create\\x1b[2J\n"),
    ],
)
def test_events_are_posted_with_the_token_of_the_pod_and_past_any_proxy(
    status: int, log: str, account: Path, tell: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    api = Api(account, status)
    with api as port:
        tell(port)

    path = "/apis/events.k8s.io/v1/namespaces/lab/events"
    assert [(path, f"Bearer {TOKEN}", "Notice"), (path, f"Bearer {TOKEN}", "Ended")] == api.got
    assert log == capfd.readouterr().out


def test_a_server_with_another_certificate_gets_no_token(
    account: Path, tell: Callable[[int], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    Api(account, 201).server.server_close()
    api = Api(tmp_path / "other", 201)
    with api as port:
        tell(port)

    assert [] == api.got
    assert "the API server does not answer: CERTIFICATE_VERIFY_FAILED" in capfd.readouterr().out


def test_a_pod_without_a_token_says_so_once_and_goes_on(
    account: Path, tell: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    (account / "token").unlink()
    tell(9)

    out = "the Job's Events got no message: its service account: No such file or directory\n"
    assert out == capfd.readouterr().out


# --- files that go with a pod

ROOT = "1 0 0:50 / / rw - overlay overlay rw\n"
EMPTY = "2 1 8:1 /var/lib/kubelet/pods/1-2/volumes/kubernetes.io~empty-dir/run {} rw - ext4 /dev/sda1 rw\n"
CLAIM = "3 1 0:60 /export/a {} rw - nfs4 10.0.0.1:/export rw\n"


@pytest.fixture(name="work")
def _work(tmp_path: Path) -> Path:
    """A folder with a file of the source, byte code, and two files that ranks wrote."""
    work = tmp_path / "work"
    (work / "ckpt").mkdir(parents=True)
    (work / "__pycache__").mkdir()
    (work / "train.py").write_text("x")
    os.utime(work / "train.py", (SOURCE_TIME, SOURCE_TIME))
    (work / SOURCE_MARK).touch()
    os.utime(work / SOURCE_MARK, (time.time() + 1,) * 2)
    (work / "__pycache__" / "x.pyc").write_text("x")
    (work / "a.txt").write_text("12345")
    os.utime(work / "a.txt", (time.time() - 5,) * 2)
    (work / "ckpt" / "last.pt").write_bytes(bytes(2000))
    return work


def gone(work: Path, mounts: str, since: float = 0.0) -> str:
    """Return the sentence, in a pod with these mounts."""
    table = work.parent / "mountinfo"
    table.write_text(mounts)
    return kubernetes.files_gone(str(work), since, str(table))


@pytest.mark.parametrize("mounts", [ROOT, ROOT + EMPTY.format("/tmp")])
def test_new_files_in_image_and_emptydir_are_counted_and_the_newest_named(work: Path, mounts: str) -> None:
    said = gone(work, mounts)

    assert said.startswith(f"2 files, 2 KiB, newest ckpt/last.pt, written in {work}, will be"), said


def test_nothing_is_said_of_files_in_a_volume_that_stays(work: Path) -> None:
    assert gone(work, ROOT + CLAIM.format(work)) == ""
    assert gone(work, ROOT + EMPTY.format(work.parent) + CLAIM.format(work)) == ""


def test_nothing_is_said_of_files_that_are_older_than_the_ranks(work: Path) -> None:
    assert gone(work, ROOT, time.time() + 60) == ""


def test_nothing_is_said_of_a_whole_file_system(work: Path) -> None:
    """Ranks of an image without a folder of its own stand in /, where all kinds of files change."""
    assert kubernetes.files_gone("/", 0.0) == ""
