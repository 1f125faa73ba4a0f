"""Whether names lead to node 0: what is a verdict, what only a note, and what is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshResult, MeshTask, Outcome
from ddplaunch.agent.diagnosis.gate import decide, names
from ddplaunch.agent.diagnosis.gate.view import GateView

NAMES = ["n1", "n2", "n3"]
PLAN = JobPlan("trial", 3, 1, ["{python}", "{master_addr}"], ["train.py"], names=NAMES)
TRUE = {"n1": ["10.0.0.1"], "n2": ["10.0.0.2"], "n3": ["10.0.0.3"]}


def check_in(node: int, master: str = "", **resolved: list[str]) -> CheckIn:
    """A node on a machine of its own, that knows all names as they are, but for `resolved`."""
    address = f"10.0.0.{node + 1}"
    facts: dict[str, Any] = {
        "own": NAMES[node],
        "master": master,
        "interfaces": [["lo", "127.0.0.1"], ["eth0", address]],
        "addresses": {name: found for name, found in {**TRUE, **resolved}.items() if found},
        "unresolved": {name: "no such name" for name, found in resolved.items() if not found},
    }
    if master:
        facts["addresses"].setdefault(master, [master])
    ports = {"responder": 40000}
    machine = f"machine {node}"
    return CheckIn(node, NAMES[node], 3, 1, address, ports, 0.0, machine, "net", node, {"names": facts})


def view(*odd: CheckIn, **changes: Any) -> GateView:
    """Three nodes, with `odd` in their places."""
    check_ins = {node: check_in(node) for node in range(3)}
    check_ins.update({each.node: each for each in odd})
    return GateView(PLAN, check_ins, **changes)


def to_master(node: int, address: str, outcome: Outcome, detail: str = "") -> MeshResult:
    """How a node's way to the master port went."""
    return MeshResult(node, 0, address, 29500, "master", outcome, detail)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "node 2 (n3) cannot resolve n1; it reaches node 0 at 10.0.0.1"),
        (
            ["127.0.1.1"],
            "node 2 (n3) resolves n1 to 127.0.1.1, which is itself; it reaches node 0 at 10.0.0.1",
        ),
        (
            ["10.0.0.9"],
            "node 2 (n3) resolves n1 to 10.0.0.9, which is not node 0; it reaches node 0 at 10.0.0.1",
        ),
        (["10.0.0.9", "10.0.0.1"], None),
    ],
)
def test_a_wrong_name_that_is_not_used_is_a_note(found: list[str], said: str | None) -> None:
    """Where the job goes by the address that the gate found, a wrong name breaks nothing."""
    odd = view(check_in(2, n1=found))

    assert [] == decide.judge(odd)
    assert ([said] if said else []) == decide.notes(odd)


def test_node_zero_may_know_itself_by_any_name() -> None:
    """Debian's 127.0.1.1 on node 0 itself leads to node 0."""
    odd = view(check_in(0, n1=["127.0.1.1"]))

    assert [] == decide.notes(odd)


@pytest.mark.parametrize(
    ("outcome", "detail", "tail"),
    [
        ("refused", "Connection refused", ": it is node 1 (n2)'s"),
        ("shared", "it is the TCPStore of another training job", ": it is node 1 (n2)'s"),
    ],
)
def test_a_master_that_is_another_node(outcome: Outcome, detail: str, tail: str) -> None:
    """The one node that is misled is named, whatever it met there, and its path is no second verdict."""
    misled = check_in(2, master="n1", n1=["10.0.0.2"])
    (verdict,) = decide.judge(view(misled, mesh=[to_master(2, "n1", outcome, detail)]))

    assert ("dns-disagrees", [2]) == (verdict.code, verdict.nodes)
    assert "nodes 0 (n1) and 1 (n2) resolve n1 to it" == verdict.facts[-1]
    assert verdict.sentence == (
        "node 2 (n3) would look for the master at n1 (10.0.0.2), which is not an address of "
        f"node 0 (n1, 10.0.0.1){tail}"
    )


def test_a_masters_name_that_leads_everybody_elsewhere() -> None:
    """Then nobody disagrees, and the name itself is wrong."""
    misled = [check_in(node, master="n1", n1=["10.0.0.2"]) for node in range(3)]
    mesh = [to_master(node, "n1", "refused", "Connection refused") for node in range(3)]
    (verdict,) = decide.judge(view(*misled, mesh=mesh))

    assert ("master-is-not-node-zero", [0, 1, 2]) == (verdict.code, verdict.nodes)


