"""Which interface NCCL or Gloo takes on each node, whether peers reach it, and what is set or said."""

from __future__ import annotations

from typing import Any

import pytest

from ddplaunch.agent.contract import CheckIn, JobPlan, MeshResult, MeshTask, Outcome, RendezvousSettings
from ddplaunch.agent.diagnosis.gate import decide, interfaces
from ddplaunch.agent.diagnosis.gate.paths import LIBRARY
from ddplaunch.agent.diagnosis.gate.view import GateView

AGREED = RendezvousSettings("192.168.0.1", 29500, {"A": "b"}, {"A": "it is so"})


def check_in(node: int, takes: list[list[str]], library: str = "NCCL", given: bool = False) -> CheckIn:
    """A node at 192.168.0.N+1 on eth0, with docker0 and loopback, whose library takes `takes`."""
    own = f"192.168.0.{node + 1}"
    facts: dict[str, Any] = {
        "names": {"interfaces": [["lo", "127.0.0.1"], ["docker0", "172.17.0.1"], ["eth0", own]]},
        "interfaces": {"library": library, "takes": takes, "why": "for a reason", "set": given},
    }
    # Node 0 comes to its own hub by loopback.
    address = own if node else "127.0.0.1"
    if node:
        facts["hub"] = {"reached_at": "192.168.0.1"}
    return CheckIn(node, f"n{node}", 2, 1, address, {}, 0.0, machine=str(node), facts=facts)


def path(node: int, peer: int, what: str = LIBRARY, outcome: Outcome = "refused") -> MeshResult:
    """To docker0 of `peer`, unless said otherwise."""
    return MeshResult(node, peer, "172.17.0.1", 40000, what, outcome)


def view(*check_ins: CheckIn, library: list[MeshResult] | None = None, **more: Any) -> GateView:
    """Of a job of two, with what the mesh found of the libraries' addresses."""
    plan = JobPlan("j", 2, 1, [], [])
    return GateView(plan, {c.node: c for c in check_ins}, library=library or [], **more)


DOCKER, ETH0, ETH1 = [["docker0", "172.17.0.1"]], [["eth0", "192.168.0.1"]], [["eth0", "192.168.0.2"]]


def test_only_where_the_library_goes_elsewhere_there_is_more_to_try() -> None:
    """A node whose library takes the address that the mesh tries anyway costs nothing more."""
    check_ins = {0: check_in(0, DOCKER), 1: check_in(1, ETH1)}
    tried = [
        MeshTask(0, "192.168.0.1", 40000, "responder"),
        MeshTask(1, "192.168.0.2", 40001, "responder"),
        MeshTask(0, "192.168.0.1", 29500, "master"),
    ]

    expected = [MeshTask(0, "172.17.0.1", 40000, LIBRARY)]
    assert expected == interfaces.tasks(tried, interfaces.addresses(check_ins))


def test_nodes_that_say_nothing_of_it_are_left_alone() -> None:
    """No torch, an older agent, a check that is skipped."""
    silent = CheckIn(1, "n1", 2, 1, "192.168.0.2", {}, 0.0, facts={"interfaces": {}})

    assert [] == interfaces.tasks(
        [MeshTask(1, "192.168.0.2", 40001, "responder")], interfaces.addresses({1: silent})
    )
    assert [] == decide.judge(view(check_in(0, ETH0), silent))


@pytest.mark.parametrize(("library", "value"), [("NCCL", "=eth0"), ("Gloo", "eth0")])
@pytest.mark.parametrize("node", [0, 1])
def test_a_free_choice_that_is_wrong_is_mended_on_that_node(node: int, library: str, value: str) -> None:
    """With the interface that the mesh has tried, in the library's own words, and with the reason."""
    right = check_in(1 - node, ETH0 if node else ETH1, library)
    facts = view(right, check_in(node, DOCKER, library), library=[path(1 - node, node)])

    variable = f"{library.upper()}_SOCKET_IFNAME"
    why = f"by itself node {node}'s {library} takes docker0 172.17.0.1, which node {1 - node} cannot reach"
    assert {node: (variable, value, why)} == interfaces.fixes(facts)
    assert [f"{variable}={value} is set on node {node}: {why}"] == decide.notes(facts)
    assert [] == decide.judge(facts)


