"""How many collectives a rank has called, where torch only counts them."""

from __future__ import annotations

from ddplaunch.agent.contract import Collective, Frame, Group
from ddplaunch.agent.supervisor.rank_evidence import counted_groups, open_group

TORCH = "/opt/env/lib/python3.11/site-packages/torch"
IN_BARRIER = [
    Frame("barrier", f"{TORCH}/distributed/distributed_c10d.py", 4500),
    Frame("main", "/job/train.py", 20),
]
IN_BACKWARD = [
    Frame("_engine_run_backward", f"{TORCH}/autograd/graph.py", 824),
    Frame("main", "/job/train.py", 14),
]
IN_MAIN = [Frame("main", "/job/train.py", 12)]


def entered(op: str, group: str = "0") -> list[Collective]:
    """The program's last call has not returned."""
    return [Collective(group, 1, op, state="entered")]


def test_messages_are_no_collectives() -> None:
    """torch's number counts both; of a group whose messages are not counted, nothing is said."""
    members = {"0": [0, 1], "1": [0, 1], "2": [0, 1]}
    found = counted_groups({"0": (9, 4, 5), "1": (8, None, None)}, members, {"0": "default_pg"}, is_open="0")

    assert [Group("0", [0, 1], 4, 3, "default_pg")] == found
    assert [] == counted_groups({"0": (3, 4, 0)}, members, {}, is_open="")  # torch counts from 0 again


def test_the_call_in_which_the_program_stands_is_open() -> None:
    counted = {"0": (26, 1, 0), "1": (3, 3, 0)}

    assert "1" == open_group(counted, IN_BARRIER, entered("barrier", "1"), is_asleep=True)
    assert "" == open_group(counted, IN_MAIN, entered("barrier", "1"), is_asleep=True)
    assert "" == open_group({"0": (26, 1, 0)}, IN_BARRIER, entered("monitored_barrier"), is_asleep=True)
    assert "" == open_group({"0": (0, 1, 0)}, IN_BARRIER, entered("barrier"), is_asleep=True)


def test_a_rank_that_sleeps_in_backward_waits_in_the_group_that_torch_itself_has_called() -> None:
    assert "0" == open_group({"0": (26, 0, 0), "1": (3, 3, 0)}, IN_BACKWARD, [], is_asleep=True)


def test_a_rank_in_backward_need_not_wait() -> None:
    """It computes; its model is not DDP's; its group is not known; or it is in its own code."""
    one = {"0": (26, 0, 0)}

    assert "" == open_group(one, IN_BACKWARD, [], is_asleep=False)
    assert "" == open_group({"0": (3, 3, 0)}, IN_BACKWARD, [], is_asleep=True)
    assert "" == open_group({"0": (26, 0, 0), "1": (4, 2, 0)}, IN_BACKWARD, [], is_asleep=True)
    assert "" == open_group({**one, "1": (4, None, None)}, IN_BACKWARD, [], is_asleep=True)
    assert "" == open_group(one, IN_MAIN, [], is_asleep=True)
