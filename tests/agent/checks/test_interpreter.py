"""The trainer's Python and what it has, asked of real interpreters."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.agent.checks.make import lay_torch, make_context

from ddplaunch.agent.checks import interpreter
from ddplaunch.agent.contract import CheckResult, Env, Files, Status


def check(folder: Path, **changes: Any) -> CheckResult:
    """The interpreter's check of a plan, with our own Python unless said otherwise."""
    return interpreter.check_interpreter(make_context(folder, **{"python": sys.executable, **changes}))


def test_a_torch_that_was_built_without_distributed_cannot_run_the_job(tmp_path: Path) -> None:
    environment = lay_torch(tmp_path, "__version__ = '2.15.0'\n")
    (tmp_path / "torch" / "distributed" / "run.py").unlink()
    (tmp_path / "train.py").touch()
    result = check(tmp_path, launch=["{python}", "-m", "torch.distributed.run"], environment=environment)

    assert (result.status, result.code) == (Status.FAIL, "image-lacks")
    assert "no distributed/run.py" in result.observed


@pytest.mark.parametrize(
    ("command", "there"),
    [
        (["train.py"], True),
        (["sub/train.py"], True),
        (["lost.py"], False),
        (["-m", "package"], True),
        (["-m", "package.module"], True),
        (["-m", "package.lost"], False),
        (["-m", "json.tool"], True),
        (["-m", "lost"], False),
    ],
)
def test_the_script_is_looked_for_where_it_will_run(tmp_path: Path, command: list[str], there: bool) -> None:
    """Scripts are files below the workdir, modules what that Python finds from there; nothing is imported."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "package").mkdir()
    for name in ("train.py", "sub/train.py", "package/__init__.py", "package/module.py"):
        (tmp_path / name).write_text("raise SystemExit('imported')\n")

    assert there == (check(tmp_path, command=command).status == Status.PASS)


@pytest.mark.parametrize(
    ("command", "there"),
    [(["train.py"], True), (["-m", "pkg.train"], True), (["lost.py"], False), (["-m", "lost"], False)],
)
def test_a_script_in_the_source_archive_is_there(tmp_path: Path, command: list[str], there: bool) -> None:
    with tarfile.open(tmp_path / Files.SOURCE, "w") as archive:
        for name in ("train.py", "pkg/train.py"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())

    assert there == (check(tmp_path, command=command, workdir=None).status == Status.PASS)


def test_a_node_without_the_folder_of_the_job_file_is_named(tmp_path: Path) -> None:
    """The commonest mistake on a cluster: it lies on the login node alone."""
    lost = check(tmp_path, workdir=str(tmp_path / "here"))

    assert f"the folder {tmp_path / 'here'} is not on this node" in lost.observed
    assert "submit from a folder that all nodes share, or list the code under `source`" in lost.hint


def test_without_a_workdir_the_unpacked_source_is_the_workdir(tmp_path: Path) -> None:
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked" / "train.py").touch()
    environment = {**os.environ, Env.SOURCE: str(tmp_path / "unpacked")}

    assert check(tmp_path, workdir=None, environment=environment).status == Status.PASS


def test_a_path_in_the_jobs_env_is_where_its_python_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    (tmp_path / "train.py").touch()

    assert check(tmp_path, python="python3", env={"PATH": str(tmp_path)}).status == Status.PASS
    result = check(tmp_path, python="python3", env={"PATH": "/nowhere"})
    assert (result.observed, result.facts) == ("no python3 on PATH", {"looked_in": "/nowhere"})


def test_what_a_broken_interpreter_says_is_passed_on(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho 'error while loading shared libraries: libfoo.so' >&2\nexit 127\n")
    broken.chmod(0o755)
    result = check(tmp_path, python=str(broken))

    assert (result.status, result.code) == (Status.FAIL, "image-lacks")
    assert "libfoo.so" in result.observed


def test_an_interpreter_that_is_killed_from_outside_is_not_accused(tmp_path: Path) -> None:
    """It says nothing of the interpreter: the scheduler may be ending this node's part of the job."""
    killed = tmp_path / "python3"
    killed.write_text("#!/bin/sh\nkill -KILL $$\n")
    killed.chmod(0o755)
    (tmp_path / "train.py").touch()
    result = check(tmp_path, python=str(killed))

    assert (result.status, result.observed) == (Status.UNKNOWN, f"{killed} was killed by SIGKILL")


