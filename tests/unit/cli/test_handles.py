"""Which job a command takes: by its handle, by its name, or the last one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call
from tests.unit.cli.ended_jobs import ended

from ddplaunch.agent.contract import Exit, codec
from ddplaunch.backends import files
from ddplaunch.backends.folder import state_folder
from ddplaunch.backends.kubernetes.submission import Records as ClusterRecords
from ddplaunch.backends.kubernetes.submission import Submission as ClusterJob
from ddplaunch.backends.local import backend, host
from ddplaunch.backends.slurm.submission import Records as SlurmRecords
from ddplaunch.backends.slurm.submission import Submission as SlurmJob

VERBS = ("status", "logs", "diagnose")


def local(name: str, number: int, at: float) -> None:
    """A local job that was submitted at that time."""
    folder = state_folder() / "jobs" / name / str(number)
    ended(folder, Exit.OK)
    codec.write(str(folder / backend.HOST), host.Host(pid=2**22 + 1, started=1, boot="gone", at=at))


def slurm(name: str, number: int, at: float) -> None:
    """A job of Slurm that was submitted at that time."""
    folder = SlurmRecords(state_folder()).folder / str(number)
    folder.mkdir(parents=True)
    SlurmRecords(state_folder()).save(SlurmJob(name, "/", str(folder / "job.sbatch"), at, job_id=number))


@pytest.fixture(name="jobs", autouse=True)
def _jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of several names, on two targets; no scheduler is there to be asked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    local("digits", 1, 10.0)
    local("digits", 2, 30.0)
    local("both", 1, 20.0)
    slurm("both", 77, 21.0)


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_handle_the_last_job_is_meant(call: Call, verb: str) -> None:
    """And which that is stands on stderr, beside the data."""
    assert call(verb, "local://digits/2") == call(verb)._replace(err=call(verb, "local://digits/2").err)
    assert call(verb).err.startswith("the last job is local://digits/2\n")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("name", "handle"), [("digits", "digits/2"), ("digits/1", "digits/1")])
def test_a_bare_name_is_a_jobs(call: Call, verb: str, name: str, handle: str) -> None:
    """The newest of that name, or the one of that number."""
    assert call(verb, f"local://{handle}") == call(verb, name)


def test_the_last_job_is_that_of_all_targets(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sent to a cluster that this machine cannot ask now."""
    slurm("late", 78, 40.0)
    monkeypatch.setenv("PATH", os.devnull)

    assert call("status").err.startswith("the last job is slurm://78\nerror: ")


def test_a_number_is_that_of_a_job_of_slurm(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)

    assert call("status", "slurm://77") == call("status", "77")


def test_a_name_means_its_newest_submission_of_all_targets(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Slurm has had several of that name, and where Kubernetes has put a number behind it."""
    monkeypatch.setenv("PATH", os.devnull)
    assert call("status", "slurm://77") == call("status", "both")
    slurm("both", 78, 22.0)
    assert call("status", "slurm://78") == call("status", "both")
    clusters = ClusterRecords(state_folder())
    clusters.begin(ClusterJob("https://one:6443", "lab", "both-2", "u", 25.0, named="both"))
    assert call("status", "kubernetes://lab/both-2") == call("status", "both")
    clusters.begin(ClusterJob("https://one:6443", "lab", "both", "u", 24.0, named="both"))
    assert call("status", "kubernetes://lab/both-2") == call("status", "both")
    assert call("status", "kubernetes://lab/both-2") == call("status", "both-2")


def test_what_changes_something_does_not_choose_between_targets(call: Call) -> None:
    """The newest of each is named, the newest first, and nothing is done."""
    ClusterRecords(state_folder()).begin(ClusterJob("https://one:6443", "lab", "both", "u", 25.0))
    answer = call("cancel", "both")

    assert (2, "") == (answer.code, answer.out)
    first, _, hint = answer.err.splitlines()
    assert first.startswith("error: both may be one of 3 jobs: kubernetes://lab/both (submitted 1970-01-01 ")
    assert first.index("slurm://77 (") < first.index("local://both/1 (")
    assert "hint: give its handle, such as kubernetes://lab/both" == hint


def test_a_name_in_a_namespace_is_a_job_of_kubernetes(call: Call) -> None:
    ClusterRecords(state_folder()).begin(ClusterJob("https://one:6443", "lab", "both", "u", 25.0))

    assert call("status", "kubernetes://lab/both") == call("status", "lab/both")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("digit", "did you mean digits?"),
        ("4711", "if it is a Slurm job, use slurm://4711"),
        ("zebra", "`ddplaunch list` shows the jobs here, and `ddplaunch list --to slurm` those on a"),
    ],
)
def test_an_unknown_name_is_not_found(call: Call, name: str, hint: str) -> None:
    answer = call("status", name)

    assert (102, "") == (answer.code, answer.out)
    assert answer.err.startswith(
        f"error: no job called '{name}' has been submitted from here\n\nhint: {hint}"
    )


def test_cancel_never_guesses(call: Call) -> None:
    """What it would have taken is in the hint, ready to be copied."""
    answer = call("cancel")

    assert (2, "") == (answer.code, answer.out)
    assert answer.err == (
        "error: name the job to cancel\n\n"
        "hint: for the last one: `ddplaunch cancel local://digits/2`; `ddplaunch list` shows all\n"
    )


@pytest.mark.parametrize("verb", [*VERBS, "cancel"])
def test_nobody_has_a_last_job_before_the_first(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "fresh"))
    answer = call(verb)

    assert (102, "") == (answer.code, answer.out)
    assert answer.err.startswith("error: no job has been submitted from here yet\n\nhint: `ddplaunch submit")


def test_list_shows_the_target_of_the_last_job(call: Call) -> None:
    """And says so; a job that went to a cluster is not hidden behind "no jobs yet"."""
    here = call("list")
    slurm("newest", 78, 99.0)

    there = call("list")

    assert "local://digits/2" in here.out
    assert here.err == "jobs on this machine, where your last job went; use `--to slurm` for the others\n"
    assert there.err.startswith("jobs on slurm, where your last job went; use `--to local` for the others\n")
    assert here.out == call("list", "--to", "local").out


@pytest.mark.parametrize("words", [["status", "digits"], ["status"]])
def test_only_the_status_of_the_job_that_is_meant_is_read(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Each of them has hundreds of nodes, and a thousand of them took two seconds."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    jobs = tmp_path / "ddplaunch" / "jobs" / "digits"
    for number in range(1, 13):
        ended(jobs / str(number), Exit.OK)
    read: list[Path] = []
    contents = files.contents

    def noted(path: Path, most: int = files.MAX_SMALL) -> bytes:
        read.append(path)
        return contents(path, most)

    monkeypatch.setattr(files, "contents", noted)
    done = call(*words)

    statuses = [path.relative_to(jobs).parts[0] for path in read if path.name == "status.json"]
    assert 0 == done.code
    assert {"12"} == set(statuses)
