"""Looks at a job while its API server is away, or begins anew: a server of our own, and the real client."""

from __future__ import annotations

import dataclasses
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.backends.kubernetes import test_cries
from tests.unit.backends.kubernetes.test_api import Clock, Server, kubeconfig

from ddplaunch.agent.contract import Phase
from ddplaunch.backends.kubernetes import look as looks
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.look import Looks
from ddplaunch.backends.kubernetes.queries import Queries
from ddplaunch.backends.kubernetes.refusals import RefusedError

JOB = {"kind": "Job", "metadata": {"name": "digits", "uid": "1"}, "spec": {"completions": 1}, "status": {}}
FORBIDDEN = {
    "reason": "Forbidden",
    "message": 'jobs.batch "digits" is forbidden: User "me" cannot get resource "jobs" in API group "batch" '
    'in the namespace "team"',
}


class _Server(Server):
    """One job without pods."""

    status = 200  # 0: hangs up

    def got(self) -> None:
        if self.status == 200:
            self.answer(200, JOB if self.path.endswith("/jobs/digits") else {"items": []})
        elif self.status:
            self.answer(self.status, FORBIDDEN)


@pytest.fixture(name="clock")
def _clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(looks, "time", clock)
    return clock


@pytest.fixture(name="job")
def _job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    """Looks at a job that was seen once."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(_Server, "status", 200)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")
        api = Api()
        job = Looks(api, Queries(api))
        job.at("team", "digits")
        yield job
        job.close()
        server.shutdown()


@pytest.mark.parametrize("away", [0.0, 300.0])
def test_a_server_that_begins_anew_may_turn_us_away_for_a_moment(
    job: Looks, clock: Clock, monkeypatch: pytest.MonkeyPatch, away: float
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

    assert f"the API server has not answered for {away + 20:.0f} s; the job does not need it" == late.note
    assert ("digits", "") == (late.seen.name, again.note)


def test_a_server_that_keeps_turning_us_away_is_believed(
    job: Looks, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights may be taken from somebody who waits."""
    monkeypatch.setattr(_Server, "status", 403)
    job.at("team", "digits", fresh=True)
    clock.now += looks._REFUSAL

    with pytest.raises(RefusedError, match=r"you \(me\) may not get jobs\.batch"):
        job.at("team", "digits", fresh=True)


def test_a_job_that_has_ended_before_its_hub_asks_the_silent_nodes_too() -> None:
    """Their pods are deleted while the hub's container still runs: no last word of it can be read yet."""
    ours = test_cries.seen(test_cries.pod(0), test_cries.pod(1))
    missing = dataclasses.replace(test_cries.verdict(1, "node-missing"), nodes=[1])
    told = dataclasses.replace(test_cries.status(Phase.GATE, Phase.STARTING), verdicts=[missing])
    assert {1} == looks._missed(ours, told)
    assert set() == looks._missed(ours, dataclasses.replace(told, attempt=told.attempt + 1))
    assert set() == looks._missed(ours, None)


def test_what_a_node_said_is_known_although_its_pod_went_before_the_job_had_ended(job: Looks) -> None:
    """The evidence tells who never came; what such a node was heard to say is not lost with the last look."""
    heard = test_cries.cry(0)
    job._watched["team", "digits"].cries._last["digits-0-x"] = heard
    last = job.at("team", "digits")
    assert [None] == [node.trouble for node in last.nodes]

    known, _ = job.cries(last, {0})
    assert [heard.cry.verdict] == [node.trouble and node.trouble.verdict for node in known.nodes]
    assert [None] == [node.trouble for node in job.cries(last, set())[0].nodes]
