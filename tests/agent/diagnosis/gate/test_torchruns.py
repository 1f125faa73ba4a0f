"""The users' own torchruns: which cannot meet, which may, and what is only told."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

from tests.agent.diagnosis.gate.check_ins import check_in, only

from ddplaunch.agent.contract import GatePlan, JobPlan, Torchrun
from ddplaunch.agent.diagnosis.gate import decide
from ddplaunch.agent.diagnosis.gate.view import GateView

HERE = Torchrun(0, nnodes="2", sized=True, backend="c10d", endpoint="n0:29400", opens_store=True)
AWAY = replace(HERE, opens_store=False)


def view(*runs: Torchrun | None, names: tuple[str, ...] = ("n0", "n1"), nodes: int = 2) -> GateView:
    """Each node's torchrun; None: it runs another command. Each node has two addresses."""
    plan = JobPlan("run", nodes, None, [], ["torchrun", "t.py"], master_addr="n0", gate=GatePlan(joined=True))
    check_ins = {}
    for node, run in enumerate(runs):
        told: dict[str, Any] = {} if run is None else {**dataclasses.asdict(run), "name": names[node]}
        own = {
            "own": f"n{node}",
            "addresses": {f"n{node}": [f"10.0.0.{node}"], "n0": ["10.0.0.0"], "other": ["10.9.0.0"]},
            "interfaces": [["eth0", f"10.0.0.{node}"], ["eth1", f"10.9.0.{node}"]],
        }
        facts = {"configuration": {"environment": {}, "torchrun": told}, "names": own}
        check_ins[node] = check_in(node, nodes=nodes, nproc_per_node=None, facts=facts)
    return GateView(plan, check_ins)


def told(given: GateView) -> list[str]:
    """The notes on torchruns."""
    return [note for note in decide.notes(given) if "torchrun" in note]


def test_ids_that_differ_are_refused_with_both() -> None:
    verdict = only(decide.judge(view(replace(HERE, run_id="17"), replace(AWAY, run_id="4242"))))

    assert ("environment-differs", [0, 1]) == (verdict.code, verdict.nodes)
    assert (
        "torchruns do not meet under different ids: --rdzv-id=17 on node 0, 4242 on node 1"
    ) == verdict.sentence


def test_backends_and_ports_that_differ_are_refused() -> None:
    static = replace(AWAY, backend="static", node_rank=1)
    backends = only(decide.judge(view(HERE, static)))
    ports = only(decide.judge(view(HERE, replace(AWAY, endpoint="n0:29401"))))

    assert "--rdzv-backend=c10d on node 0, static on node 1" in backends.sentence
    assert "at different ports: n0:29400 on node 0, n0:29401 on node 1" in ports.sentence


def test_torchruns_that_may_begin_alone_are_only_told_that_they_will() -> None:
    """Each trains, though none with the other: nothing of theirs is ended."""
    given = view(*[replace(HERE, nnodes="1:2", run_id=each) for each in "ab"])

    assert [] == decide.judge(given)
    (note,) = told(given)
    assert note == (
        "torchruns do not meet under different ids, and begin without one another: --rdzv-id=a on node 0, "
        "b on node 1"
    )


def test_torchruns_that_meet_are_told_nothing() -> None:
    fine = view(HERE, AWAY)
    by_another_name = view(HERE, replace(AWAY, endpoint="10.0.0.0:29400"))

    assert [[], [], [], []] == [
        decide.judge(fine),
        told(fine),
        decide.judge(by_another_name),
        told(by_another_name),
    ]


def test_nodes_of_which_one_runs_no_torchrun_are_left_alone() -> None:
    other = replace(AWAY, run_id="b")

    assert [] == decide.judge(view(HERE, None))
    assert [] == decide.judge(replace(view(HERE, other), plan=replace(view(HERE).plan, nodes=3)))


def test_a_store_that_no_torchrun_will_open_is_refused() -> None:
    """By the address of a second interface torchrun does not know its own machine; nor by its name."""
    for host in ("10.9.0.0", "other"):
        verdict = only(decide.judge(view(*[replace(AWAY, endpoint=f"{host}:29400")] * 2)))

        assert ("master-is-not-node-zero", [0]) == (verdict.code, verdict.nodes)
        assert f"no torchrun will open the store at {host}:29400" in verdict.sentence
        assert "node 0: n0, its own name, leads to 10.0.0.0" in verdict.facts


def test_a_store_elsewhere_or_one_of_which_nothing_is_known_may_be_there() -> None:
    elsewhere = [replace(AWAY, endpoint="10.77.0.1:29400")] * 2
    unknown = [replace(HERE, endpoint="10.9.0.0:29400", opens_store=None)] * 2

    assert [[], []] == [decide.judge(view(*elsewhere)), decide.judge(view(*unknown))]


def test_node_ranks_that_c10d_ignores_are_told_where_names_give_others() -> None:
    ranked = [replace(HERE, node_rank=0), replace(AWAY, node_rank=1)]

    assert [] == told(view(*ranked))
    assert [] == told(view(HERE, AWAY, names=("zeta", "alpha")))  # nobody has asked for an order
    assert [] == told(view(*ranked, names=("zeta", "")))
    (note,) = told(view(*ranked, names=("zeta", "alpha")))
    assert note == (
        "torchrun ignores --node-rank with c10d, and numbers the nodes in the order of their names: rank 0 "
        "will be on node 1"
    )
