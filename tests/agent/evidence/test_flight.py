"""Dumps of torch's flight recorder, as torch 2.15 writes them with Gloo and older ones with NCCL."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent.contract import Collective, Frame, Group
from ddplaunch.agent.evidence import flight
from ddplaunch.agent.evidence.flight import Dumps, as_pickle

RECORDED = Path(__file__).with_name("recorded")
SECOND = 1_795_235_107
"""The time of entry 0; each is half a second after the one before."""


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
    """What torch writes as strings; -1, nothing yet, is 0. Before init_process_group there are none."""
    assert flight.counters(dump(_0=(17, 16), _1=(-1, -1))) == {"0": (17, 16), "1": (0, 0)}
    assert flight.counters({"version": "2.10"}) == {}


@pytest.mark.parametrize(("retired", "completed"), [(True, 17), (False, 16)])
def test_a_number_that_gloo_left_behind_is_made_good_by_the_entries(retired: bool, completed: int) -> None:
    """A thread that was overtaken has written its own over a later one."""
    other = entry(40, pg_id=1)
    found = flight.counters(dump(entry(16), entry(17, retired=retired), other, _0=(17, 15), _1=(-1, -1)))

    assert (17, completed) == found["0"]


def test_an_open_collective_keeps_size_and_place() -> None:
    """The last entry is open while its state says "scheduled" like all the others."""
    last = entry(17, retired=False, profiling_name="gloo:broadcast", input_sizes=[[4]])
    found = flight.collectives(dump(entry(16), last))

    at = 1_795_235_107 + 8.5
    expected = Collective("0", 17, "broadcast", [[4]], ["Float"], False, False, at, state="scheduled")
    assert (found[0].done, found[0].state, found[1]) == (True, "completed", expected)


def of_nccl(number: int, **changes: Any) -> dict[str, Any]:
    """As NCCL 2.28.9 and torch 2.11 wrote it: done, and retired by the watchdog."""
    return entry(number, **{"profiling_name": "nccl:all_reduce", "state": "completed", **changes})


def test_an_entry_that_nccl_calls_completed_is_done_but_for_the_newest() -> None:
    """But not of the newest: that is so while its call has not come back, as in a full queue of the GPU."""
    open_one = of_nccl(2, state="scheduled", retired=False)
    found = flight.collectives(dump(of_nccl(1, retired=False), open_one, of_nccl(3, retired=False)))

    assert [("completed", True), ("scheduled", False), ("scheduled", False)] == [
        (each.state, each.done) for each in found
    ]
    assert (True, "completed") == (flight.collectives(dump(of_nccl(1)))[0].done, found[0].state)


def test_a_call_of_nccl_that_has_not_come_back_is_open() -> None:
    """As a rank showed it whose 528th call did not return: the watchdog's number is one behind."""
    undone = [of_nccl(number, state="scheduled", retired=False) for number in range(17, 528)]
    done = [of_nccl(number) for number in range(1, 17)]

    assert {"0": (528, 16)} == flight.counters(
        dump(*done, *undone, of_nccl(528, retired=False), _0=(527, 16))
    )


def test_a_rank_that_has_run_far_ahead_keeps_the_first_open_call() -> None:
    """What is around it, and the newest: 64 in all."""
    undone = [of_nccl(number, state="scheduled", retired=False) for number in range(17, 529)]
    found = flight.collectives(dump(*(of_nccl(number) for number in range(1, 17)), *undone))

    assert [*range(1, 49), *range(513, 529)] == [each.seq for each in found]


def test_messages_of_nccl_do_not_count_as_collectives() -> None:
    """torch 2.11 mixes both numbers in its status: the entries alone tell."""
    message = {"is_p2p": True, "profiling_name": "nccl:send 0->1"}
    entries = [of_nccl(4), *(of_nccl(4, p2p_seq_id=n, **message) for n in range(1, 26))]
    barrier = of_nccl(5, state="scheduled", retired=False)

    assert {"0": (5, 4)} == flight.counters(dump(*entries, barrier, _0=(5, 25)))
    assert {"0": (41, 41)} == flight.counters(dump(_0=(41, 41)), as_brief=True)


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize(
    ("p2p", "names"),
    [
        (True, ["nccl:send 0->1", "nccl:recv 0<-1", "nccl:coalesced"]),
        (False, ["nccl:_broadcast_oop", "nccl:_broadcast_oop", "nccl:all_gather_into_tensor_coalesced"]),
    ],
)
def test_the_last_of_calls_that_are_done_as_one_tells_of_all(
    p2p: bool, names: list[str], is_done: bool
) -> None:
    """torch records them without events, so that they look open for ever; the last tells of all of them."""
    each = {"is_p2p": p2p, "retired": False, "state": "scheduled", "p2p_seq_id": 3}
    entries = [of_nccl(4, **each, profiling_name=name) for name in names]
    found = flight.collectives(dump(*entries[:2], {**entries[2], "retired": is_done}, of_nccl(5)))

    assert [is_done] * 3 == [each.done for each in found[:3]]


