"""`submit` without a job file: the same as the job file that --save writes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Call

from ddplaunch import api
from ddplaunch.errors import ExitCode, UsageError


@pytest.fixture(name="folder", autouse=True)
def _folder(tmp_path: Path) -> Path:
    """A script with a package and a module in `src`."""
    for name, text in {
        "train.py": "import models, lib.a",
        "models/__init__.py": "",
        "src/lib/__init__.py": "",
        "src/lib/a.py": "",
        "old.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "--to local -- train.py",
        "--to local --nodes 2 --nproc-per-node 3 --name mine -- train.py --epochs 3 --lr 1e-3 'a b' on null",
        "--to local --nodes 2:4 --set rendezvous.backend=c10d -- train.py",
        "--to slurm --nodes 2 --gpus 8 --time 90m -- train.py --wait --to x -- y",
        "--to slurm --set slurm.partition=gpu --set env.LR=0.1 --set env.X=on -- train.py",
        "--to kubernetes --image x:1 --time 2h --gpus 2 -- train.py",
        "--to kubernetes --image x:1 --set 'source=[train.py]' -- train.py",
        "--to kubernetes --image x:1 -- /opt/train.py",
        "--to kubernetes --image x:1 -- -m pkg.train",
        "--to local -- -m models",
    ],
)
def test_it_is_what_its_job_file_would_be(call: Call, folder: Path, words: str) -> None:
    """Byte for byte, as it is sent."""
    before, _, script = words.partition("-- ")
    line = ["submit", *shlex.split(before), "--dry-run"]
    without = call(*line, "--save", "saved.yaml", "--", *shlex.split(script))
    target = shlex.split(before)[1]
    with_file = call("submit", "saved.yaml", "--to", target, "--dry-run")

    assert (0, 0) == (without.code, with_file.code), without.err
    assert without.out == with_file.out
    assert "wrote saved.yaml\n" in without.err
    assert 0 == call("validate", "saved.yaml").code
    again = call(*line, "--save", "saved.yaml", "--", *shlex.split(script))
    assert (2, True) == (again.code, again.err.endswith("hint: name another file; nothing was written\n"))


def test_the_options_mean_keys(call: Call) -> None:
    """One rank for each GPU, the name of the script."""
    options = "--nodes 2 --gpus 8 --time 90m --save a.yaml --dry-run"
    call("submit", "--to", "slurm", *shlex.split(options), "--", "train.py", "--n", "3")
    job = api.load("a.yaml")

    assert ("train", 2, 8, 8) == (job.name, job.nodes, job.nproc_per_node, job.resources.gpus)
    assert (("train.py", "--n", "3"), (), 5400.0) == (job.command, job.source, job.slurm.time)
    call("submit", "--to", "local", *shlex.split("--time 1h --save b.yaml --dry-run"), "--", "train.py")
    assert 3600.0 == api.load("b.yaml").local.time


def test_to_pods_travels_what_the_script_needs(call: Call) -> None:
    """They do not see this folder."""
    options = "--to kubernetes --image x:1 --save a.yaml --dry-run"
    answer = call("submit", *shlex.split(options), "--", "train.py")
    job = api.load("a.yaml")

    assert (("train.py", "models", "src/lib"), {"PYTHONPATH": "src"}) == (job.source, job.env)
    assert "source: train.py, models, src/lib\n" in answer.err


def test_a_sweep_is_written_as_one(call: Call) -> None:
    """And not as one of its jobs."""
    sweep = ["--set", "sweep={env.LR: [0.1, 1]}"]
    call("submit", "--to", "local", *sweep, "--save", "a.yaml", "--dry-run", "--", "train.py")

    assert ["0.1", "1"] == [each.env["LR"] for each in api.load_all("a.yaml")]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("submit", "no job: neither a job file nor a command"),
        ("submit --", "nothing to run after --"),
        ("submit job.yaml -- train.py", "both a job file, job.yaml, and a command after --"),
        ("submit job.yaml --nodes 2", "--nodes is for jobs without a job file, and job.yaml is one"),
        ("submit job.yaml --save x.yaml", "--save: job.yaml is a job file already"),
        ("submit --to local --save x.yaml -- nosuch.py", "command: there is no nosuch.py in "),
        (
            "submit --to local --save /x/job.yaml -- train.py",
            "--save: /x/job.yaml is in another folder",
        ),
        (
            "submit --to local -- torchrun train.py",
            'found "torchrun", wanted the script and its arguments only',
        ),
        ("submit --to local --nodes x -- train.py", '<command line>: nodes: found "x"'),
        ("submit --to kubernetes -- train.py", "image: found"),
    ],
)
def test_what_cannot_be_meant_is_refused(call: Call, folder: Path, words: str, error: str) -> None:
    """With what to write instead, and no file is written."""
    answer = call(*words.split())

    assert (2, "") == (answer.code, answer.out)
    assert error in answer.err
    assert "hint: " in answer.err or ", wanted " in answer.err
    assert not (folder / "x.yaml").exists()


@pytest.mark.parametrize(
    ("programs", "options", "noted"),
    [(["sbatch"], [], True), ([], [], False), (["sbatch"], ["--to", "local"], False)],
    ids=["a login node", "no Slurm", "asked for"],
)
def test_on_a_login_node_a_job_that_runs_there_says_so(
    call: Call,
    job_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    programs: list[str],
    options: list[str],
    noted: bool,
) -> None:
    def refuse(_: object) -> None:
        raise UsageError("not in a test")

    monkeypatch.setattr(api, "submit", refuse)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for name in programs:
        (tmp_path / "bin" / name).touch(mode=0o755)

    answer = call("submit", str(job_file), *options)
    note = "note: the job runs on this machine; `--to slurm` sends it to Slurm\n"
    assert (ExitCode.USAGE, noted) == (answer.code, note in answer.err)
