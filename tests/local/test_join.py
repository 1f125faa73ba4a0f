"""`ddplaunch run --join`: one job of two nodes, each started by itself; here both are this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.local.conftest import TRAIN, Desk
from tests.ports import own_port

TORCHRUN = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node=1", str(TRAIN)]


class Pair:
    """Two terminals."""

    def __init__(self, desk: Desk) -> None:
        # The hub's port follows from the job's name, the master's from name and key: else all had the same.
        self._desk, self.port = desk, str(own_port())
        desk.env["DDPLAUNCH_KEY"] = desk.mark

    def start(self, node: int, *command: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """The command on one node."""
        place = ["--nodes", "2", "--node-rank", str(node), "--master", "127.0.0.1"]
        return self._desk.start("run", "--join", *place, "--gate-port", self.port, *options, "--", *command)

    def run(self, *command: str, options: tuple[str, ...] = ()) -> list[subprocess.CompletedProcess[str]]:
        """The same command on both nodes, to its end."""
        return self.finish([self.start(node, *command, options=options) for node in range(2)])

    def finish(self, processes: list[subprocess.Popen[str]]) -> list[subprocess.CompletedProcess[str]]:
        """Both nodes, to their end."""
        done = []
        for process in processes:
            with process:
                out, err = process.communicate(timeout=BUSY * 120)
            done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        return done


@pytest.fixture(name="pair")
def _pair(desk: Desk) -> Iterator[Pair]:
    yield Pair(desk)
    assert [] == desk.processes()


def test_a_hang_on_one_node_ends_both_with_one_verdict(desk: Desk, pair: Pair) -> None:
    options = ("--notice-after", "4s", "--kill-after", "10s")

    first, second = pair.run(*TORCHRUN, "--hang-at", "1", options=options)
    (verdict,) = json.loads(desk.call("diagnose", "local://run", "--json").stdout)["verdicts"]

    assert (105, 105) == (first.returncode, second.returncode), first.stdout + second.stdout
    assert ("rank-in-user-code", [1]) == (verdict["code"], verdict["ranks"])
    for text in (first.stderr, second.stderr):
        assert "rank 1 has been in load_slowly" in text
    assert "`ddplaunch diagnose local://run/1` shows the evidence" in first.stderr
    assert "node 0 has the evidence" in second.stderr


def test_a_node_that_is_interrupted_at_the_gate_ends_by_that_signal(desk: Desk, pair: Pair) -> None:
    place = ["--nodes", "2", "--node-rank", "0", "--master", "127.0.0.1", "--gate-port", pair.port]
    with desk.start("run", "--join", *place, "--", *TORCHRUN) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "node 1" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=BUSY * 60)

    assert -signal.SIGINT == process.returncode


@pytest.mark.parametrize(
    ("node_0", "node_1", "codes"),
    [
        ("sleep 100", "exit 7", (1, 7)),  # ended since the other has failed: srun's highest is that one's
        pytest.param("exit 0", "sleep 2; exit 7", (0, 7), marks=pytest.mark.whole),
        pytest.param("sleep 2; exit 3", "kill -KILL $$", (1, -9), marks=pytest.mark.whole),
    ],
)
def test_each_node_ends_as_its_own_command(
    pair: Pair, node_0: str, node_1: str, codes: tuple[int, int]
) -> None:
    first, second = pair.run("bash", "-c", f"if [ $DDPLAUNCH_NODE = 0 ]; then {node_0}; else {node_1}; fi")

    assert codes == (first.returncode, second.returncode), first.stderr + second.stderr


LEAVES = """
import os, signal, sys, time
gone = sys.argv[1]
if os.environ["DDPLAUNCH_NODE"] == "1":
    open(gone, "w").close()
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(300)
while os.environ["WORLD_SIZE"] == "2":
    if os.path.exists(gone):
        raise RuntimeError("my peer is gone")
    time.sleep(0.1)
