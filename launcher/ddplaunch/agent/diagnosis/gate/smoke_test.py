"""Rules about a failed collective smoke test: the network, one library, and which layer of it.

The hub asks once all ranks of the test have reported. What the network does to both backends is reported as
the network's. Where one passes, the other is unfit, and its own log says in which layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Optional

from ddplaunch.agent.contract import SmokeRank, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.gate import failed_paths
from ddplaunch.agent.diagnosis.gate.view import GateView
from ddplaunch.agent.system import phrases, subjects
from ddplaunch.agent.text.quantities import count
from ddplaunch.agent.text.saying import Sayable, say

_STAGES = {
    "started": "importing torch",
    "imported": "connecting to rank 0's store",
    "store": "init_process_group",
    "group": "the first all_reduce",
}
_STORE_CODES = {"timeout": "port-filtered", "refused": "port-rejected", "unreachable": "host-unreachable"}
_MESH_HINT = "leave `mesh` out of `gate.skip`: it says which path it is; then "
_FIREWALL = "open all TCP ports between the nodes: the ranks listen on ports that the kernel chooses"
_BY_HAND = "`run/node-N/smoke-*.log` in the job's folder has the ranks' output"


def backends(view: GateView) -> list[str]:
    """Return the backends to try, the job's own first: NCCL where all nodes have GPUs for their torch."""
    checks = [check_in.facts for check_in in view.check_ins.values()]
    preferred = {facts.get("backend", {}).get("says", "") for facts in checks}
    if all(_has_gpus(facts) for facts in checks):
        return ["gloo", "nccl"] if preferred == {"gloo"} else ["nccl", "gloo"]
    return ["nccl", "gloo"] if preferred == {"nccl"} else ["gloo"]


def _has_gpus(facts: dict[str, dict[str, object]]) -> bool:
    devices, versions = facts.get("gpus", {}).get("devices") or {}, facts.get("versions", {})
    assert isinstance(devices, dict)
    rocm = "rocm" in str(versions.get("torch")) and any("AMD" in kind for kind in devices)
    return rocm or bool(versions.get("cuda") and {"NVIDIA", "WSL"} & set(devices))


def judge(view: GateView, ranks: Sequence[SmokeRank], wanted: Sequence[str]) -> list[Verdict]:
    """Return the verdicts on the job's own backend, the first of `wanted`."""
    bad = _failed(ranks, wanted[0])
    lost = sorted(set(range(view.plan.nodes)) - {rank.node for rank in ranks})
    if lost:
        return [
            _verdict("node-missing", say(view.nodes(lost), " did not answer in the smoke test"), lost, bad)
        ]
    if not bad:
        return []
    by_gloo = _failed(ranks, "gloo")
    for rule, those in ((_imports, bad), (_store, bad), (_group, by_gloo), (_sums, by_gloo)):
        for found in rule(
            view, those
        ):  # what both libraries fail by is reported of Gloo, whose errors are plainer
            return [found]
    passed = [each for each in wanted[1:] if not _failed(ranks, each)]
    return [_unfit(view, wanted[0], bad, passed)]


def notes(view: GateView, ranks: Sequence[SmokeRank], wanted: Sequence[str]) -> list[str]:
    """Return one sentence for each backend: how it went."""
    return [f"smoke test: {summary(view.plan.nodes, ranks, each)}" for each in wanted]


def summary(nodes: int, ranks: Sequence[SmokeRank], backend: str) -> str:
    """'gloo all_reduce of 8 ranks: 4 B to 16 MiB in 1.2 s, 310 MB/s', or the call at which ranks stand."""
    own, bad = [rank for rank in ranks if rank.backend == backend], _failed(ranks, backend)
    if bad:
        return f"{backend}: {_stands(bad)}{f': {phrases.clipped(bad[0].error)}' if bad[0].error else ''}"
    if not own:
        return f"{backend}: nobody answered"
    world = len(own) // len({rank.node for rank in own}) * nodes
    seconds, rate = max(rank.seconds for rank in own), min(rank.rate for rank in own)
    span = f"4 B to {phrases.size(max(rank.size for rank in own))} in {phrases.span(seconds)}"
    return f"{backend} all_reduce of {count(world, 'rank')}: {span}, {rate / 1e6:.0f} MB/s"


def _failed(ranks: Sequence[SmokeRank], backend: str) -> list[SmokeRank]:
    return [rank for rank in ranks if rank.backend == backend and rank.stage != "done"]


def _imports(view: GateView, bad: Sequence[SmokeRank]) -> Iterator[Verdict]:
    """Ranks that do not even have torch."""
    those = [rank for rank in bad if rank.stage == "started"]
    if those and any(rank.error for rank in those):
        those = [rank for rank in those if rank.error]
    killed = [rank for rank in those if "SIGKILL" in rank.error]
    if killed:
        nodes = sorted({rank.node for rank in killed})
        sentence = say(
            view.nodes(nodes),
            ": ",
            subjects.ranks(r.rank for r in killed),
            " got SIGKILL while importing torch",
        )
        hint = "`resources.memory`: torch takes 0.3 GiB a rank, more with CUDA; `dmesg` there has more"
        yield replace(
            _verdict("memory-too-small", sentence, nodes, killed, hint), confidence=sure.SIGKILL_AT_IMPORT
        )
    elif those:
        nodes = sorted({rank.node for rank in those})
        why = phrases.clipped(those[0].error) or "it is not there after a minute"
        sentence = say(view.nodes(nodes), f": torch cannot be imported: {why}")
        hint = "`python -c 'import torch'` there; a library that it needs is missing, or the disk is slow"
        yield _verdict("image-lacks", sentence, nodes, those, hint)


