"""Looks at a job while its API server is away, or begins anew: a server of our own, and the real client."""

from __future__ import annotations

import dataclasses
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.backends.kubernetes import gate_jobs
from tests.unit.backends.kubernetes.api_server import Clock, Server, kubeconfig

from ddplaunch.agent.contract import Bundle, Phase
from ddplaunch.backends.job import Handle
from ddplaunch.backends.kubernetes import evidence, snapshot
from ddplaunch.backends.kubernetes.api import Api, RefusedError
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.backends.kubernetes.queries import Queries
from ddplaunch.backends.kubernetes.snapshot import Snapshots
from ddplaunch.backends.kubernetes.submission import Submission

JOB = {"kind": "Job", "metadata": {"name": "digits", "uid": "1"}, "spec": {"completions": 1}, "status": {}}
FAILED = {"conditions": [{"type": "Failed", "status": "True"}]}
FORBIDDEN = {
    "reason": "Forbidden",
    "message": 'jobs.batch "digits" is forbidden: User "me" cannot get resource "jobs" in API group "batch" '
    'in the namespace "team"',
}


class _Server(Server):
    """One job without pods."""

    status = 200  # 0: hangs up
    failed = False

    def got(self) -> None:
        if self.status == 200:
            job = {**JOB, "status": FAILED if self.failed else {}}
            self.answer(200, job if self.path.endswith("/jobs/digits") else {"items": []})
        elif self.status:
            self.answer(self.status, FORBIDDEN)


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(snapshot, "time", clock)
    return clock


@pytest.fixture(name="job")
def _job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Snapshots]:
    """Looks at a job that was seen once."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(_Server, "status", 200)
    monkeypatch.setattr(_Server, "failed", False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")
        api = Api()
        job = Snapshots(api, Queries(api))
        job.at("team", "digits")
        yield job
        job.close()
        server.shutdown()


@pytest.mark.parametrize("away", [0.0, 300.0])
def test_a_server_that_begins_anew_may_turn_us_away_for_a_moment(
    job: Snapshots, clock: Clock, monkeypatch: pytest.MonkeyPatch, away: float
) -> None:
    """Until it has read who may do what. What was seen last stands, and it is said how old it is."""
    if away:
        monkeypatch.setattr(_Server, "status", 0)
        job.at("team", "digits", fresh=True)
        clock.now += away
    monkeypatch.setattr(_Server, "status", 403)
    job.at("team", "digits", fresh=True)
    clock.now += 20
    late = job.at("team", "digits", fresh=True)
    monkeypatch.setattr(_Server, "status", 200)
    again = job.at("team", "digits", fresh=True)

    assert f"the API server has not answered for {away + 20:.0f} s; the job goes on without it" == late.note
    assert ("digits", "") == (late.state.name, again.note)


def test_a_server_that_keeps_turning_us_away_is_believed(
    job: Snapshots, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights may be taken from somebody who waits."""
    monkeypatch.setattr(_Server, "status", 403)
    job.at("team", "digits", fresh=True)
    clock.now += snapshot._REFUSAL

    with pytest.raises(RefusedError, match=r"you \(me\) may not get jobs\.batch"):
        job.at("team", "digits", fresh=True)


def test_a_job_that_has_ended_before_its_hub_asks_the_silent_nodes_too() -> None:
    """Their pods are deleted while the hub's container still runs: no last word of it can be read yet."""
    ours = gate_jobs.seen(gate_jobs.pod(0), gate_jobs.pod(1))
    missing = dataclasses.replace(gate_jobs.verdict(1, "node-missing"), nodes=[1])
    hub_status = dataclasses.replace(gate_jobs.status(Phase.GATE, Phase.STARTING), verdicts=[missing])
    assert {1} == snapshot._missed(ours, hub_status)
    assert set() == snapshot._missed(ours, dataclasses.replace(hub_status, attempt=hub_status.attempt - 1))
    assert set() == snapshot._missed(ours, None)


def test_what_a_node_said_is_known_although_its_pod_went_before_the_job_had_ended(job: Snapshots) -> None:
    """The evidence tells who never came; what such a node was heard to say is not lost with the last look."""
    reports = gate_jobs.report(0)
    job._pollers["team", "digits"].gate_reports._last["digits-0-x"] = reports
    last = job.at("team", "digits")
    assert [None] == [node.problem for node in last.nodes]

    known, _ = job.gate_reports(last, {0})
    assert [reports.report.verdict] == [node.problem and node.problem.verdict for node in known.nodes]
    assert [None] == [node.problem for node in job.gate_reports(last, set())[0].nodes]


