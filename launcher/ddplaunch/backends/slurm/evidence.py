"""Fetches a job's evidence: from its hub while it runs, else from its files or its log."""

from __future__ import annotations

from pathlib import Path

from ddplaunch.agent.contract import Bundle, Files, codec
from ddplaunch.backends import files, folder, hub, printed
from ddplaunch.backends.slurm.commands import Commands
from ddplaunch.backends.slurm.queries import Queries
from ddplaunch.backends.slurm.snapshot import Snapshot
from ddplaunch.errors import UsageError

_STEP = 60.0
"""Seconds for a step beside the job's own to start, and for the hub to answer it."""


def collect(snapshot: Snapshot, queries: Queries) -> Bundle | None:
    """Return the job's bundle; None: none can be read on this machine.

    Raises UsageError when every bundle is broken.
    """
    home = snapshot.folder
    if home is None:
        return None
    hub_status = snapshot.hub_status()
    if not snapshot.ended and hub_status is not None:
        bundle = hub.diagnose(home, hub_status.attempt)
        if bundle is not None:
            return bundle
    if not snapshot.ended and snapshot.slurm_job is not None and snapshot.slurm_job.node_list:
        bundle = _by_step(snapshot.job_id, home, queries.commands)
        if bundle is not None:
            return bundle
    try:
        return folder.newest_bundle(home) or _from_logs(home)
    except UsageError:
        if (bundle := _from_logs(home)) is None:
            raise
        return bundle


def _by_step(job_id: int, home: Path, commands: Commands) -> Bundle | None:
    """Ask by a job step on the hub's own node: its network, or the job's folder, may be out of reach here."""
    ask = ["python3", "-I", "-S", str(home / Files.AGENT), "ask", "diagnose", "--folder", str(home)]
    # Node 0 of the job, which is where the batch script and the hub run.
    step = [
        f"--jobid={job_id}",
        "--overlap",
        "--relative=0",
        "--nodes=1",
        "--ntasks=1",
        "--mpi=none",
        "--quiet",
    ]
    answer = commands.run("srun", *step, *ask, limit=_STEP)
    try:
        return files.bundle(answer.out) if answer.code == 0 else None
    except codec.ContractError:
        return None


def _from_logs(home: Path) -> Bundle | None:
    """Return the bundle that the hub printed into its log, in case the file is lost."""
    for run in reversed(folder.attempts(home)):
        try:
            text = files.contents(run / Path(Files.HUB_LOG).name).decode("utf-8", errors="replace")
        except (OSError, codec.ContractError):
            continue
        bundle = printed.bundle(text.splitlines())
        if bundle is not None:
            return bundle
    return None