def test_a_python_below_3_9_is_told_by_its_own_version(tmp_path: Path) -> None:
    """A Python below 3.9 is told by its own version. It is one of ours, which says that it is 3.8."""
    old = tmp_path / "python3"
    script = f'#!/bin/sh\n"{sys.executable}" "$@" | sed \'s/"python": "[0-9.]*"/"python": "3.8.18"/\'\n'
    old.write_text(script)
    old.chmod(0o755)
    result = check(tmp_path, python=str(old))

    assert result.code == "image-lacks"
    assert "is Python 3.8.18" in result.observed
    assert result.wanted == "Python >= 3.9"


def test_a_users_own_command_needs_its_program_and_the_python_of_its_first_line(
    tmp_path: Path,
) -> None:
    """`ddplaunch run -- PROGRAM` needs the program; its Python is the one in its first line."""
    program = tmp_path / "torchrun"
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    (tmp_path / "x.py").touch()
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    found = check(tmp_path, launch=[], command=["torchrun", "x.py"], python="nosuch", environment=environment)

    assert (found.status, found.observed) == (Status.PASS, f"{sys.executable}, x.py")
    lost = check(tmp_path, launch=[], command=["nosuchrun", "x.py"])
    assert (lost.status, lost.observed) == (Status.FAIL, "no program nosuchrun on PATH")


def own(folder: Path, *command: str) -> CheckResult:
    """Of `ddplaunch run -- COMMAND` there."""
    return check(folder, launch=[], command=list(command))


def test_the_script_of_a_shell_is_looked_for(tmp_path: Path) -> None:
    lost = own(tmp_path, "bash", "run.sh")
    assert (Status.FAIL, f"no run.sh in {tmp_path}") == (lost.status, lost.observed)
    lost = check(tmp_path, launch=["{python}", "--no-python"], command=["nice", "bash", "run.sh"])
    assert (Status.FAIL, f"no run.sh in {tmp_path}") == (lost.status, lost.observed)

    (tmp_path / "run.sh").touch()
    assert Status.PASS == own(tmp_path, "bash", "run.sh").status


def test_a_script_that_travels_with_the_job_is_found_behind_its_shell(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / Files.SOURCE, "w") as archive:
        archive.addfile(tarfile.TarInfo("run.sh"), io.BytesIO())
    shell = {"launch": ["{python}", "--no-python"], "workdir": None}

    assert Status.PASS == check(tmp_path, command=["bash", "run.sh"], **shell).status
    assert Status.FAIL == check(tmp_path, command=["bash", "lost.sh"], **shell).status


@pytest.mark.parametrize(("launch", "speaks"), [(["{python}"], True), ([], False)])
def test_hints_name_a_job_file_only_if_there_is_one(tmp_path: Path, launch: list[str], speaks: bool) -> None:
    lost = check(tmp_path, launch=launch, command=["bash", "lost.sh"])
    no_python = check(tmp_path, launch=launch, command=["bash"], python="lost", env={"PATH": "/usr/bin"})

    assert [Status.FAIL, Status.FAIL] == [lost.status, no_python.status]
    assert [speaks, speaks] == ["`workdir:`" in lost.hint, "`python:`" in no_python.hint]


def test_a_program_beside_our_python_is_hinted_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an environment that is not active, torchrun lies beside the Python that runs ddplaunch."""
    (tmp_path / "torchrun").touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    beside, nowhere = (
        check(tmp_path, launch=[], command=[name], env={"PATH": "/usr/bin"}) for name in ("torchrun", "lost")
    )

    assert f"check the spelling, or give the full path, {tmp_path}/torchrun" == beside.hint
    assert "check the spelling, or give the full path" == nowhere.hint


def test_a_workdir_that_was_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = check(tmp_path, launch=[], command=["bash"], workdir=None)

    assert (Status.FAIL, "image-lacks") == (result.status, result.code)
    assert "the current folder is gone: No such file or directory" == result.observed


def test_a_script_without_a_slash_is_looked_for_on_path_too(tmp_path: Path) -> None:
    """A name without a slash that is not in the workdir is looked for on PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "common.sh").touch()
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"

    assert Status.PASS == check(tmp_path, launch=[], command=["bash", "common.sh"], env={"PATH": path}).status


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("#!/bin/sh\n", 0o755, ""),
        ("#!/usr/bin/env sh\n", 0o755, ""),
        ("#! /bin/sh -e\n", 0o755, ""),
        ("#!/bin/sh\n", 0o644, "./run.sh may not be executed"),
        (
            "#!/opt/nowhere/bash\n",
            0o755,
            "the first line of ./run.sh names '/opt/nowhere/bash', which is not there",
        ),
        ("#!/bin/sh\r\n", 0o755, "the first line of ./run.sh names '/bin/sh\\r', which is not there"),
        ("#!/usr/bin/env nosuch\n", 0o755, "the first line of ./run.sh names 'nosuch', which is not there"),
    ],
)
def test_a_program_that_cannot_be_run_is_named(tmp_path: Path, text: str, mode: int, expected: str) -> None:
    (tmp_path / "run.sh").write_bytes(text.encode())
    (tmp_path / "run.sh").chmod(mode)
    result = check(tmp_path, launch=["{python}", "--no-python"], command=["./run.sh"])

    assert (expected or Status.PASS) == (result.observed if expected else result.status)


