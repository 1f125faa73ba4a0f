"""What others read of a job: whole files, always the last state, not written more often than people look."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.agent.job_file.jobs import text
from tests.disks import fill, small_disk, small_quota

from ddplaunch.agent.contract import (
    Beat,
    Event,
    Exit,
    Files,
    JobEvidence,
    JobPace,
    JobPlan,
    JobStatus,
    NodeWait,
    Phase,
    RankPace,
    Verdict,
    bundle_file,
    codec,
)
from ddplaunch.agent.hub import job_record as record_module
from ddplaunch.agent.hub import plan_file
from ddplaunch.agent.hub.job_record import JobRecord

PLAN = JobPlan("trial", 2, 1, [], [])


@pytest.fixture(name="record")
def _record(tmp_path: Path) -> Iterator[JobRecord]:
    record = JobRecord(PLAN, str(tmp_path), attempt=3)
    yield record
    record.close()


def status(record: JobRecord) -> JobStatus:
    """As it is on disk."""
    return codec.read(JobStatus, record.path(Files.STATUS))


def test_a_node_that_never_comes_has_the_name_that_the_scheduler_gives_it(tmp_path: Path) -> None:
    record = JobRecord(dataclasses.replace(PLAN, names=["n1", "n7"]), str(tmp_path), attempt=0)
    assert ["n1", "n7"] == [node.host for node in status(record).nodes]
    record.update_node(1, host="n7.example")
    assert "n7.example" == record.nodes[1].host
    record.close()


def test_a_patient_flush_writes_the_last_state(record: JobRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    record.flush()
    record.enter(Phase.GATE)
    record.flush(patient=True)
    assert status(record).phase == Phase.STARTING
    monkeypatch.setattr(record_module, "FLUSH_EVERY", 0.0)
    record.flush(patient=True)
    assert status(record).phase == Phase.GATE
    record.enter(Phase.RUNNING)
    record.flush()
    assert status(record).phase == Phase.RUNNING


def test_a_running_job_has_its_pace_in_its_status(record: JobRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes no file by itself, and is forgotten where no beat repeats it."""
    ranks = [RankPace(0, 0.5, 0.4, 0.0), RankPace(1, 0.5, 0.2, 0.0)]
    record.enter(Phase.RUNNING)
    record.update_node(0, phase=Phase.RUNNING)
    record.flush()
    for paces in (ranks, []):
        record.note_beat(Beat(0, Phase.RUNNING, 1.0, paces=paces), None)

    assert record.is_written
    assert JobPace(2, 0.5, 0.3, 0.0, ranks[::-1]) == record.status().pace
    record.enter(Phase.FINALIZING)
    assert record.status().pace is None
    record.enter(Phase.RUNNING)
    monkeypatch.setattr(record_module, "_PACE_HOLDS", -1.0)
    assert record.status().pace is None


def test_since_follows_the_phase(record: JobRecord) -> None:
    record.update_node(1, phase=Phase.GATE, host="n1")
    since = record.nodes[1].since
    record.update_node(1, detail="waits")
    assert (record.nodes[1].since, record.nodes[1].host) == (since, "n1")
    record.update_node(1, phase=Phase.RUNNING)
    assert record.nodes[1].since >= since


def test_ranks_that_go_on_waiting_change_nothing(record: JobRecord) -> None:
    """The start of a wait is known to a second or so; other ranks, or a new wait, are a change."""
    moments = [(101.5, [0], []), (101.5, [0], [1]), (140.0, [0], [1])]
    record.note_beat(Beat(0, Phase.RUNNING, 1.0), NodeWait(100.0, [0]))
    record.flush()
    written = []
    for since, ranks, others in moments:
        record.note_beat(Beat(0, Phase.RUNNING, 1.0), NodeWait(since, ranks, others))
        written.append((record.is_written, record.nodes[0].waits))
        record.flush()

    assert [
        (True, NodeWait(100.0, [0])),
        (False, NodeWait(100.0, [0], [1])),
        (False, NodeWait(140.0, [0], [1])),
    ] == written
    assert record.nodes[0].waits == status(record).nodes[0].waits


def test_the_status_says_on_which_evidence_a_job_was_ended(record: JobRecord) -> None:
    """Ranks whose calls differ hang, or crash: both end the job with one exit code."""
    evidence = JobEvidence("trial", 2, 2, "death", 1.0)
    record.set_verdicts([], evidence)
    assert "" == status(record).why
    record.decide(Exit.HANG)
    record.set_verdicts([], evidence)
    assert "death" == status(record).why


def test_a_job_does_not_go_back_to_a_gate_that_it_has_passed(record: JobRecord) -> None:
    """A node is released, and another has started its ranks before that one says a word."""
    record.update_node(0, phase=Phase.RENDEZVOUS)
    record.update_node(1, phase=Phase.GATE)
    record.follow_nodes()
    at_gate = record.phase
    record.gate_passed = True
    record.follow_nodes()

    assert [Phase.GATE, Phase.RENDEZVOUS] == [at_gate, record.phase]


def test_the_first_end_counts(record: JobRecord) -> None:
    record.end(Exit.HANG)
    record.end(Exit.OK)

    assert (status(record).phase, status(record).exit_code) == (Phase.ENDED, Exit.HANG)