def test_the_newest_call_is_that_of_all_recorders() -> None:
    answer = {"recorders": {"gloo": dump(entry(4)), "nccl": dump(of_nccl(16), of_nccl(6))}}

    assert SECOND + 8.0 == flight.newest(answer)
    assert (0.0, 0.0) == (flight.newest({}), flight.newest({"recorders": {"nccl": dump(_0=(3, 3))}}))


def test_a_send_has_a_sequence_number_of_its_own() -> None:
    found = flight.collectives(dump(entry(3, is_p2p=True, p2p_seq_id=2, profiling_name="gloo:send")))

    assert [(each.seq, each.p2p, each.op) for each in found] == [(2, True, "send")]


def test_of_a_full_recorder_the_last_64_entries_are_kept() -> None:
    found = flight.collectives(dump(*(entry(number) for number in range(1, 2001))))

    assert [each.seq for each in found] == list(range(1937, 2001))


def test_step_times_are_those_between_done_collectives() -> None:
    """Half a second apart; what is open, and point-to-point, does not count."""
    entries = [entry(1), entry(2), entry(9, is_p2p=True), entry(3), entry(4, retired=False)]

    assert flight.step_times(dump(*entries)) == [0.5, 0.5]


def test_the_kind_that_comes_once_a_step_gives_its_length() -> None:
    """The kind that comes once a step gives its length, not the buckets of gradients, which come twice."""
    kinds = [[[64]], [[64]], [[1]]]
    entries = [entry(number, input_sizes=kinds[number % 3]) for number in range(1, 31)]

    assert flight.step_times(dump(*entries)) == [1.5] * 9


def test_names_of_groups_come_from_entries_and_members_from_the_process() -> None:
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


@pytest.mark.parametrize("version", ["2.8.0", "2.15.0"])
def test_gloos_sends_put_nobody_ahead_in_collectives(version: str) -> None:
    """As these versions wrote it after four sends among the collectives: nobody is ahead for having sent."""
    dump = json.loads((RECORDED / f"gloo-{version}.json").read_text("utf-8"))
    last = flight.collectives(dump)[-1]

    assert dump["pg_status"]["0"]["last_enqueued_collective"] == str(last.seq + 4)
    assert flight.counters(dump) == {"0": (last.seq, last.seq), "1": (1, 1)}
    assert (last.done, last.state) == (True, "completed")


def test_a_peer_of_nccl_is_a_global_rank() -> None:
    """NCCL names both sides by their places in the group; without its members the peer is not known."""
    entries = [
        entry(0, is_p2p=True, p2p_seq_id=1, profiling_name="nccl:send 0->1"),
        entry(0, is_p2p=True, p2p_seq_id=2, profiling_name="nccl:recv 0<-1"),
    ]
    found = flight.collectives(dump(*entries), {"0": [4, 6]})

    assert [(each.op, each.peer) for each in found] == [("send", 6), ("recv", 6)]
    assert [each.peer for each in flight.collectives(dump(*entries))] == [None, None]


def test_call_sites_come_with_the_dump_where_torch_names_them() -> None:
    (found,) = flight.collectives(dump(entry(1, frames=[["step", "/job/train.py", 88]])))

    assert found.frames == [Frame("step", "/job/train.py", 88)]


def made(after: float, op: str = "all_reduce", line: int = 10) -> Collective:
    """A call as the ring keeps it, `after` seconds after entry 0."""
    return Collective("0", 1, op, at=SECOND + after, frames=[Frame("step", "/job/train.py", line)])


def lines(recorded: list[Collective], calls: list[Collective]) -> list[int]:
    """The line of each entry; 0: none."""
    found = flight.with_lines(recorded, calls)
    return [each.frames[0].line if each.frames else 0 for each in found]


@pytest.mark.parametrize(
    ("count", "calls", "expected"),
    [
        (4, [made(0.49), made(1.99, line=11)], [10, 0, 0, 11]),  # two are the reducer's own
        (2, [made(0.49, "monitored_barrier"), made(0.9, "all_reduce", 11)], [0, 11]),
        (99, [made(0.4)], [0] * 64),
    ],
    ids=["of the ring", "a call without an entry", "an entry that is cut off"],
)
def test_an_entry_has_the_line_of_its_call(count: int, calls: list[Collective], expected: list[int]) -> None:
    recorded = flight.collectives(dump(*(entry(number) for number in range(1, count + 1))))

    assert expected == lines(recorded, calls)


