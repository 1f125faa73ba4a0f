"""Looks at a job while its API server is away, or begins anew: a server of our own, and the real client."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.backends.kubernetes.test_api import Clock, Server, kubeconfig

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
