"""Rules about torchruns that cannot meet, or that do not look for one another, by how they were started.

They wait without a word, for ten minutes or more, and no rank has been started yet. A rule speaks only where
every node has one torchrun, and none of these has had workers: of several, one may be the next step of a
script. They are told as notices: what a torchrun waits for may still come from outside the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Callable, Optional

from ddplaunch.agent.contract import Torchrun, Verdict
from ddplaunch.agent.diagnosis import confidence as sure
from ddplaunch.agent.diagnosis.run.view import JobView
from ddplaunch.agent.system import phrases
from ddplaunch.agent.system.resolve import is_loopback
from ddplaunch.agent.system.torchrun import C10D, STATIC, split_endpoint
from ddplaunch.agent.text.quantities import count
from ddplaunch.agent.text.saying import Sayable, joined, say

Runs = dict[int, Torchrun]
"""The torchrun of each node."""

ONE_ID = (
    "Give all nodes the same --rdzv-id: make it once, before the nodes start, because $RANDOM in a script "
    "that every node runs is another number on each; or leave it out."
)
NAME_NODE_0 = (
    "Give all nodes the name or address of node 0. Where a script falls back on localhost when a command "
    "fails, see why it fails."
)
ONE_PLACE = "Give all nodes the same --rdzv-endpoint, or the same --master-addr and --master-port."
NAME_HOST = (
    "Give the endpoint by the name that `hostname` prints on node 0, or tell torchrun who opens the store: "
    "--rdzv-conf is_host=1 on node 0, is_host=0 on all others."
)
ONE_BACKEND = "Give all nodes the same --rdzv-backend."
_OWN_RANK = "Give each node its own --node-rank, from 0."
_ALL_NODES = (
    "Give torchrun the number of nodes, its node's rank and node 0's address, or start it directly, by "
    "`ddplaunch run --join -- torchrun …`, which fills them in. If each node is to train alone, say "
    "--nnodes=1."
)
_FEWER = "Give torchrun as many --nnodes as there are nodes."


def cannot_meet(view: JobView) -> Optional[Verdict]:
    """Return the verdict on torchruns that wait for one another for ever."""
    runs = _waiting(view)
    if not runs or len(runs) < 2:
        return None
    if view.evidence.nodes > 1 and all(least(run) == 1 for run in runs.values()):
        return None
    rules: tuple[Callable[[JobView, Runs], Optional[Verdict]], ...] = (
        _too_few,
        _ids_differ,
        _backends_differ,
        _own_machine,
        _places_differ,
        _same_rank,
        _no_host,
    )
    return next(filter(None, (rule(view, runs) for rule in rules)), None)


def each_alone(view: JobView) -> Optional[Verdict]:
    """Return the verdict on nodes whose torchruns were told nothing of others, and that train a world each.

    A program that makes no process group may be meant so, and so is a number of nodes that was given.
    """
    runs = _one_each(view)
    if not runs or len(runs) < 2 or any(run.sized for run in runs.values()):
        return None
    for node in view.nodes.values():
        alike = [
            rank
            for rank in node.ranks
            if rank.launcher == runs[node.node].pid
            and rank.rendezvous is not None
            and rank.rendezvous.world_size == len(node.ranks)
        ]
        if not alike or len(alike) < len(node.ranks):
            return None
    nodes = sorted(runs)
    return Verdict.of(
        code="world-size-differs",
        sentence=say(
            "each node trains alone: torchrun was started on ",
            view.named(nodes),
            " without --nnodes, and so for one node",
        ),
        where="run",
        nodes=nodes,
        confidence=sure.PROVEN,
        facts=_facts(view, runs),
        hint=_ALL_NODES,
    )


def are_odd(view: JobView) -> bool:
    """Whether the torchruns look as if they did not meet, so that all nodes are asked."""
    return cannot_meet(view) is not None or each_alone(view) is not None


def least(run: Torchrun) -> Optional[int]:
    """Return with how few nodes it begins; None: not a number."""
    number = run.nnodes.partition(":")[0]
    return int(number) if number.isdecimal() else None


# --- the rules


def _too_few(view: JobView, runs: Runs) -> Optional[Verdict]:
    there_are = view.evidence.nodes
    want = {node: wanted for node, run in runs.items() if (wanted := least(run)) and wanted > there_are}
    if not want:
        return None
    return _verdict(
        view,
        "world-size-differs",
        runs,
        list(want),
        say(
            "torchrun on ",
            view.named(want),
            f" waits for {count(max(want.values()), 'node')}, and the job has {there_are}",
        ),
        _FEWER,
    )


def _ids_differ(view: JobView, runs: Runs) -> Optional[Verdict]:
    ids = {node: run.run_id for node, run in runs.items()}
    if not _parted(runs, ids) or len({_place(run) for run in runs.values()}) > 1:
        return None
    return _verdict(
        view,
        "environment-differs",
        runs,
        sorted(runs),
        say("torchruns do not meet under different ids: ", parties(view.named, "--rdzv-id", ids)),
        ONE_ID,
    )


def _backends_differ(view: JobView, runs: Runs) -> Optional[Verdict]:
    backends = {node: run.backend for node, run in runs.items()}
    if not _parted(runs, backends):
        return None
    return _verdict(
        view,
        "environment-differs",
        runs,
        sorted(runs),
        say(
            "torchruns do not meet by different backends: ",
            parties(view.named, "--rdzv-backend", backends),
        ),
        ONE_BACKEND,
    )


def _own_machine(view: JobView, runs: Runs) -> Optional[Verdict]:
    """Nodes on several machines that look for their peers at their own loopback."""
    inward = [
        node
        for node, run in runs.items()
        if (host := split_endpoint(run.endpoint)[0]) == "localhost" or is_loopback(host)
    ]
    machines = {node: view.nodes[node].machine for node in runs}
    if not all(machines.values()) or len(set(machines.values())) < 2:
        return None
    # Node 0 may call itself so, if the others call it by its name.
    clients = [node for node in inward if runs[node].backend == STATIC and runs[node].node_rank]
    hosts = [node for node in inward if runs[node].backend == C10D]
    wrong = clients or (hosts if len({machines[node] for node in hosts}) > 1 else [])
    if not wrong:
        return None
    itself = phrases.one_or(wrong, "that node itself", "each node itself")
    return _verdict(
        view,
        "master-is-loopback",
        runs,
        wrong,
        say(
            "torchrun on ",
            view.named(wrong),
            f" looks for the others at {runs[wrong[0]].endpoint}, which is {itself}",
        ),
        NAME_NODE_0,
    )


def _places_differ(view: JobView, runs: Runs) -> Optional[Verdict]:
    """Only ports: two names may lead to one machine."""
    ports = {node: split_endpoint(run.endpoint)[1] for node, run in runs.items() if run.endpoint}
    if len(ports) < len(runs) or not _parted(runs, ports):
        return None
    places = {node: run.endpoint for node, run in runs.items()}
    return _verdict(
        view,
        "environment-differs",
        runs,
        sorted(runs),
        say("torchruns do not meet at different ports: ", parties(view.named, "", places)),
        ONE_PLACE,
    )


def _same_rank(view: JobView, runs: Runs) -> Optional[Verdict]:
    if any(run.backend != STATIC for run in runs.values()):
        return None
    numbers = Counter(run.node_rank or 0 for run in runs.values())
    number, often = min(numbers.items(), key=lambda item: (-item[1], item[0]))
    if often < 2:
        return None
    same = [node for node, run in runs.items() if (run.node_rank or 0) == number]
    return _verdict(
        view,
        "rank-duplicate",
        runs,
        same,
        say("torchrun on ", view.named(same), f" was started as node {number} each time"),
        _OWN_RANK,
    )


def _no_host(view: JobView, runs: Runs) -> Optional[Verdict]:
    """Who has the store may be no torchrun of this job, unless the address is a node's own."""
    if any(run.backend != C10D or not run.endpoint or run.opens_store is not False for run in runs.values()):
        return None
    first = runs[min(runs)]
    host, _ = split_endpoint(first.endpoint)
    if view.evidence.why == "call" and not any(host in node.addresses for node in view.nodes.values()):
        return None
    return _verdict(
        view,
        "master-is-not-node-zero",
        runs,
        [0] if 0 in runs else sorted(runs),
        f"no torchrun opens the store at {first.endpoint}: each leaves it to another machine",
        NAME_HOST,
    )


