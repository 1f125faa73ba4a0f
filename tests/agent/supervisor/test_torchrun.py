"""The supervisor around the real torchrun and real process groups, on the CPU."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from typing import Any

import pytest
from tests.agent.supervisor.conftest import Hub, Node, wait_for
from tests.agent.supervisor.reports import deaths, end, evidence, names
from tests.busy import BUSY
from tests.ports import own_port

from ddplaunch.agent.contract import Beat, Phase, RankEvidence, RankPace, codec
from ddplaunch.agent.system import proc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
START = 60.0
"""Seconds for torch to be imported twice on a busy machine."""

HEAD = """
import os, sys, time
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
"""
EVALUATES = (
    HEAD
    + """
def evaluate():
    print("evaluates", flush=True)
    time.sleep(300)
dist.init_process_group("gloo")
tensor = torch.ones(4)
for step in range(2500):
    dist.all_reduce(tensor)
    if step % 500 == 0:
        print("step", step, flush=True)
        time.sleep(1.2)
if rank == 1:
    evaluate()
dist.all_reduce(tensor)
"""
)


LAGS = (
    HEAD
    + """
import json
from torch._C import _distributed_c10d as native
def lags():
    (status,) = json.loads(native._dump_fr_trace_json(False, False))["pg_status"].values()
    return status["last_completed_collective"] != status["last_enqueued_collective"]
def evaluate():
    time.sleep(300)
dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
tensor = torch.ones(4)
for burst in range(2000):
    for step in range(10):
        dist.all_reduce(tensor)
    time.sleep(0.005)  # for Gloo's threads to have written their numbers
    if rank == 1:  # what lags then lags for good
        store.set(f"lags {burst}", str(lags() and (time.sleep(0.05) or lags())))
    if store.get(f"lags {burst}") == b"True":
        break
print("lags", burst, flush=True)
if rank == {evaluates}:
    evaluate()
