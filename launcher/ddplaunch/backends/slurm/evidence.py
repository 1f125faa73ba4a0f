"""Fetches a job's evidence: from its hub while it runs, otherwise from its files or its log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ddplaunch.agent.contract import Bundle, Files, NodeEvidence, codec
from ddplaunch.agent.platforms import slurm
from ddplaunch.backends import files, folder, foreign_jobs
from ddplaunch.backends.slurm.commands import Commands, Queries
from ddplaunch.backends.slurm.parse import SlurmJob
from ddplaunch.backends.slurm.snapshot import Snapshot
from ddplaunch.errors import ClusterError, UsageError
from ddplaunch.render import archive

_STEP = 60.0
"""Seconds for a step beside the job's own to start, and for the hub to answer it."""


def collect(snapshot: Snapshot, queries: Queries) -> Bundle | None:
    """Return the job's bundle; None if this machine can read none.

    Raises UsageError if every bundle is broken.
    """
    home = snapshot.folder
    if home is None:
        return None
    hub_status = snapshot.hub_status()
    if not snapshot.ended and hub_status is not None:
        bundle = folder.ask_hub(home, hub_status.attempt)
        if bundle is not None:
            return bundle
    if not snapshot.ended and snapshot.slurm_job is not None and snapshot.slurm_job.node_list:
        bundle = _by_step(snapshot.slurm_job, home, queries.commands)
        if bundle is not None:
            return bundle
    try:
        return folder.newest_bundle(home) or _from_logs(home)
    except UsageError:
        if (bundle := _from_logs(home)) is None:
            raise
        return bundle


def _by_step(job: SlurmJob, home: Path, commands: Commands) -> Bundle | None:
    """Ask through a job step on the hub's own node: its network or the job's folder may be out of reach
    here.
    """
    ask = ["python3", "-I", "-S", str(home / Files.AGENT), "ask", "diagnose", "--folder", str(home)]
    return _answer(job, ask, commands)


def _answer(
    job: SlurmJob, ask: Sequence[str], commands: Commands, stdin: bytes | None = None
) -> Bundle | None:
    """Return the bundle that a command prints on the job's node 0, where the hub runs; None without one."""
    # By its name: --relative=0 is the job's last node for the srun of Slurm 24.11.
    step = [
        f"--jobid={job.job_id}",
        "--overlap",
        f"--nodelist={slurm.first_node(job.node_list)}",
        "--nodes=1",
        "--ntasks=1",
        "--mpi=none",
        "--quiet",
    ]
    answer = commands.run("srun", *step, *ask, limit=_STEP, stdin=stdin)
    try:
        return files.bundle(answer.out) if answer.code == 0 else None
    except codec.ContractError:
        return None


def _from_logs(home: Path) -> Bundle | None:
    """Return the bundle that the hub printed to its log, in case the file is lost."""
    for run in reversed(folder.attempts(home)):
        try:
            text = files.contents(run / Path(Files.HUB_LOG).name).decode("utf-8", errors="replace")
        except (OSError, codec.ContractError):
            continue
        bundle = files.printed_bundle(text.splitlines())
        if bundle is not None:
            return bundle
    return None


_LIMIT: Final = 90.0
"""Seconds for the step to start, and to watch the ranks."""
_LINE: Final = re.compile(r"\s*(\d+): (\S*)")
"""A line of output that srun has labelled with its task's number, which is the node's number."""


def ask_hub_inside(job: SlurmJob, commands: Commands) -> Bundle | None:
    """Return the bundle of the hub in a running job that is not ours; None if there is no hub.

    The job's own script has started its nodes with `run --join`, and the hub is on its first node.
    """
    agent = archive.agent_archive()
    words = ["python3", "-I", "-S", "-c", foreign_jobs.AGENT, str(len(agent))]
    words += ["ask", "--of", f"SLURM_JOB_ID={job.job_id}", "diagnose"]
    return _answer(job, words, commands, stdin=agent)


def collect_from_outside(job: SlurmJob, commands: Commands) -> Bundle:
    """Return the evidence of all nodes of a running job. Raises ClusterError if no step can run in it."""
    step = [f"--jobid={job.job_id}", "--overlap", f"--nodes={job.nodes}", f"--ntasks={job.nodes}"]
    step += ["--ntasks-per-node=1", "--mpi=none", "--label", "--quiet"]
    agent = archive.agent_archive()
    words = ["python3", "-I", "-S", "-c", foreign_jobs.AGENT, str(len(agent))]
    words += ["look", "--of", f"SLURM_JOB_ID={job.job_id}"]
    environment = foreign_jobs.environment_with_py_spy()
    answer = commands.run("srun", *step, *words, env=environment, limit=_LIMIT, stdin=agent)
    nodes = outside_evidence(answer.out)
    if not nodes:
        raise ClusterError(
            f"no node of job {job.job_id} could be looked at: {answer.last_line or 'the step has no output'}",
            hint="only the job's user may start a step in it, and its nodes need python3 >= 3.9",
        )
    silent = sorted(set(range(job.nodes)) - {each.node for each in nodes})
    return foreign_jobs.bundle(job.name, job.started or 0.0, nodes, silent)


def outside_evidence(output: str) -> list[NodeEvidence]:
    """Return the evidence of the nodes that have printed theirs completely, by their numbers."""
    texts = sorted(_by_task(output.splitlines()).items())
    return [found for node, text in texts if (found := foreign_jobs.unpacked(text, node)) is not None]


def _by_task(lines: Iterable[str]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match:
            texts[int(match[1])] = texts.get(int(match[1]), "") + match[2]
    return texts
