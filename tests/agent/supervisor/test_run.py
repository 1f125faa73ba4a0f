"""One node's supervisor from launch to end, with a launcher of a few lines in torchrun's place."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from tests.agent.supervisor.conftest import Hub, Node, wait_for
from tests.agent.supervisor.reports import VERDICT, WAITS, deaths, end, evidence, names
from tests.busy import BUSY

from ddplaunch.agent.contract import Beat, codec
from ddplaunch.agent.supervisor.ends import STOP_GRACE
from ddplaunch.agent.transport.protocol import Body

DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS


def test_in_a_good_run_every_line_has_its_rank_and_every_end_is_told(node: Node, hub: Hub) -> None:
    program = (
        "import os, sys\nprint('out', flush=True)\nsys.stderr.write('err\\n')\nprint('the last', end='')\n"
    )
    node.launch(program, 2, hub)

    assert node.exit_code() == 0
    assert sorted(node.output.splitlines()) == sorted(
        f"[0/{rank}] {text}" for rank in (0, 1) for text in ("out", "err", "the last")
    )
    assert {rank: death.exit.code for rank, death in deaths(hub).items() if death.exit} == {0: 0, 1: 0}
    assert hub.wait_for("join")["node"] == 0
    assert hub.bodies("finished") == [{"exit_code": 0, "verdicts": [], "checkpoint": ""}]


def test_a_hub_that_hangs_up_after_its_last_word_is_not_called_lost(node: Node, hub: Hub) -> None:
    """The connection ends with the job; a line about a lost hub would frighten for nothing."""

    def speak_last(kind: str, _: Body) -> None:
        if kind == "finished":
            hub.send("end", {"exit_code": 0, "verdicts": [], "grace": 0.0})
            hub.hang_up()

    hub.judge = speak_last
    node.start(["true"], hub)

    assert 0 == node.exit_code()
    assert "" == node.output


def test_beats_tell_each_second_how_long_nothing_moves(node: Node, hub: Hub) -> None:
    node.launch(WAITS, 2, hub)

    def still() -> list[Beat]:
        beats = [codec.load(Beat, body["beat"]) for body in hub.bodies("beat")]
        return [beat for beat in beats if len(beat.ranks) == 2 and min(r.still_for for r in beat.ranks) >= 4]

    beat = wait_for(still, what="a beat with two ranks that are still for 4 s")[0]
    wanted = [(0, True, False), (1, True, False)]
    assert [(rank.rank, rank.alive, rank.waits) for rank in beat.ranks] == wanted
    assert all(rank.stuck_for >= rank.still_for for rank in beat.ranks)


def test_evidence_of_all_ranks_comes_within_the_deadline(node: Node, hub: Hub) -> None:
    node.launch(WAITS, 2, hub)
    wait_for(lambda: node.output.count("stands") == 2)
    begun = time.monotonic()
    hub.send("collect", {"id": 7, "why": "asked", "deadline": 3.0})
    found = evidence(hub, 7)

    assert time.monotonic() - begun < BUSY * 3.0
    assert [(rank.rank, rank.alive, names(rank), rank.stack_source) for rank in found.ranks] == [
        (number, True, ["stand", "<module>"], "hook") for number in (0, 1)
    ]
    assert [rank.process.state for rank in found.ranks if rank.process] == ["S", "S"]
    assert (found.node, found.phase, found.launch_exit) == (0, "init_process_group", None)
    assert found.shm_size is not None
    assert found.ranks[0].last_output == "rank 0 stands"


def test_a_notice_is_printed_and_the_job_goes_on(node: Node, hub: Hub) -> None:
    node.launch(WAITS, 1, hub)
    wait_for(lambda: "stands" in node.output)
    hub.send("notice", {"verdicts": [codec.dump(VERDICT)], "why": "still"})
    wait_for(lambda: "---- ddplaunch notice" in node.output)

    assert "rank-failed: rank 1 raised" in node.output
    assert node.process is not None
    assert node.process.poll() is None


def test_the_hubs_end_ends_the_job(node: Node, hub: Hub) -> None:
    polite = WAITS.replace(
        "import os, sys, time\n",
        "import os, signal, sys, time\n"
        "def bye(*_):\n    print('checkpoint written', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye)\n",
    )
    node.launch(polite, 1, hub)
    wait_for(lambda: "stands" in node.output)
    hub.send("end", end(50))

    assert node.exit_code() == 50
    assert "[0/0] checkpoint written" in node.output
    assert hub.wait_for("finished")["exit_code"] == 50
    assert node.living() == {}


def test_who_does_not_hear_sigterm_is_killed_after_the_grace(node: Node, hub: Hub) -> None:
    """A rank that hangs in native code does not end by itself."""
    node.launch(DEAF, 1, hub, env={"PATIENCE": "100"})
    wait_for(lambda: "stands" in node.output)
    begun = time.monotonic()
    hub.send("end", end(50, grace=1.0))

    assert node.exit_code() == 50
    assert 1.0 <= time.monotonic() - begun < BUSY * 20
    assert node.living() == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_node_told_to_stop_sends_evidence_before_it_ends_ranks(node: Node, hub: Hub, number: int) -> None:
    node.launch(WAITS, 2, hub)
    wait_for(lambda: node.output.count("stands") == 2)
    assert node.process is not None
    node.process.send_signal(number)

    assert node.exit_code() == 60
    assert [names(rank) for rank in evidence(hub, 0).ranks] == [["stand", "<module>"]] * 2
    assert hub.wait_for("finished")["exit_code"] == 60
    assert node.living() == {}


def told_to_stop(node: Node, hub: Hub) -> subprocess.Popen[bytes]:
    """Stop a node whose rank does not hear SIGTERM; return its process, once the hub has the evidence."""
    process = node.launch(DEAF, 1, hub, env={"PATIENCE": "100"})
    wait_for(lambda: "stands" in node.output)
    process.send_signal(signal.SIGINT)
    hub.wait_for("evidence")
    return process


def test_evidence_of_a_stop_is_of_before_the_stop(node: Node, hub: Hub) -> None:
    """The hub asks all nodes when one is told to stop. That node's ranks are on their way out by then."""
    process = told_to_stop(node, hub)
    for number, why in enumerate(("stopping", "asked"), 1):
        hub.send("collect", {"id": number, "why": why, "deadline": BUSY * 3, "dumps": 0})
    wait_for(lambda: len(hub.bodies("evidence")) == 3)
    process.send_signal(signal.SIGINT)

    assert node.exit_code() == 60
    before, stopping, asked = (evidence(hub, number) for number in range(3))
    assert (before.at, True) == (stopping.at, asked.at > before.at)


