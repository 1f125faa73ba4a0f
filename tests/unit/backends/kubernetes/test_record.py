"""What is remembered of jobs that the cluster has forgotten."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

from ddplaunch.agent.contract import Bundle, Event, Verdict
from ddplaunch.backends.job import Handle, Known
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.backends.kubernetes.record import Records, Submission

SENT = Submission("https://one:6443", "lab", "digits", "uid-1", 10.0)
BUNDLE = Bundle("digits", 0, 2, 1, 1.0, 2.0, exit_code=20)


def test_a_submission_is_found_again(tmp_path: Path) -> None:
    """By cluster, namespace and name, with all that was learnt later."""
    verdict = Verdict("node-missing", "node 1 never came", "launch", nodes=[1])
    later = dataclasses.replace(SENT, state="failed", exit_code=20, ended=12.0, verdicts=[verdict])
    records = Records(tmp_path)
    records.begin(SENT)
    records.save(later)

    assert later == Records(tmp_path).find("https://one:6443", "lab", "digits")
    assert None is records.find("https://two:6443", "lab", "digits")
    assert [] == records.all("https://two:6443")


def test_a_new_job_of_that_name_has_not_the_old_ones_evidence(tmp_path: Path) -> None:
    """The name alone does not make it the same job."""
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
    bare = dataclasses.replace(BUNDLE, verdicts=[Verdict("node-missing", "node 1 never came", "gate", [1])])
    told = Verdict("dns-not-found", "node 1 cannot resolve x", "gate", [1])

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
    """What is remembered only helps later."""
    (tmp_path / "kubernetes").write_text("in the way")
    records = Records(tmp_path)
    records.begin(SENT)

    assert [] == records.all()