def _store(view: GateView, bad: Sequence[SmokeRank]) -> Iterator[Verdict]:
    """Ranks that do not reach rank 0's store, which listens on a port that the kernel chose."""
    those = [rank for rank in bad if rank.stage == "imported" and rank.kind in _STORE_CODES]
    if those:
        nodes = sorted({rank.node for rank in those})
        all_others = len(nodes) == view.plan.nodes - 1
        sentence = say(
            view.nodes(nodes),
            " -> ",
            view.node(0),
            ": ",
            subjects.ranks(r.rank for r in those),
            f" cannot connect to rank 0's store: {those[0].error}",
        )
        yield _verdict(_STORE_CODES[those[0].kind], sentence, [0] if all_others else nodes, those, _FIREWALL)


def _group(view: GateView, bad: Sequence[SmokeRank]) -> Iterator[Verdict]:
    """Ranks that Gloo does not connect: every two of them have a connection as soon as there is a group."""
    those = [rank for rank in bad if rank.stage == "store"]
    odd = {
        rank.node: address
        for rank in those
        for address in rank.listens
        if address not in view.met_at(rank.node)
    }
    if odd:
        node, address = min(odd.items())
        sentence = say(view.node(node), f": Gloo listens at {address}, where peers do not reach it")
        hint = "leave GLOO_SOCKET_IFNAME out, and `mesh` out of `gate.skip`: the gate then sets what works"
        yield _verdict("gloo-interface-wrong", sentence, sorted(odd), bad, hint)
        return
    for rank in those:
        if not rank.waits:
            continue
        address = rank.waits[0]
        way: Sayable = view.node(rank.node)
        peers = [node for node in view.check_ins if address in view.met_at(node)]
        way = say(way, " -> ", view.node(peers[0])) if peers else way
        sentence = say(
            way, f": rank {rank.rank} cannot connect to {address}, on a port that the kernel chose"
        )
        yield _verdict("port-filtered", sentence, peers or [rank.node], bad, _MESH_HINT + _FIREWALL)


def _sums(view: GateView, bad: Sequence[SmokeRank]) -> Iterator[Verdict]:
    """Connections that were made, and on which nothing is confirmed any more."""
    for rank in bad:
        if rank.stage == "group" and rank.waits:
            address = rank.waits[0]
            ends = {node for node in view.check_ins if address in view.met_at(node)} | {rank.node}
            passes = f"{phrases.size(rank.size)} add up" if rank.size else "connections are made"
            sentence = say(view.node(rank.node), f" -> {address}: {passes}, and nothing larger is confirmed")
            yield _verdict("mtu-black-hole", sentence, sorted(ends), bad, _MESH_HINT + failed_paths.MTU_HINT)


def _unfit(view: GateView, backend: str, bad: Sequence[SmokeRank], passed: Sequence[str]) -> Verdict:
    """Return the verdict on one library, and where in it the test failed."""
    own = [rank for rank in bad if rank.error and not ECHO.search(rank.error)] or bad
    first = own[0]
    layer: Optional[Layer] = None
    if backend == "nccl":
        layer = nccl_layer([rank.log for rank in bad], first.error, view.plan.nodes > 1)
    nodes = sorted({rank.node for rank in own})
    other = f", where {passed[0]}'s all_reduce passes" if passed else ""
    place = f" in {layer.name}" if layer else f" at {_at(first)}"
    quoted = (layer.line if layer else "") or phrases.clipped(first.error) or "nothing moved for 20 s"
    sentence = say(
        f"{backend} fails on ", subjects.ranks(rank.rank for rank in own), f"{place}{other}: {quoted}"
    )
    hint = layer.hint if layer else _BY_HAND
    found = _verdict("backend-unfit", sentence, nodes, bad, hint)
    return replace(found, confidence=sure.LAYER_STOOD_STILL) if layer and not layer.sure else found


def _verdict(
    code: str, sentence: Sayable, nodes: list[int], bad: Sequence[SmokeRank], hint: str = _BY_HAND
) -> Verdict:
    facts = [
        f"{rank.backend}: {_stands([rank])}" + (f": {phrases.clipped(rank.error)}" if rank.error else "")
        for rank in bad
    ]
    facts += [line for rank in bad[:1] for line in rank.log]
    return Verdict.of(code, sentence, "gate", nodes=nodes, facts=facts, hint=hint)


def _stands(bad: Sequence[SmokeRank]) -> str:
    """'ranks 0-3 stand in init_process_group'."""
    first = bad[0]
    same = [rank.rank for rank in bad if (rank.stage, rank.size) == (first.stage, first.size)]
    return f"{phrases.ranks(same)} {phrases.one_or(same, 'stands', 'stand')} in {_at(first)}"


