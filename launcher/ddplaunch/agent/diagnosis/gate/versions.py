"""The rule about the versions of Python, torch, CUDA and NCCL. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate.job_view import GateView, odd_ones
from ddplaunch.agent.system import phrases


def differing_versions(view: GateView) -> Iterator[Verdict]:
    """Yield a verdict where Python, torch, CUDA or NCCL are not the same on all nodes."""
    if not view.checks("versions"):
        return
    known = {n: c.facts["versions"] for n, c in view.check_ins.items() if c.facts.get("versions")}
    short = {node: tuple(_version(facts).items()) for node, facts in known.items()}
    right, odd = odd_ones(short) if short else ((), {})
    if odd:
        who = sorted(node for group in odd.values() for node in group)
        first = next(iter(odd))
        differing = {key for value in odd for key, text in value if dict(right).get(key) != text}
        differing |= {key for key, text in right if any(dict(value).get(key) != text for value in odd)}
        yield Verdict(
            "version-differs",
            f"{view.nodes(odd[first])} {phrases.one_or(odd[first], 'has', 'have')} "
            f"{_spelt(dict(first), differing)}, {view.rest(short, who)} {_spelt(dict(right), differing)}",
            "gate",
            nodes=who,
            facts=[
                f"{view.node(node)}: {_spelt(dict(value), None)}" for node, value in sorted(short.items())
            ],
            hint="use one image, or one environment on a shared file system, for all nodes; "
            "`python:` in the job file names it",
        )


def _version(facts: dict[str, str]) -> dict[str, str]:
    """Return what must be equal; of Python the minor version: patch releases read each other's pickles."""
    found = dict(facts)
    found["python"] = ".".join(found.get("python", "").split(".")[:2])
    return found


def _spelt(facts: dict[str, str], only: Any) -> str:
    names = {"python": "Python", "torch": "torch", "cuda": "CUDA", "nccl": "NCCL"}
    picked = [key for key in names if only is None or key in only]
    return " / ".join(
        f"{names[key]} {facts[key]}" if facts.get(key) else f"no {names[key]}" for key in picked
    )