def test_the_bundle_is_on_disk_as_soon_as_there_is_a_verdict(record: JobRecord) -> None:
    record.add_event("check-in", "node 0 checked in", 0)
    record.set_verdicts([Verdict.of("node-missing", "node 1 never came", "gate", nodes=[1])])
    bundle = bundle_file.read(record.path(Files.BUNDLE))

    assert ["node-missing"] == [verdict.code for verdict in bundle.verdicts]
    assert ["node 0 checked in"] == [event.text for event in bundle.events]


def test_each_event_is_in_the_file_and_the_log(record: JobRecord, capsys: pytest.CaptureFixture[str]) -> None:
    """events.jsonl has every event whole; the log has its sentence with the time. Neither obeys a rank."""
    record.add_event("death", "rank 3\nhas\x9b2J ended", node=1, rank=3)
    (line,) = Path(record.path(Files.EVENTS)).read_text().splitlines()
    event = codec.load(Event, json.loads(line))

    assert (event.kind, event.text, event.node, event.rank) == ("death", "rank 3\\nhas\\x9b2J ended", 1, 3)
    assert f" {event.text}\n" in capsys.readouterr().out


def test_the_bundle_keeps_the_newest_events(record: JobRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(record_module.KEPT_EVENTS + 10):
        record.add_event("phase", str(number))

    events = record.bundle().events
    assert len(events) == record_module.KEPT_EVENTS
    assert events[-1].text == str(record_module.KEPT_EVENTS + 9)


def test_a_closed_stdout_does_not_end_the_job(record: JobRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = open("/dev/null", "w")  # noqa: SIM115 - closed on the next line
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    record.add_event("phase", "said to nobody")
    record.add_event("phase", "and again")
    sys.stdout.close()

    assert len(record.bundle().events) == 2


def test_a_folder_that_vanishes_does_not_end_the_job_and_is_complained_about_once(
    record: JobRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(tmp_path)
    for phase in (Phase.GATE, Phase.RUNNING):
        record.add_event("phase", f"now {phase}")
        record.enter(phase)
        record.flush()
    record.set_verdicts([Verdict.of("node-missing", "node 1 never came", "gate", nodes=[1])])
    said = capsys.readouterr().out
    assert 1 == said.count(f"cannot write {record.path(Files.STATUS)}: No such file or directory")
    (tmp_path / Files.RUN).mkdir(parents=True)
    record.flush()

    assert (Phase.RUNNING, 1) == (status(record).phase, len(status(record).verdicts))


@pytest.mark.parametrize(
    ("kind", "why"), [(small_disk, "No space left on device"), (small_quota, "Disk quota exceeded")]
)
def test_a_full_disk_does_not_end_the_job(
    kind: Callable[[Path, int], AbstractContextManager[Path]],
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Events go to the log alone until there is room again: then the file has every one of them."""
    with kind(tmp_path / "disk", 1 << 20) as disk:
        record = JobRecord(PLAN, str(disk), attempt=0)
        filler = fill(disk)
        for text in ("one", "two"):
            record.add_event("phase", text)
        said = capsys.readouterr().out.splitlines()
        filler.unlink()
        record.add_event("phase", "three")
        record.close()
        events = [
            json.loads(line)["text"] for line in Path(record.path(Files.EVENTS)).read_text().splitlines()
        ]

    assert [f"the hub cannot write {record.path(Files.EVENTS)}: {why}"] == said[:1]
    assert ["one", "two"] == [line.partition(" ")[2] for line in said[1:]]
    assert ["one", "two", "three"] == events


def test_the_result_is_written_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        record = JobRecord(PLAN, str(disk), attempt=0)
        fill(disk)
        monkeypatch.setattr(record, "_blame", lambda: fill(disk))  # between the room and the writing

        record.set_verdicts([Verdict.of("node-missing", "node 1 never came", "gate", nodes=[1])])
        record.end(Exit.NODE_AT_FAULT)
        record.close()

        assert (Phase.ENDED, Exit.NODE_AT_FAULT) == (status(record).phase, status(record).exit_code)
        bundle = bundle_file.read(record.path(Files.BUNDLE))
        assert (Exit.NODE_AT_FAULT, 1) == (bundle.exit_code, len(bundle.verdicts))
        assert {"status.json", "bundle.zip", "events.jsonl"} == set(os.listdir(disk / Files.RUN))


def test_a_result_beyond_a_quota_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_quota(tmp_path / "disk", 1 << 20) as disk:
        record = JobRecord(PLAN, str(disk), attempt=0)
        fill(disk)

        record.set_verdicts([Verdict.of("node-missing", "node 1 never came", "gate", nodes=[1])])
        record.end(Exit.NODE_AT_FAULT)
        record.close()

    said = capsys.readouterr().out
    assert 1 == said.count(f"the hub cannot write {record.path(Files.STATUS)}: Disk quota exceeded")


def test_the_plan_follows_from_the_job_file_with_what_is_wrong_in_it(tmp_path: Path) -> None:
    (tmp_path / Files.JOB).write_text(text(name="run", retries=1))
    plan, refused = plan_file.read(plan_file.find(str(tmp_path)))

    assert ("run", ["job-file-wrong"]) == (plan.job, [each.code for each in refused])


def test_a_folder_without_plan_and_job_file_is_an_error(tmp_path: Path) -> None:
    path = plan_file.find(str(tmp_path))

    assert str(tmp_path / Files.PLAN) == path
    with pytest.raises(FileNotFoundError):
        plan_file.read(path)
