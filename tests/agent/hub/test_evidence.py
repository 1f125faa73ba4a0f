"""How many bytes of flight recorders each node may send."""

from __future__ import annotations

from ddplaunch.agent.contract import JobEvidence, NodeEvidence, RankEvidence, Verdict
from ddplaunch.agent.contract.bundle_file import MOST_DUMPS
from ddplaunch.agent.hub.evidence import dump_room


def test_a_small_job_shares_all_the_room() -> None:
    """No node is left out."""
    assert dict.fromkeys(range(4), MOST_DUMPS // 4) == dump_room(range(4), [], None)
    assert {} == dump_room([], [], None)


def test_a_large_job_stays_within_the_room() -> None:
    """Some nodes get enough, the others nothing."""
    room = dump_room(range(512), [], None)

    assert 512 == len(room)
    assert sum(room.values()) <= MOST_DUMPS
    assert [0] == [node for node in (0, 511) if room[node]]


def test_the_nodes_of_blamed_ranks_come_first() -> None:
    """And that of the first victim: what the culprit has not called, it has."""
    nodes = [NodeEvidence(n, f"n{n}", 1.0, "running", [RankEvidence(n, 0, 9, True)]) for n in range(512)]
    evidence = JobEvidence("digits", 512, 512, "still", 1.0, nodes)
    verdict = Verdict.of("rank-in-user-code", "x", "run", ranks=[500], victims=[400, 401])
    room = dump_room(range(512), [verdict], evidence)

    assert [True, True, False] == [room[node] > 0 for node in (500, 400, 401)]