def test_a_module_behind_another_launcher_is_not_judged_by_another_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()

    assert Status.PASS == own(tmp_path, sys.executable, "-m", "train").status
    assert f"no module lost in {tmp_path}" == own(tmp_path, sys.executable, "-m", "lost").observed
    assert Status.PASS == own(tmp_path, "env", sys.executable, "-m", "lost").status


def test_interpreter_and_versions_are_asked_of_one_child(tmp_path: Path) -> None:
    """Interpreter and versions come from the same child: starting Python costs more than all the rest."""
    counter = tmp_path / "python3"
    counter.write_text(f'#!/bin/sh\necho >> "{tmp_path}/asked"\nexec "{sys.executable}" "$@"\n')
    counter.chmod(0o755)
    (tmp_path / "train.py").touch()
    context = make_context(tmp_path, python=str(counter))
    interpreter.check_interpreter(context)
    interpreter.check_versions(context)

    assert (tmp_path / "asked").read_text() == "\n"


def runs(python: str) -> bool:
    """Whether it is more than a name: a version manager has one for each version it could give."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def test_the_facts_script_runs_on_pythons_that_are_too_old() -> None:
    script = Path(interpreter.__file__).with_name("python_facts.py")
    names = [f"python3.{minor}" for minor in range(6, 16)]
    pythons = [path for path in map(shutil.which, names) if path and runs(path)]
    for python in [*pythons, sys.executable]:
        done = subprocess.run([python, str(script)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert '"python": "3.' in done.stdout


# --- versions


def test_versions_are_read_from_files_without_importing(tmp_path: Path) -> None:
    text = "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\n"
    environment = lay_torch(tmp_path, text)
    (tmp_path / "nvidia_nccl_cu13-2.30.7.dist-info").mkdir()
    context = make_context(tmp_path, python=sys.executable, environment=environment)
    result = interpreter.check_versions(context)

    expected = {"torch": "2.15.0+cu132", "cuda": "13.2", "nccl": "2.30.7"}
    assert expected == {key: value for key, value in result.facts.items() if key != "python"}
    assert result.facts["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_version_file_of_torch_1_is_read(tmp_path: Path) -> None:
    """torch 1.x wrote no annotations."""
    environment = lay_torch(tmp_path, "__version__ = '1.13.1+cu117'\ndebug = False\ncuda = '11.7'\n")
    result = interpreter.check_versions(
        make_context(tmp_path, python=sys.executable, environment=environment)
    )

    assert ("1.13.1+cu117", "11.7") == (result.facts["torch"], result.facts["cuda"])


@pytest.mark.parametrize(
    ("torch", "is_told"), [("2.3.1", True), ("1.13.1+cu117", True), ("2.4.0a0", False), ("2.16.0", False)]
)
def test_only_a_torch_before_the_oldest_that_was_tried_is_told(
    tmp_path: Path, torch: str, is_told: bool
) -> None:
    environment = lay_torch(tmp_path, f"__version__ = '{torch}'\n")
    result = interpreter.check_versions(
        make_context(tmp_path, python=sys.executable, environment=environment)
    )

    assert (torch, is_told) == (result.facts["torch"], result.code == "torch-untested")


def test_a_python_that_is_not_there_has_no_versions(tmp_path: Path) -> None:
    result = interpreter.check_versions(make_context(tmp_path, python="/no/such/python3"))

    assert (Status.UNKNOWN, {}) == (result.status, result.facts)
