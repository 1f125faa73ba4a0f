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
    Rendezvous,
    Resources,
    SecretKey,
    SecretRef,
    Volume,
    Watchdog,
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


def test_static_rendezvous_names_every_place() -> None:
    """By default each node is told its rank and the master's address, and torchrun guesses nothing."""
    assert [
        "{python}",
        "-m",
        "torch.distributed.run",
        "--nnodes=2",
        "--nproc-per-node=4",
        "--max-restarts=0",
        "--node-rank={node}",
        "--master-addr={master_addr}",
        "--master-port={master_port}",
        "--rdzv-conf=timeout=600",
    ] == launch()


def test_c10d_rendezvous_says_who_hosts_the_store() -> None:
    """With c10d the host of the store is named, since torchrun's guess by host name is often wrong."""
    rendezvous = Rendezvous(backend="c10d", timeout=90.4, max_restarts=2)

    assert [
        "--max-restarts=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint={master_addr}:{master_port}",
        "--rdzv-id={run_id}",
        "--rdzv-conf=join_timeout=90,is_host={is_host}",
    ] == launch(rendezvous=rendezvous)[5:]


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


def test_never_killing_is_no_deadline() -> None:
    """`kill_after: never` reaches the nodes as no deadline at all."""
    job = plan.make(spec(watchdog=Watchdog(kill_after="never")), "local", HERE).job

    assert job.watchdog.kill_after is None


def test_secrets_travel_as_references() -> None:
    """The plan holds where a secret comes from, and nothing of its value."""
    secrets = {"TOKEN": SecretRef(env="HF_TOKEN"), "KEY": SecretRef(file="key.txt")}

    assert {"KEY": {"file": "key.txt"}, "TOKEN": {"env": "HF_TOKEN"}} == plan.make(
        spec(secrets=secrets), "local", HERE
    ).job.secrets


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
