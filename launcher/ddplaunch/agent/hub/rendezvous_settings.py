"""The addresses and variables that all nodes get with the release, each with its reason. Pure."""

from __future__ import annotations

from collections import Counter

from ddplaunch.agent.contract import CheckIn, JobPlan, RendezvousSettings
from ddplaunch.agent.system.resolve import is_loopback


def addresses(check_ins: dict[int, CheckIn], reached_at: list[str]) -> dict[int, str]:
    """Return the address at which peers reach each node: its own end of its connection to the hub.

    Node 0's connection to its own hub often runs over loopback. Its address is then the one at which most
    others have reached the hub (`reached_at`, one per node).
    """
    result = {node: check_in.address for node, check_in in check_ins.items()}
    outside = [address for address in reached_at if not is_loopback(address)]
    if 0 in result and is_loopback(result[0]) and outside:
        result[0] = Counter(outside).most_common(1)[0][0]
    return result


def agree(
    plan: JobPlan, check_ins: dict[int, CheckIn], addresses: dict[int, str], regroups: int = 0
) -> RendezvousSettings:
    """Return the settings for all nodes. Interfaces are named by the job file alone; nothing is guessed."""
    why = {}
    master = plan.master_addr or addresses[0]
    why["MASTER_ADDR"] = (
        "the job's plan names it" if plan.master_addr else "node 0 is reached there by the other nodes"
    )
    port = plan.master_port or check_ins[0].ports["master"]
    why["MASTER_PORT"] = (
        "the job's plan names it" if plan.master_port else "free on node 0, where it is chosen"
    )
    env = {}
    if plan.gate.interface:
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            exact = "=" if name.startswith("NCCL") else ""  # NCCL takes a prefix otherwise, Gloo never does
            env[name] = exact + plan.gate.interface
            why[name] = "gate.interface of the job file"
    elif len({(c.machine, c.netns) for c in check_ins.values()}) == 1 and not _gloo_finds_address(check_ins):
        env["GLOO_SOCKET_IFNAME"] = "lo"
        why["GLOO_SOCKET_IFNAME"] = "all nodes are one machine, whose own name has no address that it can use"
    nodes = len(check_ins) if plan.min_nodes else None
    return RendezvousSettings(master, port, env, why, nodes, regroups or None)


def _gloo_finds_address(check_ins: dict[int, CheckIn]) -> bool:
    """Whether every node's own name has an address it can bind. Unknown counts as yes: no variable is set."""
    return all(c.facts.get("names", {}).get("own_bindable", True) for c in check_ins.values())
