"""What each verb that needs no running job answers."""

from __future__ import annotations

import base64
import io
import json
import os
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import JOB, Answer, Call
from tests.unit.cli.ended_jobs import ended
from tests.unit.report.cases import case

from ddplaunch.agent.contract import Exit, Verdict, bundle_file, codec
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.backends.local.backend import LocalBackend
from ddplaunch.cli.jobs import table
from ddplaunch.spec.schema import json_schema


def feed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a job file on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_a_dash_is_standard_input(call: Call, job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is piped in renders as the file does, its source relative to here."""
    from_file = call("render", "job.yaml")
    feed(monkeypatch, JOB)

    assert from_file == call("render", "-")


def test_render_shows_texts_and_sums(call: Call, job_file: Path) -> None:
    """Text files are shown, other files by size and sum, and how the job is started."""
    answer = call("render", "job.yaml")

    assert (0, "") == (answer.code, answer.err)
    assert [name in answer.out for name in ("==> run.sh (", "==> plan.json (", "==> agent.pyz (", "sha256 ")]
    assert '"job": "digits"' in answer.out
    assert answer.out.endswith("==> start <==\nsh run.sh\n")


def test_render_to_a_folder_never_overwrites(call: Call, job_file: Path, tmp_path: Path) -> None:
    """What lies there stays, all of it, unless --force is given."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text("mine")

    refused = call("render", "job.yaml", "-o", "out")
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    forced = call("render", "job.yaml", "-o", "out", "--force")

    assert (2, ["plan.json"], 0) == (refused.code, left, forced.code)
    assert "error: out already contains plan.json\n\nhint: " in refused.err
    assert '"digits"' in (tmp_path / "out" / "plan.json").read_text()
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)


def test_the_source_is_packed_as_the_job_carries_it(call: Call, job_file: Path, tmp_path: Path) -> None:
    """As text, which is all that Helm's values hold; nothing else is written."""
    before = {path.name for path in tmp_path.iterdir()}
    answer = call("render", "job.yaml", "--source-archive", "source.b64")

    written = base64.b64decode((tmp_path / "source.b64").read_bytes())
    assert (0, "") == (answer.code, answer.out)
    assert (
        "wrote source.b64 with train.py; give it to Helm with `--set-file sourceArchive=source.b64`\n"
        == answer.err
    )
    assert {*before, "source.b64"} == {path.name for path in tmp_path.iterdir()}

    call("render", "job.yaml", "-o", "out")
    assert (tmp_path / "out" / "source.tar").read_bytes() == written


def test_a_job_without_a_source_has_nothing_to_pack(call: Call, job_file: Path, tmp_path: Path) -> None:
    """An empty archive would only hide that `source` was forgotten."""
    job_file.write_text(JOB.replace("source: [train.py]\n", ""))
    answer = call("render", "job.yaml", "--source-archive", "source.b64")

    assert (2, False) == (answer.code, (tmp_path / "source.b64").exists())
    assert answer.err.startswith("error: digits has no `source`, so there is nothing to pack\n\nhint: ")


@pytest.mark.parametrize("target", ["moon", "lokal"])
@pytest.mark.parametrize("verb", ["render", "submit"])
def test_a_target_that_is_not_there_is_refused(call: Call, job_file: Path, verb: str, target: str) -> None:
    """The message names the target, and nothing is sent."""
    answer = call(verb, "job.yaml", "--to", target)

    assert (2, "") == (answer.code, answer.out)
    assert target in answer.err.splitlines()[0]


def test_a_dry_run_shows_what_render_shows(call: Call, job_file: Path) -> None:
    assert call("render", "job.yaml").out == call("submit", "job.yaml", "--dry-run").out
    assert "no jobs yet" in call("list").err


def test_explain_alone_lists_all_codes(call: Call) -> None:
    answer = call("explain")

    assert sorted(CATALOGUE) == [line.split()[0] for line in answer.out.splitlines()]


