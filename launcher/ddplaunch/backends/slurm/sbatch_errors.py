"""Explains why sbatch refused a job, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ddplaunch.errors import ClusterError

_KNOWN: Mapping[str, tuple[str, str]] = {
    "Invalid partition name specified": (
        "it does not know the partition",
        "`sinfo --summarize` lists the partitions; name one as `slurm.partition`",
    ),
    "invalid partition specified": (
        "it does not know the partition",
        "`sinfo --summarize` lists the partitions; name one as `slurm.partition`",
    ),
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
        "`scontrol show reservation` says for whom it is",
    ),
    "Memory specification can not be satisfied": (
        "no node has so much memory",
        "`sinfo --format '%N %m'` lists the nodes' memory in MiB; lower `resources.memory`",
    ),
    "Invalid generic resource (gres) specification": (
        "there are no such GPUs, or Slurm has not been told of them",
        "`sinfo --format '%N %G'` lists what the nodes have; see `resources.gpus`",
    ),
    "Invalid Trackable RESource (TRES) specification": (
        "there are no such GPUs, or Slurm has not been told of them",
        "`sinfo --format '%N %G'` lists what the nodes have; see `resources.gpus`",
    ),
    "Invalid license specification": (
        "there are no such licences",
        "`scontrol show licenses` lists them",
    ),
    "Invalid node name specified": (
        "a node that is named does not exist",
        "`sinfo --Node` lists the nodes; see `slurm.nodelist` and `slurm.exclude`",
    ),
    "Requested time limit is invalid": (
        "the time limit is above what is allowed",
        "`sinfo --format '%P %l'` lists the partitions' limits; lower `slurm.time`",
    ),
    "Node count specification invalid": (
        "the partition does not give so many nodes to a job",
        "`sinfo --format '%P %s %D'` lists how many; change `nodes` or `slurm.partition`",
    ),
    "More processors requested than permitted": (
        "the nodes have not so many CPUs",
        "`sinfo --format '%N %c'` lists them; lower `resources.cpus` or `nproc_per_node`",
    ),
    "Job violates accounting/QOS policy": (
        "it is above a limit of your account or QOS: in number of jobs, size or time",
        "`sacctmgr show associations user=$USER` and `sacctmgr show qos` show the limits",
    ),
    "User's group not permitted to use this partition": (
        "the partition is not for your group",
        "`scontrol show partition` says for whom it is; name another as `slurm.partition`",
    ),
    "Required partition not available": (
        "the partition takes no jobs now",
        "`sinfo --summarize` shows the state of the partitions",
    ),
    "Batch script contains DOS line breaks": (
        "the file has the line ends of another system",
        "send it as `ddplaunch render` wrote it",
    ),
    "Pathname of a file, directory or other parameter too long": (
        "the file with all that travels in it is larger than this cluster takes",
        "make `source` smaller, or put it on a shared file system and name it as `workdir`",
    ),
    "Invalid authentication credential": (
        "authentication failed: munge does not run here, or has another key than the controller",
        "`munge -n | unmunge` tries it; ask an administrator",
    ),
    "Protocol authentication error": (
        "authentication failed: munge does not run here, or has another key than the controller",
        "`munge -n | unmunge` tries it; ask an administrator",
    ),
    "Access/permission denied": (
        "you may not send jobs here",
        "ask an administrator of the cluster",
    ),
    "Job dependency problem": (
        "a job that this one shall wait for does not exist",
        "see --dependency in `slurm.extra`",
    ),
    # Said after the reason proper, where there is one.
    "Requested node configuration is not available": (
        "there are not so many nodes that have all that the job asks for",
        "compare `nodes`, `resources` and `slurm.constraint` with `sinfo --format '%P %D %c %m %G %f'`",
    ),
}


def refused(words: str) -> ClusterError:
    """The error of a job that sbatch would not have; `words`: all that sbatch said."""
    said = (
        "; ".join(dict.fromkeys(map(_bare, filter(str.strip, words.splitlines())))) or "it does not say why"
    )
    for begin, (why, hint) in _KNOWN.items():
        if begin.lower() in words.lower():
            return ClusterError(f"Slurm refused the job: {why}\n    sbatch: {said}", hint=hint)
    return ClusterError(f"Slurm refused the job: {said}", hint="nothing was submitted")


def _bare(line: str) -> str:
    return line.strip().removeprefix("sbatch: ").removeprefix("error: ").strip()
