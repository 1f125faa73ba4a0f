"""The call in which a rank stands, by what py-spy has told of real ranks with the variables of functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent.contract import Collective, Frame, Rendezvous, Setting
from ddplaunch.agent.outside import look

RECORDED: dict[str, Any] = json.loads(
    Path(__file__).with_name("recorded").joinpath("py-spy-variables.json").read_text()
)


def standing(name: str) -> Collective | None:
    """The call of a rank of this program of the corpus."""
    its = RECORDED[name]
    return look.standing(json.dumps(its["dump"]), its["pid"], {}).call


def rendezvous(environment: dict[str, str], text: str = "") -> Rendezvous | None:
    """The call of a rank that connects to the store, with the environment that it was started with."""
    its = RECORDED["ddp_own_master"]
    return look.standing(text or json.dumps(its["dump"]), its["pid"], environment).rendezvous


def test_a_receive_has_its_peer_its_tag_and_the_users_line() -> None:
    line = Frame("exchange", "/job/p2p_all_receive.py", 9)

    assert standing("p2p_all_receive") == Collective(
        "0", 0, "recv", p2p=True, frames=[line], peer=1, state="entered", tag=0
    )


def test_a_collective_of_the_default_group_has_no_peer() -> None:
    """As the receive that was recorded, but for its name: it has no peer."""
    its = RECORDED["p2p_all_receive"]
    found = look.standing(json.dumps(its["dump"]).replace('"recv"', '"all_reduce"'), its["pid"], {}).call

    assert found is not None
    assert ("all_reduce", "0", None, None) == (found.op, found.group, found.peer, found.tag)


def test_a_broadcast_has_its_root_which_may_go_ahead() -> None:
    found = standing("collective_mismatch")

    assert found is not None
    assert ("broadcast", False, 0, None) == (found.op, found.p2p, found.peer, found.tag)


def test_torchruns_store_is_where_its_variable_said_at_the_begin() -> None:
    """Torchrun's store is where its variable said when the program began."""
    made = rendezvous({"MASTER_PORT": "29500"})

    assert made is not None
    seen = made.method, made.address, made.rank, made.world_size, made.agent_store
    assert ("env", "localhost", 0, 2, True) == seen
    assert [Setting("MASTER_PORT", str(made.port), given="29500")] == made.settings
    assert Frame("setup", "/job/ddp_own_master.py", 16) == made.frame


def test_torchruns_own_store_says_nothing_for_it_may_be_slow() -> None:
    assert rendezvous({"MASTER_PORT": "44991"}) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name": "use_libuv"', '"name": "start_daemon"'),
        ("_env_rendezvous_handler", "_tcp_rendezvous_handler"),
        ('"repr": "44991"', '"repr": "<int>"'),
    ],
    ids=["a rank opens the store", "a URL says where", "no number"],
)
def test_another_way_to_a_store_says_nothing(old: str, new: str) -> None:
    text = json.dumps(RECORDED["ddp_own_master"]["dump"])

    assert old in text
    assert rendezvous({"MASTER_PORT": "29500"}, text.replace(old, new)) is None


def test_a_call_of_another_group_is_not_known() -> None:
    assert standing("group_left_out") is None


@pytest.mark.parametrize("kwargs", ['{"src": 1, ...}', '{"group": <ProcessGroup at 0x7f>}', ""])
def test_arguments_that_are_cut_or_missing_say_nothing(kwargs: str) -> None:
    text = json.dumps(RECORDED["p2p_all_receive"]["dump"])
    changed = text.replace(json.dumps('{"src": 1}'), json.dumps(kwargs or "..."))

    assert text != changed
    assert look.standing(changed, RECORDED["p2p_all_receive"]["pid"], {}).call is None


@pytest.mark.parametrize("text", ["", "Error", "[{}]"])
def test_what_is_no_dump_of_py_spy_raises(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        look.standing(text, 1, {})