def test_explain_knows_what_was_meant(call: Call) -> None:
    """An unknown code is 102, with the nearest one."""
    answer = call("explain", "rank-in-dataloder")

    assert (102, "") == (answer.code, answer.out)
    assert "hint: did you mean `ddplaunch explain rank-in-dataloader`?" == answer.err.splitlines()[-1]


def test_schema_is_the_models(call: Call) -> None:
    """It is JSON, and says what spec says."""
    assert json_schema() == json.loads(call("schema").out)
    assert "urn:ddplaunch:diagnosis:v1" == json.loads(call("schema", "diagnose").out)["$id"]


# --------------------------------------------------------------------------- jobs that have ended

VERDICT = Verdict.of("rank-failed", "rank 1 raised ValueError", "run", ranks=[1], victims=[0], hint="mend it")


@pytest.fixture(name="folders")
def _folders(tmp_path: Path) -> Path:
    """A state folder with jobs of every end."""
    folders = tmp_path / "state" / "ddplaunch" / "jobs" / "digits"
    ended(folders / "1", Exit.OK)
    ended(folders / "2", Exit.WORKER_FAILED, [VERDICT])
    ended(folders / "3", Exit.HANG)
    ended(folders / "4", None)
    return folders


@pytest.mark.parametrize(("number", "code"), [(1, 0), (2, 100), (3, 105), (4, 100), (5, 102)])
def test_status_ends_as_the_job_did(call: Call, folders: Path, number: int, code: int) -> None:
    """A script need not read the text."""
    assert code == call("status", f"local://digits/{number}").code


def test_status_says_what_is_wrong_and_where_to_read_on(call: Call, folders: Path) -> None:
    """One line per verdict, then the next command."""
    lines = call("status", "local://digits/2").out.splitlines()

    assert [
        "  rank-failed: rank 1 raised ValueError",
        "  `ddplaunch diagnose local://digits/2` says why",
    ] == lines[2:]


def test_list_shows_finished_jobs(call: Call, folders: Path) -> None:
    """Handle, state, and the verdict's code."""
    lines = call("list").out.splitlines()

    assert ["HANDLE", "STATE", "SUBMITTED", "TOOK", "WHAT"] == lines[0].split()
    states = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert {"local://digits/1": "succeeded", "local://digits/2": "failed"}.items() <= states.items()
    assert [True] == [line.endswith("rank-failed") for line in lines if "digits/2" in line]


def test_list_has_names_that_the_handles_do_not_tell() -> None:
    """A number says nothing to whoever has ten of them."""
    jobs = [
        Job(Handle("slurm", "7"), State.RUNNING, 0.0, "digits"),
        Job(Handle("slurm", "8"), State.LOST, 0.0, ""),
    ]

    heads, first, second = (line.split() for line in table(jobs, 1.0).splitlines())

    assert ["HANDLE", "NAME", "STATE"] == heads[:3]
    assert (["slurm://7", "digits", "running"], ["slurm://8", "lost"]) == (first[:3], second[:2])


def test_list_shows_the_newest_twenty(call: Call, folders: Path) -> None:
    """How many are left out is said, and --all shows them."""
    for number in range(5, 30):
        ended(folders / str(number), Exit.OK)

    short, whole = call("list"), call("list", "--all")

    assert (21, "9 older jobs: `ddplaunch list --all`\n") == (len(short.out.splitlines()), short.err)
    assert (30, "") == (len(whole.out.splitlines()), whole.err)
    assert 29 == len(json.loads(call("list", "--all", "--json").out))


def test_logs_filter_and_end(call: Call, folders: Path) -> None:
    """Ranks, nodes and tails; following an ended job ends at once."""
    handle = "local://digits/1"

    assert [
        "[0/0] a\n[0/1] b\n[1/2] c\n",
        "[0/1] b\n[1/2] c\n",
        "[1/2] c\n",
        "[1/2] c\n",
        "[0/0] a\n[0/1] b\n[1/2] c\n",
    ] == [
        call("logs", handle).out,
        call("logs", handle, "--rank", "1-2").out,
        call("logs", handle, "--node", "1").out,
        call("logs", handle, "--tail", "1").out,
        call("logs", "-f", handle).out,
    ]


