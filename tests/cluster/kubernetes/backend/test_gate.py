"""A gate that does not reach the hub can tell nobody but its own log: who waits hears of it all the same."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import IO, Any

import pytest
from tests.cluster.kubernetes.backend.conftest import Cli, Write
from tests.cluster.kubernetes.cluster import Cluster
from tests.faults.times import seconds

from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.report import machine

INDEX = "batch.kubernetes.io/job-completion-index"
TIMEOUT = 30
"""Seconds of the gate, of which the first few are enough to hear of it."""


class Ear(threading.Thread):
    """Lines of a stream, each with the time at which it came."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._lines: list[tuple[float, str]] = []
        self.start()

    def run(self) -> None:
        """Until the stream ends."""
        for line in self._stream:
            self._lines.append((time.time(), line))

    def heard(self, pattern: str) -> list[float]:
        """When it was said."""
        return [at for at, line in self._lines if re.search(pattern, line)]

    def __str__(self) -> str:
        return "".join(line for _, line in self._lines)


@pytest.mark.fault("ip-family-mixed")
def test_who_waits_hears_of_a_gate_that_reaches_nobody(
    cluster: Cluster,
    cli: Cli,
    write: Write,
    namespace: str,
    backend: KubernetesBackend,
    record_property: Callable[[str, object], None],
) -> None:
    """In status, diagnose and the lines of a watched job, with pod and machine, long before the job ends."""
    name = f"digits-0.digits.{namespace}.svc.cluster.local"
    alias = {"spec": {"hostAliases": [{"ip": "fd00:99::10", "hostnames": [name]}]}}
    gate = {"timeout": f"{TIMEOUT}s", "skip": ["interpreter", "versions"]}
    path = write("digits", gate=gate, rendezvous={"port": 29500}, kubernetes={"pod_template": alias})
    handle = f"kubernetes://{namespace}/digits"
    sentence = r"node 1 \(pod digits-1-\w+ on [\w-]+-worker2?\) has no address of IPv6, and the hub is at "
    with cli.start("submit", path, "--to", "kubernetes", "--wait") as job:
        assert job.stderr is not None
        ear = Ear(job.stderr)
        cluster.until(lambda: bool(ear.heard(sentence)), "the waiting hear of it", 90, lambda: str(ear))

        code, told, _ = cli("status", handle, "--json")
        seen: dict[str, Any] = json.loads(told)
        (found,) = json.loads(cli("diagnose", handle, "--json")[1])["verdicts"]
        assert 104 == job.wait(60), str(ear)
        ear.join(60)  # the end of `with` closes the stream, with the last lines unread
    assert (101, "gate") == (code, seen["phase"])
    assert "they need addresses of one family" in seen["hint"]
    for verdict in (found, *seen["verdicts"]):
        assert ("ip-family-mixed", [1]) == (verdict["code"], verdict["nodes"])
        assert re.match(sentence, verdict["sentence"])

    # Not what the hub had to guess, that it never came. Its pod may be gone by then.
    last = r"^node 1 \((pod digits-1-\w+|digits-1) on [\w-]+-worker2?\) has no address of IPv6"
    assert ear.heard(last), str(ear)

    (sent,) = backend.records.all()
    bundle = backend.records.bundle(sent, 0)  # as whoever waited has kept it
    assert bundle is not None
    assert ["ip-family-mixed"] == [each.code for each in bundle.verdicts]
    assert [("notice", 1)] == [(each.kind, each.node) for each in bundle.events if each.kind == "notice"]
    told_after = seconds(bundle, "ip-family-mixed")
    assert told_after is not None
    assert told_after < TIMEOUT / 3
    record_property("seconds", told_after)

    # Who has not watched finds the hub's bare words, and does not spoil what was kept.
    cluster.kubectl(
        "delete", "pods", "--namespace", namespace, "--selector", f"{INDEX}=1", "--grace-period=1"
    )
    logs = cli("logs", handle)[1]
    # The hub's pod ends by itself, unless the Job controller deletes it first because node 1 failed.
    assert "[hub] " in logs or "the output of nodes 0-1 is gone" in logs
    for verb in ("diagnose", "status"):
        assert (
            machine.verdicts_data(bundle.verdicts) == json.loads(cli(verb, handle, "--json")[1])["verdicts"]
        )
    assert bundle == backend.records.bundle(sent, 0)
