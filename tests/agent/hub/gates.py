"""What the gates of nodes send to the hub, and the connections on which they do."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from tests.agent.hub.sessions import Wire

from ddplaunch.agent.contract import CheckIn, CheckResult, MeshResult
from ddplaunch.agent.contract.messages import MeshResults


class Client(Wire):
    """The connection of a node's gate or supervisor."""

    local = "10.0.0.1"


def check_in(node: int, *checks: CheckResult, **changes: Any) -> CheckIn:
    """What the node's gate reports."""
    address, ports = f"10.0.0.{node + 1}", {"responder": 5000, **({"master": 29500} if node == 0 else {})}
    values = {"nodes": 4, "nproc_per_node": 1, "at": time.time(), "pid": node, **changes}
    return CheckIn(node, f"n{node}", address=address, ports=ports, checks=[*checks], **values)


def paths(node: int, nodes: Iterable[int], failed: tuple[int, int] | None) -> MeshResults:
    """What the node's gate reports of its paths to these nodes; `failed`: a path that is filtered."""
    outcomes = {peer: "timeout" if (node, peer) == failed else "ok" for peer in nodes if peer != node}
    results = [
        MeshResult(node, peer, f"10.0.0.{peer + 1}", 5000, "responder", outcome)  # type: ignore[arg-type]
        for peer, outcome in outcomes.items()
    ]
    return MeshResults(results, {})
