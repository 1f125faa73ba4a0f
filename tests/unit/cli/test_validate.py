"""What `validate` says of job files, good and bad."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest
from tests.unit.cli.conftest import JOB, Call


def test_validate_reports_all_files(call: Call, job_file: Path, tmp_path: Path) -> None:
    """A good file beside a bad one is said to be good, and the exit code is that of the bad one."""
    (tmp_path / "bad.yaml").write_text(JOB.replace("nodes: 2", "nodez: 2").replace("digits", "Digits"))

    answer = call("validate", "job.yaml", "bad.yaml")

    assert (2, "") == (answer.code, answer.out)
    assert answer.err.startswith("job.yaml: good for this machine\nerror: 2 problems in bad.yaml\n")


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
    assert f"job.yaml: good for this machine\n{file['notes'][0]}\n" == noted.err
    assert file["notes"][0].startswith("note: env.HF_TOKEN: ")
    for words in (["render", "job.yaml"], ["submit", "job.yaml", "--dry-run"]):
        assert f"{file['notes'][0]}\n" == call(*words).err
    assert "hf_abcdef" not in noted.err


def test_a_module_that_does_not_travel_is_noted(call: Call, job_file: Path, tmp_path: Path) -> None:
    """By every verb that reads the file: the job would start, and end in a ModuleNotFoundError."""
    (tmp_path / "train.py").write_text("import models.net\nopen('table.csv')\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("import extra, json\n")
    (tmp_path / "extra.py").write_text("")
    (tmp_path / "other.py").write_text("")
    (tmp_path / "table.csv").write_text("")
    note = (
        "note: source: train.py imports 'extra.py', 'models/net.py', which will not travel with the job; "
        "name it under `source`, unless the nodes have it installed\n"
    )

    assert f"job.yaml: good for this machine\n{note}" == call("validate", "job.yaml").err
    assert note == call("submit", "job.yaml", "--dry-run").err
    assert note.replace("'extra.py', ", "") == call("render", "job.yaml", "--set", "source[1]=extra.py").err


def test_a_script_whose_modules_travel_or_are_not_here_gets_no_note(
    call: Call, job_file: Path, tmp_path: Path
) -> None:
    """As a folder, behind a link, in the folder itself, or installed on the nodes."""
    (tmp_path / "train.py").write_text("import models.net, torch\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "net.py").write_text("")
    (tmp_path / "models").symlink_to("code")

    assert (
        "job.yaml: good for this machine\n"
        == call("validate", "job.yaml", "--set", "source=[train.py, models]").err
    )
    assert "job.yaml: good for this machine\n" == call("validate", "job.yaml", "--set", "source=[.]").err
    assert "job.yaml: good for this machine\n" == call("validate", "job.yaml", "--set", "source=[]").err


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
        "'nodes' does not change a job file\n\nhint: wanted KEY=VALUE"
        in call("validate", "job.yaml", "--set", "nodes").err
    )
    assert "--set is for a job file" in call("doctor", "--set", "nodes=2").err


HEAD = "apiVersion: ddplaunch/v1\nname: digits\n"
REFUSED = {
    "a missing file": ("command: [train.py]\nsource: [train.py, no.py]\n", "source: no.py does not exist"),
    "two files of one name": (
        "command: [train.py]\nsource: [train.py, {tmp}/a/x.py, {tmp}/b/x.py]\n",
        "two different files would both be",
    ),
    "no such script": ("command: [nosuch.py]\n", "command: there is no nosuch.py in "),
    "a script that does not travel": (
        "command: [train.py]\nsource: [other.py]\n",
        "command: train.py is not among the files that `source` names",
    ),
    "an array": ("command: [train.py]\nslurm: {extra: [--array=0-3]}\n", "slurm.extra[0]: found --array=0-3"),
    "no image": ("command: [train.py]\nkubernetes: {queue: a}\n", "image: found"),
    "too much code": (
        "command: [train.py]\nimage: x\nkubernetes: {queue: a}\nsource: [train.py, big.bin]\n",
        "only 650,000 may travel with a job",
    ),
    "a private key of the cluster": (
        "command: [train.py]\nsecrets: {A: {secret: {name: a, key: b}}}\n",
        "wanted `env` or `file` for --to local",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_validate_refuses_what_submit_does(call: Call, tmp_path: Path, what: str) -> None:
    text, error = REFUSED[what]
    for name, content in {
        "train.py": "",
        "other.py": "",
        "big.bin": random.Random(1).randbytes(800_000).decode("latin-1"),
        "a/x.py": "1",
        "b/x.py": "2",
    }.items():
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_text(content)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text(name)
    (tmp_path / "f" / "job.yaml").write_text(HEAD + text.replace("{tmp}", str(tmp_path)))
    target = next((name for name in ("slurm", "kubernetes") if name in text), "local")

    submitted = call("submit", "f/job.yaml", "--dry-run", "--to", target)
    validated = call("validate", "f/job.yaml")

    assert (2, 2) == (submitted.code, validated.code)
    assert error in submitted.err
    assert submitted.err.strip() == validated.err.strip()


def test_all_that_is_wrong_is_said_at_once(call: Call, tmp_path: Path) -> None:
    """Each missing path of `source`, and in JSON too."""
    (tmp_path / "job.yaml").write_text(HEAD + "command: [train.py]\nsource: [a.py, b.py]\n")

    answer, data = call("validate", "job.yaml"), call("validate", "job.yaml", "--json")

    assert all(f"source: {name} does not exist in " in answer.err for name in ("a.py", "b.py"))
    (file,) = json.loads(data.out)
    assert (2, 2, ["local"]) == (data.code, len(file["errors"]), file["targets"])


def test_submit_names_bad_keys_and_missing_files_at_once_as_validate_does(call: Call, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(HEAD + "command: [train.py]\nsource: [a.py]\nnodez: 2\n")

    submitted, validated = call("submit", "job.yaml"), call("validate", "job.yaml")

    for answer in (submitted, validated):
        assert 2 == answer.code
        assert "nodez: unknown key" in answer.err
        assert "source: a.py does not exist in " in answer.err


def test_a_file_is_checked_for_the_schedulers_of_its_sections(call: Call, job_file: Path) -> None:
    """Wherever it is checked; --to names another."""
    job_file.write_text(
        JOB + "slurm: {partition: gpu}\nvolumes: [{name: a, mount_path: /a, host_path: /a}]\n"
    )

    assert "job.yaml: good for slurm\n" == call("validate", "job.yaml").err
    assert "wanted no such volume for --to local" in call("validate", "job.yaml", "--to", "local").err
    assert "there is no target 'nowhere'" in call("validate", "job.yaml", "--to", "nowhere").err


def test_a_scheduler_that_cannot_be_asked_is_no_fault_of_the_file(
    call: Call, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, and the exit code is that of a cluster out of reach."""
    monkeypatch.setenv("PATH", "/nowhere")
    answer = call("validate", "job.yaml", "--to", "slurm")

    assert 106 == answer.code
    assert answer.err.startswith("job.yaml: the file is good for slurm, but:\nerror: there is no `")
    assert 0 == call("validate", "job.yaml", "--to", "local").code


def test_a_script_may_be_where_nobody_can_look(call: Call, job_file: Path) -> None:
    """In an image, in a folder of the nodes, as a module, as a program of another launcher."""
    for more in ("image: x\nkubernetes: {queue: a}", "workdir: /srv", "launch: none\npython: python3"):
        command = "[bash, x.py]" if "none" in more else "[elsewhere.py]"
        job_file.write_text(f"{HEAD}command: {command}\n{more}\n")
        assert 0 == call("validate", "job.yaml").code, more
    for command in ("[-m, pkg.train]", "[/srv/train.py]", "[../train.py]", "[./run.sh]"):
        job_file.write_text(f"{HEAD}command: {command}\n")
        assert 0 == call("validate", "job.yaml").code, command
