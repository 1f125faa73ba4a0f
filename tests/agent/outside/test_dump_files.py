"""Flight recorders in files: those that torch has written in the ranks of a real job, and forged ones."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.outside.torch_job import hanging

from ddplaunch.agent.evidence import flight
from ddplaunch.agent.outside import debug_server
from ddplaunch.agent.system import proc

TRAINS = """
import os, sys, threading, time
import torch, torch.distributed as dist

def sleeps():
    time.sleep(300)

def dumps(rank):
    torch._C._distributed_c10d._dump_fr_trace_file(rank)
    open(os.path.join(sys.argv[1], f"there-{rank}"), "w").close()

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(3))
threading.Timer(2, dumps, [dist.get_rank()]).start()
if dist.get_rank() == 1:
    sleeps()
dist.broadcast(torch.ones(3), 1)
"""
TIMES_ARE_TOLD = pytest.mark.skipif(
    proc.off_cpu_for(1) is None, reason="this kernel does not tell when threads last ran"
)


def answers(ranks: dict[int, int]) -> dict[int, dict[str, Any]]:
    """Return what is found in twenty seconds."""
    return debug_server.answers(ranks, ranks, time.monotonic() + 20)


@pytest.mark.slow
@TIMES_ARE_TOLD
def test_dumps_that_torch_has_written_tell_the_calls_of_ranks_that_stand(tmp_path: Path) -> None:
    with hanging(tmp_path, TRAINS, 2, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/dump_rank_") as ranks:
        found = {ranks[pid]: answer for pid, answer in answers(ranks).items()}
        (first,) = (pid for pid, number in ranks.items() if number == 0)
        hour_ago = time.time() - 3600
        os.utime(tmp_path / "dump_rank_0", (hour_ago, hour_ago))
        later = answers(ranks)

    assert {0, 1} == found.keys()
    for number, answer in found.items():
        members = {name: its for name, (its, _) in answer["groups"].items()}
        assert ({"0": [0, 1]}, "gloo") == (members, answer["backend"])
        (group,) = flight.groups(answer["recorders"]["gloo"], members)
        calls = [call.op for call in flight.collectives(answer["recorders"]["gloo"], members)]
        called = ["all_reduce", "broadcast"] if number == 0 else ["all_reduce"]
        assert (called, len(called), 1) == (calls, group.enqueued, group.completed)
    assert ranks.keys() - {first} == later.keys()


class Called:
    """It would make a folder where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture(name="sleeper")
def _sleeper(tmp_path: Path) -> Iterator[int]:
    """The pid of a process that sleeps, and whose dump is `dump_0`."""
    environment = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "dump_"), "WORLD_SIZE": "2"}
    program = "import time; print(flush=True); time.sleep(300)"
    words = [sys.executable, "-I", "-S", "-c", program]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while (proc.off_cpu_for(process.pid) or 0.0) < 1.0:
            time.sleep(0.1)
        yield process.pid
        process.kill()


ENTRY = {"profiling_name": "nccl:all_reduce", "process_group": ("0", "default_pg"), "pg_id": 0}


@TIMES_ARE_TOLD
def test_what_is_no_dump_is_left_out_and_never_run(sleeper: int, tmp_path: Path) -> None:
    dump = tmp_path / "dump_0"
    ranks = {sleeper: 0}
    assert {} == answers(ranks), "there is none"

    dump.write_bytes(pickle.dumps({"entries": [ENTRY]}, protocol=2))
    assert {sleeper} == answers(ranks).keys(), "this is what the others are not"
    other: list[Any] = [[], {}, {"entries": 3}, {"entries": [3]}, {"entries": [{"frames": [3]}]}]
    for each in (*other, Called(tmp_path / "x")):
        dump.write_bytes(pickle.dumps(each, protocol=2))
        assert {} == answers(ranks)
    for data in (b"", b"\x80", b"[1, 2]", b"\x80\x02" + b"(" * 100_000):
        dump.write_bytes(data)
        assert {} == answers(ranks)
    assert not (tmp_path / "x").exists()

    dump.write_bytes(pickle.dumps({"entries": [ENTRY]}, protocol=2))
    asleep = time.time() - (proc.off_cpu_for(sleeper) or 0.0)
    os.utime(dump, (asleep + 0.1, asleep + 0.1))
    assert {} == answers(ranks), "it may have been begun while the rank still ran"

    dump.unlink()
    os.mkfifo(dump)
    assert {} == answers(ranks)


@TIMES_ARE_TOLD
@pytest.mark.parametrize(("operation", "is_found"), [(7, True), (9, False)])
def test_a_group_with_sends_is_left_out(operation: int, is_found: bool, sleeper: int, tmp_path: Path) -> None:
    """Gloo's recorder counts sends and receives, and does not list them: who is behind may be in one."""
    numbers = {"collective_seq_id": 7, "op_id": operation}
    entry = {**ENTRY, "profiling_name": "gloo:barrier", **numbers}
    (tmp_path / "dump_0").write_bytes(pickle.dumps({"entries": [entry]}, protocol=2))

    assert is_found == (sleeper in answers({sleeper: 0}))


@TIMES_ARE_TOLD
@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_a_dump_of_another_user_is_left_out(sleeper: int, tmp_path: Path) -> None:
    dump = tmp_path / "dump_0"
    dump.write_bytes(pickle.dumps({"entries": [ENTRY]}, protocol=2))
    os.chown(dump, 65534, 65534)

    assert {} == answers({sleeper: 0})
