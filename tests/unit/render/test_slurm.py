"""The sbatch file: what stands in it, and that bash leaves every value as it was."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddplaunch.agent.contract import JobPlan, codec
from ddplaunch.plan import plan
from ddplaunch.render import render
from ddplaunch.render.archive import agent_archive, source_archive
from ddplaunch.spec.load import load
from ddplaunch.spec.models import JobSpec

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"
CASES = sorted(path.name for path in GOLDEN.iterdir())
PAYLOAD = "# --- nothing below is read by bash: the job's files, in base64\n"


def rendered(folder: Path) -> str:
    """The one file of the job file in `folder`."""
    made = render(plan.make(load(folder / "job.yaml"), "slurm", folder))
    ((name, file),) = made.files.items()
    assert ("sbatch", name) == made.command
    return file.content.decode()


@pytest.mark.parametrize("case", CASES)
def test_the_rendered_file_is_the_golden_one(case: str) -> None:
    """All that people read; below it lie the archives, whose bytes have tests of their own."""
    script, _, _ = rendered(GOLDEN / case).partition(PAYLOAD)

    assert (GOLDEN / case / f"{case}.sbatch").read_text() == script


@pytest.mark.parametrize("case", CASES)
def test_it_passes_shellcheck(case: str) -> None:
    """A person may read, change and submit it."""
    subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), GOLDEN / case / f"{case}.sbatch"], check=True
    )


def test_the_archives_ride_behind_the_script() -> None:
    """Comment lines, by file; together they are the archives' bytes."""
    folder = GOLDEN / "digits"
    _, _, payload = rendered(folder).partition(PAYLOAD)
    found: dict[str, str] = {}
    for line in payload.splitlines():
        name, _, text = line.removeprefix("#").partition(": ")
        found[name] = found.get(name, "") + text
    made = plan.make(load(folder / "job.yaml"), "slurm", folder)

    assert {"agent.pyz": agent_archive(), "source.tar": source_archive(made.source)} == {
        name: base64.b64decode(text) for name, text in found.items()
    }


ANYTHING = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(max_examples=20, deadline=None)
@given(command=st.lists(ANYTHING, min_size=1), value=ANYTHING, python=st.text("a$`'\"\\ -%,ü!*", min_size=1))
def test_bash_leaves_every_value_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, command: list[str], value: str, python: str
) -> None:
    """A real bash runs the script down to the hub: the plan it writes is the launcher's own."""
    spec = JobSpec(
        apiVersion="ddplaunch/v1", name="job", command=tuple(command), env={"VALUE": value}, python=python
    )
    made = plan.make(spec, "slurm", Path())
    (file,) = render(made).files.values()
    folder = tmp_path_factory.mktemp("job")
    script = folder / "script"
    script.write_bytes(file.content.partition(b"# --- the hub")[0])
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "n1"}
    subprocess.run(["bash", script], cwd=folder, env={**os.environ, **slurm}, check=True)

    assert made.job == codec.read(JobPlan, str(folder / "job-7" / "plan.json"))


def test_mpi_may_start_its_ranks_beside_the_supervisors(tmp_path: Path) -> None:
    """The step of mpirun or srun would wait for ever for the CPUs that the supervisors' step holds."""
    (tmp_path / "train.py").write_text("")
    values = {"name": "job", "command": ("train.py",), "launch": "mpi"}
    made = plan.make(JobSpec(apiVersion="ddplaunch/v1", **values), "slurm", tmp_path)  # type: ignore[arg-type]
    (file,) = render(made).files.values()

    assert "\nrun_options=(--overlap)\n" in file.content.decode()


@pytest.mark.parametrize(("named", "other"), [("apptainer", "singularity"), ("singularity", "apptainer")])
def test_a_node_takes_the_container_runtime_that_it_has(tmp_path: Path, named: str, other: str) -> None:
    """The named one first; a shell runs the rendered lines beside stand-ins that show their arguments."""
    made = plan.make(
        JobSpec.model_validate(
            {
                "apiVersion": "ddplaunch/v1",
                "name": "job",
                "command": ("sh",),
                "slurm": {"container": {"runtime": named, "image": "my $image", "mounts": ("/a:/b",)}},
            }
        ),
        "slurm",
        tmp_path,
    )
    (file,) = render(made).files.values()
    lines = file.content.decode().partition("enter='")[2].partition("agent_python=")[0]
    script = f'enter=\'{lines}\nPATH={tmp_path} "${{inside[@]}}" python3'
    said = []
    for present in ("", other, named):
        if present:
            (tmp_path / present).write_text(f"#!/bin/bash\nprintf '%s|' {present} \"$@\"\n")
            (tmp_path / present).chmod(0o755)
        else:
            (tmp_path / "sh").symlink_to("/bin/sh")
        done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False)
        said.append((done.returncode, done.stdout + done.stderr))

    words = "exec|--bind=/tmp:/tmp|--bind=/a:/b|my $image|python3|"
    missing = f"error: container: neither {named} nor {other} is on PATH\n"
    assert [(79, missing), (0, f"{other}|{words}"), (0, f"{named}|{words}")] == said


def test_it_does_not_grow_with_the_nodes(tmp_path: Path) -> None:
    """A job of 1024 nodes is as long as one of two, within the digits of their number."""
    sizes = []
    for nodes in (2, 1024):
        (tmp_path / "job.yaml").write_text(
            f"{{apiVersion: ddplaunch/v1, name: job, nodes: {nodes}, nproc_per_node: 8, command: [train.py]}}"
        )
        sizes.append(len(rendered(tmp_path)))

    assert abs(sizes[1] - sizes[0]) < 1000


def test_started_without_slurm_it_says_how(tmp_path: Path) -> None:
    """`bash digits.sbatch` starts nothing and leaves nothing."""
    script = tmp_path / "digits.sbatch"
    script.write_text(rendered(GOLDEN / "digits"))
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}

    result = subprocess.run(
        ["bash", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )

    assert (30, f"error: this is a batch script: start it with `sbatch {script}`\n") == (
        result.returncode,
        result.stdout.partition(" ")[2].partition(" ")[2],
    )
    assert [script] == list(tmp_path.iterdir())
