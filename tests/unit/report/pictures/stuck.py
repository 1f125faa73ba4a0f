"""Ranks that stand still in one way or another, for pictures of them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.report import conftest as given

from ddplaunch.agent.contract import (
    Bundle,
    Collective,
    Event,
    Frame,
    Group,
    JobEvidence,
    NodeEvidence,
    Phase,
    RankEvidence,
    Stack,
    Verdict,
)
from ddplaunch.agent.diagnosis.run.view import JobView

FILE = "/src/train.py"
TORCH = "/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
END = given.AT + 100.0


def call(number: int, op: str, line: int, at: float, state: str = "entered", **fields: object) -> Collective:
    """A call of the default group, from a line of the user's."""
    its: dict[str, object] = {"done": state == "returned", "at": at, "state": state, "sizes": [[8]]}
    its["took"] = 0.8 if state == "returned" else None
    return Collective("0", number, op, frames=[Frame("train", FILE, line)], **(its | fields))  # type: ignore[arg-type]


def rank(number: int, *calls: Collective, world: int = 4, **changes: object) -> RankEvidence:
    """A rank that is in the last of these calls; its recorder has none, its ring has all."""
    last = calls[-1]
    frames = [Frame(last.op, TORCH, 4181), *last.frames, Frame("<module>", FILE, 99)]
    collective = not last.p2p
    done = sum(each.done for each in calls)
    fields: dict[str, object] = {
        "rank": number,
        "local_rank": number % 2,
        "pid": 100 + number,
        "alive": True,
        "phase": Phase.RUNNING,
        "stacks": [Stack("MainThread", main=True, frames=frames)],
        "stack_source": "hook",
        "stuck_for": END - last.at,
        "groups": [
            Group("0", list(range(world)), len(calls) if collective else 0, done if collective else 0)
        ],
        "calls": list(calls),
        "world_size": world,
    }
    return RankEvidence(**(fields | changes))  # type: ignore[arg-type]


def bundle(ranks: Sequence[RankEvidence], verdict: Verdict | None = None, per_node: int = 2) -> Bundle:
    """Of nodes with so many ranks each."""
    nodes = [
        NodeEvidence(
            number,
            f"host{number}",
            END,
            Phase.RUNNING,
            list(ranks[number * per_node : (number + 1) * per_node]),
            lines={
                f"{FILE}:9": "dist.all_reduce(x)",
                f"{FILE}:14": "dist.broadcast(x, 0)",
                f"{FILE}:20": "dist.recv(x, after)",
            },
        )
        for number in range(-(-len(ranks) // per_node))
    ]
    names = [node.host for node in nodes]
    evidence = JobEvidence(
        "digits", len(nodes), len(ranks), "still", END, nodes, names=names if len(names) > 1 else []
    )
    events = [
        Event(given.AT + 1, "release", "gate passed in 1.0 s, starting"),
        Event(END - 2, "verdict", "it hangs"),
    ]
    return given.bundle(
        nodes=len(nodes), evidence=evidence, verdicts=[verdict] if verdict else [], events=events
    )


def view(found: Bundle) -> JobView:
    """What rules see of it."""
    assert found.evidence is not None
    return JobView(found.evidence)


def verdict(code: str, *ranks: int, **changes: object) -> Verdict:
    """On these ranks."""
    fields: dict[str, object] = {"code": code, "sentence": f"it is {code}", "where": "run", "ranks": [*ranks]}
    return Verdict.of(**(fields | changes))  # type: ignore[arg-type]


def mismatch(world: int = 4, odd: int = 3) -> list[RankEvidence]:
    """Ranks in their second collective, one of them in another one."""
    found = []
    for number in range(world):
        own = call(2, "broadcast", 14, END - 30) if number == odd else call(2, "all_reduce", 9, END - 29)
        before = call(1, "all_reduce", 9, END - 40, "returned")
        found.append(rank(number, before, own, world=world, collectives=[before, own]))
    return found


def circle(world: int = 3) -> list[RankEvidence]:
    """Ranks that all receive from the next one."""
    found = []
    for number in range(world):
        own = call(1, "recv", 20, END - 20, p2p=True, peer=(number + 1) % world, sizes=[])
        found.append(rank(number, own, world=world))
    return found