def test_a_master_that_is_nobody_of_this_job() -> None:
    """What answers there is told, when something does."""
    misled = [check_in(node, master="10.0.0.7") for node in range(3)]
    mesh = [to_master(node, "10.0.0.7", "stranger", "it is an SSH server") for node in range(3)]
    (verdict,) = decide.judge(view(*misled, mesh=mesh))

    assert ("master-is-not-node-zero", [0, 1, 2]) == (verdict.code, verdict.nodes)
    assert verdict.sentence.endswith("(n1, 10.0.0.1): it is an SSH server")


def test_an_address_that_leads_to_node_zero_is_right_whatever_it_is() -> None:
    """Behind a NAT node 0 does not know its own address; it has proved itself there."""
    behind = [check_in(node, master="192.0.2.1") for node in range(3)]

    assert [] == decide.judge(view(*behind, mesh=[to_master(node, "192.0.2.1", "ok") for node in range(3)]))


def test_a_closed_way_to_node_zeros_own_address_is_a_firewalls() -> None:
    """The address is right, and the port is dropped."""
    named = [check_in(node, master="n1") for node in range(3)]
    (verdict,) = decide.judge(view(*named, mesh=[to_master(1, "n1", "timeout")]))

    assert ("port-filtered", [0, 1]) == (verdict.code, verdict.nodes)


def test_without_interfaces_nothing_is_said() -> None:
    """An agent that could not list node 0's addresses does not know whose an address is."""
    zero = check_in(0)
    zero.facts["names"]["interfaces"] = []
    misled = check_in(2, master="n1", n1=["10.0.0.2"])
    (verdict,) = decide.judge(view(zero, misled, mesh=[to_master(2, "n1", "refused")]))

    assert "port-rejected" == verdict.code


def test_a_skipped_check_judges_and_notes_nothing() -> None:
    """`gate.skip: [names]`."""
    skipping = replace(
        view(check_in(2, n1=["127.0.1.1"])), plan=replace(PLAN, gate=replace(PLAN.gate, skip=["names"]))
    )

    assert ([], []) == (decide.judge(skipping), decide.notes(skipping))


# --- IPv4 and IPv6: which paths to an address are tried, what of it is a verdict, and what a note.


FAMILIES = JobPlan("trial", 2, 1, ["{python}"], ["train.py"], master_addr="n0")
SIX, FOUR = "fd00::1", "10.0.0.1"


def with_addresses(node: int, known: list[str], own: list[str] | None = None, **facts: Any) -> CheckIn:
    """`known`: the addresses of node 0's name; `own`: those of this node's only interface."""
    own = own or [f"10.0.0.{node + 1}", f"fd00::{node + 1}"]
    interfaces = [["eth0", each] for each in own]
    names = {"own": f"n{node}", "addresses": {"n0": known}, "interfaces": interfaces}
    given = {"names": names, **facts}
    return CheckIn(node, f"n{node}", 2, 1, own[0], {}, 0.0, f"m{node}", "net", 1, given)


def families_view(*library: MeshResult, known: list[str], mesh: list[MeshResult] | None = None) -> GateView:
    """Two nodes, of which the second knows these addresses of the first."""
    nodes = {0: with_addresses(0, [FOUR]), 1: with_addresses(1, known)}
    return GateView(FAMILIES, nodes, mesh=mesh or [], library=list(library))


def store(address: str, outcome: Outcome) -> MeshResult:
    """How node 1's way to one address of the master's name went."""
    return MeshResult(1, 0, address, 29500, "store", outcome, "a detail")


@pytest.mark.parametrize(
    ("known", "tried"), [([SIX, FOUR], [SIX, FOUR]), ([FOUR, SIX], [FOUR, SIX]), ([FOUR], []), ([SIX], [])]
)
def test_each_address_of_a_name_with_both_is_tried(known: list[str], tried: list[str]) -> None:
    """With one there is nothing to choose, and the mesh has tried it."""
    tasks = [MeshTask(0, "10.0.0.1", 40000, "responder"), MeshTask(0, "n0", 29500, "master", 0.5)]
    more = names.tasks(tasks, with_addresses(1, known))

    assert [MeshTask(0, each, 29500, "store", 0.5) for each in tried] == more


@pytest.mark.parametrize("known", [[SIX, FOUR], [FOUR, SIX]])
def test_silence_at_the_ipv6_address_is_a_verdict(known: list[str]) -> None:
    """Whatever stands first in the answer: torch goes by the family."""
    (verdict,) = decide.judge(families_view(store(SIX, "timeout"), known=known))

    assert ("ip-family-mixed", [1]) == (verdict.code, verdict.nodes)
    assert verdict.sentence.startswith(
        "node 1 resolves n0 to fd00::1, where packets to port 29500 vanish, and"
    )


