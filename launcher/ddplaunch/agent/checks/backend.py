"""Check: the job's backend can work on this node. NCCL needs GPUs."""

from __future__ import annotations

import re

from ddplaunch.agent.checks import gpus
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult

_NAMED = re.compile(r"[\w-]*(?<!rdzv[-_])backend=(nccl|gloo)", re.IGNORECASE)
"""As an argument or a variable: there is no common word for it, but programs call it something like that."""


def check(context: Context, root: str = "/") -> CheckResult:
    """FAIL when nccl is named and no device of any GPU is here."""
    said, where = named(context)
    devices = gpus.devices(root)
    wanted = context.plan.resources.gpus
    if said == "nccl" and not devices and not wanted:  # else it is the GPUs that are missing
        return failed(
            "backend",
            "backend-unfit",
            f"the job says {where}, and no device of a GPU is here",
            wanted="GPUs, or gloo",
            hint="NCCL moves data between GPUs alone: ask for them, `resources: {gpus: …}`, or take gloo",
            says=said,
        )
    if said == "gloo" and devices and wanted:
        hint = "between GPUs nccl is many times faster"
        return unknown("backend", f"the job says {where}, and has GPUs", hint, says=said)
    return passed("backend", where or "not said; torch takes nccl for GPUs, else gloo", says=said)


def named(context: Context) -> tuple[str, str]:
    """('nccl', '--backend nccl') of the job's command or `env`; empty where they do not say."""
    command = context.plan.command
    words = {f"{name}={value}": f"{name}={value}" for name, value in context.plan.env.items()}
    words.update({f"{a}={b}": f"{a} {b}" for a, b in zip(command, command[1:])}, **{a: a for a in command})
    for word, shown in words.items():
        found = _NAMED.fullmatch(word)
        if found:
            return found[1].lower(), shown
    return "", ""
