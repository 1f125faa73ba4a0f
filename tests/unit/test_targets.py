"""The targets that there are: ours, and one that another package brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ddplaunch import targets
from ddplaunch.errors import UsageError

TOYQUEUE = Path(__file__).parents[1] / "toyqueue"
JOB = """\
apiVersion: ddplaunch/v1
name: toy
nproc_per_node: 1
launch: mpi
gate: {enabled: false}
command: [train.py]
"""


def test_ours_come_through_the_door_that_is_open_to_all() -> None:
    """What the entry points of our own package name is what `find` returns without asking them."""
    points = {point.name: point.load() for point in entry_points(group=targets.GROUP)}

    assert {name: targets.find(name) for name in ("local", "slurm", "kubernetes")} == points


@pytest.mark.parametrize("name", ["local", "slurm", "kubernetes"])
def test_every_part_of_a_target_is_there(name: str) -> None:
    """A record names its parts by text, which only breaks when it is used."""
    target = targets.find(name)
    parts = (target.section, target.problems, target.plan, target.render, target.connect, target.check_up)

    assert {True} == {callable(target.load(part)) for part in parts if part}


@pytest.mark.parametrize("name", ["", "Slurm", "my-queue", "a/b"])
def test_a_name_that_no_handle_can_begin_with_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a target"):
        targets.Target(name, "", "", "", "", "")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("", "AttributeError"),
        ("TARGET = 7", "it is not a ddplaunch.targets.Target with that name"),
    ],
)
def test_a_package_that_is_broken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    """And what to do about it; our own targets work all the same."""
    module = f"broken{len(code)}"
    (tmp_path / f"{module}.py").write_text(code)
    info = tmp_path / f"{module}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{targets.GROUP}]\nbroken = {module}:TARGET\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(UsageError) as refused:
        targets.find("sge")

    assert f"the target 'broken' cannot be used: {module}:TARGET: {why}" in str(refused.value)
    assert "reinstall or uninstall the Python package that provides it" == refused.value.hint
    assert targets.LOCAL is targets.find("local")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which that package is installed, as pip does it."""
    folder = tmp_path_factory.mktemp("toyqueue")
    shutil.copytree(TOYQUEUE, folder / "source")
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
    ]
    command += ["--no-build-isolation", "--python", sys.executable]
    command += ["--target", str(folder / "site"), str(folder / "source")]
    subprocess.run(command, check=True, timeout=120)
    return folder / "site"


@pytest.mark.processes
def test_a_package_from_outside_is_a_target_like_ours(installed: Path, tmp_path: Path) -> None:
    """Its section in the job file, its plan, its files, its jobs: everything but our own code is its."""
    (tmp_path / "queue").mkdir()
    (tmp_path / "train.py").write_text("print('trained')\n")

    def ddplaunch(*args: str, job: str = JOB) -> subprocess.CompletedProcess[str]:
        (tmp_path / "job.yaml").write_text(job)
        return subprocess.run(
            [Path(sys.executable).with_name("ddplaunch"), *args],
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # python3 is one with torch
                "PYTHONPATH": str(installed),
                "TOYQUEUE": str(tmp_path / "queue"),
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    refused = ddplaunch("submit", "job.yaml", "--to", "toyqueue", job=f"{JOB}toyqueue: {{lane: hot}}\n")
    misspelt = ddplaunch("validate", "job.yaml", job=f"{JOB}toyqueue: {{lana: fast}}\n")
    assert (2, 2) == (refused.returncode, misspelt.returncode), (refused, misspelt)
    assert re.search(r"toyqueue\.lane.*hot.*slow or fast", refused.stderr, re.DOTALL)
    assert "did you mean lane?" in misspelt.stderr
    assert '"lane"' in ddplaunch("schema").stdout
    assert [] == list((tmp_path / "queue").iterdir())

    plain = f"{JOB.replace('launch: mpi', 'source: train.py')}toyqueue: {{lane: fast}}\n"
    done = ddplaunch("submit", "job.yaml", "--to", "toyqueue", "--wait", job=plain)
    assert (0, "toyqueue://1\n") == (done.returncode, done.stdout), done.stderr
    assert "fast\n" == (tmp_path / "queue" / "1" / "lane").read_text()
    assert "trained" in ddplaunch("logs", "toyqueue://1").stdout
    assert "toyqueue://1" in ddplaunch("list", "--to", "toyqueue").stdout
    assert "succeeded" in ddplaunch("status", "toyqueue://1").stdout
