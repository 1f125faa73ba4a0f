"""Where ranks go to meet is looked up once for all that go there."""

from __future__ import annotations

import os
import time

import pytest
from tests.few_threads import refuse_threads

from ddplaunch.agent.contract import Rendezvous
from ddplaunch.agent.supervisor import rendezvous
from ddplaunch.agent.supervisor.ranks import Rank


def test_ranks_that_go_to_one_place_share_a_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets what was found, but for one that has called again meanwhile."""
    looked: list[Rendezvous] = []
    real = rendezvous.look_up

    def counted(made: Rendezvous) -> Rendezvous:
        looked.append(made)
        return real(made)

    monkeypatch.setattr(rendezvous, "look_up", counted)
    asked = rendezvous.Lookups()
    ranks = [Rank(number, number, os.getpid()) for number in range(4)]
    for rank, address in zip(ranks, ("localhost", "localhost", "127.0.0.1", "localhost")):
        rank.rendezvous = Rendezvous(at=1.0 + rank.number, method="env", address=address, port=1)
        asked.begin(rank)
    again = ranks[3].rendezvous = Rendezvous(at=9.0, method="env", address="localhost", port=1)
    found: list[Rank] = []
    until = time.monotonic() + 30
    while len(found) < 3 and time.monotonic() < until:
        found += asked.finished()
        time.sleep(0.01)

    assert sorted(made.address for made in looked) == ["127.0.0.1", "localhost"]
    assert {rank.number for rank in found} == {0, 1, 2}
    assert [rank.rendezvous.at for rank in ranks[:3] if rank.rendezvous] == [1.0, 2.0, 3.0]
    assert all(rank.rendezvous and rank.rendezvous.resolved for rank in found)
    assert ranks[3].rendezvous == again


def test_ranks_that_have_used_up_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of where one goes, and the supervisor goes on."""
    refuse_threads(monkeypatch)
    asked, rank = rendezvous.Lookups(), Rank(0, 0, os.getpid())
    made = rank.rendezvous = Rendezvous(at=1.0, method="env", address="localhost", port=1)
    asked.begin(rank)

    assert [rank] == list(asked.finished())
    assert made == rank.rendezvous