dist.all_reduce(tensor)
"""
)


def train(node: Node, program: str, hub: Hub | None, ranks: int = 2, *flags: str, **more: Any) -> None:
    """Start `ranks` ranks of `program` by the real torchrun."""
    path = node.folder / "train.py"
    path.write_text(program)
    words = [
        "{python}", "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={ranks}",
        "--master-addr=127.0.0.1", f"--master-port={own_port()}", *flags, str(path),
    ]  # fmt: skip
    node.start(words, hub, ranks, **more)


def beats(hub: Hub) -> list[Beat]:
    """All that came so far."""
    return [codec.load(Beat, body["beat"]) for body in hub.bodies("beat")]


def waits(hub: Hub) -> list[bool]:
    """Of each rank, by the last beat."""
    return [rank.waits for rank in beats(hub)[-1].ranks]


@pytest.mark.whole
@pytest.mark.parametrize("evaluates", [0, pytest.param(1, marks=pytest.mark.whole)])
def test_what_a_rank_has_done_is_known_though_threads_overtake(node: Node, hub: Hub, evaluates: int) -> None:
    """Whether the rank whose number of the last one done is left behind waits for another, or for none."""
    train(node, LAGS.replace("{evaluates}", str(evaluates)), hub)

    def stuck() -> bool:
        last = beats(hub)[-1:]
        return bool(last and last[0].ranks and min(rank.stuck_for for rank in last[0].ranks) >= 5)

    wait_for(stuck, 2 * START, "a beat in which both ranks are stuck")
    wait_for(
        lambda: waits(hub) == [rank != evaluates for rank in range(2)],
        START,
        "a beat in which the other rank waits, and not the one that evaluates",
    )
    hub.send("collect", {"id": 1, "why": "still", "deadline": 10.0})
    lags = evidence(hub, 1).ranks[1]
    ((called, done),) = [(group.enqueued, group.completed) for group in lags.groups]
    wait_for(lambda: beats(hub)[-1].ranks[1].completed == done, START, "a beat that tells what is done")
    hub.send("end", end(50))

    assert called - done == (evaluates == 0)


def test_of_a_hang_after_good_steps_it_is_known_who_waits_and_who_stands_where(node: Node, hub: Hub) -> None:
    train(node, EVALUATES, hub)

    def stuck() -> bool:
        last = beats(hub)[-1:]
        return bool(last and last[0].ranks and min(rank.stuck_for for rank in last[0].ranks) >= 5)

    wait_for(stuck, START, "a beat in which both ranks are stuck")
    wait_for(
        lambda: waits(hub) == [True, False], START, "a beat in which the first rank waits, and not the other"
    )
    wait_for(lambda: beats(hub)[-1].ranks[0].completed == 2500, START, "a beat that tells what is done")
    begun = time.monotonic()
    hub.send("collect", {"id": 1, "why": "still", "deadline": 10.0})
    found = evidence(hub, 1)
    seconds = time.monotonic() - begun
    hub.send("end", end(50))

    phases = list(dict.fromkeys(beat.phase for beat in beats(hub)))
    assert phases[0] == Phase.RENDEZVOUS
    assert phases == sorted(phases, key=Phase.ORDER.index)
    assert {Phase.INIT, Phase.RUNNING} <= set(phases)
    completed = [beat.ranks[0].completed for beat in beats(hub) if len(beat.ranks) == 2]
    # Until the hook's first answer its own calls are counted; torch's recorder leaves out what init calls.
    stepping = completed[next(at for at, done in enumerate(completed) if done > 2) :]
    assert stepping == sorted(stepping)
    assert completed[-1] == 2500

    waiting, evaluating = found.ranks
    assert names(waiting)[0] == "all_reduce"
    assert names(evaluating) == ["evaluate", "<module>"]
    assert [(g.name, g.ranks, g.enqueued, g.completed) for g in waiting.groups] == [("0", [0, 1], 2501, 2500)]
    assert [(g.name, g.enqueued, g.completed) for g in evaluating.groups] == [("0", 2500, 2500)]
    last = waiting.collectives[-1]
    wanted = 2501, "all_reduce", [[4]], ["Float"], False
    assert (last.seq, last.op, last.sizes, last.dtypes, last.done) == wanted
    assert abs(last.at - found.at) < 60
    assert (waiting.backend, waiting.initialized, waiting.stack_moves) == ("gloo", True, False)
    assert 10 < len(waiting.step_times) <= 64
    assert seconds < BUSY * 2.0, f"evidence of one node took {seconds:.2f} s"
    assert node.exit_code() == 50
    assert "Root Cause" not in node.output


@pytest.mark.whole
def test_without_a_hub_our_verdict_is_shown_and_torchruns_report_is_not(node: Node) -> None:
    program = HEAD + (
        "dist.init_process_group('gloo')\ntensor = torch.ones(4)\ndist.all_reduce(tensor)\n"
        "if rank == 1:\n    raise ValueError('corrupt batch')\ndist.all_reduce(tensor)\n"
    )
    train(node, program, None)

    assert node.exit_code(START) == 40
    assert "rank-failed: rank 1 raised ValueError: corrupt batch" in node.output
    assert "[0/1] [rank1]: ValueError: corrupt batch" in node.output
    assert "Root Cause" not in node.output
    assert "Root Cause" in (node.here / "launch.log").read_text()


@pytest.mark.whole
def test_the_victims_stand_where_they_stood(node: Node, hub: Hub) -> None:
    """One rank is killed: the others' stacks are those of before torchrun ended them.

    torchrun looks once a second here. Every 0.1 s, as by default, it may be faster than a supervisor that a
    busy machine lets wait.
    """
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None
    program = HEAD + (
        "dist.init_process_group('gloo')\ntensor = torch.ones(4)\ndist.all_reduce(tensor)\n"
        "def wait_for_ever():\n    open('stands', 'w').close()\n    time.sleep(300)\n"
        "if rank == 0:\n    wait_for_ever()\n"
        "while not os.path.exists('stands'):\n    time.sleep(0.01)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    train(node, program, hub, 2, "--monitor-interval=1")

    assert node.exit_code(START) == 40
    found = deaths(hub)
    assert found[1].exit is not None
    assert (found[1].exit.signal, found[1].exit.by_us) == (signal.SIGKILL, False)
    assert names(found[0]) == ["wait_for_ever", "<module>"], (found[0], node.output)
    assert found[0].exit is not None
    assert found[0].exit.by_us is True


def test_a_restart_by_torchrun_is_watched_anew(node: Node, hub: Hub) -> None:
    # Without a process group: Gloo in torch 2.15 does not always find its peers again in a second round.
    program = (
        "import os, time\n"
        "if os.environ['RANK'] == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    time.sleep(1)\n    raise ValueError('first try')\n"
        "print('round', os.environ['TORCHELASTIC_RESTART_COUNT'], flush=True)\ntime.sleep(2)\n"
    )
    train(node, program, hub, 2, "--max-restarts=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0")

    assert node.exit_code(START) == 0
    assert "[0/1] round 1" in node.output
    found = [codec.load(RankEvidence, body["rank"]) for body in hub.bodies("death")]
    ends = [(death.rank, death.exit.code) for death in found if death.exit and death.exit.code == 0]
    assert sorted(ends) == [(0, 0), (1, 0)]
    assert [death.raised[0].message for death in found if death.rank == 1 and death.raised] == ["first try"]


def test_nothing_outlives_the_real_torchrun(node: Node) -> None:
    train(node, HEAD + "print(os.getpid(), flush=True)\ntime.sleep(300)\n", None)
    wait_for(lambda: node.output.count("[0/1]") + node.output.count("[0/0]") == 2, START)
    rank = int(next(line for line in node.output.splitlines() if line.startswith("[0/1]")).split()[1])
    stat = proc.stat(rank)
    assert stat is not None
    os.kill(stat.parent, signal.SIGKILL)

    wait_for(lambda: not node.living(), 20, f"the end of {node.living()}")


@pytest.mark.whole
def test_the_users_own_log_folder_is_kept(node: Node, hub: Hub) -> None:
    logs = node.folder / "mine"
    train(node, "print('hello')\n", hub, 2, f"--log-dir={logs}")

    assert node.exit_code(START) == 0
    wanted = ["[0/0] hello", "[0/1] hello"]
    assert sorted(line for line in node.output.splitlines() if "hello" in line) == wanted
    assert len(list(logs.rglob("stdout.log"))) == 2


def test_a_worker_that_is_gone_before_it_is_seen_is_quoted(node: Node) -> None:
    """torchrun's report says that it was there, and its own log what it wrote."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "--no-python"]
    node.start([*torchrun, "sh", "-c", "echo 'no data' >&2; exit 3"], ranks=1)

    assert node.exit_code(START) == 40
    assert "the last lines of rank 0:" in node.output
    assert "- | no data" in node.output


