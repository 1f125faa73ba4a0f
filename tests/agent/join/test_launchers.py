"""accelerate's and deepspeed's own options for the nodes. Their switches are those of their --help."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests import deepspeed_build

from ddplaunch.agent.checks.command_line import starts
from ddplaunch.agent.join.spot import CannotJoinError, Options, Spot, find, node_options, nodes_of_command

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
def test_the_arguments_of_other_launchers_suffice_up_to_the_script(command: str) -> None:
    wanted = Spot(1, 2, "n0", master_addr="n0", master_port=29511)

    assert wanted == find(Options(), command.split(), {})


def test_deepspeeds_own_command_on_a_node_is_read() -> None:
    """It is no longer told how many nodes there are; its `--save_pid` is followed by a number."""
    own = (
        "python -u -m deepspeed.launcher.launch --world_info=e30= --save_pid 7 --master_addr=n0 --node_rank 1"
    )

    read = node_options([*own.split(), "train.py", "--num_nodes", "7"])

    assert {"node_rank": "1", "master_addr": "n0"} == {name: fact.value for name, fact in read.items()}


OPTIONS = """
import argparse, importlib, json, sys

def tells(parser, *_, **__):
    print("OPTIONS", json.dumps([(each.option_strings, each.nargs != 0) for each in parser._actions]))
    raise SystemExit

argparse.ArgumentParser.parse_args = tells
importlib.import_module(sys.argv[1]).parse_args()
"""


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.timeout(deepspeed_build.PATIENCE)
@pytest.mark.parametrize("module", ["deepspeed.launcher.runner", "deepspeed.launcher.launch"])
def test_every_option_of_the_installed_deepspeed_is_known(module: str) -> None:
    words = [sys.executable, "-c", OPTIONS, module]
    done = subprocess.run(
        words, env=os.environ | deepspeed_build.environment(), capture_output=True, text=True
    )
    assert "OPTIONS [" in done.stdout, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("OPTIONS ")]
    options = [(name, valued) for names, valued in json.loads(line.partition(" ")[2]) for name in names]

    assert len(options) > 10
    for name, valued in options:
        if name in ("-h", "--help", "--module", "--no_python", "--node_rank"):
            continue  # it ends there, or starts something else
        command = ["python", "-m", module, name, *["value"] * valued, "--node_rank", "1", "train.py"]
        assert ("train.py", "1") == (starts(command)[-1].word, node_options(command)["node_rank"].value), name


@pytest.mark.parametrize(
    ("command", "source"),
    [(ACCELERATE, "accelerate's --machine_rank=1"), (DEEPSPEED, "deepspeed's --node_rank=1")],
)
def test_an_option_that_contradicts_a_launchers_own_words_is_refused(command: str, source: str) -> None:
    with pytest.raises(CannotJoinError, match=f"node rank 0 contradicts {source}"):
        find(Options(node_rank=0), command.split(), {})


def test_without_joining_the_ranks_of_other_nodes_are_known_of() -> None:
    fact = nodes_of_command(ACCELERATE.split(), {})

    assert fact is not None
    assert ("2", "accelerate's --num_machines=2") == fact


@pytest.mark.parametrize(
    "command", ["accelerate test --num_machines 2", "python train.py --num_machines 2", "echo deepspeed.py"]
)
def test_scripts_with_options_of_the_same_names_say_nothing(command: str) -> None:
    assert {} == node_options(command.split())