def test_a_job_that_printed_nothing_says_so(call: Call, folders: Path) -> None:
    """An empty answer is not left to be guessed at."""
    (folders / "4" / "run" / "output.log").write_text("")

    answer = call("logs", "local://digits/4")

    assert (0, "") == (answer.code, answer.out)
    assert answer.err.startswith("local://digits/4 has printed nothing: lost")


@pytest.mark.parametrize("words", [["--rank", "7"], ["--node", "2-3"]])
def test_ranks_that_printed_nothing_are_told_from_a_silent_job(
    call: Call, folders: Path, words: list[str]
) -> None:
    """Often they are no ranks of that job."""
    answer = call("logs", "local://digits/1", *words)

    assert (0, "") == (answer.code, answer.out)
    assert answer.err.startswith("local://digits/1 has printed nothing on those ranks and nodes: succeeded")


def test_cancel_of_an_ended_job_is_no_error(call: Call, folders: Path) -> None:
    answer = call("cancel", "local://digits/1", "--json")

    assert (0, "succeeded") == (answer.code, json.loads(answer.out)["state"])


def test_cancel_that_is_not_waited_for(call: Call, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job stops or does not; whoever pressed Ctrl-C is told where it will stand."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    alive = Job(Handle("local", "digits/1"), State.RUNNING, 0.0, "digits")
    monkeypatch.setattr(LocalBackend, "job", lambda *_: alive)
    monkeypatch.setattr(LocalBackend, "cancel", interrupted)
    answer = call("cancel", "local://digits/1")

    assert 130 == answer.code
    assert "`ddplaunch status local://digits/1` shows whether the job has ended" in answer.err


def test_diagnose_reads_what_an_ended_job_left(call: Call, folders: Path, tmp_path: Path) -> None:
    """Text, JSON and a page of one file, all of the same verdict."""
    text = call("diagnose", "local://digits/2")
    data = call("diagnose", "local://digits/2", "--json", "--html", "report.html")

    assert (0, "rank 1 raised ValueError") == (text.code, text.out.splitlines()[0])
    assert [codec.dump(VERDICT)] == json.loads(data.out)["verdicts"]
    assert "wrote report.html\n" == data.err
    assert "rank 1 raised ValueError" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("page", ["none/report.html", ".", "", "state"])
def test_a_page_that_cannot_be_written_is_an_error(call: Call, folders: Path, page: str) -> None:
    """The path is named, and nothing is left of the attempt."""
    answer: Answer = call("diagnose", "local://digits/2", "--html", page)

    assert (2, "") == (answer.code, answer.out)
    assert answer.err.startswith(f"error: {page or '.'} cannot be written: ")
    assert [] == list(Path().glob(".*"))


def test_doctor_finds_out_whether_its_page_can_be_written_before_anything_else(call: Call) -> None:
    """A check-up of a cluster takes minutes, and its result would be lost."""
    answer = call("doctor", "none.yaml", "--html", "none/report.html")

    assert (2, "") == (answer.code, answer.out)
    assert answer.err.startswith("error: none/report.html cannot be written: ")
    assert "an existing folder" in answer.err


@pytest.mark.parametrize("verb", ["doctor", "render", "submit"])
def test_what_a_target_cannot_do_is_told_with_the_files_name(call: Call, job_file: Path, verb: str) -> None:
    """Somebody has many job files, and a check-up has a new name each time."""
    answer = call(verb, "job.yaml", "--to", "kubernetes")

    assert 2 == answer.code
    assert answer.err.startswith("error: 1 problem in job.yaml\n\njob.yaml: image: found no image, wanted ")


@pytest.mark.parametrize("words", [["run"], ["run", "--"]])
def test_run_needs_a_command(call: Call, words: list[str]) -> None:
    answer = call(*words)

    assert (2, "") == (answer.code, answer.out)
    assert "ddplaunch run -- torchrun" in answer.err


@pytest.mark.parametrize(
    ("target", "handle", "why"),
    [
        ("local", "local://digits/1", "a job on this machine starts at once"),
        ("kubernetes", "kubernetes://lab/digits", "a Kubernetes Job cannot wait for another"),
        ("slurm", "local://digits/1", "local://digits/1 is not a job on slurm"),
    ],
)
def test_after_is_refused_where_jobs_do_not_wait(
    call: Call, job_file: Path, target: str, handle: str, why: str
) -> None:
    """With the reason, and with the command that waits here."""
    answer = call("submit", "job.yaml", "--to", target, "--after", handle)

    assert (2, "") == (answer.code, answer.out)
    assert answer.err.startswith(f"error: --after: {why}")
    assert f"hint: `ddplaunch status --watch {handle} && ddplaunch submit" in answer.err


def test_a_sweep_is_written_into_a_folder_for_each_job(call: Call, job_file: Path, tmp_path: Path) -> None:
    """And is not printed, since it is no one job; a note about the file comes once."""
    job_file.write_text(JOB + "sweep: {env.LR: [0.1, 1e-3]}\nenv: {HF_TOKEN: hf_abcdef}\n")
    for words in (["render", "job.yaml"], ["submit", "job.yaml", "--dry-run"]):
        answer = call(*words)
        assert (2, "") == (answer.code, answer.out)
        assert (
            "error: job.yaml is a sweep of 2 jobs, but only one job can be printed at a time\n" in answer.err
        )

    answer = call("render", "job.yaml", "-o", "out")
    plans = [json.loads((tmp_path / f"out/digits-{index}/plan.json").read_text()) for index in range(2)]

    assert (0, 1) == (answer.code, answer.err.count("note: "))
    assert [("digits-0", "0.1"), ("digits-1", "1e-3")] == [(plan["job"], plan["env"]["LR"]) for plan in plans]
    assert "job.yaml: a sweep of 2 jobs, good for this machine\n" in call("validate", "job.yaml").err
    assert call("render", "job.yaml", "--set", "sweep=null").out.startswith("==> run.sh (")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["job.yaml"], "to submit a job file: ddplaunch submit job.yaml"),
        (
            ["train.py", "--lr", "0.1"],
            "put a launcher first: ddplaunch run -- torchrun --nproc-per-node=2 train.py --lr 0.1",
        ),
    ],
)
def test_a_file_is_no_command(call: Call, job_file: Path, words: list[str], hint: str) -> None:
    """Who starts a job file or a script by `run` reads which command does."""
    (job_file.parent / "train.py").touch()
    answer = call("run", *words)

    assert 2 == answer.code
    assert answer.err.startswith(f"error: {words[0]} is not a command")
    assert f"hint: {hint}" in answer.err