@pytest.mark.parametrize("outcome", ["stranger", "timeout"])
def test_it_explains_why_the_name_as_a_whole_failed(outcome: Outcome) -> None:
    """Waiting at one address has left no time for the other."""
    whole = MeshResult(1, 0, "n0", 29500, "master", outcome)

    assert ["ip-family-mixed"] == [
        v.code for v in decide.judge(families_view(store(SIX, "timeout"), known=[SIX, FOUR], mesh=[whole]))
    ]


def test_where_both_are_silent_it_is_no_matter_of_families() -> None:
    """A firewall that drops the port drops it for all."""
    whole = MeshResult(1, 0, "n0", 29500, "master", "timeout")
    found = decide.judge(
        families_view(store(SIX, "timeout"), store(FOUR, "timeout"), known=[SIX, FOUR], mesh=[whole])
    )

    assert ["port-filtered"] == [verdict.code for verdict in found]


def test_silence_at_the_ipv4_address_harms_nobody() -> None:
    """torch is done before it comes to that."""
    assert [] == decide.judge(families_view(store(FOUR, "timeout"), known=[FOUR, SIX]))


@pytest.mark.parametrize("outcome", ["refused", "unreachable"])
def test_an_answer_at_the_ipv6_address_is_a_note(outcome: Outcome) -> None:
    """torch takes the next one."""
    odd = families_view(store(SIX, outcome), known=[SIX, FOUR])

    assert [] == decide.judge(odd)
    assert [f"node 1 is answered {outcome} at {SIX}, an address of n0, before torch tries the next"] == (
        decide.notes(odd)
    )


def test_a_machine_without_ipv6_is_no_news() -> None:
    """Its localhost may have ::1 all the same."""
    assert [] == decide.notes(families_view(store("::1", "unreachable"), known=["::1", "127.0.0.1"]))


def test_no_route_to_another_family() -> None:
    """It is not the route that is missing."""
    nodes = {0: with_addresses(0, [], [FOUR]), 1: with_addresses(1, [], ["fd00::2"])}
    mesh = [MeshResult(0, 1, "fd00::2", 40000, "responder", "unreachable")]
    (verdict,) = decide.judge(GateView(FAMILIES, nodes, mesh=mesh))

    assert ("ip-family-mixed", [1]) == (verdict.code, verdict.nodes)
    assert verdict.sentence == "node 0 has only IPv4 addresses and cannot reach node 1 (fd00::2)"


def test_no_route_within_a_family_is_another_matter() -> None:
    """Both ends have it."""
    mesh = [MeshResult(0, 1, "fd00::2", 40000, "responder", "unreachable")]

    assert ["host-unreachable"] == [v.code for v in decide.judge(families_view(known=[FOUR], mesh=mesh))]


@pytest.mark.parametrize(
    ("family", "codes"), [("AF_INET6", ["ip-family-mixed"]), ("", ["nccl-interface-wrong"])]
)
def test_an_address_that_nccl_was_told_to_take(family: str, codes: list[str]) -> None:
    """By its family, and not by its interface; else it is the interface's verdict."""
    facts: dict[str, Any] = {
        "configuration": {"environment": {"NCCL_SOCKET_FAMILY": family} if family else {}},
        "interfaces": {"library": "NCCL", "takes": [["eth0", "fd00::2"]], "why": "it does", "set": True},
    }
    nodes = {0: with_addresses(0, [FOUR]), 1: with_addresses(1, [FOUR], **facts)}
    nodes[0].facts["configuration"] = facts["configuration"]
    path = MeshResult(0, 1, "fd00::2", 40000, "library", "unreachable")

    assert codes == [v.code for v in decide.judge(GateView(FAMILIES, nodes, library=[path]))]


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
        nodes[node] = with_addresses(node, [SIX, FOUR], **asks, interfaces=takes)
    library = [
        MeshResult(1 - node, node, f"fd00::{node + 1}", 40000, "library", "timeout") for node in (1, 0)
    ]
    stores = [MeshResult(node, 0, SIX, 29500, "store", "timeout") for node in (1, 0)]
    found = decide.judge(GateView(FAMILIES, nodes, library=[*library, *stores]))

    assert [("ip-family-mixed", [0, 1])] * 2 == [(verdict.code, verdict.nodes) for verdict in found]