STEPS = (
    HEAD
    + """
dist.init_process_group("gloo")
layers = torch.nn.Sequential(*(torch.nn.Linear(200, 200) for _ in range(3)), torch.nn.Linear(200, 900))
model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.2)
for step in range(10_000):
    model(torch.ones(2, 200)).sum().backward()
    if rank == 1:
        time.sleep(0.2)
    if step == 10:  # the first steps are slow
        begin = time.monotonic()
    elif step and step % 10 == 0:
        dist.all_reduce(torch.ones(1))
        print("a step took", (time.monotonic() - begin) / (step - 10), flush=True)
"""
)


@pytest.mark.whole
def test_the_pace_of_a_healthy_job_is_what_the_program_itself_measures(node: Node, hub: Hub) -> None:
    train(node, STEPS, hub)

    def paces() -> dict[int, RankPace]:
        known = [rank for beat in beats(hub) for rank in beat.paces if rank.step]
        return {rank.rank: rank for rank in known if rank.in_collectives is not None}

    wait_for(lambda: len(paces()) == 2, 2 * START, "beats with the pace of both ranks")
    hub.send("end", end(0))
    measured = float(node.output.rpartition("a step took ")[2].split()[0])
    first, second = paces()[0], paces()[1]

    assert [measured, measured] == pytest.approx([first.step, second.step], rel=0.25)
    assert (first.in_collectives or 0) > 0.5 > (second.in_collectives or 0)
