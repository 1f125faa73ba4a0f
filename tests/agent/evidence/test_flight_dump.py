"""A flight recorder as the file that torch's tools read."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from ddplaunch.agent.evidence.flight import Dumps, as_pickle

RECORDED = Path(__file__).parent / "recorded"
GROUPS: dict[str, Any] = {"0": [[0, 1], "default_pg"], "1": [[0], "tensor"]}


def recorded(version: str) -> dict[str, Any]:
    """A dump of two ranks that torch has written as JSON."""
    dump: dict[str, Any] = json.loads((RECORDED / f"gloo-{version}.json").read_text())
    return dump


@pytest.mark.parametrize("version", ["2.8.0", "2.15.0"])
def test_each_entry_has_its_group(version: str) -> None:
    """Gloo's own list has one group without a name, and torch's tool then fails."""
    made = pickle.loads(as_pickle(recorded(version), GROUPS))

    assert {entry["process_group"][0] for entry in made["entries"]} <= made["pg_config"].keys()
    assert {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"} == made["pg_config"]["0"]


def test_the_list_of_groups_stays_where_it_is_whole() -> None:
    """As NCCL's is."""
    own = {name: {"name": name, "desc": "own", "ranks": "[0, 1]"} for name in ("0", "1")}
    made = pickle.loads(as_pickle({**recorded("2.15.0"), "pg_config": own}, GROUPS))

    assert own == made["pg_config"]


def test_values_are_of_torchs_own_types() -> None:
    """JSON has texts for numbers, lists for tuples, and 0 for a time that is not known."""
    entry = {**recorded("2.15.0")["entries"][0], "frames": [["main", "train.py", 7]]}
    made = pickle.loads(as_pickle({**recorded("2.15.0"), "entries": [entry]}, GROUPS))
    (found,) = made["entries"]

    assert ("0", "default_pg") == found["process_group"]
    assert found["time_discovered_started_ns"] is None
    assert [{"name": "main", "filename": "train.py", "line": 7}] == found["frames"]
    assert 26 == made["pg_status"]["0"]["last_enqueued_collective"]
    assert [] == pickle.loads(as_pickle(recorded("2.15.0"), GROUPS))["entries"][0]["frames"]


def test_dumps_end_where_there_is_no_room() -> None:
    """What does not fit is counted, and so is all that comes after."""
    answer = {"recorders": {"gloo": recorded("2.15.0")}, "groups": GROUPS}
    whole, none = Dumps(1 << 20, lambda data: data), Dumps(0, lambda data: data)
    whole.add(0, answer)
    some = Dumps(len(whole.made[0].packed), lambda data: data)
    for rank in range(3):
        some.add(rank, answer)
    none.add(0, answer)

    assert ([0], 2) == ([dump.rank for dump in some.made], some.left_out)
    assert ([], 1) == (none.made, none.left_out)


def test_no_secret_is_packed() -> None:
    """Later, nothing could take it out."""
    dump = {**recorded("2.15.0"), "comm_lib_version": "hunter2"}
    groups = {**GROUPS, "1": [[0], "for hunter2"]}
    dumps = Dumps(1 << 20, lambda data: json.loads(json.dumps(data).replace("hunter2", "[secret]")))
    dumps.add(0, {"recorders": {"gloo": dump}, "groups": groups})

    (made,) = dumps.made
    data = zlib.decompress(base64.b64decode(made.packed), -zlib.MAX_WBITS)
    assert (len(data), zlib.crc32(data)) == (made.size, made.crc)
    assert b"for [secret]" in data
    assert b"hunter2" not in data
