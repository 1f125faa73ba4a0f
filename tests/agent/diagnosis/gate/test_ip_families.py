"""IPv4 and IPv6: which paths to an address are tried, what of it is a verdict, and what a note."""

from __future__ import annotations

from typing import Any

import pytest

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshResult, MeshTask, Outcome
from ddplaunch.agent.diagnosis.gate import decide, names
from ddplaunch.agent.diagnosis.gate.view import GateView

PLAN = JobPlan("trial", 2, 1, ["{python}"], ["train.py"], master_addr="n0")
SIX, FOUR = "fd00::1", "10.0.0.1"


def check_in(node: int, known: list[str], own: list[str] | None = None, **facts: Any) -> CheckIn:
    """`known`: the addresses of node 0's name; `own`: those of this node's only interface."""
    own = own or [f"10.0.0.{node + 1}", f"fd00::{node + 1}"]
    interfaces = [["eth0", each] for each in own]
    names = {"own": f"n{node}", "addresses": {"n0": known}, "interfaces": interfaces}
    given = {"names": names, **facts}
    return CheckIn(node, f"n{node}", 2, 1, own[0], {}, 0.0, f"m{node}", "net", 1, given)


def view(*library: MeshResult, known: list[str], mesh: list[MeshResult] | None = None) -> GateView:
    """Two nodes, of which the second knows these addresses of the first."""
    nodes = {0: check_in(0, [FOUR]), 1: check_in(1, known)}
    return GateView(PLAN, nodes, mesh=mesh or [], library=list(library))


def store(address: str, outcome: Outcome) -> MeshResult:
    """How node 1's way to one address of the master's name went."""
    return MeshResult(1, 0, address, 29500, "store", outcome, "a detail")


@pytest.mark.parametrize(
    ("known", "tried"), [([SIX, FOUR], [SIX, FOUR]), ([FOUR, SIX], [FOUR, SIX]), ([FOUR], []), ([SIX], [])]
)
def test_each_address_of_a_name_with_both_is_tried(known: list[str], tried: list[str]) -> None:
    """With one there is nothing to choose, and the mesh has tried it."""
    tasks = [MeshTask(0, "10.0.0.1", 40000, "responder"), MeshTask(0, "n0", 29500, "master", 0.5)]
    more = names.tasks(tasks, check_in(1, known))

    assert [MeshTask(0, each, 29500, "store", 0.5) for each in tried] == more


@pytest.mark.parametrize("known", [[SIX, FOUR], [FOUR, SIX]])
def test_silence_at_the_ipv6_address_is_a_verdict(known: list[str]) -> None:
    """Whatever stands first in the answer: torch goes by the family."""
    (verdict,) = decide.judge(view(store(SIX, "timeout"), known=known))

    assert ("ip-family-mixed", [1]) == (verdict.code, verdict.nodes)
    assert verdict.sentence.startswith(
        "node 1 resolves n0 to fd00::1, where packets to port 29500 vanish, and"
    )


@pytest.mark.parametrize("outcome", ["stranger", "timeout"])
def test_it_explains_why_the_name_as_a_whole_failed(outcome: Outcome) -> None:
    """Waiting at one address has left no time for the other."""
    whole = MeshResult(1, 0, "n0", 29500, "master", outcome)

    assert ["ip-family-mixed"] == [
        v.code for v in decide.judge(view(store(SIX, "timeout"), known=[SIX, FOUR], mesh=[whole]))
    ]


def test_where_both_are_silent_it_is_no_matter_of_families() -> None:
    """A firewall that drops the port drops it for all."""
    whole = MeshResult(1, 0, "n0", 29500, "master", "timeout")
    found = decide.judge(view(store(SIX, "timeout"), store(FOUR, "timeout"), known=[SIX, FOUR], mesh=[whole]))

    assert ["port-filtered"] == [verdict.code for verdict in found]


def test_silence_at_the_ipv4_address_harms_nobody() -> None:
    """torch is done before it comes to that."""
    assert [] == decide.judge(view(store(FOUR, "timeout"), known=[FOUR, SIX]))


@pytest.mark.parametrize("outcome", ["refused", "unreachable"])
def test_an_answer_at_the_ipv6_address_is_a_note(outcome: Outcome) -> None:
    """torch takes the next one."""
    odd = view(store(SIX, outcome), known=[SIX, FOUR])

    assert [] == decide.judge(odd)
    assert [f"node 1 is answered {outcome} at {SIX}, an address of n0, before torch tries the next"] == (
        decide.notes(odd)
    )


def test_a_machine_without_ipv6_is_no_news() -> None:
    """Its localhost may have ::1 all the same."""
    assert [] == decide.notes(view(store("::1", "unreachable"), known=["::1", "127.0.0.1"]))


def test_no_route_to_another_family() -> None:
    """It is not the route that is missing."""
    nodes = {0: check_in(0, [], [FOUR]), 1: check_in(1, [], ["fd00::2"])}
    mesh = [MeshResult(0, 1, "fd00::2", 40000, "responder", "unreachable")]
    (verdict,) = decide.judge(GateView(PLAN, nodes, mesh=mesh))

    assert ("ip-family-mixed", [1]) == (verdict.code, verdict.nodes)
    assert verdict.sentence == "node 0 has only IPv4 addresses and cannot reach node 1 (fd00::2)"


def test_no_route_within_a_family_is_another_matter() -> None:
    """Both ends have it."""
    mesh = [MeshResult(0, 1, "fd00::2", 40000, "responder", "unreachable")]

    assert ["host-unreachable"] == [v.code for v in decide.judge(view(known=[FOUR], mesh=mesh))]


@pytest.mark.parametrize(
    ("family", "codes"), [("AF_INET6", ["ip-family-mixed"]), ("", ["nccl-interface-wrong"])]
)
def test_an_address_that_nccl_was_told_to_take(family: str, codes: list[str]) -> None:
    """By its family, and not by its interface; else it is the interface's verdict."""
    facts: dict[str, Any] = {
        "configuration": {"environment": {"NCCL_SOCKET_FAMILY": family} if family else {}},
        "interfaces": {"library": "NCCL", "takes": [["eth0", "fd00::2"]], "why": "it does", "set": True},
    }
    nodes = {0: check_in(0, [FOUR]), 1: check_in(1, [FOUR], **facts)}
    nodes[0].facts["configuration"] = facts["configuration"]
    path = MeshResult(0, 1, "fd00::2", 40000, "library", "unreachable")

    assert codes == [v.code for v in decide.judge(GateView(PLAN, nodes, library=[path]))]


def test_nodes_are_named_in_their_order() -> None:
    """Not in that of their arrival, or of their results."""
    asks: dict[str, Any] = {"configuration": {"environment": {"NCCL_SOCKET_FAMILY": "AF_INET6"}}}
    nodes: dict[int, CheckIn] = {}
    for node in (1, 0):
        takes: dict[str, Any] = {
            "library": "NCCL",
            "takes": [["eth0", f"fd00::{node + 1}"]],
            "why": "it does",
            "set": False,
        }
        nodes[node] = check_in(node, [SIX, FOUR], **asks, interfaces=takes)
    library = [
        MeshResult(1 - node, node, f"fd00::{node + 1}", 40000, "library", "timeout") for node in (1, 0)
    ]
    stores = [MeshResult(node, 0, SIX, 29500, "store", "timeout") for node in (1, 0)]
    found = decide.judge(GateView(PLAN, nodes, library=[*library, *stores]))

    assert [("ip-family-mixed", [0, 1])] * 2 == [(verdict.code, verdict.nodes) for verdict in found]
