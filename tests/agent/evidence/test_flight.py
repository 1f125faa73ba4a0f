"""Dumps of torch's flight recorder, as torch 2.15 writes them with Gloo and older ones with NCCL."""

from __future__ import annotations

from typing import Any

import pytest

from ddplaunch.agent.contract import Collective, Group
from ddplaunch.agent.evidence import flight


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """As torch 2.15 wrote it, on a run with Gloo; the state never changes there."""
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"],
        "input_sizes": [[1024]],
        "is_p2p": False,
        "op_id": number,
        "p2p_seq_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "retired": True,
        "state": "scheduled",
        "time_created_ns": 1_795_235_107_000_000_000 + number * 500_000_000,
        **changes,
    }


def dump(*entries: dict[str, Any], **status: tuple[int, int]) -> dict[str, Any]:
    """A dump of `entries`; _GROUP=(enqueued, completed)."""
    pg_status = {
        name.lstrip("_"): {
            "last_enqueued_collective": str(enqueued),
            "last_completed_collective": str(completed),
            "last_started_collective": "-1",
        }
        for name, (enqueued, completed) in status.items()
    }
    return {"version": "2.10", "pg_status": pg_status, "pg_config": {}, "entries": list(entries)}


def test_counters_are_numbers_by_group() -> None:
    """What torch writes as strings; -1, nothing yet, is 0."""
    assert flight.counters(dump(_0=(17, 16), _1=(-1, -1))) == {"0": (17, 16), "1": (0, 0)}


@pytest.mark.parametrize(("retired", "completed"), [(True, 17), (False, 16)])
def test_a_number_that_gloo_left_behind_is_made_good_by_the_entries(retired: bool, completed: int) -> None:
    """A thread that was overtaken has written its own over a later one."""
    other = entry(40, pg_id=1)
    found = flight.counters(dump(entry(16), entry(17, retired=retired), other, _0=(17, 15), _1=(-1, -1)))

    assert (17, completed) == found["0"]


def test_a_dump_without_any_group_has_no_counters() -> None:
    """Before init_process_group torch leaves nearly everything out."""
    assert flight.counters({"version": "2.10"}) == {}


def test_an_open_collective_keeps_size_and_place() -> None:
    """The last entry is open while its state says "scheduled" like all the others."""
    last = entry(17, retired=False, profiling_name="gloo:broadcast", input_sizes=[[4]])
    found = flight.collectives(dump(entry(16), last))

    at = 1_795_235_107 + 8.5
    expected = Collective("0", 17, "broadcast", [[4]], ["Float"], False, False, at)
    assert (found[0].done, found[1]) == (True, expected)


def test_nccl_says_done_by_its_state() -> None:
    """Legacy NCCL marks completion in `state` before it retires the entry."""
    found = flight.collectives(
        dump(entry(1, profiling_name="nccl:all_reduce", retired=False, state="completed"))
    )

    assert [(each.op, each.done) for each in found] == [("all_reduce", True)]


def test_point_to_point_counts_by_itself() -> None:
    """A send has its own sequence number."""
    found = flight.collectives(dump(entry(3, is_p2p=True, p2p_seq_id=2, profiling_name="gloo:send")))

    assert [(each.seq, each.p2p, each.op) for each in found] == [(2, True, "send")]


def test_only_the_newest_travel() -> None:
    """Of a full recorder the last 64 are kept, oldest first."""
    found = flight.collectives(dump(*(entry(number) for number in range(1, 2001))))

    assert [each.seq for each in found] == list(range(1937, 2001))


def test_step_times_are_between_done_collectives() -> None:
    """Half a second apart; what is open, and point-to-point, does not count."""
    entries = [entry(1), entry(2), entry(9, is_p2p=True), entry(3), entry(4, retired=False)]

    assert flight.step_times(dump(*entries)) == [0.5, 0.5]


def test_groups_have_members_where_the_process_knew_them() -> None:
    """Names come from entries, members from the process; a group that called nothing is there too."""
    groups = flight.groups(
        dump(entry(1), entry(1, pg_id=1, process_group=["g1", ""]), _0=(5, 4), _1=(1, 1)),
        {"0": [0, 1, 2, 3], "g1": [0, 1], "g2": [2, 3]},
        {"g2": "evaluation"},
    )

    assert groups == [
        Group("0", [0, 1, 2, 3], 5, 4, "default_pg"),
        Group("g1", [0, 1], 1, 1, ""),
        Group("g2", [2, 3], 0, 0, "evaluation"),
    ]
