"""Check: the job's backend can work on this node. NCCL needs GPUs."""

from __future__ import annotations

import re

from ddplaunch.agent.checks import gpus
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult

_NAMED = re.compile(r"[\w-]*(?<!rdzv[-_])backend=(nccl|gloo)", re.IGNORECASE)
"""An argument or a variable that names the backend, by the usual names in programs."""


def check(context: Context, root: str = "/") -> CheckResult:
    """FAIL when nccl is named and no device of any GPU is here."""
    backend, where = named(context)
    devices = gpus.devices(root)
    wanted = context.plan.resources.gpus
    if backend == "nccl" and not devices and not wanted:  # else the check of GPUs fails
        return failed(
            "backend",
            "backend-unfit",
            f"the job says {where}, and no device of a GPU is here",
            wanted="GPUs, or gloo",
            hint="NCCL moves data between GPUs alone: ask for them, `resources: {gpus: …}`, or take gloo",
            says=backend,
        )
    if backend == "gloo" and devices and wanted:
        hint = "between GPUs nccl is many times faster"
        return unknown("backend", f"the job says {where}, and has GPUs", hint, says=backend)
    return passed("backend", where or "not set; torch takes nccl on GPUs, else gloo", says=backend)


def named(context: Context) -> tuple[str, str]:
    """Return ('nccl', '--backend nccl') by the job's command or `env`; ("", "") where they name none."""
    command = context.plan.command
    words = {f"{name}={value}": f"{name}={value}" for name, value in context.plan.env.items()}
    words.update({f"{a}={b}": f"{a} {b}" for a, b in zip(command, command[1:])}, **{a: a for a in command})
    for word, shown in words.items():
        match = _NAMED.fullmatch(word)
        if match:
            return match[1].lower(), shown
    return "", ""
