"""The messages of the protocol: what is packed is read again, by those whom it is for, and by nobody else."""

from __future__ import annotations

import pytest

from ddplaunch.agent.contract import Verdict, codec, messages
from ddplaunch.agent.contract.messages import Alive, AskStatus, Collect, End, StatusAnswer, Way, load

END = End(40, [Verdict.of("rank-failed", "rank 1 raised ValueError", "run", ranks=[1])], 5.0)


@pytest.mark.parametrize("message", [END, Collect(3, "death", 3.0), Alive()])
def test_what_is_packed_is_read_again(message: messages.Message) -> None:
    """Kind and body are all that a line carries."""
    assert message == load(*message.pack(), Way.HUB_TO_SUPERVISOR)


def test_a_message_of_another_way_is_none() -> None:
    """A supervisor that sends an end does not end the job, and no gate reads a supervisor's orders."""
    assert load(*END.pack(), Way.SUPERVISOR_TO_HUB) is None
    assert load(*END.pack(), Way.HUB_TO_GATE) is None
    assert load("nonsense", {}, *Way) is None


def test_a_kind_may_be_a_question_one_way_and_its_answer_the_other() -> None:
    """`status` is both."""
    assert AskStatus.kind == StatusAnswer.kind
    assert AskStatus() == load("status", {}, Way.COMMAND_TO_HUB)


def test_a_body_of_another_shape_is_refused() -> None:
    """The error names the place."""
    with pytest.raises(codec.ContractError, match=r"Collect\.deadline: wanted a number, found str"):
        load("collect", {"id": 1, "why": "still", "deadline": "soon"}, Way.HUB_TO_SUPERVISOR)
