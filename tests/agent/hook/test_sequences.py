"""What a rank's hook counts with a torch that keeps no record of calls with Gloo: one without its dumps."""

from __future__ import annotations

import pytest
from tests.agent.hook.conftest import Supervisor

from ddplaunch.agent.supervisor.hooks import HookMessage

pytestmark = [pytest.mark.slow]

BEGIN = """
import os, time, torch
import torch.distributed as dist
native = torch._C._distributed_c10d
for name in ("_dump_fr_trace", "_dump_fr_trace_json", "_dump_nccl_trace", "_dump_nccl_trace_json"):
    if RECORDS is False and hasattr(native, name):
        delattr(native, name)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=rank, world_size=2)
four = torch.ones(4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
"""
END = """
open(f"ready{rank}", "w").close()
time.sleep(60)
"""


def counted(supervisor: Supervisor, program: str, records: bool = False) -> list[HookMessage]:
    """What two ranks answer to `count` after they have run `program`."""
    text = f"RECORDS = {records}\n{BEGIN}{program}{END}"
    for rank in range(2):
        supervisor.start(text, rank=rank)
    supervisor.until(lambda: all((supervisor.folder / f"ready{rank}").exists() for rank in range(2)), 60)
    lines = {line.rank: line for line, message in supervisor.heard if "hello" in message}
    return [supervisor.ask(lines[rank], "count") for rank in range(2)]


def test_ddps_own_collectives_and_messages_are_counted_apart(supervisor: Supervisor) -> None:
    first, second = counted(
        supervisor,
        """
before = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
model(torch.ones(2, 4)).sum().backward()
dist.all_reduce(four)
(dist.send if rank else dist.recv)(four, 1 - rank)
open(f"before{rank}", "w").write(str(before))
""",
    )

    by_ddp = int((supervisor.folder / "before0").read_text())
    assert by_ddp > 0
    assert {"0": [by_ddp + 3, 1, 1]} == first["sequences"] == second["sequences"]
    assert "failed" not in first
    assert first["torch"]


def test_messages_that_torch_counts_otherwise_leave_the_group_uncounted(supervisor: Supervisor) -> None:
    answers = counted(supervisor, "dist.monitored_barrier()\n")

    assert [[None, None]] * 2 == [answer["sequences"]["0"][1:] for answer in answers]


def test_a_torch_that_records_is_not_asked_for_its_counts(supervisor: Supervisor) -> None:
    answers = counted(supervisor, "", records=True)

    assert not any("sequences" in answer for answer in answers)