def test_a_choice_that_works_is_left_as_it_is() -> None:
    """Whatever it is, and whoever made it."""
    facts = view(check_in(0, DOCKER), check_in(1, ETH1, given=True), library=[path(1, 0, outcome="ok")])

    assert ({}, [], []) == (interfaces.fixes(facts), decide.notes(facts), decide.judge(facts))


def test_nobody_needs_to_reach_the_gloo_that_connects_itself() -> None:
    """Of two ranks the one with the higher address does; NCCL's connect both ways."""
    higher = [["docker0", "192.168.99.1"]]
    failed = [MeshResult(0, 1, "192.168.99.1", 40000, LIBRARY, "refused")]
    by_gloo, by_nccl = (
        decide.judge(view(check_in(0, ETH0, each), check_in(1, higher, each, given=True), library=failed))
        for each in ("Gloo", "NCCL")
    )

    assert ([], ["nccl-interface-wrong"]) == (by_gloo, [verdict.code for verdict in by_nccl])


def test_a_bridge_that_all_have_is_reached_by_nobody() -> None:
    """Of equal addresses the ports decide who connects."""
    failed = [path(0, 1), path(1, 0)]
    (verdict,) = decide.judge(
        view(*(check_in(node, DOCKER, "Gloo", given=True) for node in (0, 1)), library=failed)
    )

    assert [0, 1] == verdict.nodes


def test_who_connects_may_change_with_what_is_mended() -> None:
    """Node 1 has connected to node 2 no more than node 2 to node 1, until it is given a higher address."""
    low, middle = [["docker0", "172.17.0.1"]], [["docker0", "172.18.0.1"]]
    nodes = [
        check_in(0, [["eth0", "10.0.0.1"]], "Gloo"),
        check_in(1, low, "Gloo"),
        check_in(2, middle, "Gloo"),
    ]
    failed = [
        MeshResult(2, 1, "172.17.0.1", 40001, LIBRARY, "refused"),
        MeshResult(1, 2, "172.18.0.1", 40002, LIBRARY, "refused"),
    ]

    assert [1] == [*interfaces.fixes(view(*nodes[:2], nodes[2], library=failed[:1]))]
    assert [1, 2] == sorted(interfaces.fixes(view(*nodes, library=failed)))


@pytest.mark.parametrize("given", [False, True])
def test_gloo_joins_no_two_families(given: bool) -> None:
    """Whatever is routed: the odd one is led to its other address, or told so."""
    odd = check_in(2, [["eth0", "fd00::3"]], "Gloo", given=given)
    facts = view(check_in(0, ETH0, "Gloo"), check_in(1, ETH1, "Gloo"), odd)
    said = [(verdict.code, verdict.nodes, verdict.sentence) for verdict in decide.judge(facts)]

    takes = "node 2's Gloo takes eth0 fd00::3, which node 0 cannot reach"
    sentence = f"{takes} (Gloo joins no IPv6 to 192.168.0.1); eth0 works"
    assert ([("gloo-interface-wrong", [2], sentence)] if given else []) == said
    mend = {2: ("GLOO_SOCKET_IFNAME", "eth0", f"by itself {takes}")}
    assert ({} if given else mend) == interfaces.fixes(facts)


@pytest.mark.parametrize("library", ["NCCL", "Gloo"])
def test_what_somebody_has_set_is_not_overridden(library: str) -> None:
    """If peers do not reach it, it is said what works."""
    told = check_in(1, DOCKER, library, given=True)
    (verdict,) = decide.judge(view(check_in(0, ETH0, library), told, library=[path(0, 1)]))

    assert (f"{library.lower()}-interface-wrong", [1]) == (verdict.code, verdict.nodes)
    sentence = f"node 1's {library} takes docker0 172.17.0.1, which node 0 cannot reach (refused); eth0 works"
    assert sentence == verdict.sentence
    assert f"leave {library.upper()}_SOCKET_IFNAME out" in verdict.hint