print("trained alone", flush=True)
"""
"""Without a process group: torch 2.15 finds the addresses of the first attempt again in the second."""


@pytest.mark.whole
def test_where_torchruns_agents_decide_one_that_leaves_does_not_end_the_rest(
    desk: Desk, pair: Pair, tmp_path: Path
) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES)
    meet = ["--nnodes=1:2", "--rdzv-backend=c10d", "--max-restarts=2"]
    script = [str(tmp_path / "leaves.py"), str(tmp_path / "gone")]

    first, second = pair.run(TORCHRUN[0], *meet, "--nproc-per-node=1", *script)
    job = json.loads(desk.call("status", "local://run", "--json").stdout)

    assert (0, 1) == (first.returncode, second.returncode), first.stdout + second.stdout
    assert "trained alone" in first.stdout
    assert ([], [0]) == (job["verdicts"], [each["launch_attempt"] for each in job["failed_attempts"]])


def test_torchruns_of_a_script_that_will_never_meet_are_told_while_they_wait(pair: Pair) -> None:
    """Their ids differ, as by $RANDOM. None of the two is a rank, and torchrun would wait for ten minutes."""
    meet = f"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{own_port()} --rdzv-id=$DDPLAUNCH_NODE"
    script = ["bash", "-c", f"{TORCHRUN[0]} {meet} {TRAIN}; exit 7"]
    nodes = [pair.start(node, *script) for node in range(2)]

    told = []
    assert nodes[0].stderr is not None
    for line in nodes[0].stderr:
        told.append(line)
        if "hint: " in line and any("environment-differs" in each for each in told):
            break
    for node in nodes:
        node.send_signal(signal.SIGTERM)
    pair.finish(nodes)

    text = "".join(told)
    assert "torchruns do not meet under different ids: --rdzv-id=0 on node 0, 1 on" in text
    assert "the job goes on" in text
    assert "rank-in-user-code" not in text


def test_nodes_that_look_for_one_another_by_different_ids_are_told_so(pair: Pair) -> None:
    options = ("--gate-timeout", "8s")
    words = [[TORCHRUN[0], f"--rdzv-id={node + 17}", str(TRAIN)] for node in range(2)]
    nodes = [pair.start(node, *words[node], options=options) for node in range(2)]

    first, second = pair.finish(nodes)

    assert (104, 104) == (first.returncode, second.returncode)
    assert "node-missing: node 1 never came" in first.stderr
    assert "--rdzv-id is 17 here" in first.stderr
    assert "--rdzv-id is 18 here" in second.stderr
    assert "if --rdzv-id differs between the nodes" in second.stderr


@pytest.mark.whole
def test_nodes_that_train_alone_without_having_been_told_so_are_noticed(pair: Pair) -> None:
    script = f"{TORCHRUN[0]} --nproc-per-node=1 {TRAIN} --steps 100 --pause 0.1"

    first, second = pair.run("bash", "-c", script)

    assert (0, 0) == (first.returncode, second.returncode)
    assert "each node trains alone: torchrun was started on nodes 0" in first.stderr
    assert "the job goes on" in first.stderr


def test_a_node_that_is_not_told_how_to_join_is_refused_and_leaves_no_job(desk: Desk) -> None:
    result = desk.call("run", "--join", "--nodes", "2", "--", *TORCHRUN)

    assert (2, "") == (result.returncode, result.stdout)
    assert (
        "error: this node cannot join: the rank of this node and the name or address of node 0"
        in result.stderr
    )
    assert [] == json.loads(desk.call("list", "--json").stdout)


def test_a_command_of_several_nodes_that_does_not_join_says_what_it_does_not_see(desk: Desk) -> None:
    desk.env["PET_NNODES"] = "2"

    said = desk.call("run", "--", "true").stderr

    assert (
        "ddplaunch: this is one of 2 nodes (PET_NNODES=2), and the ranks of the others are not watched; use "
        "`ddplaunch run --join` on every node to watch all of them\n" in said
    )
