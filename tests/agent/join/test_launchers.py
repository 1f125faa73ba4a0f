"""accelerate's and deepspeed's own options for the nodes. Their switches are those of their --help."""

from __future__ import annotations

import pytest

from ddplaunch.agent.join.launchers import node_options
from ddplaunch.agent.join.spot import CannotJoinError, Options, Spot, elsewhere, find

ACCELERATE = (
    "accelerate launch --multi_gpu --num_machines 2 --machine_rank 1 --main_process_ip n0 "
    "--main_process_port 29511 --num_processes 4 train.py"
)
DEEPSPEED = (
    "deepspeed --hostfile hosts --no_ssh --num_nodes 2 --node_rank=1 --master_addr n0 --master_port 29511 "
    "train.py"
)


@pytest.mark.parametrize(
    "command",
    [
        ACCELERATE,
        ACCELERATE.replace("_", "-").replace(" 2", "=2"),
        ACCELERATE.replace("accelerate launch", "/opt/bin/accelerate-launch"),
        ACCELERATE.replace("accelerate launch", "python -m accelerate.commands.launch"),
        ACCELERATE.replace("train.py", "-m train --machine_rank 7"),
        DEEPSPEED,
        DEEPSPEED.replace("deepspeed", "python -m deepspeed.launcher.runner"),
        DEEPSPEED.replace("train.py", "--module train --node_rank 7"),
    ],
)
def test_their_arguments_suffice(command: str) -> None:
    """As torchrun's do, up to where the script begins."""
    wanted = Spot(1, 2, "n0", master_addr="n0", master_port=29511)

    assert wanted == find(Options(), command.split(), {})


@pytest.mark.parametrize(
    ("command", "source"),
    [(ACCELERATE, "accelerate's --machine_rank=1"), (DEEPSPEED, "deepspeed's --node_rank=1")],
)
def test_an_option_that_contradicts_them_is_refused(command: str, source: str) -> None:
    """They act on their own words, whatever `run` is given."""
    with pytest.raises(CannotJoinError, match=f"node rank 0 contradicts {source}"):
        find(Options(node_rank=0), command.split(), {})


def test_without_joining_the_other_nodes_are_known_of() -> None:
    """`run` can say which ranks it does not see."""
    fact = elsewhere(ACCELERATE.split(), {})

    assert fact is not None
    assert ("2", "accelerate's --num_machines=2") == fact


@pytest.mark.parametrize(
    "command", ["accelerate test --num_machines 2", "python train.py --num_machines 2", "echo deepspeed.py"]
)
def test_other_commands_say_nothing(command: str) -> None:
    """Neither another verb of accelerate, nor a script with options of the same names."""
    assert {} == node_options(command.split())
