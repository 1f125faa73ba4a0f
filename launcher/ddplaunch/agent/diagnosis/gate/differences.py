"""Rules about what must be alike on all nodes: sizes, versions, settings, clocks, hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Callable

from ddplaunch.agent import platforms
from ddplaunch.agent.contract import CheckIn, Verdict
from ddplaunch.agent.diagnosis.gate.view import GateView, odd_ones
from ddplaunch.agent.system import phrases
from ddplaunch.agent.text.quantities import count, listing
from ddplaunch.agent.text.saying import Sayable, joined, say


def duplicate_rank(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on pairs of processes that claim to be the same node."""
    for stray in view.strays:
        first = view.check_ins.get(stray.node)
        if first is not None:
            yield Verdict.of(
                "rank-duplicate",
                say(
                    "two agents claim to be ",
                    view.node(stray.node),
                    f": pid {first.pid} on {first.host} and pid {stray.pid} on {stray.host}",
                ),
                "gate",
                nodes=[stray.node],
                facts=[f"checked in first: {first.host} at {first.address}", f"second: {stray.host}"],
                hint="each node needs its own index from 0; a node's index must not be given to two machines",
            )


def differing_sizes(view: GateView) -> Iterator[Verdict]:
    """Yield verdicts on nodes that were started for other numbers of nodes, or of ranks."""
    claims = [*view.check_ins.values(), *(s for s in view.strays if s.node not in view.check_ins)]
    sizes = {c.node: (c.nodes, c.nproc_per_node) for c in claims}
    if not sizes:
        return
    right, odd = odd_ones(sizes)
    for size, who in odd.items():
        ranks = f" x {size[1]}" if size[1] != right[1] else ""
        right_ranks = f" x {right[1]}" if ranks else ""
        yield Verdict.of(
            "world-size-differs",
            say(
                view.nodes(who),
                f" {phrases.one_or(who, 'was', 'were')} started for {count(size[0], 'node')}{ranks}, ",
                view.rest(sizes, [n for who in odd.values() for n in who]),
                f" for {count(right[0], 'node')}{right_ranks}",
            ),
            "gate",
            nodes=who,
            facts=[
                f"{view.node(node)}: {n} nodes x {per or '?'}" for node, (n, per) in sorted(sizes.items())
            ],
            hint="start all nodes from the same job file",
        )


