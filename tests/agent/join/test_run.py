"""`agent.pyz run --join` by hand on hosts of their own: the gate, one hub, one verdict, and no strangers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Agent, wait_for

from ddplaunch.agent.contract import Exit, Files, LaunchEnd, codec
from ddplaunch.agent.join.run import exit_code_of

KEY = "a secret of thirty-two characters"
ANOTHER_KEY = "another secret, just as long as ours"
MEET = 'echo "node $DDPLAUNCH_NODE meets at $MASTER_ADDR"'
MARK = "DDPLAUNCH_TEST_JOIN"


class Desk:
    """Starts node after node; ends what is left of them."""

    def __init__(self, folder: Path, agent: list[str], hosts: list[Host]) -> None:
        self._folder = folder
        self._agent = agent
        self._hosts = hosts
        self._mark = f"{os.getpid()}-{time.monotonic()}"
        self._started: list[Agent] = []
        self.tmp = folder / "tmp"
        self.tmp.mkdir()

    def join(self, node: int, command: str, *options: str, key: str = KEY, message: str = "") -> Agent:
        """Node `node`, which runs `command` in a shell. `message`: the file of its container's message."""
        given = ["--nodes", str(len(self._hosts)), "--node-rank", str(node), "--master", "n0", *options]
        env = {"DDPLAUNCH_KEY": key, "TMPDIR": str(self.tmp), MARK: self._mark}
        if message:
            env["DDPLAUNCH_TERMINATION"] = message
        words = [*self._hosts[node].words, *self._agent, "run", "--join", *given, "--", "sh", "-c", command]
        log = self._folder / f"node-{node}-{len(self._started)}.log"
        self._started.append(Agent(words, env, self._folder, log))
        return self._started[-1]

    def join_all(self, command: str, *options: str) -> list[Agent]:
        """On every host."""
        return [self.join(node, command, *options) for node in range(len(self._hosts))]

    def left(self) -> list[int]:
        """Processes that came of it and live."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                ours = self._mark.encode() in Path(f"/proc/{name}/environ").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if ours and state not in "ZX":
                found.append(int(name))
        return found

    def close(self) -> None:
        """No process is left."""
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        for agent in self._started:
            agent.process.wait(10)


@pytest.fixture(name="desk")
def _desk(tmp_path: Path, agent: list[str], network: Callable[[int], list[Host]]) -> Iterator[Desk]:
    desk = Desk(tmp_path, agent, network(2))
    yield desk
    desk.close()


def test_nodes_meet_where_the_gate_has_proved_the_way(desk: Desk) -> None:
    nodes = desk.join_all(MEET)

    assert [Exit.OK, Exit.OK] == [node.wait(60) for node in nodes], [node.output for node in nodes]
    for index, node in enumerate(nodes):
        assert f"node {index} meets at n0\n" in node.output
    assert [] == list(desk.tmp.iterdir())


@pytest.mark.whole
def test_the_hub_stays_until_the_slower_node_has_ended(desk: Desk) -> None:
    nodes = desk.join_all(
        f'{MEET}; [ "$DDPLAUNCH_NODE" = 0 ] || while [ ! -e {desk.tmp}/go ]; do sleep 0.1; done'
    )
    nodes[1].says("node 1 meets")
    nodes[0].says("node 0 meets")
    (desk.tmp / "go").touch()

    assert [Exit.OK, Exit.OK] == [node.wait(60) for node in nodes], [node.output for node in nodes]
    assert all("lost" not in node.output for node in nodes), [node.output for node in nodes]


def test_a_node_that_fails_ends_all_with_one_verdict(desk: Desk) -> None:
    nodes = desk.join_all('[ "$DDPLAUNCH_NODE" = 0 ] && sleep 100; echo no such data; exit 3')

    assert [1, 3] == [node.wait(60) for node in nodes], [node.output for node in nodes]
    for node in nodes:
        assert "node 1's launch command ended with exit code 3" in node.output
    (kept,) = desk.tmp.iterdir()
    assert f"the evidence is in {kept}/run" in nodes[0].output


@pytest.mark.whole
def test_in_containers_each_node_leaves_the_verdict_in_its_message(desk: Desk, tmp_path: Path) -> None:
    files = [tmp_path / f"message-{node}" for node in range(2)]
    command = '[ "$DDPLAUNCH_NODE" = 0 ] && sleep 100; echo no such data; exit 3'
    nodes = [desk.join(node, command, message=str(file)) for node, file in enumerate(files)]

    assert [1, 3] == [node.wait(60) for node in nodes], [node.output for node in nodes]
    first, second = (json.loads(file.read_text()) for file in files)
    assert first == second
    assert Exit.WORKER_FAILED == first["exit_code"]
    assert "node 1's launch command ended with exit code 3" in first["verdicts"][0]["sentence"]


@pytest.mark.fault("key-differs")
def test_a_node_with_another_key_cannot_join_and_reads_why(desk: Desk) -> None:
    ours = desk.join(0, MEET)
    ours.says("listens on n0 port")
    stranger = desk.join(1, MEET, key=ANOTHER_KEY)

    assert Exit.MISCONFIGURED == stranger.wait(60), stranger.output
    said = " ".join(stranger.output.split())
    code, _, where = said[said.index("key-differs") :].partition(": ")
    assert ("key-differs", True) == (code, where.startswith("the hub at n0:"))
    assert "is of this job's name, and does not know the key of node 1" in said
    assert "meets at" not in said
    assert Exit.OK == desk.join(1, MEET).wait(60)
    assert Exit.OK == ours.wait(60), ours.output


@pytest.mark.whole
def test_another_jobs_hub_is_no_wrong_key(desk: Desk) -> None:
    """It has another name, and the port was given: two jobs meet there, whatever their keys."""
    desk.join(0, MEET, "--gate-port", "29400", "--name", "other").says("listens on n0 port 29400")
    node = desk.join(1, MEET, "--gate-port", "29400", key=ANOTHER_KEY)

    assert Exit.NODE_AT_FAULT == node.wait(60), node.output
    assert "store-shared: node 1 meets another job at n0:29400" in " ".join(node.output.split())


@pytest.mark.whole
def test_a_second_job_of_the_same_name_is_refused_and_the_first_not_disturbed(desk: Desk) -> None:
    first = desk.join(0, MEET)
    first.says("listens on n0 port")
    second = desk.join(0, MEET, key=ANOTHER_KEY)

    assert Exit.NODE_AT_FAULT == second.wait(60), second.output
    assert "store-shared: node 0: port" in " ".join(second.output.split())
    assert "give all nodes another --gate-port, or the job another --name" in " ".join(second.output.split())
    assert Exit.OK == desk.join(1, MEET).wait(60)
    assert Exit.OK == first.wait(60), first.output


@pytest.mark.whole
def test_a_node_that_never_comes_is_named_after_the_gates_time(desk: Desk) -> None:
    node = desk.join(0, MEET, "--gate-timeout", "15")
    node.says("listens on n0 port")
    stranger = desk.join(1, MEET, key=ANOTHER_KEY)

    assert Exit.MISCONFIGURED == stranger.wait(60), stranger.output
    assert Exit.NODE_AT_FAULT == node.wait(60), node.output
    said = " ".join(node.output.split())
    assert "node-missing: node 1" in said
    assert "the hub refused 10.77.0.2, which does not know the job's key" in said


@pytest.mark.parametrize("node", [pytest.param(0, marks=pytest.mark.whole), 1])
def test_a_signal_to_one_node_ends_all_and_blames_nobody(desk: Desk, node: int) -> None:
    nodes = desk.join_all(f"{MEET}; sleep 100")
    for each in nodes:
        each.says("meets at n0")
    nodes[node].process.send_signal(signal.SIGTERM)

    codes = [each.wait(60) for each in nodes]
    assert {node: -signal.SIGTERM, 1 - node: Exit.STOPPED} == dict(enumerate(codes)), [
        each.output for each in nodes
    ]
    wait_for(lambda: not desk.left())


def test_neither_command_nor_hub_outlives_a_node_that_was_killed(desk: Desk) -> None:
    nodes = desk.join_all(f"{MEET}; sleep 100")
    for each in nodes:
        each.says("meets at n0")
    nodes[1].process.send_signal(signal.SIGSTOP)  # so that what is left is node 0's
    nodes[0].process.kill()
    nodes[0].process.wait(10)

    before = set(desk.left())
    nodes[1].process.send_signal(signal.SIGCONT)
    nodes[1].wait(90)
    wait_for(lambda: not before & set(desk.left()), 30)


def test_what_a_node_needs_to_join_is_asked_for_in_one_sentence(agent: list[str]) -> None:
    done = subprocess.run(
        [*agent, "run", "--join", "--", "torchrun", "train.py"], capture_output=True, text=True, check=False
    )

    assert Exit.MISCONFIGURED == done.returncode
    assert done.stderr.startswith(
        "error: this node cannot join: the number of nodes, the rank of this node and the name or address of "
        "node 0 are not given\n\nhint: add --nodes, --node-rank, --master before `--`; "
    )


@pytest.mark.parametrize(
    ("end", "code", "outward"),
    [
        (LaunchEnd(3, None), Exit.WORKER_FAILED, 3),
        (LaunchEnd(0, None), Exit.WORKER_FAILED, 0),
        (LaunchEnd(None, 15, dismissed=True), Exit.WORKER_FAILED, 1),
        (LaunchEnd(None, 9, killed=True, dismissed=True), Exit.WORKER_FAILED, 1),  # too slow
        (LaunchEnd(None, 9, killed=True, dismissed=True), Exit.NODE_AT_FAULT, 1),
        (LaunchEnd(None, 15, dismissed=True), Exit.HANG, None),
        (LaunchEnd(None, 9, killed=True), Exit.STOPPED, None),
    ],
)
def test_a_node_ends_as_its_own_command_and_with_1_where_another_node_failed(
    tmp_path: Path, end: LaunchEnd, code: int, outward: int | None
) -> None:
    path = tmp_path / Files.NODE.format(node=0) / Files.LAUNCH_END
    path.parent.mkdir(parents=True)
    codec.write(str(path), end)

    assert outward == exit_code_of(["torchrun", "train.py"], str(tmp_path), 0, code)
