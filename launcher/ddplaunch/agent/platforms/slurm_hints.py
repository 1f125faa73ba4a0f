"""Advice in Slurm's own terms, by what it is about."""

from __future__ import annotations

from collections.abc import Mapping

HINTS: Mapping[str, str] = {
    "memlock": "Slurm gives a job the limit of the shell that submits it: set "
    "`PropagateResourceLimitsExcept=MEMLOCK` in slurm.conf and `LimitMEMLOCK=infinity` in "
    "slurmd.service; where slurmd's own limit is high already, `ulimit -l unlimited` before sbatch does",
    "ulimit -u": "Slurm gives a job the limit of the shell that submits it: raise it before sbatch, or set "
    "`PropagateResourceLimitsExcept=NPROC` in slurm.conf",
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
    "missing": "`squeue` and `scontrol show node NAME` say whether the node is up and has started its task.",
    "evicted": "Ask for more time (`slurm.time`), or have the job write checkpoints and go on from the last.",
}
