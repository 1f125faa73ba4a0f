"""Nodes whose supervisors are told to stop: one of them, or all."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.diagnosis.build import NOW, PEER_GONE, dead, in_evaluate, raised, rank
from tests.agent.hub.sessions import BUSY, Hub

from ddplaunch.agent.contract import Beat, Exit, NodeEvidence, codec
from ddplaunch.agent.hub.eviction import TOGETHER
from ddplaunch.agent.hub.launch_attempts import SETTLE


def told(hub: Hub, node: int) -> None:
    """SIGTERM, and the evidence that its supervisor takes before it passes it on."""
    hub.says(node, "stopping", {"why": "SIGTERM"})
    evidence = NodeEvidence(node, f"n{node}", NOW, "running", [rank(2 * node), rank(2 * node + 1)])
    hub.says(node, "evidence", {"id": 0, "evidence": codec.dump(evidence)})


def test_a_pod_that_is_taken_away_is_named(hub: Hub) -> None:
    """One node alone is told to stop: the others hear why, and end with it. Its evidence is in the bundle."""
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(TOGETHER + 0.2)
    ((notice,),) = [each["verdicts"] for each in hub.wires[0].got("notice")]
    assert ("node-evicted", [1], [0, 1]) == (notice["code"], notice["nodes"], notice["victims"])
    assert notice["sentence"].startswith("node 1 was told to stop by SIGTERM, the others were not")
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})

    (end,) = hub.wires[0].got("end")
    assert (Exit.STOPPED, ["node-evicted"]) == (end["exit_code"], [each["code"] for each in end["verdicts"]])
    evidence = hub.record.evidence
    assert evidence is not None
    assert [0, 1] == [node.node for node in evidence.evidence]
    assert 2 == len(evidence.evidence[1].ranks)


def test_what_a_node_tells_unasked_is_an_answer(hub: Hub) -> None:
    """Evidence that a node takes by itself ends a round that waits for this node alone."""
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))

    assert hub.handler.rounds.current is None


def test_a_pod_that_ends_at_once_is_named_too(hub: Hub) -> None:
    """Its part is over before it is plain that nobody else is told; the end waits for that."""
    told(hub, 1)
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})
    assert [] == hub.wires[0].got("end")
    hub.ticks(TOGETHER + 0.2)

    (end,) = hub.wires[0].got("end")
    assert ["node-evicted"] == [each["code"] for each in end["verdicts"]]


def test_what_the_others_die_of_is_the_eviction(hub: Hub) -> None:
    """A rank of another node that is killed over it is no cause, however early it dies."""
    told(hub, 1)
    hub.death(0, dead(0, 0, signal=9))
    hub.answers(0, rank(1))
    hub.ticks(SETTLE + 0.3)
    assert [] == hub.wires[0].got("end")
    hub.ticks(TOGETHER)
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})

    (end,) = hub.wires[0].got("end")
    assert ["node-evicted"] == [each["code"] for each in end["verdicts"]]


def test_nobody_waits_for_nodes_that_have_ended(hub: Hub) -> None:
    """Who ends the job kills the rest in a few seconds, and the last words are to be said before."""
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})
    assert [] == hub.wires[0].got("end")
    hub.says(0, "finished", {"node": 0, "exit_code": Exit.WORKER_FAILED})
    hub.ticks(SETTLE + 0.3)

    assert Exit.STOPPED == hub.record.exit_code


def test_a_job_that_is_cancelled_is_not_called_evicted(hub: Hub) -> None:
    """All nodes are told within a moment: nobody asks why, and nobody waits for more."""
    told(hub, 0)
    told(hub, 1)
    hub.finish(Exit.STOPPED, Exit.STOPPED)

    assert (Exit.STOPPED, []) == (hub.record.exit_code, hub.record.verdicts)


def test_a_job_that_hung_before_is_called_hung(hub: Hub) -> None:
    """Somebody deletes a pod of a job that stands still: that is not what was wrong with it."""
    hub.says(0, "beat", {"beat": {"node": 0, "phase": "running", "at": NOW, "ranks": []}})
    hub.handler._request("asked", hub.now)
    hub.answers(0, rank(0, in_evaluate(), called=16), rank(1))
    hub.answers(1, rank(2), rank(3))
    assert ["rank-in-user-code"] == [verdict.code for verdict in hub.record.verdicts]
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(TOGETHER + 0.2)
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})

    assert ["rank-in-user-code"] == [verdict.code for verdict in hub.record.verdicts]


def test_nobody_is_left_behind_when_the_last_node_is_done(hub: Hub) -> None:
    """Node 0 has finished and waits: it is told when the others have, too."""
    hub.says(0, "finished", {"node": 0, "exit_code": Exit.OK})
    assert [] == hub.wires[0].got("end")
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.OK})
    hub.ticks(0.2)

    assert [Exit.OK] == [end["exit_code"] for end in hub.wires[0].got("end")]


def test_where_torchruns_agents_can_do_without_it_the_others_go_on(hub: Hub) -> None:
    """What their ranks die of is its end; the agents start them again, and the job ends as they do."""
    for node in range(2):
        beat = Beat(node, "running", NOW, [BUSY[2 * node]], least_nodes=1)
        hub.says(node, "beat", {"beat": codec.dump(beat)})
    told(hub, 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(TOGETHER + 0.2)
    hub.death(0, dead(0, 0, code=1, raised=[raised("RuntimeError", PEER_GONE, 0)]))
    hub.answers(0, rank(1))
    hub.answers(1, rank(2), rank(3))
    hub.ticks(SETTLE + 0.5)
    hub.says(1, "finished", {"node": 1, "exit_code": Exit.STOPPED})
    hub.starts_again(0, 1, replace(BUSY[0], pid=3000))
    assert [] == hub.wires[0].got("end")
    hub.finish(Exit.OK)

    assert (Exit.OK, []) == (hub.record.exit_code, hub.record.verdicts)
