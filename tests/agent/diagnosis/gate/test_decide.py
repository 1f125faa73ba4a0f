"""Rules over check-ins: who is named, who is not, and what is no fault at all."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.agent.diagnosis.gate.check_ins import PLAN, TORCH, check_in, only

from ddplaunch.agent.contract import CheckIn, CheckResult, GatePlan, JobPlan, MeshResult, Status
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.view import GateView


def view(*odd: CheckIn, plan: JobPlan = PLAN, **changes: Any) -> GateView:
    """Three healthy nodes, with `odd` in their places."""
    check_ins = {node: check_in(node) for node in range(3)}
    check_ins.update({each.node: each for each in odd})
    return GateView(plan, check_ins, **changes)


def test_healthy_nodes_get_no_verdict() -> None:
    """Nothing stands against three equal nodes."""
    assert [] == decide.judge(view())


def test_an_empty_roll_gets_no_verdict() -> None:
    """Before anybody came there is nothing to say."""
    assert [] == decide.judge(GateView(PLAN, {}))
    assert [] == decide.notes(GateView(PLAN, {}))


def test_two_of_one() -> None:
    """Both claimants are named by host and process."""
    verdict = only(decide.judge(view(strays=[check_in(1, host="other", pid=99)])))

    assert (verdict.code, verdict.nodes) == ("rank-duplicate", [1])
    assert verdict.sentence == "two agents claim to be node 1: pid 11 on n1 and pid 99 on other"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"nodes": 4}, "node 2 was started for 4 nodes, the others for 3 nodes"),
        ({"nproc_per_node": 8}, "node 2 was started for 3 nodes x 8, the others for 3 nodes x 2"),
        ({"nodes": 1}, "node 2 was started for 1 node, the others for 3 nodes"),
    ],
)
def test_sizes_that_differ(changes: dict[str, Any], sentence: str) -> None:
    """What most say is right; the odd one is named with its own numbers."""
    verdict = only(decide.judge(view(check_in(2, **changes))))

    assert (verdict.code, verdict.nodes, verdict.sentence) == ("world-size-differs", [2], sentence)


def test_between_two_node_zero_is_right() -> None:
    """With one against one, the node that hosts the rendezvous sets the measure."""
    plan = dataclasses.replace(PLAN, nodes=2)
    pair = {0: check_in(0, nodes=2), 1: check_in(1, nodes=5)}

    assert only(decide.judge(GateView(plan, pair))).nodes == [1]


def failure(code: str, observed: str, **facts: Any) -> CheckResult:
    """A failed check."""
    return CheckResult("shm", Status.FAIL, observed, "wanted size", "a hint", code, facts)


def test_the_same_failure_on_several_nodes_is_one_verdict() -> None:
    """One sentence for all who found the same; the others' numbers are among the facts."""
    small, smaller = failure("shm-too-small", "64 MiB"), failure("shm-too-small", "32 MiB")
    verdict = only(decide.judge(view(check_in(0, (small,)), check_in(1, (smaller,)), check_in(2, (small,)))))

    assert verdict.nodes == [0, 1, 2]
    assert verdict.sentence == "nodes 0 and 2: 64 MiB; wanted: wanted size"
    assert verdict.facts == ["node 1: 32 MiB"]
    assert verdict.hint == "a hint"


def test_what_is_unknown_fails_nobody() -> None:
    """UNKNOWN is for people to read; what has a code is a note to all of them."""
    odd = CheckResult(
        "cpu", Status.UNKNOWN, "1 CPUs for 2 ranks", hint="ranks will take turns", code="cpu-busy"
    )
    plain = CheckResult("shm", Status.UNKNOWN, "64 MiB")
    told = view(check_in(0), check_in(1, (odd, plain)))

    assert [] == decide.judge(told)
    assert ["cpu-busy: node 1: 1 CPUs for 2 ranks; ranks will take turns"] == decide.notes(told)
    many = view(*(check_in(node, (odd,)) for node in range(10)))
    assert ["2 more of the kind"] == decide.notes(many)[8:]


def test_misconfigured_comes_before_a_node_at_fault() -> None:
    """What makes every attempt fail stands first, since its exit code forbids a retry."""
    verdicts = decide.judge(
        view(
            check_in(0, (failure("port-in-use", "held"),)), check_in(1, (failure("shm-too-small", "64 MiB"),))
        )
    )

    assert ["shm-too-small", "port-in-use"] == [verdict.code for verdict in verdicts]


def named(addresses: dict[str, list[str]], own: str = "n1", **more: Any) -> dict[str, Any]:
    """Facts of the names check."""
    return {"names": {"own": own, "addresses": addresses, **more}}