def test_told_twice_it_waits_no_longer(node: Node, hub: Hub) -> None:
    process = told_to_stop(node, hub)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)

    assert node.exit_code() == 60
    assert time.monotonic() - begun < STOP_GRACE - 5


def test_a_second_sigterm_changes_nothing(node: Node, hub: Hub) -> None:
    """Slurm says it twice at a time limit: the ranks keep the time to write their checkpoint."""
    slow = (
        "import signal, sys, time\n"
        "def leave(*_):\n    time.sleep(3)\n    print('saved', flush=True)\n    sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, leave)\nprint('stands', flush=True)\ntime.sleep(60)\n"
    )
    node.start([sys.executable, "-c", slow], hub, ranks=1)
    wait_for(lambda: "stands" in node.output)
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    hub.wait_for("evidence")
    node.process.send_signal(signal.SIGTERM)

    assert node.exit_code() == 60
    assert "saved" in node.output


def test_nohup_is_respected(node: Node, hub: Hub) -> None:
    node.launch(WAITS, 1, hub, before=["nohup"])
    wait_for(lambda: "stands" in node.output)
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    hub.send("collect", {"id": 1, "why": "asked", "deadline": 3.0})

    assert [rank.alive for rank in evidence(hub, 1).ranks] == [True]


COUNTS = """
import os, signal, sys, time
counts = {number: 0 for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGRTMIN + 3)}
def count(number, frame):
    counts[number] += 1
for number in counts:
    signal.signal(number, count)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("counted", *counts.values(), flush=True) or 9))
print("stands", flush=True)
while True:
    time.sleep(0.05)
    print("so far", sum(counts.values()), flush=True)
"""


def test_every_signal_reaches_the_command_once_and_ends_nothing(node: Node, hub: Hub) -> None:
    """One with a handler for SIGHUP is not asked to end by it; at SIGTERM it ends as it wants to."""
    node.start([sys.executable, "-c", COUNTS], hub)
    wait_for(lambda: "stands" in node.output)
    assert node.process is not None
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGRTMIN + 3):
        node.process.send_signal(number)
    wait_for(lambda: "so far 4" in node.output)
    assert [] == hub.bodies("stopping")
    node.process.send_signal(signal.SIGTERM)

    assert 60 == node.exit_code()
    assert "counted 1 1 1 1" in node.output


def test_a_hub_that_does_not_read_stops_nobody(node: Node, hub: Hub) -> None:
    hub.judge = lambda kind, body: time.sleep(8) if kind == "join" else None
    node.launch("import time; time.sleep(1); print('trained', flush=True)", 1, hub)

    assert node.exit_code() == 0
    assert "[0/0] trained" in node.output


def test_an_order_that_cannot_be_read_does_not_end_the_training(node: Node, hub: Hub) -> None:
    node.launch("import time; time.sleep(2); print('trained', flush=True)", 1, hub)
    hub.wait_for("beat")
    hub.send("collect", {"id": "no deadline"})

    assert node.exit_code() == 0
    assert "cannot read the hub's message 'collect': Collect.id: wanted int" in node.output
    assert "[0/0] trained" in node.output