# --- versions of Python, torch, CUDA and NCCL


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
        yield Verdict.of(
            "version-differs",
            say(
                view.nodes(odd[first]),
                f" {phrases.one_or(odd[first], 'has', 'have')} {_spelt(dict(first), differing)}, ",
                view.rest(short, who),
                f" {_spelt(dict(right), differing)}",
            ),
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


# --- environment variables that must mean the same
#
# What of torch must be alike was tried, with Gloo, on one rank against another. For NCCL the sources say
# it: what ranks tell each other about is no matter, what each reads alone while it shapes the traffic is
# (github.com/NVIDIA/nccl: src/graph/tuning.cc and connect.cc, computeBuffSizes of src/init.cc,
# src/enqueue.cc).


_ALIKE = (
    "set it for all nodes, by `env` in the job file, or for none: on single nodes it may be set by "
    "~/.bashrc, a module, a task prolog, the image's environment, or /etc/nccl.conf"
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


def differing_settings(view: GateView) -> Iterator[Verdict]:
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
        yield Verdict.of(
            "environment-differs",
            say(
                view.nodes(who),
                f" {phrases.one_or(who, 'has', 'have')} {here}, ",
                others,
                f" {there}: {settings[0][1]}",
            ),
            "gate",
            nodes=list(who),
            facts=[
                f"{view.node(node)}: {_spelled(check_in, names)}"
                for node, check_in in sorted(view.check_ins.items())
            ],
            hint=_ALIKE,
        )


def setting_notes(view: GateView) -> list[Sayable]:
    """Return a note on each other difference that may be intended: an interface, or devices."""
    found: list[Sayable] = []
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
    return listing(
        [f"{name}={environment[name]}" if environment.get(name) else f"no {name}" for name in names]
    )


# --- clocks


CLOCK_TOLERANCE = 15.0
"""Seconds. torchrun's c10d rendezvous drops a node whose last heartbeat, by the other's clock, is older."""


def differing_clocks(view: GateView) -> list[Verdict]:
    """Return the verdict on clocks that differ; only a c10d rendezvous compares them."""
    if not view.checks("clock") or not any("c10d" in word for word in view.plan.launch):
        return []
    skews = _skews(view.check_ins)
    right = max(sorted(skews), key=lambda n: _close(skews, n), default=0)
    wrong = [n for n in sorted(skews) if abs(skews[n] - skews[right]) > CLOCK_TOLERANCE]
    if not wrong:
        return []
    off = skews[wrong[0]] - skews[right]
    return [
        Verdict.of(
            "clock-skew",
            say(
                view.node(wrong[0]),
                f"'s clock is {abs(off):.0f} s {'ahead' if off > 0 else 'behind'}; torchrun's c10d "
                f"rendezvous drops nodes beyond {CLOCK_TOLERANCE:.0f} s",
            ),
            "gate",
            nodes=wrong,
            facts=[
                f"{view.node(node)}: {skew:+.1f} s against node 0" for node, skew in sorted(skews.items())
            ],
            hint="`chronyc tracking` or `timedatectl` on that node; start its time service",
        )
    ]


def clock_notes(view: GateView) -> list[str]:
    """Return a note where clocks differ, and no rendezvous compares them."""
    skews = _skews(view.check_ins)
    if differing_clocks(view) or all(abs(skew) <= CLOCK_TOLERANCE for skew in skews.values()):
        return []
    shown = ", ".join(f"{view.node(n)} {s:+.0f} s" for n, s in skews.items())
    return [f"the nodes' clocks differ: {shown}"]


def _skews(check_ins: dict[int, CheckIn]) -> dict[int, float]:
    """Seconds by which each node's clock is ahead of the hub's, with the doubt taken off."""
    skews = {}
    for node, check_in in sorted(check_ins.items()):
        facts = check_in.facts.get("hub", {})
        if "received" in facts:
            skew = check_in.at - facts["received"]
            recheck = facts.get("round_trip", 0.0)
            skews[node] = 0.0 if abs(skew) <= recheck else skew - recheck if skew > 0 else skew + recheck
    return skews


def _close(skews: dict[int, float], node: int) -> int:
    return sum(abs(other - skews[node]) <= CLOCK_TOLERANCE for other in skews.values())


# --- hardware that must match: GPUs of one kind, one network that all nodes have


_ONE_KIND = (
    "use nodes of one kind; a machine that has lost a GPU says so in `dmesg`; if the difference is intended, "
    "`gate: {skip: [gpus]}`"
)
_ONE_NETWORK = (
    "repair or leave out the nodes without RDMA (`ibstat` there), or do without it on all nodes: `env: "
    '{NCCL_IB_DISABLE: "1"}`'
)
_ONE_INDEX = (
    "leave NCCL_IB_GID_INDEX out, and NCCL 2.21 or newer finds the right index on each node by itself"
)

_SLOWER = 10
"""Times, from where on a person should know: all wait for the slowest at every step."""
_SHOWN = 4


def differing_hardware(view: GateView) -> Iterator[Verdict]:
    """Yield what breaks or slows a job on such nodes. GPUs are judged only for a job that asks for some."""
    if view.plan.resources.gpus and view.checks("gpus"):
        hint = platforms.named(view.plan.platform).hint("hardware", _ONE_KIND)
        yield from _compared(view, "hardware-differs", "", "has", "have", _gpus(view), hint)
    if view.checks("rdma"):
        yield from _two_networks(view)
        rdma = _facts(view, "rdma")
        gids = {node: facts["gid"] for node, facts in rdma.items() if facts.get("used") and facts.get("gid")}
        by = "by NCCL_IB_GID_INDEX "
        yield from _compared(view, "rdma-unfit", by, "takes", "take", gids, _ONE_INDEX)


def _compared(
    view: GateView, code: str, before: str, one: str, many: str, values: dict[int, str], hint: str
) -> Iterator[Verdict]:
    right, odd = odd_ones(values) if values else ("", {})
    if odd:
        who = sorted(node for nodes in odd.values() for node in nodes)
        others = view.rest(values, who)
        parts = [
            say(view.nodes(has), f" {phrases.one_or(has, one, many)} {value}") for value, has in odd.items()
        ]
        yield Verdict.of(
            code,
            say(before, joined("; ", parts), ", ", others, f" {right}"),
            "gate",
            nodes=who,
            facts=[f"{view.node(node)}: {value}" for node, value in sorted(values.items())],
            hint=hint,
        )


def _two_networks(view: GateView) -> Iterator[Verdict]:
    """Yield the verdict on nodes of which some have RDMA. Where it is asked for, those without say so."""
    known = _facts(view, "rdma")
    without = [node for node, facts in known.items() if not facts.get("active")]
    users = [node for node, facts in known.items() if facts.get("active") and facts.get("used")]
    if without and users and not view.plan.resources.rdma:
        lack, have = phrases.one_or(without, "has", "have"), phrases.one_or(users, "has", "have")
        yield Verdict.of(
            "hardware-differs",
            say(
                view.nodes(without),
                f" {lack} no RDMA port that is up, ",
                view.nodes(users),
                f" {have}: NCCL would take RDMA on one side and TCP on the other, and wait",
            ),
            "gate",
            nodes=without,
            facts=[
                f"{view.node(node)}: {', '.join(facts.get('devices', [])) or 'no RDMA device'}"
                for node, facts in known.items()
            ],
            hint=_ONE_NETWORK,
        )


def hardware_notes(view: GateView) -> list[Sayable]:
    """Return what a person should know although the job can run."""
    found: list[Sayable] = [*mtus(view)] if len(set(_links(view, 0).values())) > 1 else []
    speeds = _links(view, 1)
    slow = [node for node, speed in speeds.items() if speed * _SLOWER <= max(speeds.values())]
    if slow:
        slowest = ", ".join(f"{speeds[node] / 1000:g} Gbit/s on {view.node(node)}" for node in slow[:_SHOWN])
        found.append(
            f"the network is slower on some nodes: {slowest}, {max(speeds.values()) / 1000:g} elsewhere"
        )
    if not view.plan.resources.gpus:
        found += view.differing("the GPUs differ", _gpus(view))
    return found + _rails(view)


def _rails(view: GateView) -> list[Sayable]:
    """Return a note on ports of RDMA that some nodes lack: NCCL takes the fewest channels, and is slower.

    In initTransportsRank of src/init.cc, from 2.18 to 2.30.
    """
    known = {
        n: facts for n, facts in _facts(view, "rdma").items() if facts.get("active") and facts.get("used")
    }
    values = {node: str(facts["active"]) for node, facts in known.items()}
    return view.differing("the number of RDMA ports that are up differs, and all go by the fewest", values)


def mtus(view: GateView) -> list[str]:
    """Return how large the nodes believe that packets may be, by the interface that each of them uses."""
    known = _links(view, 0)
    if not known:
        return []
    usual, odd = odd_ones(known)
    parts = [f"{mtu} on {view.nodes(who)}, " for mtu, who in odd.items()]
    return [f"the MTU is {''.join(parts)}{usual} on all {'other ' if odd else ''}nodes"]


def with_mtus(view: GateView, verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts, those on black holes with the MTUs of the nodes."""
    return [each.with_facts(mtus(view)) if each.code == "mtu-black-hole" else each for each in verdicts]


def _links(view: GateView, what: int) -> dict[int, int]:
    """Return by node the MTU (0) or the Mbit/s (1) of its library's interface, else of its way to the hub."""
    found = {}
    for node, facts in _facts(view, "interfaces").items():
        own = view.check_ins[node]
        taken = [name for name, _ in facts.get("takes", [])]
        came = [name for name, at in own.facts.get("names", {}).get("interfaces", []) if at == own.address]
        values = facts.get("links", {}).get((taken + came + [""])[0], [])
        if values and values[what]:
            found[node] = values[what]
    return found


def _gpus(view: GateView) -> dict[int, str]:
    """Return by node the names of the GPUs that its ranks will use, with a number where some lack GPUs.

    More than are asked for are no matter, and of nodes that tell none nothing is known.
    """
    known = {node: facts for node, facts in _facts(view, "gpus").items() if facts.get("models")}
    names = {node: " and ".join(facts["models"]) for node, facts in known.items()}
    if not all(facts["count"] for facts in known.values()):
        return names
    enough = view.plan.resources.gpus or view.plan.nproc_per_node
    counts = {node: min(facts["count"], enough or facts["count"]) for node, facts in known.items()}
    equal = len(set(counts.values())) < 2
    return names if equal else {node: f"{counts[node]} x {name}" for node, name in names.items()}


def _facts(view: GateView, check: str) -> dict[int, dict[str, Any]]:
    known = {node: check_in.facts.get(check) for node, check_in in sorted(view.check_ins.items())}
    return {node: facts for node, facts in known.items() if facts}
