"""What is remembered of jobs that the cluster has forgotten."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backends.kubernetes.deciding_pods import RUNS, pod

from ddplaunch.agent.contract import Bundle, Event, Exit, JobStatus, Phase, Verdict
from ddplaunch.backends import saved
from ddplaunch.backends.job import Handle, Job, Known, State
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.backends.kubernetes.queries import ApiState
from ddplaunch.backends.kubernetes.snapshot import Snapshot
from ddplaunch.backends.kubernetes.submission import Attempts, Records, Submission
from ddplaunch.errors import UsageError
from ddplaunch.report import progress

EVICTED = Verdict.of("node-evicted", "node 1 was told to stop", "run", nodes=[1])
SAID = Event(4.0, "checkpoint", "digits.pt was written 0.4 s after the signal", 0)


def bundle(attempt: int, code: int = Exit.STOPPED) -> Bundle:
    """Of a hub that has ended."""
    return Bundle("digits", attempt, 2, 1, 1.0, 5.0, verdicts=[EVICTED], events=[SAID], exit_code=code)


def job(kept: Attempts, present: int) -> Job:
    """As it runs in the `present` attempt."""
    handle = Handle("kubernetes", "lab/digits")
    return Job(handle, State.RUNNING, 0.0, "digits", restarts=present, earlier=kept.earlier(present))


def test_each_attempt_keeps_its_own_bundle(tmp_path: Path) -> None:
    kept = Attempts(tmp_path / "digits.attempts")
    kept.keep(bundle(0))
    kept.keep(bundle(1, Exit.OK))

    assert [bundle(0), bundle(1, Exit.OK), None] == [kept.bundle(number) for number in range(3)]
    assert 1 == kept.last
    assert bundle(0) == saved.open_attempt(job(kept, 1), 0)[1]


def test_an_attempt_ended_by_its_bundle_with_what_became_of_its_checkpoint(tmp_path: Path) -> None:
    """In `status`, in one line; the present attempt is not among the earlier ones."""
    kept = Attempts(tmp_path / "digits.attempts")
    kept.keep(bundle(0))
    kept.keep(bundle(1))

    assert [
        "attempt 0: node 1 was told to stop; digits.pt was written 0.4 s after the signal"
    ] == progress.earlier(job(kept, 1))


def test_an_attempt_of_which_nothing_was_seen_says_why(tmp_path: Path) -> None:
    """It keeps its place in the row, and `--attempt` names what there is instead."""
    kept = Attempts(tmp_path / "digits.attempts")
    kept.keep(bundle(1))

    lines = progress.earlier(job(kept, 2))
    with pytest.raises(UsageError) as error:
        saved.open_attempt(job(kept, 2), 0)

    unseen = (
        "no ddplaunch command followed the job to its end, and its output and evidence were deleted with "
        "its pods"
    )
    assert [f"attempt 0: {unseen}", True] == [lines[0], lines[1].startswith("attempt 1: node 1 was told")]
    wanted = f"kubernetes://lab/digits has kept nothing of an attempt 0 ({unseen}): found 1, 2"
    assert wanted == error.value.message


def test_a_hubs_last_status_counts_until_its_bundle_is_there(tmp_path: Path) -> None:
    """The status is there for as long as the hub stands; the bundle says more."""
    kept = Attempts(tmp_path / "digits.attempts")
    status = JobStatus("digits", 0, Phase.ENDED, 1.0, [], 1.0, 2.0, exit_code=Exit.NODE_AT_FAULT)
    kept.note(status)
    before = kept.end(0)
    kept.keep(bundle(0))
    kept.note(status)

    after = kept.end(0)
    assert status == before
    assert after is not None
    assert Exit.STOPPED == after.exit_code


def test_a_number_that_cannot_be_names_no_thousand_attempts(tmp_path: Path) -> None:
    found = Attempts(tmp_path / "digits.attempts").earlier(999_999_999)

    assert 100 == len(found)
    assert 999_999_998 == found[-1].number


def jobset(restarts: int, *pods: dict[str, Any]) -> ApiState:
    """A JobSet with two retries whose controller has begun that attempt, and its pods."""
    owner = {
        "kind": "JobSet",
        "metadata": {"name": "d", "uid": "1", "labels": dict(objects.OURS)},
        "spec": {"failurePolicy": {"maxRestarts": 2}},
        "status": {"restarts": restarts},
    }
    return ApiState("lab", "d", owner, {"metadata": {"name": "d-node-0"}, "spec": {"completions": 2}}, pods)


def of_attempt(number: int) -> dict[str, Any]:
    """Node 1's pod, on a machine that does not answer."""
    found = pod(1, ready=False, trainer=RUNS)
    found["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = f"{number}"
    return found


def test_between_two_attempts_the_next_one_has_the_number() -> None:
    """Its controller has begun it; as long as pods of the one before stand, the job is in that one."""
    assert (1, False) == (jobset(1).attempt, jobset(1).waits_for_pods)
    assert (0, True) == (jobset(1, of_attempt(0)).attempt, jobset(1, of_attempt(0)).waits_for_pods)
    assert (1, False) == (jobset(1, of_attempt(1)).attempt, jobset(1, of_attempt(1)).waits_for_pods)
    assert [True, False] == [jobset(0).comes_back, ApiState("lab", "d", None).comes_back]


def test_a_job_is_not_failed_before_its_last_pod_is_gone() -> None:
    """So its JobSet has not begun the next attempt, which waits all the same; a last attempt has none."""
    failing = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}
    wrong = {**failing, "reason": "PodFailurePolicy"}
    waits = []
    for restarts, condition in ((0, failing), (2, failing), (0, wrong)):
        state = jobset(restarts, of_attempt(restarts))
        assert state.job is not None
        state.job["status"] = {"conditions": [condition]}
        waits.append(state.waits_for_pods)

    assert [True, False, False] == waits


