"""Explains why sbatch refused a job, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ddplaunch.errors import ClusterError

_PARTITION = (
    "it does not know the partition",
    "`sinfo --summarize` lists the partitions; name one as `slurm.partition`",
)
_GPUS = (
    "there are no such GPUs, or Slurm is not configured for them",
    "`sinfo --format '%N %G'` lists what the nodes have; see `resources.gpus` and `resources.gpu_type`",
)
_MUNGE = (
    "authentication failed: munge does not run here, or has another key than the controller",
    "`munge -n | unmunge` tries it; ask an administrator",
)
_KNOWN: Mapping[str, tuple[str, str]] = {
    "Invalid partition name specified": _PARTITION,
    "invalid partition specified": _PARTITION,
    "Invalid account or account/partition combination specified": (
        "you may not use this account here",
        "`sacctmgr show associations user=$USER` lists yours; name one as `slurm.account`",
    ),
    "Invalid qos specification": (
        "you may not use this QOS here",
        "`sacctmgr show associations user=$USER format=account,partition,qos` lists yours",
    ),
    "Invalid feature specification": (
        "no node has the features of `slurm.constraint`",
        "`sinfo --format '%N %f'` lists the features of the nodes",
    ),
    "Requested reservation is invalid": (
        "there is no such reservation",
        "`scontrol show reservation` lists them",
    ),
    "Access denied to requested reservation": (
        "the reservation is not for you",
        "`scontrol show reservation` shows who may use it",
    ),
    "Memory specification can not be satisfied": (
        "no node has so much memory",
        "`sinfo --format '%N %m'` lists the nodes' memory in MiB; lower `resources.memory`",
    ),
    "Invalid generic resource (gres) specification": _GPUS,
    "Invalid Trackable RESource (TRES) specification": _GPUS,
    "Invalid license specification": ("there are no such licences", "`scontrol show licenses` lists them"),
    "Invalid node name specified": (
        "it names a node that does not exist",
        "`sinfo --Node` lists the nodes; see `slurm.nodelist` and `slurm.exclude`",
    ),
    "Requested time limit is invalid": (
        "the time limit is above what is allowed",
        "`sinfo --format '%P %l'` lists the partitions' limits; lower `slurm.time`",
    ),
    "Node count specification invalid": (
        "the partition does not allow a job so many nodes",
        "`sinfo --format '%P %s %D'` lists how many; change `nodes` or `slurm.partition`",
    ),
    "More processors requested than permitted": (
        "no node has so many CPUs",
        "`sinfo --format '%N %c'` lists them; lower `resources.cpus` or `nproc_per_node`",
    ),
    "Job violates accounting/QOS policy": (
        "it exceeds a limit of your account or QOS: number of jobs, size or time",
        "`sacctmgr show associations user=$USER` and `sacctmgr show qos` show the limits",
    ),
    "User's group not permitted to use this partition": (
        "the partition is not for your group",
        "`scontrol show partition` shows who may use it; name another as `slurm.partition`",
    ),
    "Required partition not available": (
        "the partition takes no jobs now",
        "`sinfo --summarize` shows the state of the partitions",
    ),
    "Batch script contains DOS line breaks": (
        "the file has DOS line ends",
        "send it as `ddplaunch render` wrote it",
    ),
    "Pathname of a file, directory or other parameter too long": (
        "the file with all that travels in it is larger than this cluster takes",
        "make `source` smaller, or put it on a shared file system and name it as `workdir`",
    ),
    "Invalid authentication credential": _MUNGE,
    "Protocol authentication error": _MUNGE,
    "Access/permission denied": ("you may not send jobs here", "ask an administrator of the cluster"),
    "Job dependency problem": (
        "the job that it depends on does not exist",
        "see `slurm.dependency`",
    ),
    # sbatch prints this one after the reason proper, where there is one.
    "Requested node configuration is not available": (
        "there are not enough nodes that have everything the job asks for",
        "compare `nodes`, `resources` and `slurm.constraint` with `sinfo --format '%P %D %c %m %G %f'`",
    ),
}


def refused(stderr: str) -> ClusterError:
    """Return the error for a job that sbatch refused with this `stderr`."""
    reason = "; ".join(dict.fromkeys(map(_bare, filter(str.strip, stderr.splitlines())))) or "no reason given"
    for begin, (why, hint) in _KNOWN.items():
        if begin.lower() in stderr.lower():
            return ClusterError(f"Slurm refused the job: {why}\n    sbatch: {reason}", hint=hint)
    return ClusterError(f"Slurm refused the job: {reason}", hint="nothing was submitted")


def _bare(line: str) -> str:
    return line.strip().removeprefix("sbatch: ").removeprefix("error: ").strip()
