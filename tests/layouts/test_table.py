"""Each layout is a job that can be submitted, so that the long suites do not find a table that has rotted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.layouts.table import LAYOUTS, Layout

from ddplaunch.agent.contract import Files, JobPlan
from ddplaunch.backends import files
from ddplaunch.plan import plan
from ddplaunch.render import render
from ddplaunch.spec.load import load


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if "local" in each.on], ids=str)
def test_the_plan_of_a_layout_is_read_as_it_was_written(tmp_path: Path, layout: Layout) -> None:
    file = layout.lay(tmp_path / "code")
    job = plan.make(load(file), "local", file.parent)
    for name, written in render(job).files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(written.content)

    assert job.job == files.read(JobPlan, tmp_path / Files.PLAN)