def test_the_pod_for_which_the_next_attempt_waits_is_named(tmp_path: Path) -> None:
    """A machine that does not answer keeps it, and the hint says what ends that."""
    backend = KubernetesBackend(tmp_path)
    record = Submission("https://one:6443", "lab", "d", "1", 10.0)
    found = backend._job(Snapshot(jobset(1, of_attempt(0))), record)

    assert (
        "the next attempt waits for pods of this one: node 1 (pod d-1-x on w2): cannot be deleted while the "
        "machine does not answer"
    ) == found.detail
    assert "kubectl delete pod --force" in found.hint


def test_an_end_whose_pods_are_gone_is_told_by_what_was_kept(tmp_path: Path) -> None:
    """The evicted pod was the hub's: only who followed it knows why, and of the checkpoint."""
    backend = KubernetesBackend(tmp_path)
    record = Submission("https://one:6443", "lab", "d", "1", 10.0)
    backend.records.keep(record, bundle(0))
    state = jobset(0)
    assert state.owner is not None
    failed = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed"}
    state.owner["status"]["conditions"] = [failed]
    found = backend._job(Snapshot(state), record)

    assert (State.LOST, Exit.STOPPED) == (found.state, found.exit_code)
    assert ["node-evicted"] == [each.code for each in found.verdicts]
    assert progress.headline(found, 0.0).endswith(
        "it was stopped; digits.pt was written 0.4 s after the signal"
    )


SENT = Submission("https://one:6443", "lab", "digits", "uid-1", 10.0)
BUNDLE = Bundle("digits", 0, 2, 1, 1.0, 2.0, exit_code=20)


def test_a_submission_is_found_again(tmp_path: Path) -> None:
    """By cluster, namespace and name, with all that was learnt later."""
    verdict = Verdict.of("node-missing", "node 1 never came", "launch", nodes=[1])
    later = dataclasses.replace(SENT, state="failed", exit_code=20, ended=12.0, verdicts=[verdict])
    records = Records(tmp_path)
    records.begin(SENT)
    records.save(later)

    assert later == Records(tmp_path).find("https://one:6443", "lab", "digits")
    assert None is records.find("https://two:6443", "lab", "digits")
    assert [] == records.all("https://two:6443")


def test_a_new_job_of_that_name_has_not_the_old_ones_evidence(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.begin(SENT)
    records.keep(SENT, BUNDLE)
    assert BUNDLE == records.bundle(SENT, 0)

    again = dataclasses.replace(SENT, uid="uid-2", at=20.0)
    records.begin(again)

    assert None is records.bundle(again, 0)
    assert [again] == records.all()


def test_nothing_that_is_kept_gives_way_to_something_poorer(tmp_path: Path) -> None:
    """Who has not watched finds less, or the hub's bare words in its log; its later words are better."""
    records = Records(tmp_path)
    records.begin(SENT)
    bare = dataclasses.replace(
        BUNDLE, verdicts=[Verdict.of("node-missing", "node 1 never came", "gate", [1])]
    )
    told = Verdict.of("dns-not-found", "node 1 cannot resolve x", "gate", [1])

    assert bare == records.keep(SENT, bare)
    better = records.keep(SENT, bare, lambda known: dataclasses.replace(known, verdicts=[told]))
    assert [told] == better.verdicts

    assert better == records.keep(SENT, bare)
    assert better == records.keep(SENT, dataclasses.replace(bare, written=1.5, attempt=0))
    assert better == records.bundle(SENT, 0)

    later = dataclasses.replace(bare, written=3.0)
    assert later == records.keep(SENT, later)
    assert later == records.bundle(SENT, 0)


def test_two_who_keep_at_once_lose_nothing(tmp_path: Path) -> None:
    """What one adds to, the other has written, whole."""
    records = Records(tmp_path)
    records.begin(SENT)

    def add(known: Bundle) -> Bundle:
        time.sleep(0.001)  # others have the time to come between
        event = Event(1.0, "notice", threading.current_thread().name)
        return dataclasses.replace(known, events=[*known.events, event])

    threads = [threading.Thread(target=records.keep, args=(SENT, BUNDLE, add)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    kept = records.bundle(SENT, 0)
    assert kept is not None
    assert {each.name for each in threads} == {each.text for each in kept.events}


def test_handles_ask_nobody(tmp_path: Path) -> None:
    """A prompt completes handles of all clusters, the newest first, without a kubeconfig."""
    records = Records(tmp_path)
    records.begin(SENT)
    records.begin(dataclasses.replace(SENT, server="https://two:6443", name="large", at=20.0, state="failed"))

    assert [
        Known(Handle("kubernetes", "lab/large"), "failed", "large", 20.0),
        Known(Handle("kubernetes", "lab/digits"), "sent from here", "digits", SENT.at),
    ] == KubernetesBackend(tmp_path).known()


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "kubernetes").write_text("in the way")
    records = Records(tmp_path)
    records.begin(SENT)

    assert [] == records.all()
