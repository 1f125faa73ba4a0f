"""Check: how much memory a rank may lock. RDMA pins its send buffers, which count against that limit.

Linux, drivers/infiniband/core/umem.c: beyond a process's soft RLIMIT_MEMLOCK pinning fails with ENOMEM,
unless it has CAP_IPC_LOCK in the first user namespace. NCCL prints `Call to ibv_reg_mr failed with error
Cannot allocate memory`, or ibv_create_cq, at its first connection, and the other ranks wait.
"""

from __future__ import annotations

import resource

from ddplaunch.agent import platforms
from ddplaunch.agent.checks import rdma
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.system import phrases, processes

LEAST = 64 << 20
"""Bytes. A connection of NCCL has buffers of 9 MiB (4 for large messages, 5 for small ones), a ring of two
channels has four connections, and they are pinned where the GPU's own memory cannot be. Defaults are far
below: 64 KiB, or 8 MiB by systemd and newer kernels."""
_HINT = (
    "`ulimit -l unlimited` where the job is started; if that is refused, `* - memlock unlimited` in "
    "/etc/security/limits.conf, or `docker run --ulimit memlock=-1`"
)


def check(context: Context, root: str = "/") -> CheckResult:
    """FAIL where the ranks send by RDMA and cannot pin enough. They inherit the gate's limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    facts = {"soft": soft, "hard": hard}
    observed = f"{_size(soft)} may be locked"
    if soft == resource.RLIM_INFINITY or not rdma.is_used(context, root):
        return passed("memlock", observed, **facts)
    if processes.has_capability(processes.IPC_LOCK):
        return passed("memlock", f"{observed}, and CAP_IPC_LOCK lifts that", **facts)
    hint = platforms.named(context.plan.platform).hint("memlock", _HINT)
    if soft >= LEAST:
        return unknown("memlock", f"{observed}, which may not do for RDMA", hint, **facts)
    more = f" (a process may raise it to {_size(hard)})" if hard != soft else ""
    return failed(
        "memlock",
        "memlock-too-small",
        f"a rank may lock {_size(soft)} of memory{more}, which RDMA cannot work with",
        "unlimited",
        hint,
        **facts,
    )


def _size(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else phrases.size(limit)
