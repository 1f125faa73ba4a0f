"""The call in which a rank stands, by what py-spy has told of real ranks with the variables of functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent.contract import Collective, Frame
from ddplaunch.agent.outside import calls

RECORDED: dict[str, Any] = json.loads(
    Path(__file__).with_name("recorded").joinpath("py-spy-variables.json").read_text()
)


def standing(name: str) -> Collective | None:
    """The call of a rank of this program of the corpus."""
    its = RECORDED[name]
    return calls.standing(json.dumps(its["dump"]), its["pid"])[1]


def test_a_receive_has_its_peer() -> None:
    """With its tag, and the user's line."""
    line = Frame("exchange", "/job/p2p_all_receive.py", 9)

    assert standing("p2p_all_receive") == Collective(
        "0", 0, "recv", p2p=True, frames=[line], peer=1, state="entered", tag=0
    )


def test_a_collective_of_the_default_group() -> None:
    """As the receive that was recorded, but for its name: it has no peer."""
    its = RECORDED["p2p_all_receive"]
    found = calls.standing(json.dumps(its["dump"]).replace('"recv"', '"all_reduce"'), its["pid"])[1]

    assert found is not None
    assert ("all_reduce", "0", None, None) == (found.op, found.group, found.peer, found.tag)


def test_a_call_of_another_group_is_not_known() -> None:
    """An address does not say which group it is."""
    assert standing("group_left_out") is None


@pytest.mark.parametrize("kwargs", ['{"src": 1, ...}', '{"group": <ProcessGroup at 0x7f>}', ""])
def test_arguments_that_are_cut_or_missing_say_nothing(kwargs: str) -> None:
    """One of them may be a group."""
    text = json.dumps(RECORDED["p2p_all_receive"]["dump"])
    changed = text.replace(json.dumps('{"src": 1}'), json.dumps(kwargs or "..."))

    assert text != changed
    assert calls.standing(changed, RECORDED["p2p_all_receive"]["pid"])[1] is None


@pytest.mark.parametrize("text", ["", "Error", "[{}]"])
def test_what_is_no_dump_raises(text: str) -> None:
    """As a complaint of py-spy is."""
    with pytest.raises((ValueError, KeyError)):
        calls.standing(text, 1)
