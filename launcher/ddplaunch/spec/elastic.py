"""Rules of elastic jobs, which start with some of their nodes. Pure.

They are the launcher's alone: a Helm chart's pods, which read the job file too, are of a fixed number.
"""

from collections.abc import Iterator

from ddplaunch.agent.job_file.data import Job, Path
from ddplaunch.agent.job_file.rules import Finding


def check(job: Job) -> Iterator[Finding]:
    """Yield all that an elastic job cannot have."""
    least, most, at = job["min_nodes"], job["nodes"], ("nodes",)
    if least is None:
        return
    if least >= most:
        hint = "where the number is fixed, write it alone"
        yield Finding((at, ("min_nodes",)), f"{least} to {most} nodes", "min below max", hint)
    if job["launch"] != "torchrun":
        hint = "MPI fixes the number of ranks at the start"
        yield Finding((at, ("launch",)), f"a range with launch: {job['launch']}", "a number", hint)
    else:
        yield from _torchrun(job, at)
    if not job["gate"]["enabled"]:
        hint = "it is the gate that decides with which nodes the job starts"
        yield Finding((("gate", "enabled"), at), "false with a range of nodes", "true", hint)
    if job["gate"]["smoke_test"]:
        hint = "it is a collective of all ranks, and an elastic job may lack some"
        yield Finding((("gate", "smoke_test"), at), "true with a range of nodes", "false", hint)


def _torchrun(job: Job, at: Path) -> Iterator[Finding]:
    backend = job["rendezvous"]["backend"]
    if backend != "c10d":
        hint = "torchrun's static rendezvous waits for a number of nodes that is fixed"
        paths = (("rendezvous", "backend"), at)
        yield Finding(paths, f"{backend} with a range of nodes", "backend: c10d", hint)
