"""What a target refuses is named with its place, as what the job file's own rules refuse."""

from __future__ import annotations

from pathlib import Path

from ddplaunch.plan import plan
from ddplaunch.spec.changes import read
from ddplaunch.spec.load import load

JOB = """\
apiVersion: ddplaunch/v1
name: a
command: [train.py]
volumes:
  - {name: data, claim: data, mount_path: /data}
"""


def test_a_value_has_its_line_and_one_of_the_command_line_its_option(tmp_path: Path) -> None:
    """A key that is not there has none."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    refused = plan.problems(load(file, [read("launch=srun")]), "kubernetes")

    assert {"image": (0, ""), "launch": (0, "--set launch=srun")} == {
        each.path: (each.line, each.option) for each in refused
    }
    assert [(5, "")] == [(each.line, each.option) for each in plan.problems(load(file), "slurm")]
