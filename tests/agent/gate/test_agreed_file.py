"""The settings that a gate leaves for its node's supervisor."""

from __future__ import annotations

import os
from pathlib import Path

from tests.agent.gate.jobs import Job, make_plan
from tests.disks import fill, small_disk

from ddplaunch.agent.contract import Exit, Files


def test_a_disk_that_fills_up_behind_its_check(job: Job, tmp_path: Path) -> None:
    """The node's settings are written all the same: its supervisor then says what it cannot write."""
    plan = make_plan(nodes=2)
    with small_disk(tmp_path / "node-1", 40 << 20) as disk:
        hub = job.hub(plan)
        late = job.gate(plan, 1)
        hub.says("node 1 checked in")
        fill(disk)
        first = job.gate(plan, 0)

        assert [Exit.OK] * 2 == [first.wait(), late.wait()]
        assert job.agreed(0) == job.agreed(1)
        assert [Files.AGREED] == os.listdir(disk / Files.RUN / "node-1")
