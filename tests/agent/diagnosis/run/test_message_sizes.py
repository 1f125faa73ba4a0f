"""A message that its receive could not hold, beside other words of Gloo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.diagnosis.build import dead, job, only, raised, rank, victim
from tests.agent.diagnosis.run.build_blocked import call

from ddplaunch.agent.contract import Collective, JobEvidence, Verdict

SAID = (
    "what():  [enforce fail at gloo/transport/tcp/pair.cc:464] op.preamble.length <= op.nbytes. {} vs {}. "
    "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?"
)


def tensor(length: int, dtype: str = "float32") -> dict[str, Any]:
    """Shape and dtype of a call."""
    return {"sizes": [[length]], "dtypes": [dtype]}


def ended(send: Collective, receive: Collective, sent: int, wanted: int) -> JobEvidence:
    """Rank 1 was ended by Gloo in its receive; rank 0 has sent, and misses it; rank 2 has no part in it."""
    receiver = replace(dead(1, 1, signal=6), last_output=SAID.format(sent, wanted), calls=[receive])
    sender = replace(victim(0), calls=[send])
    return job(sender, receiver, victim(2), per_node=3, why="death")


def verdict_on(send: Collective, receive: Collective, sent: int = 32, wanted: int = 16) -> Verdict:
    """The only one."""
    return only(ended(send, receive, sent, wanted))


def test_a_longer_tensor() -> None:
    """Who of the two is wrong is not known: both are named, with both lines."""
    verdict = verdict_on(
        call("send", 1, 13, peer=1, **tensor(8)), call("recv", 1, 20, "entered", peer=0, **tensor(4))
    )

    assert ("p2p-deadlock", [0, 1], [2]) == (verdict.code, verdict.ranks, verdict.victims)
    assert (
        "rank 0 sent [8] float32 to rank 1 (train.py:13), which receives [4] float32 (train.py:20): "
        "the message is larger than its receive"
    ) == verdict.sentence


def test_a_wider_dtype() -> None:
    """Of the same shape."""
    verdict = verdict_on(
        call("isend", 1, 13, "issued", peer=1, **tensor(4, "float64")),
        call("irecv", 1, 20, "waiting", peer=0, **tensor(4, "float32")),
    )

    assert [0, 1] == verdict.ranks
    assert "rank 0 sent [4] float64 to rank 1" in verdict.sentence
    assert "compare isend to rank 1 (train.py:13) and irecv from rank 0 (train.py:20)" in verdict.hint


@pytest.mark.parametrize(
    ("send", "receive"),
    [
        (tensor(9), tensor(4)),
        (tensor(8), tensor(5)),
        (tensor(8), {"sizes": [[4]]}),
        ({**tensor(8), "tag": 1}, tensor(4)),
        ({**tensor(8), "peer": 2}, tensor(4)),
        (tensor(8), {**tensor(4), "peer": -1}),
    ],
    ids=["other bytes sent", "other bytes wanted", "dtype unknown", "other tag", "to another", "from any"],
)
def test_calls_that_are_not_those_of_the_words(send: dict[str, Any], receive: dict[str, Any]) -> None:
    """Something else was larger: no send is called the cause."""
    verdict = verdict_on(
        call("send", 1, 13, **{"peer": 1, **send}), call("recv", 1, 20, "entered", **{"peer": 0, **receive})
    )

    assert ("collective-mismatch", []) == (verdict.code, verdict.ranks)


def test_two_open_receives_of_the_same_size() -> None:
    """Either may be the one."""
    receives = [call("irecv", n, 20 + n, "issued", peer=2 * n, **tensor(4)) for n in range(2)]
    receiver = replace(dead(1, 1, signal=6), last_output=SAID.format(32, 16), calls=receives)
    senders = [replace(victim(n), calls=[call("send", 1, 13, peer=1, **tensor(8))]) for n in (0, 2)]
    verdict = only(job(senders[0], receiver, senders[1], per_node=3, why="death"))

    assert [] == verdict.ranks


def test_words_of_an_exception_that_the_program_has_handled() -> None:
    """They do not explain why another rank has died since."""
    words = raised("RuntimeError", SAID.format(32, 16), 5, handled=True)
    receive = call("recv", 1, 20, "raised", peer=0, **tensor(4))
    receiver = replace(rank(1), raised=[words], calls=[receive])
    sender = replace(dead(0, 1, signal=9), calls=[call("send", 1, 13, peer=1, **tensor(8))])

    assert "rank-killed" == only(job(sender, receiver, why="death")).code
