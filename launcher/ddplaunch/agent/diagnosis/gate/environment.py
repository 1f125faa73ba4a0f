"""Rules about environment variables that must mean the same on all nodes. Pure.

What of torch must be alike was tried, with Gloo, on one rank against another. For NCCL the sources say it:
what ranks tell each other about is no matter, what each reads alone while it shapes the traffic is
(github.com/NVIDIA/nccl: src/graph/tuning.cc and connect.cc, computeBuffSizes of src/init.cc, src/enqueue.cc).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Callable

from ddplaunch.agent.contract import CheckIn, Verdict
from ddplaunch.agent.diagnosis.gate.job_view import GateView, odd_ones
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text import ranges

_ALIKE = (
    "set it for all nodes, by `env` in the job file, or for none: what sets it on single nodes is a file of "
    "theirs, as ~/.bashrc, a module, a task prolog, the image's environment, /etc/nccl.conf"
)
_OFF = ("", "0", "FALSE", "OFF", "NO", "N")


def _flag(value: str) -> str:
    return "" if value.upper() in _OFF else "1"


_TORCH: dict[str, tuple[Callable[[str], str], str]] = {
    "TORCH_DISTRIBUTED_DEBUG": (
        lambda value: "DETAIL" if value.upper() == "DETAIL" else "",
        "with DETAIL ranks agree on every collective beforehand, and wait for all others to do so",
    ),
    "TORCH_DIST_INIT_BARRIER": (_flag, "with it ranks wait for all others to do so when they begin"),
    "TORCH_GLOO_LAZY_INIT": (_flag, "ranks that connect at once wait for those that do not"),
    "TORCH_ELASTIC_WORKER_IDENTICAL": (_flag, "torchrun with it does not write what those without wait for"),
    "GLOO_DEVICE_TRANSPORT": (lambda value: value.upper() or "TCP", "Gloo's ranks do not connect"),
}
"""What a value comes down to, and what happens where it is not the same."""

_SHAPE = re.compile(
    "NCCL_(ALGO|PROTO|(LL_|LL128_)?BUFFSIZE|(LL128_)?NTHREADS|THREAD_THRESHOLDS|(MIN|MAX)_(NRINGS|CTAS|"
    "(P2P_)?NCHANNELS)|P2P_NET_CHUNKSIZE|P2P_LL_THRESHOLD|CHUNK_SIZE|PAT_ENABLE|NET_OVERHEAD)"
)
_SHAPE_WHY = "each of NCCL's ranks goes by its own, and one sends what the other does not wait for"
_DEFAULTS = {
    "NCCL_CHUNK_SIZE": 0,
    "NCCL_CROSS_NIC": 2,
    "NCCL_DMABUF_ENABLE": 1,
    "NCCL_IB_DISABLE": 0,
    "NCCL_IB_PCI_RELAXED_ORDERING": 2,
    "NCCL_IB_QPS_PER_CONNECTION": 1,
    "NCCL_IB_RETRY_CNT": 7,
    "NCCL_MIN_P2P_NCHANNELS": 1,
    "NCCL_NVLS_ENABLE": 2,
    "NCCL_P2P_LL_THRESHOLD": 16384,
    "NCCL_P2P_NET_CHUNKSIZE": 1 << 17,
    "NCCL_PAT_ENABLE": 2,
    "NCCL_SHM_DISABLE": 0,
}
"""What NCCL_PARAM gives where nothing is set, the same in all releases from 2.18.1 to 2.30.7 that have it.

