"""Reads node settings from a launcher's command line, in torchrun's terms. Pure.

`accelerate launch` and `deepspeed` have options of their own for what torchrun calls nnodes, node_rank,
master_addr and master_port. Only their command line is read, not accelerate's file of defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from ddplaunch.agent.platforms.scheduler_variables import Fact
from ddplaunch.agent.supervisor import launch_options


class _Launcher(NamedTuple):
    name: str
    switches: frozenset[str]  # options without a value; all others have one
    meanings: Mapping[str, str]  # its option: torchrun's


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ACCELERATE = _Launcher(
    "accelerate",
    _set(
        "cpu debug downcast_bf16 dynamo_use_dynamic dynamo_use_fullgraph dynamo_use_regional_compilation "
        "enable_cpu_affinity fp8_use_autocast_during_eval h help m module multi_gpu no_python no_tpu_cluster "
        "q quiet same_network tpu tpu_cluster tpu_use_sudo use_deepspeed use_fsdp use_megatron_lm "
        "use_parallelism_config"
    ),
    {
        "num_machines": "nnodes",
        "machine_rank": "node_rank",
        "main_process_ip": "master_addr",
        "main_process_port": "master_port",
    },
)
_DEEPSPEED = _Launcher(
    "deepspeed",
    _set(
        "bind_cores_to_rank force_multi h help module no_local_rank no_python no_ssh no_ssh_check q quiet "
        "save_pid"
    ),
    {
        "num_nodes": "nnodes",
        "node_rank": "node_rank",
        "master_addr": "master_addr",
        "master_port": "master_port",
    },
)
_ONE_NODE = _DEEPSPEED._replace(switches=_DEEPSPEED.switches - {"save_pid"})
"""`deepspeed` starts deepspeed.launcher.launch on each node. There, --save_pid takes a value."""
_STARTS = (
    (("accelerate", "launch"), _ACCELERATE),
    (("accelerate-launch",), _ACCELERATE),
    (("-m", "accelerate.commands.launch"), _ACCELERATE),
    (("deepspeed",), _DEEPSPEED),
    (("-m", "deepspeed.launcher.runner"), _DEEPSPEED),
    (("-m", "deepspeed.launcher.launch"), _ONE_NODE),
)


def node_options(command: Sequence[str]) -> dict[str, Fact]:
    """Return the options of the command line by torchrun's name for each; a switch is ""."""
    options = launch_options.torchrun_options(command)
    if options is not None:
        return {
            name: Fact(value, f"torchrun's --{name.replace('_', '-')}={value}")
            for name, value in options.items()
        }
    other = _other(command)
    if other is None:
        return {}
    launcher, words = other
    given = launch_options.read_options(words, launcher.switches)
    return {
        torchruns: Fact(given[own], f"{launcher.name}'s --{own}={given[own]}")
        for own, torchruns in launcher.meanings.items()
        if given.get(own)
    }


def _other(command: Sequence[str]) -> Optional[tuple[_Launcher, Sequence[str]]]:
    """Return the launcher in the command, where it is not torchrun, and the words behind it."""
    for place, word in enumerate(command):
        for start, launcher in _STARTS:
            if (os.path.basename(word), *command[place + 1 : place + len(start)]) == start:
                return launcher, command[place + len(start) :]
    return None
