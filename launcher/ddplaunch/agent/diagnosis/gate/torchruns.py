"""Rules about the users' own torchruns, by their options: whether they will meet. Only of jobs that join.

A torchrun that may begin with fewer nodes begins without those that it does not meet: that is a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddplaunch.agent.contract import Verdict
from ddplaunch.agent.diagnosis.gate.view import GateView, addresses
from ddplaunch.agent.diagnosis.run.torchruns import NAME_HOST, ONE_BACKEND, ONE_ID, ONE_PLACE, parties
from ddplaunch.agent.system.torchrun import C10D, split_endpoint
from ddplaunch.agent.text.saying import Sayable, say

Facts = dict[int, dict[str, Any]]
"""Of each node's torchrun."""


def never_meet(view: GateView) -> Iterator[Verdict]:
    """Yield the verdict on torchruns of all nodes that will wait for one another for ever."""
    known = _known(view)
    least = {facts["nnodes"].partition(":")[0] for facts in known.values()}
    if least != {str(view.plan.nodes)}:
        return
    for option, values, why, hint in _differences(known):
        yield Verdict.of(
            "environment-differs",
            say(f"torchruns do not meet {why}: ", parties(view.nodes, option, values)),
            "gate",
            nodes=sorted(known),
            hint=hint,
        )
        return
    yield from _no_host(view, known)


def _no_host(view: GateView, known: Facts) -> Iterator[Verdict]:
    """Yield the verdict where nobody will open c10d's store, and its address is a node's own: whoever has it
    elsewhere may be outside of this job.
    """
    if any(facts["backend"] != C10D or facts["opens_store"] is not False for facts in known.values()):
        return
    host, _ = split_endpoint(known[0]["endpoint"])
    found = {*addresses(view.check_ins[0], host), host}
    owners = [
        node
        for node, check_in in view.check_ins.items()
        if found & {address for _, address in check_in.facts.get("names", {}).get("interfaces", [])}
    ]
    if owners:
        own = view.check_ins[owners[0]].facts["names"]
        at = ", ".join(addresses(view.check_ins[owners[0]], own.get("own", "")))
        yield Verdict.of(
            "master-is-not-node-zero",
            say(
                f"no torchrun will open the store at {known[0]['endpoint']}: each leaves it to another "
                "machine, although it is an address of ",
                view.node(owners[0]),
            ),
            "gate",
            nodes=[owners[0]],
            facts=[f"{view.node(owners[0])}: {own['own']}, its own name, leads to {at}"] if at else [],
            hint=NAME_HOST,
        )


def notes(view: GateView) -> list[Sayable]:
    """Return what happens although the job can run."""
    known = _known(view)
    if not known:
        return []
    found: list[Sayable] = []
    if not list(never_meet(view)):
        found += [
            say(
                f"torchruns do not meet {why}, and begin without one another: ",
                parties(view.nodes, option, values),
            )
            for option, values, why, _ in _differences(known)
        ]
    return found + _other_order(view, known)


def _other_order(view: GateView, known: Facts) -> list[Sayable]:
    """c10d gives the ranks by the names that torchruns have, whatever --node-rank says."""
    alike = all(facts["backend"] == C10D and facts["node_rank"] == node for node, facts in known.items())
    names = [facts["name"] for _, facts in sorted(known.items())]
    if not alike or not all(names) or len(set(names)) < len(names) or names == sorted(names):
        return []
    first = min(known, key=lambda node: str(known[node]["name"]))
    what = "torchrun ignores --node-rank with c10d, and numbers the nodes in the order of their names"
    return [say(what, "" if first == 0 else say(": rank 0 will be on ", view.node(first)))]


def _known(view: GateView) -> Facts:
    """Return the facts of all nodes; nothing unless all nodes are here, and each runs a torchrun."""
    found = {
        node: check_in.facts.get("configuration", {}).get("torchrun") or {}
        for node, check_in in sorted(view.check_ins.items())
    }
    return found if len(found) == view.plan.nodes and all(found.values()) else {}


def _differences(known: Facts) -> Iterator[tuple[str, dict[int, str], str, str]]:
    """Yield (option, its value on each node, why they do not meet, the remedy)."""
    backends = {node: facts["backend"] for node, facts in known.items()}
    if len(set(backends.values())) > 1:
        yield "--rdzv-backend", backends, "by different backends", ONE_BACKEND
        return
    ids = {node: facts["run_id"] for node, facts in known.items()}
    if len(set(ids.values())) > 1:
        yield "--rdzv-id", ids, "under different ids", ONE_ID
    places = {node: facts["endpoint"] for node, facts in known.items()}
    if len({split_endpoint(place)[1] for place in places.values() if place}) > 1 and all(places.values()):
        yield "", places, "at different ports", ONE_PLACE
