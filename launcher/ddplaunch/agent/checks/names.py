"""Check: the node's own name, the master's and its peers', as this node resolves them.

Whether a loopback address is wrong depends on the other nodes' machines, so the hub judges it.
"""

from __future__ import annotations

import socket
import time
from typing import Any, Union

from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.system.background import Task
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError, resolve
from ddplaunch.agent.transport.endpoints import interfaces

PATIENCE = 3.0
"""Seconds in which the master's name may still appear before the node checks in without it. The gate repeats
the check while the job waits for other nodes."""
_BRIEF = 0.5
"""PATIENCE when the check is repeated."""
_PAUSE = 0.25
_ALL_PEERS = 32
"""Nodes up to which each resolves all names; a thousand nodes would send a million requests."""

Lookup = Union[list[str], UnknownNameError, UnansweredNameError]


def check(context: Context) -> CheckResult:
    """FAIL only for the master's name: connections to peers use the addresses of their check-ins."""
    own = socket.gethostname()
    master = context.master_name
    peers = [name for name in _peers(context) if name != master]
    deadline = time.monotonic() + (_BRIEF if context.again else PATIENCE)
    answers = _resolve_all([own, *([master] if master else []), *peers], deadline)
    while isinstance(answers.get(master), Exception) and time.monotonic() + _PAUSE < deadline:
        time.sleep(_PAUSE)
        answers.update(_resolve_all([master], deadline))
    facts: dict[str, Any] = {
        "own": own,
        "master": master,
        "interfaces": interfaces(),
        "own_bindable": _bindable(answers[own]),
        "gpus": has_gpus(),
        "addresses": {name: addresses for name, addresses in answers.items() if isinstance(addresses, list)},
        "unresolved": {name: str(error) for name, error in answers.items() if isinstance(error, Exception)},
    }
    if master and isinstance(answers[master], Exception):
        return _no_master(master, answers[master], time.monotonic() - context.started, facts)
    silent = [name for name in peers if isinstance(answers[name], Exception)]
    if silent:
        return unknown("names", f"{', '.join(silent[:4])}: no address (yet)", **facts)
    shown = [f"{own} -> {_text(answers[own])}"]
    if master:
        shown.append(f"node 0 is {master}")
        shown[1] += f" -> {_text(answers[master])}" if answers[master] != [master] else ""
    return passed("names", "; ".join(shown), **facts)


def _no_master(master: str, answer: Lookup, seconds: float, facts: dict[str, Any]) -> CheckResult:
    """Return the failure; `seconds`: since the first request."""
    if isinstance(answer, UnknownNameError):
        return failed(
            "names",
            "dns-not-found",
            f"cannot resolve {master}: no such name, asked for {seconds:.0f} s",
            wanted="an address of node 0",
            hint=f"`getent hosts {master}` on that node shows the same; check the name, DNS and /etc/hosts",
            patience=0.0,
            **facts,
        )
    return failed(
        "names",
        "dns-unanswered",
        f"cannot resolve {master}: the name server does not answer, asked for {seconds:.0f} s ({answer})",
        wanted="an address of node 0",
        hint="check the name servers in /etc/resolv.conf on that node",
        patience=0.0,
        **facts,
    )


def _peers(context: Context) -> list[str]:
    names = context.plan.names
    if len(names) > _ALL_PEERS:
        names = [names[0], *(names[(context.node + step) % len(names)] for step in (-1, 0, 1))]
    return list(dict.fromkeys(names))


def _resolve_all(names: list[str], deadline: float) -> dict[str, Lookup]:
    """Resolve all names at once: one dead name must not take the time of the others."""
    answers: dict[str, Lookup] = {}

    def look_up(name: str) -> None:
        try:
            answers[name] = resolve(name, deadline)
        except (UnknownNameError, UnansweredNameError) as error:
            answers[name] = error

    for task in [Task(look_up, name) for name in dict.fromkeys(names)]:
        task.join()
    return answers


def _bindable(answer: Lookup) -> bool:
    """Whether Gloo finds an address: the first of the host's own name that it can bind."""
    for address in answer if isinstance(answer, list) else []:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, 0))
                return True
            except OSError:
                continue
    return False


def _text(answer: Lookup) -> str:
    return ", ".join(answer) if isinstance(answer, list) else "no address"


def has_gpus() -> bool:
    """Whether there are devices of NVIDIA or AMD."""
    import glob

    return bool(glob.glob("/dev/nvidia[0-9]*") or glob.glob("/dev/kfd"))
