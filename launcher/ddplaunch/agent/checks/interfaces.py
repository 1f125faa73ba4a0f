"""Which interface the ranks' library will take here. Whether peers reach it is the mesh's to find out."""

from __future__ import annotations

import glob
from typing import Any, Optional

from ddplaunch.agent.checks import gpus, names, python
from ddplaunch.agent.checks.context import Context, passed, unknown
from ddplaunch.agent.checks.python import Lacks
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.interfaces import gloo, nccl, read
from ddplaunch.agent.interfaces.facts import UP

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"


def check(context: Context, root: str = "/") -> CheckResult:
    """Facts of the library that torch takes by itself: NCCL where there are GPUs, else Gloo."""
    try:
        facts = python.facts(context) or {}
    except Lacks:
        facts = {}
    links = _links()
    if not facts.get("torch") or context.plan.mpi:
        return passed("interfaces", "no torch here whose library would take one", links=links)
    environment = {**context.environment, **context.plan.env}
    if context.plan.gate.interface:
        environment.update({NCCL: f"={context.plan.gate.interface}", GLOO: context.plan.gate.interface})
    on_gpus = "NVIDIA" in gpus.devices(root)
    release = nccl.version(facts.get("nccl") or "")
    host = read.host(environment, release, names.PATIENCE)
    known = {name: each.value for name, each in nccl.settings(host, release).items()}
    rdma = bool(glob.glob(f"{root}sys/class/infiniband/*"))
    choice = nccl.reached(host, release, rdma) if on_gpus else gloo.gloo(host)
    value = known.get(NCCL, "") if on_gpus else environment.get(GLOO, "")
    found: dict[str, Any] = {
        "library": "NCCL" if on_gpus else "Gloo",
        "takes": [[each.interface, each.address] for each in choice.addresses],
        "why": choice.why,
        "set": len(value) > 1,
        "links": links,
    }
    if not choice.addresses:
        return unknown("interfaces", f"{found['library']} finds none: {choice.why}", **found)
    return passed("interfaces", f"{found['library']} takes {choice}: {choice.why}", **found)


def _links() -> dict[str, list[Optional[int]]]:
    """MTU and Mbit/s of those that peers may come by."""
    known = read.links()
    used = {each.interface for each in read.addresses() if each.flags & UP} - {"lo"}
    return {name: [link.mtu, link.speed] for name, link in known.items() if name in used}
