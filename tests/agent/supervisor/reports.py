"""What the supervisor's tests tell a node, and read from what it tells the hub."""

from __future__ import annotations

from typing import Any

from tests.agent.supervisor.conftest import Hub, wait_for

from ddplaunch.agent.contract import NodeEvidence, RankEvidence, Verdict, codec
from ddplaunch.agent.transport.protocol import Body

RAISES = """
import os, time
def fail():
    raise ValueError("no batch")
def stand():
    open("stands", "w").close()
    time.sleep(300)
if os.environ["RANK"] == "0":
    stand()
while not os.path.exists("stands"):
    time.sleep(0.01)
fail()
"""

WAITS = """
import os, sys, time
def stand():
    print("rank", os.environ["RANK"], "stands", flush=True)
    time.sleep(300)
stand()
"""
VERDICT = Verdict.of(
    "rank-failed", "rank 1 raised ValueError: no batch", "run", [0], [1], [0], 1.0, [], "Mend it."
)


def end(exit_code: int = 40, grace: float = 5.0, **more: Any) -> Body:
    """The hub\'s last word."""
    return {"exit_code": exit_code, "grace": grace, "verdicts": [codec.dump(VERDICT)], **more}


def deaths(hub: Hub) -> dict[int, RankEvidence]:
    """The last word on each rank that ended."""
    found = [codec.load(RankEvidence, body["rank"]) for body in hub.bodies("death")]
    return {rank.rank: rank for rank in found}


def evidence(hub: Hub, number: int) -> NodeEvidence:
    """The answer to `collect` with this number."""

    def answers() -> list[Body]:
        return [body for body in hub.bodies("evidence") if body["id"] == number]

    return codec.load(NodeEvidence, wait_for(answers, what=f"evidence {number}")[0]["evidence"])


def names(rank: RankEvidence) -> list[str]:
    """The functions on the main thread's stack, innermost first."""
    return [frame.name for stack in rank.stacks if stack.main for frame in stack.frames]
