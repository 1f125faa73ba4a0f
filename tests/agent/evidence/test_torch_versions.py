"""The table of torch's versions, and what the installed one does."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ddplaunch.agent.evidence.torch_versions import FIRST_WITH_GLOO, TABLE

ASKED = """
import json, os, sys
import torch
import torch.distributed as dist
native = torch._C._distributed_c10d
dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=0, world_size=1)
dist.all_reduce(torch.ones(4))
dump = getattr(native, "_dump_fr_trace_json", lambda *_: "{}")(True, False)
names = [entry["profiling_name"] for entry in json.loads(dump).get("entries", [])]
counted = dist.group.WORLD._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
has = [hasattr(native, name) for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json")]
print(json.dumps([has, names, counted]))
dist.destroy_process_group()  # else torch's own threads may abort the process as it ends
"""


@pytest.mark.slow
def test_the_installed_torch_is_as_the_table_says(tmp_path: Path) -> None:
    installed = ".".join(version("torch").split(".")[:2])
    row = next(each for each in TABLE if each.version == installed)
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        cwd=tmp_path,
        env={} if row.is_on else {row.variable: "100"},
        stdout=subprocess.PIPE,
        check=True,
    )
    has, names, counted = json.loads(done.stdout)

    assert (row.records_gloo, ["gloo:all_reduce"] if row.records_gloo else []) == (has[0], names)
    assert row.records_nccl or not has[1]
    assert 1 == counted


def test_the_table_has_no_gaps_and_what_torch_has_learned_it_keeps() -> None:
    minors = [int(each.version.partition(".")[2]) for each in TABLE]

    assert list(range(4, minors[-1] + 1)) == minors
    for shows in ("records_gloo", "records_nccl", "is_on"):
        known = [getattr(each, shows) for each in TABLE]
        assert sorted(known) == known
    assert "2.8" == FIRST_WITH_GLOO
