"""Check: which network interface the ranks' library will take. The mesh tries its paths later."""

from __future__ import annotations

import glob
from typing import Any

from ddplaunch.agent.checks import gpus, names, python
from ddplaunch.agent.checks.context import Context, passed, unknown
from ddplaunch.agent.checks.python import Lacks, UnansweredError
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.interfaces import predict, read
from ddplaunch.agent.interfaces.predict import UP

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"


def check(context: Context, root: str = "/") -> CheckResult:
    """Record the choice of torch's default library: NCCL where there are GPUs, else Gloo. Raises OSError."""
    try:
        facts = python.facts(context)
    except (Lacks, UnansweredError):
        facts = {}
    ways = _ways()
    if not facts.get("torch") or context.plan.mpi:
        return passed("interfaces", "no torch here whose library would take one", **ways)
    environment = {**context.environment, **context.plan.env}
    if context.plan.gate.interface:
        environment.update({NCCL: f"={context.plan.gate.interface}", GLOO: context.plan.gate.interface})
    on_gpus = "NVIDIA" in gpus.devices(root)
    release = predict.nccl_version(facts.get("nccl") or "")
    host = read.host(environment, release, names.PATIENCE)
    rdma = bool(glob.glob(f"{root}sys/class/infiniband/*"))
    choice = predict.nccl_reached(host, release, rdma) if on_gpus else predict.gloo(host)
    result: dict[str, Any] = {
        "library": "NCCL" if on_gpus else "Gloo",
        "takes": [[each.interface, each.address] for each in choice.addresses],
        "why": choice.why,
        "set": choice.is_set,
        **ways,
    }
    if not choice.addresses:
        return unknown("interfaces", f"{result['library']} finds none: {choice.why}", **result)
    return passed("interfaces", f"{result['library']} takes {choice}: {choice.why}", **result)


def _ways() -> dict[str, Any]:
    """Return MTU and Mbit/s of interfaces that peers may use, and each address's prefix length."""
    known = read.links()
    used = [each for each in read.addresses() if each.flags & UP and each.interface != "lo"]
    links = {each.interface: known[each.interface] for each in used if each.interface in known}
    return {
        "links": {name: [link.mtu, link.speed] for name, link in links.items()},
        "prefixes": {each.address: each.prefix for each in used},
    }