def test_what_comes_rarely_is_no_step() -> None:
    """A loss is summed every ten steps, weights were broadcast once: only gradients come once a step."""
    weights = [entry(number, input_sizes=[[5000, number]]) for number in range(1, 4)]
    steps = [
        entry(number, input_sizes=[[1] if number % 21 == 0 else [1024, number % 21 % 2]])
        for number in range(4, 4 + 21 * 20)
    ]

    assert {1.0, 1.5} == set(flight.step_times(dump(*weights, *steps)))  # with the loss, or without
    assert 2.1 == pytest.approx(flight.per_step(dump(*weights, *steps)), abs=0.01)


def test_a_step_of_hundreds_of_collectives_has_a_length() -> None:
    """FSDP gathers each of its layers, all of one size: only the embedding comes once a step."""
    entries = [entry(number, input_sizes=[[4096 if number % 200 else 9000, 64]]) for number in range(1, 1001)]

    assert ([100.0] * 4, 200.0) == (flight.step_times(dump(*entries)), flight.per_step(dump(*entries)))


def test_collectives_a_step_are_not_known_before_steps_repeat() -> None:
    assert [0.0, 0.0, 1.0] == [
        flight.per_step(dump(*(entry(number) for number in range(1, last)))) for last in (1, 3, 4)
    ]


def test_gloos_sends_count_in_a_step() -> None:
    """For they count in what the steps are measured by, `counters` of each second."""
    entries = [entry(number, op_id=3 * number) for number in range(1, 11)]

    assert 3.0 == flight.per_step(dump(*entries))


# --- whole dumps

RECORDED_DUMP = Path(__file__).parent / "recorded"
GROUPS: dict[str, Any] = {"0": [[0, 1], "default_pg"], "1": [[0], "tensor"]}


def recorded(version: str) -> dict[str, Any]:
    """A dump of two ranks that torch has written as JSON."""
    dump: dict[str, Any] = json.loads((RECORDED_DUMP / f"gloo-{version}.json").read_text())
    return dump


@pytest.mark.parametrize("version", ["2.8.0", "2.15.0"])
def test_each_entry_of_gloo_names_a_group_of_the_list(version: str) -> None:
    """Gloo's own list has one group without a name, and torch's tool then fails."""
    made = pickle.loads(as_pickle(recorded(version), GROUPS))

    assert {entry["process_group"][0] for entry in made["entries"]} <= made["pg_config"].keys()
    assert {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"} == made["pg_config"]["0"]


def test_the_list_of_groups_of_nccl_stays_as_it_is() -> None:
    own = {name: {"name": name, "desc": "own", "ranks": "[0, 1]"} for name in ("0", "1")}
    made = pickle.loads(as_pickle({**recorded("2.15.0"), "pg_config": own}, GROUPS))

    assert own == made["pg_config"]


def test_numbers_lists_and_unknown_times_are_of_torchs_own_types() -> None:
    entry = {**recorded("2.15.0")["entries"][0], "frames": [["main", "train.py", 7]]}
    made = pickle.loads(as_pickle({**recorded("2.15.0"), "entries": [entry]}, GROUPS))
    (found,) = made["entries"]

    assert ("0", "default_pg") == found["process_group"]
    assert found["time_discovered_started_ns"] is None
    assert [{"name": "main", "filename": "train.py", "line": 7}] == found["frames"]
    assert 26 == made["pg_status"]["0"]["last_enqueued_collective"]
    assert [] == pickle.loads(as_pickle(recorded("2.15.0"), GROUPS))["entries"][0]["frames"]


def test_dumps_that_find_no_room_are_left_out_and_counted() -> None:
    answer = {"recorders": {"gloo": recorded("2.15.0")}, "groups": GROUPS}
    whole, none = Dumps(1 << 20, lambda data: data), Dumps(0, lambda data: data)
    whole.add(0, answer)
    some = Dumps(len(whole.made[0].packed), lambda data: data)
    for rank in range(3):
        some.add(rank, answer)
    none.add(0, answer)

    assert ([0], 2) == ([dump.rank for dump in some.made], some.left_out)
    assert ([], 1) == (none.made, none.left_out)


def test_no_secret_is_packed_into_a_flight_recorder() -> None:
    dump = {**recorded("2.15.0"), "comm_lib_version": "hunter2"}
    groups = {**GROUPS, "1": [[0], "for hunter2"]}
    dumps = Dumps(1 << 20, lambda data: json.loads(json.dumps(data).replace("hunter2", "[secret]")))
    dumps.add(0, {"recorders": {"gloo": dump}, "groups": groups})

    (made,) = dumps.made
    data = zlib.decompress(base64.b64decode(made.packed), -zlib.MAX_WBITS)
    assert (len(data), zlib.crc32(data)) == (made.size, made.crc)
    assert b"for [secret]" in data
    assert b"hunter2" not in data