def test_the_masters_name_leads_home() -> None:
    """A node that resolves the master to itself is named."""
    odd = check_in(1, facts=named({"n0": ["127.0.1.1"], "n1": ["10.0.0.1"]}))
    verdict = only(decide.judge(view(odd)))

    assert (verdict.code, verdict.nodes) == ("master-is-loopback", [1])
    assert verdict.sentence.startswith("node 1 resolves n0 to 127.0.1.1")


def test_node_zero_may_know_itself_by_loopback() -> None:
    """On node 0 itself the master's name may be 127.0.1.1: its store listens everywhere."""
    facts = named({"n0": ["127.0.1.1"]}, own="box")

    assert [] == decide.judge(view(check_in(0, facts=facts)))


def test_nodes_that_share_a_network_may_use_loopback() -> None:
    """Several nodes on one machine, in one network namespace, are reached by loopback rightly."""
    facts = named({"n0": ["127.0.0.1"], "n1": ["127.0.1.1"]})
    check_ins = {n: check_in(n, machine="one", facts=facts) for n in range(3)}

    assert [] == decide.judge(GateView(PLAN, check_ins))


def test_containers_of_one_machine_do_not_share_loopback() -> None:
    """The same boot id in another network namespace is another home."""
    facts = named({"n0": ["127.0.0.1"], "n1": ["10.0.0.1"]})
    check_ins = {n: check_in(n, machine="one", netns=f"net:[{n}]", facts=facts) for n in range(2)}

    assert only(
        decide.judge(GateView(dataclasses.replace(PLAN, nodes=2), check_ins | {2: check_in(2)}))
    ).nodes == [1]


@pytest.mark.parametrize(
    ("more", "environment", "expected"),
    [
        ({}, {}, ["master-is-loopback"]),
        ({"gpus": True}, {}, []),
        ({}, {"GLOO_SOCKET_IFNAME": "eth0"}, []),
    ],
)
def test_a_nodes_own_name(more: dict[str, Any], environment: dict[str, str], expected: list[str]) -> None:
    """Gloo announces the address of the host's own name; not when told otherwise, and GPU jobs use NCCL."""
    facts = named({"n1": ["127.0.1.1"], "n0": ["10.0.0.0"]}, **more)
    facts["configuration"] = {"environment": environment}

    assert expected == [verdict.code for verdict in decide.judge(view(check_in(1, facts=facts)))]


def test_versions_that_differ_name_only_what_differs() -> None:
    """The sentence has the versions that are not equal, the facts have all."""
    odd = check_in(2, facts={"versions": {**TORCH, "torch": "2.13.0", "nccl": "2.27.5"}})
    verdict = only(decide.judge(view(odd)))

    assert (verdict.code, verdict.nodes) == ("version-differs", [2])
    assert verdict.sentence == (
        "node 2 has torch 2.13.0 / NCCL 2.27.5, the others torch 2.15.0 / NCCL 2.30.7"
    )


def test_patch_releases_of_python_are_alike() -> None:
    """3.11.7 and 3.11.9 understand each other's pickles; 3.12 may not."""
    alike = check_in(1, facts={"versions": {**TORCH, "python": "3.11.9"}})
    other = check_in(1, facts={"versions": {**TORCH, "python": "3.12.1"}})

    assert [] == decide.judge(view(alike))
    assert "node 1 has Python 3.12, the others Python 3.11" == only(decide.judge(view(other))).sentence


def test_a_node_whose_versions_are_not_known_is_not_judged() -> None:
    """A missing fact is no difference."""
    assert [] == decide.judge(view(check_in(1, facts={"versions": {}})))


def skewed(node: int, seconds: float, round_trip: float = 0.1) -> CheckIn:
    """A node whose clock is ahead of the hub's."""
    return check_in(node, at=1000.0 + seconds, facts={"hub": {"received": 1000.0, "round_trip": round_trip}})


C10D = dataclasses.replace(PLAN, launch=["--rdzv-backend=c10d"])


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([skewed(2, 61)], [2]),
        ([skewed(2, -61)], [2]),
        ([skewed(1, 61), skewed(2, 62)], [0]),
        ([skewed(2, 14)], []),
        ([skewed(2, 20, round_trip=10)], []),
    ],
)
def test_clocks(nodes: list[CheckIn], expected: list[int]) -> None:
    """The clock that most agree with is right, whoever's it is; doubt counts for the node."""
    verdicts = decide.judge(view(*nodes, plan=C10D))

    assert expected == [node for verdict in verdicts for node in verdict.nodes]


