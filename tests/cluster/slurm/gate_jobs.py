"""Jobs whose gate finds a fault: what is submitted, and what is read of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import Job

from ddplaunch.agent.contract import Verdict

MASTER = 29500
GATE = 29400
FIXED: dict[str, Any] = {"rendezvous": {"port": MASTER}, "gate": {"port": GATE, "timeout": "120s"}}
"""Rules of a firewall name ports. No test waits for this deadline."""
BY_NAME = {"rendezvous": {"port": MASTER, "address": "n1"}}
GATE_ONLY = "--export=ALL,DDPLAUNCH_GATE_ONLY=1"
ADDRESSES = {"n1": "10.99.0.11", "n2": "10.99.0.12", "n3": "10.99.0.13"}
Start = Callable[..., Job]


def verdict(job: Job) -> tuple[str, list[int], Verdict]:
    """(code, culprits, all of it) of a job that its gate has ended."""
    state = job.ended(40)
    assert "FAILED" == state, job.output
    return job.verdict.code, job.verdict.nodes, job.verdict


def notes(job: Job) -> list[str]:
    """Of a job whose gate was passed; that this machine is busy is left out, for it may well be."""
    state = job.ended(40)
    print(job.output)
    assert ("COMPLETED", []) == (state, job.bundle().verdicts)
    told = [text for line in job.output.splitlines() if (text := line.partition(" note: ")[2])]
    return [text for text in told if not text.startswith("cpu-busy")]


def flush(cluster: Cluster, node: str) -> None:
    """Its firewall lets everything through."""
    cluster.run(node, ["nft", "flush", "ruleset"])


def mended(start: Start, *options: str, **keys: Any) -> list[str]:
    """The hint was followed: the job passes its gate. Returns the notes."""
    return notes(start(GATE_ONLY, *options, **keys))


def seconds(job: Job) -> float:
    """From the last check-in to the verdict."""
    events = job.bundle().events
    last = max(event.at for event in events if event.kind == "check-in")
    return next(event.at for event in events if event.kind == "verdict") - last


def names(cluster: Cluster, node: str, **other: str | None) -> None:
    """The node's hosts file: all names as they are, but for these."""
    known = {**ADDRESSES, **other}
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in known.items() if address)]
    cluster.hosts(node).write_text("\n".join(lines) + "\n")
