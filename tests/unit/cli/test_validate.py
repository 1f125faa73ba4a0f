"""What `validate` says of job files, good and bad."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import JOB, Call


def test_validate_reports_all_files(call: Call, job_file: Path, tmp_path: Path) -> None:
    """A good file beside a bad one is said to be good, and the exit code is that of the bad one."""
    (tmp_path / "bad.yaml").write_text(JOB.replace("nodes: 2", "nodez: 2").replace("digits", "Digits"))

    answer = call("validate", "job.yaml", "bad.yaml")

    assert (2, "") == (answer.code, answer.out)
    assert answer.err.startswith("job.yaml: good\nerror: 2 problems in bad.yaml\n")


def test_validate_speaks_json(call: Call, tmp_path: Path) -> None:
    """Each problem has its place, what was found and what is wanted."""
    (tmp_path / "bad.yaml").write_text(JOB.replace("nodes: 2", "nodez: 2"))

    answer = call("validate", "bad.yaml", "--json")
    (file,) = json.loads(answer.out)
    (problem,) = file["problems"]

    assert (2, "bad.yaml", "nodez", 3) == (answer.code, file["file"], problem["path"], problem["line"])
    assert {"found", "wanted", "hint"} <= set(problem)


def test_a_secret_in_plain_sight_is_noted(call: Call, job_file: Path) -> None:
    """By every verb that reads the file, without its value; the file is good all the same."""
    job_file.write_text(JOB + "env: {HF_TOKEN: hf_abcdef, MAX_TOKENS: '512'}\n")
    noted = call("validate", "job.yaml")
    (file,) = json.loads(call("validate", "job.yaml", "--json").out)

    assert (0, [], 1) == (noted.code, file["problems"], len(file["notes"]))
    assert f"job.yaml: good\n{file['notes'][0]}\n" == noted.err
    assert file["notes"][0].startswith("note: env.HF_TOKEN: ")
    for words in (["render", "job.yaml"], ["submit", "job.yaml", "--dry-run"]):
        assert f"{file['notes'][0]}\n" == call(*words).err
    assert "hf_abcdef" not in noted.err


def test_set_counts_before_the_file_is_checked(
    call: Call, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every verb that reads a job file, from standard input too; a wrong one is named."""
    assert 0 == call("validate", "job.yaml", "--set", "nodes=3", "--set", "env.LR=0.1").code
    assert '"nodes": 3' in call("render", "job.yaml", "--set", "nodes=3").out
    assert '"LR": "0.1"' in call("submit", "job.yaml", "--dry-run", "--set", "env.LR=0.1").out
    assert 'found "x"' in call("doctor", "job.yaml", "--set", "nodes=x").err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))

    answer = call("validate", "-", "--set", "nodez=3", "--json")

    (problem,) = json.loads(answer.out)[0]["problems"]
    assert ("--set nodez=3", "<stdin>", 0) == (problem["option"], problem["file"], problem["line"])
    assert (
        "'nodes' is no change of a job file\n\nhint: wanted KEY=VALUE"
        in call("validate", "job.yaml", "--set", "nodes").err
    )
    assert "--set is for a job file" in call("doctor", "--set", "nodes=2").err