@pytest.fixture(name="bundle")
def _bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a bundle in the current folder."""
    found = case("mismatch").bundle
    assert found is not None
    monkeypatch.chdir(tmp_path)
    Path("bundle.zip").write_bytes(bundle_file.packed(found))
    return "bundle.zip"


def test_each_picture_becomes_a_file(call: Call, bundle: str) -> None:
    """The folder is made, and each file is whole by itself, with its colours."""
    answer = call("diagnose", bundle, "--svg", "pictures")
    drawn = Path("pictures/ranks-over-time.svg").read_text()

    assert "wrote pictures/ranks-over-time.svg\n" in answer.err
    assert answer.out.startswith("at collective 2 rank 3 called broadcast")
    assert drawn.startswith("<svg ")
    assert 'xmlns="http://www.w3.org/2000/svg"' in drawn
    assert ".at-fault" in drawn


def test_a_folder_that_cannot_be_made_is_an_error(call: Call, bundle: str) -> None:
    answer = call("diagnose", bundle, "--svg", "none/pictures")

    assert (2, "") == (answer.code, answer.out)
    assert answer.err.startswith("error: none/pictures cannot be written: ")


def test_markdown_is_printed_in_place_of_text(call: Call, bundle: str) -> None:
    assert call("diagnose", bundle, "--markdown").out.startswith("**ddplaunch:** `at collective 2 rank 3")
    assert 2 == call("diagnose", bundle, "--markdown", "--json").code
