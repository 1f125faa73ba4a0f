"""Job specs to plans."""

from pathlib import Path

import pytest

from ddplaunch.plan import plan
from ddplaunch.spec.changes import read
from ddplaunch.spec.load import load
from ddplaunch.spec.models import (
    Gate,
    JobSpec,
    Notify,
    Resources,
    SecretKey,
    SecretRef,
    Volume,
)
from ddplaunch.spec.problems import SpecError

HERE = Path(__file__).parent


def spec(**changes: object) -> JobSpec:
    """A small job, changed as asked."""
    values: dict[str, object] = {"command": ("train.py", "--epochs", "3"), "nodes": 2, "nproc_per_node": 4}
    return JobSpec(apiVersion="ddplaunch/v1", name="digits", **{**values, **changes})  # type: ignore[arg-type]


def launch(**changes: object) -> list[str]:
    """The launch words of that job."""
    return plan.make(spec(**changes), "local", HERE).job.launch


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("train.py",), False),
        (("-m", "package.train"), False),
        (("bin/train.sh", "--x"), True),
        (("uv", "run", "train.py"), True),
    ],
)
def test_a_command_that_is_no_script_is_started_as_it_is(command: tuple[str, ...], expected: bool) -> None:
    """Scripts and modules go through the worker's python, any other program is started itself."""
    assert expected == ("--no-python" in launch(command=command))


def test_the_command_is_untouched() -> None:
    """Braces, quotes and dashes in the user's words are no placeholders."""
    words = ("train.py", "{node}", "--x={master_addr}", "", "it's", "--")

    assert list(words) == plan.make(spec(command=words), "local", HERE).job.command


def test_all_that_a_local_run_cannot_do_is_said_at_once() -> None:
    """Volumes, cluster Secrets, Events, a choice of GPUs, a smoke test without torch are reported at once."""
    job = spec(
        gate=Gate(smoke_test=True),
        launch="mpi",
        resources=Resources(gpus=4, gpu_type="h100"),
        volumes=(Volume(name="data", mount_path="/data", claim="data"),),
        secrets={"TOKEN": SecretRef(secret=SecretKey(name="hf", key="token"))},
        notify=(Notify(events=True),),
    )

    with pytest.raises(SpecError) as caught:
        plan.make(job, "local", HERE)

    assert ["gate.smoke_test", "notify[0].events", "resources.gpu_type", "secrets.TOKEN", "volumes[0]"] == [
        problem.path for problem in caught.value.problems
    ]


def test_an_adhoc_command_line_gets_nothing_added() -> None:
    """`ddplaunch run -- …` starts the user's own words, with no flag of ours among them."""
    job = plan.adhoc(["torchrun", "--nproc-per-node", "2", "train.py"], "run").job

    assert ([], ["torchrun", "--nproc-per-node", "2", "train.py"], 1, None) == (
        job.launch,
        job.command,
        job.nodes,
        job.nproc_per_node,
    )


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
