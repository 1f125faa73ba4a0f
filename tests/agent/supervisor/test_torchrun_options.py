"""torchrun's own options, and what stands in for those that its user left out."""

from __future__ import annotations

import pytest

from ddplaunch.agent.supervisor.launch_options import least_nodes, missing_variables
from ddplaunch.agent.system.torchrun import torchrun_options

ADDRESS, PORT = "10.0.0.1", 29511


@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "--nnodes=2", "--node_rank", "1", "train.py", "--nnodes", "7"],
        ["/opt/bin/torchrun", "--nnodes", "2", "--node-rank=1", "-m", "train", "--node-rank=7"],
        ["python", "-m", "torch.distributed.run", "-r3", "--nnode", "2", "--node-rank", "1", "--", "t.py"],
        ["numactl", "-N0", "torchrun", "--no-python", "--nnodes=2", "-t", "3", "--node_r=1", "./train"],
        ["python3", "-m", "torch.distributed.launch", "--use_env", "--nnodes=2", "--node_rank=1", "train.py"],
    ],
)
def test_torchruns_options_end_where_the_script_begins(command: list[str]) -> None:
    found = torchrun_options(command)

    assert found is not None
    assert ("2", "1") == (found["nnodes"], found["node_rank"])


@pytest.mark.parametrize("command", [["python", "train.py", "--nnodes=2"], ["bash", "run.sh"], []])
def test_other_commands_have_no_options_of_torchruns(command: list[str]) -> None:
    assert torchrun_options(command) is None


def test_what_a_plain_torchrun_leaves_open_is_filled() -> None:
    found = missing_variables(["torchrun", "train.py"], {}, 1, 2, ADDRESS, PORT)

    wanted = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": ADDRESS, "PET_MASTER_PORT": "29511"}
    assert {**wanted, "MASTER_ADDR": ADDRESS, "MASTER_PORT": "29511"} == found


def test_a_rendezvous_of_c10d_gets_its_endpoint() -> None:
    """With who is the host, which torchrun cannot find out well; brackets around IPv6."""
    command = ["torchrun", "--rdzv-backend=c10d", "train.py"]

    found = [missing_variables(command, {}, node, 2, "fd00::1", PORT) for node in (0, 1)]

    assert ["[fd00::1]:29511"] * 2 == [each["PET_RDZV_ENDPOINT"] for each in found]
    assert ["is_host=1", "is_host=0"] == [each["PET_RDZV_CONF"] for each in found]
    assert "PET_NODE_RANK" not in found[0]


def test_an_endpoint_of_the_users_own_stays_alone() -> None:
    given = missing_variables(
        ["torchrun", "--rdzv_backend", "c10d", "--rdzv_endpoint=n1", "t.py"], {}, 0, 2, ADDRESS, PORT
    )
    by_pet = missing_variables(["torchrun", "t.py"], {"PET_RDZV_BACKEND": "etcd-v2"}, 0, 2, ADDRESS, PORT)

    assert {"PET_NNODES", "MASTER_ADDR", "MASTER_PORT"} == given.keys() == by_pet.keys()


def test_a_script_gets_nothing_for_torchrun() -> None:
    """It may call torchrun for one node as well, which PET_NNODES would break."""
    assert {"MASTER_ADDR", "MASTER_PORT"} == missing_variables(
        ["bash", "run.sh"], {}, 0, 2, ADDRESS, PORT
    ).keys()


@pytest.mark.parametrize(
    ("command", "environment", "least"),
    [
        ("torchrun --nnodes=1:3 --rdzv-backend=c10d train.py", {}, 1),
        ("torchrun --nnodes=2 --rdzv_backend c10d train.py", {}, 2),
        ("torchrun train.py", {"PET_RDZV_BACKEND": "c10d", "PET_NNODES": "2:4"}, 2),
        ("torchrun --nnodes=2 train.py", {}, None),
        ("python train.py --rdzv-backend=c10d", {}, None),
    ],
)
def test_how_few_nodes_torchrun_needs(command: str, environment: dict[str, str], least: int | None) -> None:
    """Its agents decide that, except with the static rendezvous, which gives out ranks once."""
    assert least == least_nodes(command.split(), environment)