def test_what_a_node_said_is_known_although_no_verdict_of_the_hub_was_read(
    job: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub decides, and its pod goes, between two looks."""
    poller = job._pollers["team", "digits"]
    pods = gate_jobs.pod(0), gate_jobs.pod(1)
    hub_status = gate_jobs.status(Phase.GATE, Phase.STARTING)
    monkeypatch.setattr(evidence, "status", lambda *_: hub_status)
    monkeypatch.setattr(poller.gate_reports, "read", lambda *_: None)
    poller._with_status(gate_jobs.seen(*pods))
    reports = gate_jobs.report(1)
    poller.gate_reports._last["digits-1-x"] = reports
    gone = dataclasses.replace(gate_jobs.seen(*pods), owner={"status": FAILED}, pods=())

    assert [1] == [node for node, known in poller._with_status(gone).gate_reports.items() if known.verdict]


def test_what_a_node_said_in_an_earlier_attempt_explains_nothing(
    job: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry has pods of its own, perhaps on other machines."""
    poller = job._pollers["team", "digits"]
    hub_status = gate_jobs.status(Phase.GATE, Phase.STARTING)
    monkeypatch.setattr(evidence, "status", lambda *_: hub_status)
    monkeypatch.setattr(poller.gate_reports, "read", lambda *_: None)
    poller._with_status(gate_jobs.seen(gate_jobs.pod(0), gate_jobs.pod(1)))
    poller.gate_reports._last["digits-1-x"] = gate_jobs.report(1)

    pods = gate_jobs.pod(0), gate_jobs.pod(1, gate="waiting")
    for pod in pods:
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = "1"
    hub_status = dataclasses.replace(hub_status, attempt=1)
    poller._with_status(gate_jobs.seen(*pods))
    gone = dataclasses.replace(gate_jobs.seen(*pods), owner={"status": FAILED}, pods=())

    assert {} == poller._with_status(gone).gate_reports


def test_a_node_that_reached_the_hub_at_last_is_not_known_by_what_it_said_before() -> None:
    """Nor one whose gate has passed, whoever may ask the hub."""
    both = gate_jobs.seen(gate_jobs.pod(0), gate_jobs.pod(1))
    assert {1} == evidence.not_reaching_hub({1}, both, gate_jobs.status(Phase.GATE, Phase.STARTING))
    assert set() == evidence.not_reaching_hub({1}, both, gate_jobs.status(Phase.GATE, Phase.GATE))
    ended = gate_jobs.pod(1, gate="terminated")
    assert {0, 1} == evidence.not_reaching_hub({1}, gate_jobs.seen(gate_jobs.pod(0), ended), None)
    ended["status"]["initContainerStatuses"][1]["state"]["terminated"]["exitCode"] = 0
    assert {0} == evidence.not_reaching_hub({1}, gate_jobs.seen(gate_jobs.pod(0), ended), None)


def test_what_a_node_said_is_in_the_evidence_although_the_hubs_pod_is_gone(
    job: Snapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who followed the hub's log has its bundle; it is explained as if the log could still be read."""
    monkeypatch.setattr(_Server, "failed", True)
    job.at("team", "digits", fresh=True)
    reports = gate_jobs.report(0)
    job._pollers["team", "digits"].gate_reports._last["digits-0-x"] = reports
    backend = KubernetesBackend(tmp_path)
    monkeypatch.setitem(vars(backend), "_snapshots", job)
    sent = Submission(backend.api.place.server, "team", "digits", "1", 10.0)
    backend.records.begin(sent)
    missing = dataclasses.replace(gate_jobs.verdict(0, "node-missing"), nodes=[0])
    backend.records.keep(sent, Bundle("digits", 0, 1, 1, 1.0, 2.0, verdicts=[missing]))

    found = backend.collect(Handle("kubernetes", "team/digits"))
    assert found is not None
    assert ["dns-not-found"] == [each.code for each in found.verdicts]
    assert found == backend.records.bundle(sent, 0)
