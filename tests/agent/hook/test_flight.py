"""The flight recorder of a real torch, as the hook brings it: with call sites, and without harm."""

from __future__ import annotations

import pytest
from tests.agent.hook.conftest import Supervisor

from ddplaunch.agent.evidence import flight
from ddplaunch.agent.supervisor.hooks import HookMessage

pytestmark = [pytest.mark.slow]

PROGRAM = """
import os, sys, time, torch
import torch.distributed as dist
dist.init_process_group("gloo", f"file://{os.getcwd()}/store", rank=0, world_size=1)
for _ in range(100):
    dist.all_reduce(torch.ones(4))
open("ready", "w").close()
time.sleep(60)
"""


def dumped(supervisor: Supervisor, program: str) -> HookMessage:
    """What a rank that runs `program` answers."""
    supervisor.start(program, env={"TORCH_FR_BUFFER_SIZE": "2000"})
    supervisor.until((supervisor.folder / "ready").exists, 60)
    return supervisor.ask(supervisor.line("rank"), "dump")


def test_call_sites_are_not_worth_an_import_of_the_compiler(supervisor: Supervisor) -> None:
    """torch would import it, for seconds, in the middle of the program: the dump comes without them."""
    seen = "time.sleep(2)\nopen(str('torch._inductor' in sys.modules), 'w')\ntime.sleep(60)"
    answer = dumped(supervisor, PROGRAM.replace("time.sleep(60)", seen))
    dump = answer["recorders"]["gloo"]

    assert (len(dump["entries"]), flight.counters(dump)) == (100, {"0": (100, 100)})
    supervisor.until((supervisor.folder / "False").exists, 60)


def test_call_sites_come_where_the_compiler_is_loaded(supervisor: Supervisor) -> None:
    """The user's own line alone is left of torch's stack; the newest 64 of each group have it."""
    dump = dumped(supervisor, "import torch._inductor.codecache" + PROGRAM)["recorders"]["gloo"]
    found = flight.collectives(dump)

    assert (len(dump["entries"]), flight.counters(dump)) == (100, {"0": (100, 100)})
    assert [False] * 36 + [True] * 64 == ["frames" in entry for entry in dump["entries"]]
    assert {(each.seq - number, each.done) for number, each in enumerate(found)} == {(37, True)}
    expected = [("<module>", str(supervisor.folder / "train0.py"), 6)]
    assert [(each.name, each.file, each.line) for each in found[-1].frames] == expected