def _at(rank: SmokeRank) -> str:
    return f"all_reduce of more than {phrases.size(rank.size)}" if rank.size else _STAGES[rank.stage]


# --- NCCL's log at NCCL_DEBUG=INFO: in which layer NCCL failed or waits
#
# Layers, in the order in which a communicator is made: the GPU, bootstrap (addresses, over sockets), and for
# each pair of ranks a transport: P2P between GPUs, SHM within a node, NET/IB or NET/Socket between nodes.


_HINTS = {
    "the choice of GPUs": "give every rank a GPU of its own: resources.gpus, and "
    "torch.cuda.set_device(LOCAL_RANK)",
    "its version": "give all nodes the same NCCL: one image, or one environment",
    "P2P": "`env: {NCCL_P2P_DISABLE: '1'}` goes around it; for good: switch off PCIe ACS, or set iommu=pt",
    "SHM": "give /dev/shm more room: `resources.shm`; `df /dev/shm` on that node",
    "NET/IB": "`env: {NCCL_IB_DISABLE: '1'}` goes around it, over sockets; for good: `ibstat`, with RoCE "
    "NCCL_IB_GID_INDEX, and `ulimit -l` must be unlimited",
    "NET/Socket": "open all TCP ports between the nodes; NCCL_SOCKET_IFNAME names the interfaces for data",
    "bootstrap": "open all TCP ports between the nodes; NCCL_SOCKET_IFNAME==NAME names the interface exactly",
    "CUDA": "`nvidia-smi` on that node: is the driver there, and new enough for this torch? A job without "
    "GPUs takes gloo",
}
_LAYERS = (
    ("the choice of GPUs", r"Duplicate GPU|Multiple Ranks are using"),
    ("its version", r"Mismatched NCCL version"),
    ("P2P", r"transport/p2p|CUDA IPC|peer access|P2P"),
    ("SHM", r"/dev/shm|shmutils|transport/shm|include/shm|nccl-shm"),  # noqa: S108 - a name
    ("NET/IB", r"NET/IB|ibv_|net_ib|ib_plugin"),
    ("NET/Socket", r"net_socket|NET/Socket"),
    ("bootstrap", r"[Bb]ootstrap"),
    ("CUDA", r"(?i)cuda failure|cuda error|cuda device|nvidia driver|no cuda"),
)
_HARMLESS = re.compile(r"libibverbs|[Pp]lugin (load|No|:)|libnccl-net")
ECHO = re.compile(
    r"[Cc]losed by|Broken pipe|reset by peer|recv failed|Failed to execute operation|encountered progressing"
)
"""What ranks say whose peer has failed."""
_VIA = re.compile(r"\bvia (NET/\w+|P2P|SHM|direct shared memory)")


class Layer(NamedTuple):
    name: str
    line: str  # which decides it
    sure: bool = True  # else it is where it stood still

    @property
    def hint(self) -> str:
        return _HINTS[self.name]


def nccl_layer(logs: Sequence[Sequence[str]], error: str, between_nodes: bool) -> Optional[Layer]:
    """Return the NCCL layer that failed the ranks; `error` is torch's on the first. None: not known."""
    found = [each for log in logs for each in _warned(log)]
    found.sort(key=lambda each: bool(ECHO.search(each.line)))
    if found and not ECHO.search(found[0].line):
        return found[0]
    for line in reversed(error.splitlines()):  # the deepest reason stands last
        name = _of(line)
        if name:
            return Layer(name, line.strip())
    return next(filter(None, (_reached(log, between_nodes) for log in logs)), found[0] if found else None)


def _warned(log: Sequence[str]) -> list[Layer]:
    """Return the layer of each warning, by its own words or by those of the functions it passed."""
    found = []
    for index, line in enumerate(log):
        where, warns, text = line.partition("NCCL WARN ")
        if not warns or _HARMLESS.search(text):
            continue
        trace = []
        for below in log[index + 1 :]:
            if "NCCL WARN" in below:
                break
            trace.append(below)
        name = _of(text) or _of(where) or next(filter(None, map(_of, trace)), "")
        if name:
            found.append(Layer(name, text.strip()))
    return found


def _of(text: str) -> str:
    return next((name for name, pattern in _LAYERS if re.search(pattern, text)), "")


def _reached(log: Sequence[str], between_nodes: bool) -> Optional[Layer]:
    """Return the layer that NCCL had reached when its log ends."""
    ways = [(match[1], line) for line in log for match in [_VIA.search(line)] if match]
    ways.sort(key=lambda way: way[0].startswith("NET") != between_nodes)
    if ways:
        name = "SHM" if "shared memory" in ways[0][0] else ways[0][0]
        return Layer(name if name in _HINTS else "NET/Socket", _text(ways[0][1]), sure=False)
    begun = [line for line in log if re.search(r"Bootstrap ?: Using", line)]
    return Layer("bootstrap", _text(begun[-1]), sure=False) if begun else None


def _text(line: str) -> str:
    return line.replace("NCCL INFO", "").strip()