In init.cc, enqueue.cc, graph/paths.cc, search.cc and tuning.cc, transport/shm.cc, nvls.cc and net_ib of src.
Others have changed, or depend on the machine: NCCL_BUFFSIZE was a quarter of itself on ARM in 2.18.
"""
_NETWORK = ("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE")
_NETWORK_WHY = "NCCL's ranks do not meet across two networks, and wait"


def differing(view: GateView) -> Iterator[Verdict]:
    """Return one verdict for all settings in which the same nodes differ."""
    found: dict[tuple[int, ...], list[tuple[str, str]]] = {}
    for name, why, values in _harmful(view):
        _, odd = odd_ones(values)
        found.setdefault(tuple(sorted(node for who in odd.values() for node in who)), []).append((name, why))
    for who, settings in found.items():
        first = next(node for node in sorted(view.check_ins) if node not in who)
        others = view.rest(view.check_ins, who)
        names = [name for name, _ in settings]
        here, there = (_spelled(view.check_ins[node], names) for node in (who[0], first))
        yield Verdict(
            "environment-differs",
            f"{view.nodes(who)} {phrases.one_or(who, 'has', 'have')} {here}, {others} {there}: "
            f"{settings[0][1]}",
            "gate",
            nodes=list(who),
            facts=[
                f"{view.node(node)}: {_spelled(check_in, names)}"
                for node, check_in in sorted(view.check_ins.items())
            ],
            hint=_ALIKE,
        )


def notes(view: GateView) -> list[str]:
    """Return a note on each other difference that may be intended: an interface, or devices."""
    found = []
    environments = {node: _settings(check_in) for node, check_in in view.check_ins.items()}
    for name in sorted({name for values in environments.values() for name in values}):
        values = {node: each.get(name) or "not set" for node, each in environments.items()}
        found += view.differing(f"{name} differs", values)
    return found


def _harmful(view: GateView) -> Iterator[tuple[str, str, dict[int, str]]]:
    """(variable, what happens, what it comes down to by node) of each that must be alike, and is not."""
    known = {n: c for n, c in sorted(view.check_ins.items()) if "configuration" in c.facts}
    of_nccl = {n: c for n, c in known.items() if c.facts["configuration"].get("gpus")}
    for name, (meaning, why) in _TORCH.items():
        yield from _unequal(name, why, {n: meaning(_environment(c).get(name, "")) for n, c in known.items()})
    for name in sorted({name for c in of_nccl.values() for name in _settings(c) if _SHAPE.fullmatch(name)}):
        yield from _unequal(name, _SHAPE_WHY, {n: _plain(c, name) for n, c in of_nccl.items()})
    networks = {n: _network(c) for n, c in of_nccl.items()}
    for name in _NETWORK:
        if len({_plain(c, name) for c in of_nccl.values()}) > 1:
            yield from _unequal(name, _NETWORK_WHY, networks)


def _unequal(name: str, why: str, values: dict[int, str]) -> Iterator[tuple[str, str, dict[int, str]]]:
    if len(set(values.values())) > 1:
        yield name, why, values


def _environment(check_in: CheckIn) -> dict[str, str]:
    found: dict[str, str] = check_in.facts.get("configuration", {}).get("environment", {})
    return found


def _settings(check_in: CheckIn) -> dict[str, str]:
    """Return the settings that differ from their defaults."""
    return {name: value for name, value in _environment(check_in).items() if not _is_default(name, value)}


def _is_default(name: str, value: str) -> bool:
    try:
        return int(value, 0) == _DEFAULTS.get(name)  # as strtoll(3) is asked to read it
    except ValueError:
        return False


def _plain(check_in: CheckIn, name: str) -> str:
    return _settings(check_in).get(name, "").strip().upper()


def _network(check_in: CheckIn) -> str:
    """Return what NCCL will send by: a plugin, if one is named; RDMA where a port is up; else sockets."""
    active: Any = check_in.facts.get("rdma", {}).get("active")
    plugin = _plain(check_in, "NCCL_NET_PLUGIN")
    without = not active or _flag(_plain(check_in, "NCCL_IB_DISABLE"))
    return _plain(check_in, "NCCL_NET") or plugin.replace("NONE", "") or ("SOCKET" if without else "IB")


def _spelled(check_in: CheckIn, names: list[str]) -> str:
    """'NCCL_ALGO=Ring and no NCCL_PROTO'."""
    environment = _environment(check_in)
    return ranges.listing(
        [f"{name}={environment[name]}" if environment.get(name) else f"no {name}" for name in names]
    )
