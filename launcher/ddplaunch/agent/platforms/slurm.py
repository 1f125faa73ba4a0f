"""Slurm: srun starts one task per node, and reports how each ends."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Mapping
from typing import Any, Optional

from ddplaunch.agent.platforms.platform import Platform

NODE = "SLURM_NODEID"
"""srun's own count of nodes, in the order of the job's node list, which is that of Env.NAMES."""

VERBS = {
    "prolog": "before a job of Slurm: can anything run on this node",
    "epilog": "after a job of Slurm: take away what it left on this node",
    "prologue": "in a batch script of Slurm: the gate, and what to export",
    "comment": "at the end of a job of Slurm: its verdict as Slurm's comment",
}
"""Words of the agent's command line on a node of Slurm, and their help."""


def _set_comment(message: dict[str, Any]) -> None:
    from ddplaunch.agent.platforms import slurm_comment  # which no pod has

    slurm_comment.set_comment(message)


SLURM = Platform(
    "slurm",
    hints={
        "memlock": "Slurm gives a job the limit of the shell that submits it: set "
        "`PropagateResourceLimitsExcept=MEMLOCK` in slurm.conf and `LimitMEMLOCK=infinity` in "
        "slurmd.service; where slurmd's own limit is high already, `ulimit -l unlimited` before sbatch does",
        "open-files": "raise the limit of open files on that node: `LimitNOFILE=` of slurmd, or "
        "/etc/security/limits.conf",
        "hardware": "ask Slurm for one kind of node: `slurm.constraint`; a machine that has lost a GPU says "
        "so in `dmesg`; if the difference is meant, `gate: {skip: [gpus]}`",
        "unlaunched": "see whether slurmd runs on that node: `scontrol show node NAME`",
        "ended": "look at what Slurm runs there before a task (`scontrol show config | grep -i prolog`), and "
        "at room in /tmp; `slurm.exclude` leaves a node out",
        "container": "start it by hand on that node: `srun --nodelist=NAME`, then the runtime's "
        "`exec IMAGE python3 -V`, or `--container=IMAGE python3 -V`",
        "no-runtime": "load its module before sbatch, or ask for nodes that have it: `slurm.constraint`",
        "no-python": "the image needs a python3 >= 3.9 on its PATH, in which the agent runs",
        "no-image": "every node must see `slurm.container.image` under that path: a shared folder",
        "no-oci": "have the administrator put oci.conf beside slurm.conf there, or use `slurm.constraint`",
        "no-mount": "every node must have what `slurm.container.mounts` and `volumes` name",
        "no-namespace": "ask the administrator for user namespaces there (`sysctl user.max_user_namespaces`)",
        "none-started": "see whether the scheduler answered all that time: `scontrol ping`, slurmctld's log",
        "missing": "`squeue` and `scontrol show node NAME` say whether the node is up and has started its "
        "task; `gate.timeout` in the job file says how long the others wait",
        "evicted": "Ask for more time (`slurm.time`), or have the job write checkpoints and go on from the "
        "last.",
    },
    place="Slurm's comment",
    show=_set_comment,
)


def job_name(environment: Mapping[str, str]) -> str:
    """Return 'Slurm job 771' for a process with that environment; "" without a job."""
    number = environment.get("SLURM_JOB_ID")
    return f"Slurm job {number}" if number else ""


def munge_socket(seconds: float) -> Optional[str]:
    """Return the socket of MUNGE that Slurm is configured to use; None: MUNGE's default."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        shown = subprocess.run(["scontrol", "show", "config"], capture_output=True, timeout=seconds)
        named = re.search(rb"^AuthInfo\s*=.*?\bsocket=([^,\s]+)", shown.stdout, re.MULTILINE)
        return named[1].decode() if named else None
    return None