# --- what they have in common


def _one_each(view: JobView) -> Runs:
    """Return the torchrun of each node; nothing unless every node has answered, and has exactly one."""
    if view.evidence.silent or len(view.nodes) < view.evidence.nodes:
        return {}
    if any(len(node.torchruns) != 1 for node in view.nodes.values()):
        return {}
    return {number: node.torchruns[0] for number, node in view.nodes.items()}


def _waiting(view: JobView) -> Runs:
    """Return them if all wait for one another, and none has ever had workers."""
    runs = _one_each(view)
    # A program that a script has run before is numbered by nothing.
    ranks = [rank for node in view.nodes.values() for rank in node.ranks if rank.numbered_by]
    return {} if ranks or any(run.has_started for run in runs.values()) else runs


def _place(run: Torchrun) -> tuple[str, str]:
    return run.backend, split_endpoint(run.endpoint)[1]


def _parted(runs: Runs, values: dict[int, str]) -> bool:
    """Whether they are in parties by these values, of which one is too small to begin."""
    sizes = Counter(values.values())
    return len(sizes) > 1 and any(sizes[values[node]] < (least(run) or 1) for node, run in runs.items())


def parties(named: Callable[[Iterable[int]], Sayable], option: str, values: dict[int, str]) -> Sayable:
    """'--rdzv-id=17 on node 0, 18 on node 1'."""
    nodes_of: dict[str, list[int]] = {}
    for node, value in sorted(values.items()):
        nodes_of.setdefault(value, []).append(node)
    shown = list(nodes_of.items())[:4]
    equals = f"{option}=" if option else ""
    parts = [
        say(f"{equals if place == 0 else ''}{value} on ", named(nodes))
        for place, (value, nodes) in enumerate(shown)
    ]
    return joined(", ", [*parts, *(["…"] if len(nodes_of) > len(shown) else [])])


def _verdict(
    view: JobView, code: str, runs: Runs, nodes: Sequence[int], sentence: Sayable, hint: str
) -> Verdict:
    return Verdict.of(
        code=code,
        sentence=sentence,
        where="run",
        nodes=sorted(nodes),
        confidence=sure.PROVEN,
        facts=_facts(view, runs),
        hint=hint,
    )


def _facts(view: JobView, runs: Runs) -> list[str]:
    """'node 1 (n1): torchrun (pid 77): c10d at n0:29400, id 17, for 2 nodes'."""
    found = []
    for node, run in sorted(runs.items())[:4]:
        where = f"{run.backend} at {run.endpoint}" if run.endpoint else "a rendezvous of its own"
        rank = f", node rank {run.node_rank or 0}" if run.backend == STATIC else ""
        name = f", id {run.run_id}" if run.endpoint else ""
        found.append(f"{view.node(node)}: torchrun (pid {run.pid}): {where}{name}, nnodes {run.nnodes}{rank}")
    return [*found, *([f"and {len(runs) - 4} more nodes"] if len(runs) > 4 else [])]
