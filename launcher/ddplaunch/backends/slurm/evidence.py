"""Fetches a job's evidence: from its hub while it runs, by whatever way leads there, else what it left."""

from __future__ import annotations

from pathlib import Path

from ddplaunch.agent.contract import Bundle, Files, codec
from ddplaunch.backends import files, folder, hub, printed
from ddplaunch.backends.slurm.commands import Commands
from ddplaunch.backends.slurm.queries import Queries
from ddplaunch.backends.slurm.snapshot import Snapshot
from ddplaunch.errors import UsageError

_STEP = 60.0
"""Seconds for a step beside the job's own: to be started, and to be answered by the hub."""


def collect(look: Snapshot, queries: Queries) -> Bundle | None:
    """None: it left nothing that can be seen from here."""
    place = look.folder
    if place is None:
        return None
    told = look.told()
    if not look.ended and told is not None:
        fresh = hub.diagnose(place, told.attempt)
        if fresh is not None:
            return fresh
    if not look.ended and look.seen is not None and look.seen.node_list:
        fresh = _by_step(look.job_id, place, queries.commands)
        if fresh is not None:
            return fresh
    try:
        return folder.newest_bundle(place) or _from_logs(place)
    except UsageError:
        printed_one = _from_logs(place)
        if printed_one is None:
            raise
        return printed_one


def _by_step(job_id: int, place: Path, commands: Commands) -> Bundle | None:
    """Ask on the hub's own node: its network, or the job's folder, may not be reached from here."""
    ask = ["python3", "-I", "-S", str(place / Files.AGENT), "ask", "diagnose", "--folder", str(place)]
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
        return files.load(Bundle, answer.out) if answer.code == 0 else None
    except codec.ContractError:
        return None


def _from_logs(place: Path) -> Bundle | None:
    """The hub prints its bundle as well, for when the file is lost."""
    for run in reversed(folder.attempts(place)):
        try:
            text = files.contents(run / Path(Files.HUB_LOG).name).decode("utf-8", errors="replace")
        except (OSError, codec.ContractError):
            continue
        bundle = printed.bundle(text.splitlines())
        if bundle is not None:
            return bundle
    return None
