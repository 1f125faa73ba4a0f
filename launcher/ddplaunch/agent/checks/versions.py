"""Check: the versions of the trainer's Python, torch, CUDA and NCCL, which the hub compares."""

from __future__ import annotations

from ddplaunch.agent.checks import python
from ddplaunch.agent.checks.context import Context, passed, unknown
from ddplaunch.agent.checks.python import Lacks, UnansweredError
from ddplaunch.agent.contract import CheckResult


def check(context: Context) -> CheckResult:
    """Return the versions as facts: PASS, or UNKNOWN where the interpreter does not answer."""
    try:
        facts = python.facts(context)
    except (Lacks, UnansweredError):
        return unknown("versions", "not known: the interpreter did not answer")
    shown = {key: facts[key] for key in ("python", "torch", "cuda", "nccl") if facts.get(key)}
    words = {"python": "Python", "cuda": "CUDA", "nccl": "NCCL"}
    return passed("versions", ", ".join(f"{words.get(k, k)} {v}" for k, v in shown.items()), **shown)