def test_static_rendezvous_has_no_clock() -> None:
    """Where torchrun compares no clocks, a skew is a note."""
    odd = view(skewed(2, 61))

    assert [] == decide.judge(odd)
    assert ["the nodes' clocks differ: node 0 +0 s, node 1 +0 s, node 2 +61 s"] == decide.notes(odd)


def test_nodes_that_never_came() -> None:
    """The missing are named, with how long they were waited for and who is here."""
    here = {0: check_in(0), 2: check_in(2)}
    verdict = only(decide.judge(GateView(PLAN, here, waited=120.2, missing=[1])))

    assert verdict.sentence == "node 1 never came: waited 120 s; nodes 0 and 2 are here"
    assert verdict.nodes == [1]


@pytest.mark.parametrize(
    ("joined", "option"), [(False, "`gate.timeout` in the job file"), (True, "`--gate-timeout`")]
)
def test_how_long_others_wait_is_set_where_the_job_was_started(joined: bool, option: str) -> None:
    """A job that another launcher starts has no job file."""
    plan = dataclasses.replace(PLAN, gate=GatePlan(joined=joined))
    verdict = only(decide.judge(GateView(plan, {0: check_in(0), 2: check_in(2)}, missing=[1])))

    assert verdict.hint.endswith(f" {option} says how long the others wait")


def test_a_node_that_came_and_went() -> None:
    """Having been here is another story than never having come."""
    here = {0: check_in(0), 2: check_in(2)}
    verdict = only(decide.judge(GateView(PLAN, here, missing=[1], vanished=[1])))

    assert verdict.sentence == "node 1 checked in and then went away; nodes 0 and 2 are here"


def test_environments_that_differ_are_noted() -> None:
    """Differing NCCL_* and Gloo settings are told, and fail nobody."""
    odd = check_in(1, facts={"configuration": {"environment": {"NCCL_DEBUG": "INFO"}}})

    assert ["NCCL_DEBUG differs: node 1 INFO, elsewhere not set"] == decide.notes(view(odd))


@pytest.mark.parametrize(
    ("skip", "odd"),
    [
        ("names", check_in(1, facts=named({"n0": ["127.0.0.1"]}))),
        ("versions", check_in(1, facts={"versions": {"python": "3.9.1"}})),
        ("clock", skewed(1, 61)),
    ],
)
def test_what_is_skipped_is_not_judged(skip: str, odd: CheckIn) -> None:
    """A check that the job skips is neither run nor compared."""
    plan = dataclasses.replace(C10D, gate=GatePlan(skip=[skip]))

    assert [] == decide.judge(view(odd, plan=plan))
    assert [] != decide.judge(view(odd, plan=C10D))


def test_every_verdict_of_the_gate_is_in_the_catalogue() -> None:
    """Codes that rules and checks speak of exist, so that their exit codes do."""
    bad = [MeshResult(0, 1, "a", 1, "responder", outcome) for outcome in ("timeout", "reset", "stalled")]
    everything = view(check_in(1, nodes=9), strays=[check_in(0)], missing=[2], stalled=[2], mesh=bad)

    assert {verdict.code for verdict in decide.judge(everything)} <= set(CATALOGUE)


def test_a_rule_that_fails_silences_no_other() -> None:
    """Who wants to hears of it; who does not, as these tests, gets the failure itself."""
    odd = view(check_in(1, facts={"versions": {"python": 3}}), check_in(2, nodes=7))
    with pytest.raises(AttributeError):
        decide.judge(odd)
    complaints: list[str] = []
    verdict = only(decide.judge(odd, complaints.append))

    assert ("world-size-differs", [2]) == (verdict.code, verdict.nodes)
    assert ["AttributeError: 'int' object has no attribute 'split'"] == [
        text.splitlines()[-1] for text in complaints
    ]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ([1], "node 1 was told to stop, and the other nodes were not; nodes 0 and 2 are here"),
        ([1, 2], "node 2 never came: waited 0 s; node 0 is here"),
    ],
)
def test_who_was_told_to_stop_is_not_here(missing: list[int], said: str) -> None:
    """Its check-in is known, and it is gone."""
    here = {node: check_in(node) for node in range(3) if node == 1 or node not in missing}
    verdict = only(decide.judge(GateView(PLAN, here, missing=missing, vanished=[1], stopped=[1])))

    assert ("node-missing", missing, said) == (verdict.code, verdict.nodes, verdict.sentence)
    assert "node 1 had checked in and was told to stop" in verdict.facts
