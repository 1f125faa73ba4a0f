"""Ranks that have just called init_process_group: when all nodes are looked at, and what is said then."""

from __future__ import annotations

from typing import Any

from tests.agent.diagnosis.build_calls import caller, sets
from tests.agent.hub.sessions import Hub

from ddplaunch.agent.contract import RankEvidence, codec
from ddplaunch.agent.hub.init_calls import LATEST, SETTLE, InitCalls

WRONG: dict[str, Any] = {
    "address": "wrong.address",
    "unresolved": "NXDOMAIN",
    "settings": sets(MASTER_ADDR="wrong.address"),
}


def calls(hub: Hub, node: int, rank: RankEvidence) -> None:
    """The node tells of a rank's call."""
    hub.says(node, "rendezvous", {"rank": codec.dump(rank)})


def test_a_look_waits_for_the_peers() -> None:
    """Each word is given a moment for more, and a stream of them no more than LATEST seconds."""
    heard = InitCalls()
    assert not heard.due(100.0)

    heard.called(100.0)
    assert not heard.due(100.0 + SETTLE - 0.1)
    assert heard.due(100.0 + SETTLE)
    assert not heard.due(100.0 + SETTLE + 1)

    for step in range(40):
        heard.called(200.0 + step / 10)
    assert heard.due(200.0 + LATEST)


def test_an_overridden_rendezvous_is_told_at_the_call(hub: Hub) -> None:
    """All nodes are asked, all get one notice with the line, and nobody is ended."""
    for number in range(4):
        calls(hub, number // 2, caller(number, **WRONG))
    hub.ticks(SETTLE + 0.3)
    for node in (0, 1):
        hub.answers(node, caller(2 * node, **WRONG), caller(2 * node + 1, **WRONG))

    for wire in hub.wires:
        (notice,) = wire.got("notice")
        (verdict,) = notice["verdicts"]
        assert ("dns-not-found", [0, 1, 2, 3]) == (verdict["code"], verdict["ranks"])
        assert "train.py:9 sets MASTER_ADDR to wrong.address" in verdict["sentence"]
        assert [] == wire.got("end")


def test_calls_that_leave_all_to_the_launcher_cost_nothing(hub: Hub) -> None:
    """No node is asked for evidence."""
    for number in range(4):
        calls(hub, number // 2, caller(number))
    hub.ticks(LATEST + 1)

    assert [] == hub.wires[0].got("collect")