@pytest.mark.parametrize(
    ("library", "code"), [("NCCL", "nccl-interface-missing"), ("Gloo", "gloo-interface-wrong")]
)
def test_a_library_that_finds_nothing(library: str, code: str) -> None:
    """It is told before any path is tried, with what there is."""
    (verdict,) = decide.judge(view(check_in(0, ETH0, library), check_in(1, [], library, given=True)))

    assert (code, [1]) == (verdict.code, verdict.nodes)
    assert f"node 1: {library} finds no interface: for a reason" == verdict.sentence
    assert ["node 1 has lo 127.0.0.1, docker0 172.17.0.1, eth0 192.168.0.2"] == verdict.facts


def test_one_node_alone_may_need_no_interface() -> None:
    """A program on one GPU never asks NCCL."""
    facts = GateView(JobPlan("j", 1, 1, [], []), {0: check_in(0, [], given=True)})

    assert [] == decide.judge(facts)


def test_where_no_path_is_open_the_interface_is_not_blamed() -> None:
    """A firewall between the nodes stops everything; that is another verdict."""
    closed = path(0, 1, what="responder", outcome="timeout")
    facts = view(check_in(0, ETH0), check_in(1, DOCKER), library=[path(0, 1)], mesh=[closed])

    assert {} == interfaces.fixes(facts)
    assert not any("interface" in verdict.code for verdict in decide.judge(facts))


def test_without_a_better_interface_it_is_a_verdict() -> None:
    """An address that no interface has, as behind a translation, can be named to nobody."""
    behind = check_in(1, DOCKER)
    behind.facts["names"]["interfaces"] = [["docker0", "172.17.0.1"]]
    (verdict,) = decide.judge(view(check_in(0, ETH0), behind, library=[path(0, 1)]))

    assert "nccl-interface-wrong" == verdict.code
    assert "works" not in verdict.sentence


def test_nodes_alike_share_one_note() -> None:
    """A thousand nodes with docker0 are one line."""
    facts = view(check_in(0, DOCKER), check_in(1, DOCKER), library=[path(0, 1), path(1, 0)])

    (note,) = decide.notes(facts)
    assert note.startswith("NCCL_SOCKET_IFNAME==eth0 is set on nodes 0 and 1: by itself node 0's NCCL takes")


def test_what_all_nodes_agreed_on_stays() -> None:
    """A node is told its own variable as well; one that is agreed on for all is stronger."""
    settled = interfaces.settle(AGREED, interfaces.InterfaceFix("X", "eth0", "so"))

    assert ({"A": "b", "X": "eth0"}, {"A": "it is so", "X": "so"}) == (settled.env, settled.why)
    assert AGREED == interfaces.settle(AGREED, interfaces.InterfaceFix("A", "eth0", "so"))


@pytest.mark.parametrize(
    ("takes", "given", "expected"),
    [
        (ETH0, False, {"NCCL_SOCKET_IFNAME": "=eth0"}),  # it takes that anyway
        (DOCKER, False, {}),  # its own choice works
        (ETH0, True, {}),  # it was set there
    ],
)
def test_one_word_for_all_nodes_where_it_changes_nothing(
    takes: list[list[str]], given: bool, expected: dict[str, str]
) -> None:
    """A batch script has one environment for all of its nodes."""
    facts = view(check_in(0, takes, given=given), check_in(1, DOCKER), library=[path(0, 1)])
    told = interfaces.for_all(AGREED, interfaces.fixes(facts), facts)

    assert {"A": "b", **expected} == told.env
    assert AGREED == interfaces.for_all(AGREED, {}, facts)
