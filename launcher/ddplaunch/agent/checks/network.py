"""Checks: names as this node resolves them, its own record, and the interfaces that NCCL and Gloo will use.

Whether a loopback address is wrong depends on which machines the other nodes are on, so the hub judges that.
"""

from __future__ import annotations

import contextlib
import glob
import socket
import time
from typing import Any, Union

from ddplaunch.agent import platforms
from ddplaunch.agent.checks import gpus, python
from ddplaunch.agent.checks.context import Context, failed, passed, unknown
from ddplaunch.agent.checks.python import Lacks, UnansweredError
from ddplaunch.agent.contract import CheckResult
from ddplaunch.agent.interfaces import predict, read
from ddplaunch.agent.interfaces.predict import UP
from ddplaunch.agent.platforms import dns
from ddplaunch.agent.system.background import Task
from ddplaunch.agent.system.resolve import UnansweredNameError, UnknownNameError, resolve
from ddplaunch.agent.transport.endpoints import interfaces

# --- the node's own name, the master's and its peers'

NAME_PATIENCE = 3.0
"""Seconds in which the master's name may still appear before the node checks in without it. The gate repeats
the check while the job waits for other nodes."""
_BRIEF_PATIENCE = 0.5
"""The same when the check is repeated."""
_NAME_PAUSE = 0.25
_ALL_PEERS = 32
"""Up to this many nodes, each one resolves all names; a thousand nodes would send a million requests."""

Lookup = Union[list[str], UnknownNameError, UnansweredNameError]


def check_names(context: Context) -> CheckResult:
    """FAIL only for the master's name: connections to peers use the addresses in their check-ins."""
    own = socket.gethostname()
    master = context.master_name
    peers = [name for name in _peers(context) if name != master]
    deadline = time.monotonic() + (_BRIEF_PATIENCE if context.again else NAME_PATIENCE)
    answers = _resolve_all([own, *([master] if master else []), *peers], deadline)
    while isinstance(answers.get(master), Exception) and time.monotonic() + _NAME_PAUSE < deadline:
        time.sleep(_NAME_PAUSE)
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
    shown = [f"{own} -> {_addresses_text(answers[own])}"]
    if master:
        shown.append(f"node 0 is {master}")
        shown[1] += f" -> {_addresses_text(answers[master])}" if answers[master] != [master] else ""
    return passed("names", "; ".join(shown), **facts)


def _no_master(master: str, answer: Lookup, seconds: float, facts: dict[str, Any]) -> CheckResult:
    """Return the failure. `seconds`: since the first request."""
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
    """Resolve all names at once: one dead name must not use up the time of the others."""
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
    """Whether Gloo finds an address: the first one of the host's own name that it can bind."""
    for address in answer if isinstance(answer, list) else []:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, 0))
                return True
            except OSError:
                continue
    return False


def _addresses_text(answer: Lookup) -> str:
    return ", ".join(answer) if isinstance(answer, list) else "no address"


def has_gpus() -> bool:
    """Whether there are NVIDIA or AMD devices."""
    import glob

    return bool(glob.glob("/dev/nvidia[0-9]*") or glob.glob("/dev/kfd"))


# --- if a Service names the nodes: whether the name server knows this one, by its own answer

RECORD_PATIENCE = 3.0
"""Seconds within which the record of a new node usually appears."""
_TRY = 2.0
_RECORD_PAUSE = 0.25
SLOW_REVERSE = 1.0
"""A reverse lookup of this many seconds delays torch's start."""
_LONGEST_REVERSE = 3.0


def check_service(context: Context) -> CheckResult:
    """FAIL, on node 0 only, if there is no record of this node."""
    platform = platforms.named(context.plan.platform)
    if platform.name_delay is None or not context.plan.names:
        return passed("service", "no Service names the nodes")
    name = context.plan.names[context.node]
    deadline = time.monotonic() + (0.0 if context.again else RECORD_PATIENCE)
    while True:
        answer = dns.ask(name, time.monotonic() + _TRY)
        if answer.status == dns.RESOLVED or time.monotonic() + _RECORD_PAUSE > deadline:
            break
        time.sleep(_RECORD_PAUSE)
    seconds = time.monotonic() - context.started
    facts: dict[str, Any] = {"status": answer.status, "said": answer.text, "seconds": seconds}
    if answer.status == dns.RESOLVED:
        seconds = _time_reverse(answer.addresses[0])
        if seconds < SLOW_REVERSE:
            return passed("service", f"{name}: {answer.text}", **facts)
        observed = f"{name}: {answer.text}; to find the name of that address took {seconds:.1f} s"
        hint = "torch asks for names of addresses when it logs: see to the reverse zones of the name server"
        return unknown("service", observed, hint, **facts)
    observed = f"{name}: {answer.text}, asked for {seconds:.0f} s"
    if context.node != 0:
        return unknown("service", observed, **facts)
    unanswered = answer.status in (dns.SILENT, dns.FAILING)
    return failed(
        "service",
        "dns-unanswered" if unanswered else "dns-not-found",
        observed,
        wanted="a record of this node, by which the others find it",
        hint=platform.hint("unanswered" if unanswered else "not-found", ""),
        patience=0.0,
        **facts,
    )


def _time_reverse(address: str) -> float:
    """Return how many seconds a reverse lookup takes, _LONGEST at most."""
    started = time.monotonic()
    Task(_look_up_name, address).join(_LONGEST_REVERSE)
    return time.monotonic() - started


def _look_up_name(address: str) -> None:
    with contextlib.suppress(OSError):
        socket.getnameinfo((address, 0), 0)


# --- interfaces

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"


def check_interfaces(context: Context, root: str = "/") -> CheckResult:
    """Record the choice of torch's default library: NCCL if there are GPUs, otherwise Gloo. Raises
    OSError.
    """
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
    on_gpus = "NVIDIA" in gpus.count_devices(root)
    release = predict.nccl_version(facts.get("nccl") or "")
    host = read.host(environment, release, NAME_PATIENCE)
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
    """Return MTU and Mbit/s of the interfaces that peers may use, and the prefix length of each address."""
    known = read.links()
    used = [each for each in read.addresses() if each.flags & UP and each.interface != "lo"]
    links = {each.interface: known[each.interface] for each in used if each.interface in known}
    return {
        "links": {name: [link.mtu, link.speed] for name, link in links.items()},
        "prefixes": {each.address: each.prefix for each in used},
    }
