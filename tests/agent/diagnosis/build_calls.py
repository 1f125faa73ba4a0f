"""Calls of init_process_group made by hand: of two nodes, n1 with 10.0.0.1 and n2 with 10.0.0.2."""

from __future__ import annotations

from typing import Any

from tests.agent.diagnosis.build import NOW, in_init, rank

from ddplaunch.agent.contract import (
    Frame,
    JobEvidence,
    NodeEvidence,
    RankEvidence,
    Rendezvous,
    Setting,
    Verdict,
)

LINE = Frame("setup", "/job/train.py", 9)
CALL = Frame("setup", "/job/train.py", 12)
MASTER = {"address": "10.0.0.1", "port": 29500}


def sets(**values: str) -> list[Setting]:
    """Variables that the script sets in line 9; torchrun had set them otherwise."""
    given = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    return [Setting(name, value, LINE, given.get(name, "")) for name, value in values.items()]


def caller(number: int, world: int = 4, **made: Any) -> RankEvidence:
    """A rank that waits in init_process_group, called as torchrun wants it but for `made`."""
    values = {"rank": number, "world_size": world, "backend": "gloo", "frame": CALL, **MASTER, **made}
    method = values.pop("method", "env")
    return rank(
        number,
        in_init(),
        groups=[],
        initialized=False,
        world_size=world,
        rendezvous=Rendezvous(method, NOW - 11, **values),
    )


def localhost(number: int, **made: Any) -> RankEvidence:
    """A rank whose script has set MASTER_ADDR to localhost."""
    settings = [*sets(MASTER_ADDR="localhost"), *made.pop("settings", [])]
    return caller(number, address="localhost", resolved=["127.0.0.1"], settings=settings, **made)


def nodes(*each: list[RankEvidence], one_machine: bool = False, **job: Any) -> JobEvidence:
    """The ranks of each node; node 0 is n1 with 10.0.0.1, node 1 is n2 with 10.0.0.2."""
    evidence = [
        NodeEvidence(
            node,
            f"n{node + 1}",
            NOW,
            "init_process_group",
            ranks,
            machine="m1" if one_machine else f"m{node + 1}",
            addresses=[f"10.0.0.{node + 1}"],
        )
        for node, ranks in enumerate(each)
    ]
    values = {
        "world_size": sum(map(len, each)),
        "why": "call",
        "master_addr": "n1",
        "master_port": 29500,
        "names": [f"n{node + 1}" for node in range(len(each))],
        **job,
    }
    return JobEvidence("digits", len(each), at=NOW, evidence=evidence, **values)


def blamed(verdict: Verdict) -> tuple[str, list[int], list[int], list[int]]:
    """Code, culprit ranks, culprit nodes, victims."""
    return verdict.code, verdict.ranks, verdict.nodes, verdict.victims
