"""torch's own debug server, in the ranks of a real job."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Iterator

import pytest
from tests.agent.outside.torch_job import hanging

from ddplaunch.agent.evidence import flight
from ddplaunch.agent.outside.debug_server import DebugServers
from ddplaunch.agent.system import proc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("tabulate") is None, reason="tabulate is not installed"),
]
TRAINS = """
import os, sys, threading, time
import torch, torch.distributed as dist
from torch.distributed.debug import start_debug_server

def sleeps():
    open(os.path.join(sys.argv[1], "there"), "w").close()
    time.sleep(300)

def prefetches():
    time.sleep(300)

dist.init_process_group("gloo")
pair = dist.new_group([0, 1])
start_debug_server(port=0)
threading.Thread(target=prefetches, daemon=True).start()
dist.all_reduce(torch.ones(3))
dist.all_reduce(torch.ones(3), group=pair)
if dist.get_rank() == 1:
    sleeps()
dist.broadcast(torch.ones(3), 1)
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, int]]:
    """The ranks of a job that hangs, by their pids; at the end nothing of it is left."""
    with hanging(tmp_path_factory.mktemp("served"), TRAINS) as ranks:
        yield ranks


def test_the_main_thread_stands_first_in_the_stacks_of_a_debug_server(ranks: dict[int, int]) -> None:
    found = DebugServers(ranks).stacks(ranks, time.monotonic() + 20)

    mains = {ranks[pid]: its[0] for pid, its in found.items()}
    assert {0: ["broadcast", True], 1: ["sleeps", True]} == {
        number: [stack.frames[0].name, stack.main] for number, stack in mains.items()
    }
    for its in found.values():
        assert ["prefetches"] == [stack.frames[0].name for stack in its[1:] if not stack.main]


def test_a_flight_recorder_comes_without_groups_of_unknown_members(ranks: dict[int, int]) -> None:
    """Without the group whose members Gloo's recorder does not name: a rank may not be one of them."""
    answers = DebugServers(ranks).answers(ranks, time.monotonic() + 20)

    assert {0, 1} == {ranks[pid] for pid in answers}
    for pid, answer in answers.items():
        members = {name: its for name, (its, _) in answer["groups"].items()}
        assert {"0": [0, 1]} == members
        assert "gloo" == answer["backend"]
        (group,) = flight.groups(answer["recorders"]["gloo"], members)
        calls = [call.op for call in flight.collectives(answer["recorders"]["gloo"], members)]
        called = ["all_reduce", "broadcast"] if ranks[pid] == 0 else ["all_reduce"]
        assert (called, len(called), 1) == (calls, group.enqueued, group.completed)


def test_only_ranks_that_have_a_debug_server_are_asked(ranks: dict[int, int]) -> None:
    """The launcher, ourselves, and a process that is gone; nor a rank whose number the store has not."""
    parent = proc.stat(next(iter(ranks)))
    assert parent is not None
    others = {parent.parent: 0, os.getpid(): 1, 2**22: 1}
    unknown = dict.fromkeys(ranks, 7)

    for nobody in (others, unknown):
        assert {} == DebugServers(nobody).stacks(nobody, time.monotonic() + 5)
        assert {} == DebugServers(nobody).answers(nobody, time.monotonic() + 5)


def test_a_port_that_is_not_the_ranks_own_is_not_asked(ranks: dict[int, int]) -> None:
    """Anybody may write into the store: here the server of one stands there as another's."""
    swapped = {pid: 1 - number for pid, number in ranks.items()}
    assert {} == DebugServers(swapped).stacks(swapped, time.monotonic() + 5)


def test_at_its_deadline_no_debug_server_has_answered(ranks: dict[int, int]) -> None:
    assert {} == DebugServers(ranks).stacks(ranks, time.monotonic())


def test_of_a_rank_that_cannot_run_python_the_others_answers_count(ranks: dict[int, int]) -> None:
    """To write its stacks it needs the GIL. The others answer."""
    stopped = next(pid for pid, number in ranks.items() if number == 1)
    servers = DebugServers(ranks)
    os.kill(stopped, signal.SIGSTOP)
    try:
        found = servers.stacks(ranks, time.monotonic() + 20)
    finally:
        os.kill(stopped, signal.SIGCONT)

    assert ranks.keys() - {stopped} == found.keys()
