"""Nodes that fall silent, or go away, while the job runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.agent.diagnosis.build import NOW, rank
from tests.agent.hub.sessions import HUNG, Hub, Wire

from ddplaunch.agent.contract import Beat, Exit, RankBeat, codec
from ddplaunch.agent.hub.launch_attempts import SETTLE
from ddplaunch.agent.hub.liveness import CLOSED, QUIET, UNCONFIRMED
from ddplaunch.agent.hub.recheck import DOUBT


def test_a_lost_node_ends_the_job_as_a_nodes_fault(hub: Hub) -> None:
    """A connection that does not come back within CLOSED seconds: the node is named, at fault itself."""
    asyncio.run(hub.handler.lost(hub.wires[1]))  # type: ignore[arg-type]
    hub.ticks(CLOSED - 1)
    assert [] == hub.wires[0].got("end")
    hub.ticks(1.5)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(SETTLE + DOUBT + 1)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(1)

    (end,) = hub.wires[0].got("end")
    assert (Exit.NODE_AT_FAULT, [1]) == (end["exit_code"], end["verdicts"][0]["nodes"])


def test_a_node_that_comes_back_is_not_lost(hub: Hub) -> None:
    """A new connection of the same node in time, and nothing has happened."""
    asyncio.run(hub.handler.lost(hub.wires[1]))  # type: ignore[arg-type]
    hub.ticks(CLOSED - 1)
    hub.wires[1] = Wire()
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})
    hub.ticks(CLOSED)

    assert [] == hub.wires[0].got("collect")


def test_a_node_whose_kernel_is_silent_is_told_soon_and_given_up_late(hub: Hub) -> None:
    """Within ten seconds a notice to the others, with what it had done; the end only after `kill_after`."""
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1) for each in HUNG))
    hub.wires[1].silent_for = 8.0
    hub.ticks(QUIET + UNCONFIRMED + 0.2)
    hub.answers(0, rank(0), rank(1))

    ((verdict,),) = [notice["verdicts"] for notice in hub.wires[0].got("notice")]
    assert ("network-lost", [1], [0, 1]) == (verdict["code"], verdict["nodes"], verdict["victims"])
    assert ["ping"] == [kind for kind, _ in hub.wires[1].sent if kind not in ("notice", "alive")]
    hub.ticks(45)
    assert [] == hub.wires[0].got("end")
    hub.ticks(60)
    assert [Exit.NODE_AT_FAULT] == [end["exit_code"] for end in hub.wires[0].got("end")]
    hub.finish(Exit.NODE_AT_FAULT)
    assert Exit.NODE_AT_FAULT == hub.record.exit_code  # nobody waits for the other's farewell


def test_a_supervisor_that_is_starved_is_not_lost(hub: Hub) -> None:
    """Its kernel confirms what is sent to it, about once a second, for as long as it says nothing."""
    hub.ticks(100)

    assert 90 < len(hub.wires[1].got("ping")) < 101
    assert [] == hub.wires[0].got("notice") + hub.wires[0].got("end")


def test_a_frozen_node_is_said_to_be_silent_soon_and_given_up_at_kill_after(hub: Hub) -> None:
    """Its kernel confirms everything, its processes say nothing, and all others wait: the node, and why."""
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1, waits=True) for each in HUNG))
    wait(hub, 12)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(0.1)

    ((verdict,),) = [notice["verdicts"] for notice in hub.wires[0].got("notice")]
    assert ("network-lost", [1], [0, 1]) == (verdict["code"], verdict["nodes"], verdict["victims"])
    assert "has said nothing since" in verdict["sentence"]
    assert "its processes are frozen or starved" in verdict["sentence"]
    wait(hub, 60, since=12)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(SETTLE + 0.1)
    assert [Exit.NODE_AT_FAULT] == [end["exit_code"] for end in hub.wires[0].got("end")]


def test_a_stuck_supervisor_is_not_lost_while_the_others_train(hub: Hub) -> None:
    """Its node says nothing for a minute, and the other's ranks go on: nothing is wrong with the job."""
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1) for each in HUNG))
    for _ in range(60):
        beats(hub, 0.5)
        hub.ticks(1)

    assert [] == hub.wires[0].got("notice") + hub.wires[0].got("end")


def test_a_frozen_node_that_goes_on_takes_its_notice_back(hub: Hub) -> None:
    """The container was paused, and is no more."""
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1, waits=True) for each in HUNG))
    wait(hub, 12)
    hub.answers(0, rank(0), rank(1))
    hub.ticks(0.1)
    assert ["network-lost"] == [verdict.code for verdict in hub.record.verdicts]
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1, waits=True) for each in HUNG))

    assert [] == hub.record.verdicts
    assert "node 1 answers again" in hub.events


def test_a_hub_that_was_frozen_itself_blames_nobody(hub: Hub) -> None:
    """All of a machine was suspended: what nobody said meanwhile is no silence."""
    hub.beats(*(replace(each, stuck_for=0.1, still_for=0.1, waits=True) for each in HUNG))
    wait(hub, 7)
    hub.now += 100
    beats(hub, 107)
    hub.ticks(0.3)

    hub.beats(*(replace(each, stuck_for=107, still_for=107, waits=True) for each in HUNG))
    hub.ticks(5)
    assert [] == hub.wires[0].got("collect") + hub.wires[0].got("notice")
    assert not any("says nothing" in text for text in hub.events)


def wait(hub: Hub, seconds: int, since: int = 0) -> None:
    """Node 0 says each second that its ranks wait; node 1 says nothing."""
    for second in range(since, since + seconds):
        beats(hub, second)
        hub.ticks(1)


def beats(hub: Hub, stuck: float) -> None:
    """Node 0's ranks have waited for so long."""
    ranks = [RankBeat(n, n, 1000 + n, True, "running", stuck, stuck, True, completed=16) for n in (0, 1)]
    hub.says(0, "beat", {"beat": codec.dump(Beat(0, "running", NOW, ranks))})


def test_a_lost_pod_is_named_with_its_machine(tmp_path: Path) -> None:
    """To all nodes alike, and in the record; names alone are not what fails."""
    hub = Hub(tmp_path, names=[f"d-{node}.d.lab.svc.cluster.local" for node in range(2)])
    hub.says(1, "join", {"node": 1, "host": "d-1 on worker2", "pid": 1})
    hub.wires[1].silent_for = 8.0
    hub.ticks(20)
    hub.record.close()

    ((told,),) = [each["verdicts"] for each in hub.wires[0].got("notice")]
    assert told["sentence"].startswith("node 1 (d-1 on worker2)")
    assert [told["sentence"]] == [verdict.sentence for verdict in hub.record.verdicts]


def test_a_node_that_answers_again_is_forgiven(hub: Hub) -> None:
    """A switch has found another way: the notice is taken back, and nothing was ended."""
    hub.wires[1].silent_for = 8.0
    hub.ticks(20)
    assert ["network-lost"] == [verdict.code for verdict in hub.record.verdicts]
    asyncio.run(hub.handler.lost(hub.wires[1]))  # type: ignore[arg-type]
    hub.wires[1] = Wire()
    hub.says(1, "join", {"node": 1, "host": "n1", "pid": 1})

    assert [] == hub.record.verdicts
    assert "node 1 answers again" in hub.events
