"""How the end of a rank is told, whoever hears of it first: real ranks, and a hub that listens."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.supervisor.conftest import Hub, Node, wait_for
from tests.agent.supervisor.reports import RAISES, WAITS, deaths, end, evidence, names

from ddplaunch.agent.contract import RankEvidence, codec

LINGERS = """
import os, time
class Slow:
    def __del__(self, open=open, now=time.monotonic):
        open("left", "w").close()
        until = now() + {seconds}
        while now() < until:
            pass
if os.environ["RANK"] == "1":
    slow = Slow()
    raise SystemExit(0)
while not os.path.exists("left"):
    time.sleep(0.01)
raise ValueError("no batch")
"""
"""Modules are torn down after all that a program wants to be done at its end."""
HOLDS = """
import ctypes, os, time
if os.environ["RANK"] == "0":
    open("held", "w").close()
    ctypes.PyDLL(None).sleep(60)
while not os.path.exists("go"):
    time.sleep(0.01)
raise ValueError("no peer")
"""
"""Rank 0 keeps the GIL: its hook does not answer, and a look at the ranks takes seconds."""


def test_a_rank_that_raises_is_told_with_the_others_stacks(node: Node, hub: Hub) -> None:
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None
    node.launch(RAISES, 2, hub)

    assert node.exit_code() == 40
    found = deaths(hub)
    (raised,) = found[1].raised
    wanted = "ValueError", "no batch", False, "hook"
    assert (raised.type, raised.message, raised.handled, raised.source) == wanted
    assert [frame.name for frame in raised.frames] == ["fail", "<module>"]
    assert found[1].exit is not None
    assert found[0].exit is not None
    assert (found[1].exit.code, found[1].exit.by_us) == (1, False)
    # A launcher that waits for its workers may bury this one before we can look.
    assert found[0].exit.signal in (signal.SIGTERM, None)
    assert found[0].exit.by_us is True
    assert names(found[0]) == ["stand", "<module>"]
    assert "---- ddplaunch verdict" in node.output
    assert "rank-failed: rank 1 raised ValueError: no batch" in node.output
    assert "hint: Mend it." in node.output


@pytest.mark.parametrize(
    ("words", "code", "number"),
    [("os.kill(os.getpid(), 9)", None, 9), ("os._exit(7)", 7, None), ("os.abort()", None, 6)],
)
def test_how_a_rank_died_suddenly_is_read_from_the_kernel(
    node: Node, hub: Hub, words: str, code: int | None, number: int | None
) -> None:
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None
    node.launch(RAISES.replace('raise ValueError("no batch")', words), 2, hub)

    assert node.exit_code() == 40
    found = deaths(hub)
    assert found[1].exit is not None
    assert (found[1].exit.code, found[1].exit.signal, found[1].exit.by_us) == (code, number, False)


def test_what_a_rank_raises_while_others_are_looked_at_is_in_the_evidence(node: Node, hub: Hub) -> None:
    """Ranks die within milliseconds of one another, and the first death is judged by one look."""
    node.launch(HOLDS, 2, hub)
    wait_for(
        lambda: any(len(body["beat"]["ranks"]) == 2 for body in hub.bodies("beat")), what="a beat of both"
    )
    wait_for((node.folder / "held").exists, what="a held GIL")
    hub.send("collect", {"id": 1, "why": "death", "deadline": 20.0})
    (node.folder / "go").touch()
    found = evidence(hub, 1).ranks[1]

    assert [("ValueError", False)] == [(raised.type, raised.handled) for raised in found.raised]


def test_a_rank_that_ends_early_is_told_while_the_other_goes_on(node: Node, hub: Hub) -> None:
    node.launch(RAISES.replace('raise ValueError("no batch")', "raise SystemExit(0)"), 2, hub)
    death = codec.load(RankEvidence, hub.wait_for("death")["rank"])
    hub.send("collect", {"id": 1, "why": "asked", "deadline": 3.0})

    assert death.exit is not None
    assert (death.rank, death.exit.code, death.exit.by_us) == (1, 0, False)
    assert [(rank.rank, rank.alive) for rank in evidence(hub, 1).ranks] == [(0, True), (1, False)]


def test_a_rank_that_is_about_to_end_is_let_end(node: Node, hub: Hub) -> None:
    """Its program was done before the other failed: the launcher is held until its exit code is there.

    torchrun looks after its workers ten times a second. On a busy machine its look may come between the end
    of the one and our hold; then it ends the other, as it would without us, and we must know that it did.
    """
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None
    node.launch(LINGERS.replace("{seconds}", "0.2"), 2, hub)

    assert node.exit_code() == 40
    found = {rank: death.exit for rank, death in deaths(hub).items()}
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].code == 1
    if found[1].by_us:
        assert found[1].signal in (signal.SIGTERM, None)
    else:
        assert found[1].code == 0
        assert found[1].at <= deaths(hub)[0].raised[0].at


def test_a_rank_that_takes_long_to_end_is_ended_by_its_launcher_as_without_us(node: Node, hub: Hub) -> None:
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None
    node.launch(LINGERS.replace("{seconds}", "30"), 2, hub)

    assert node.exit_code() == 40
    found = deaths(hub)[1].exit
    assert found is not None
    assert (True, True) == (found.signal in (signal.SIGTERM, None), found.by_us)


def test_without_the_hook_exceptions_are_read_from_the_log(node: Node, hub: Hub) -> None:
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None
    program = (
        "import os, subprocess, sys\n"
        "os.execv(sys.executable, [sys.executable, '-I', '-c', "
        '\'import os, time\\nwhile not os.path.exists("go"): time.sleep(0.1)\\nraise KeyError("step")\'])\n'
    )
    node.launch(program, 1, hub)
    wait_for(lambda: any(body["beat"]["ranks"] for body in hub.bodies("beat")), what="a beat with a rank")
    (node.folder / "go").touch()

    assert node.exit_code() == 40
    death = deaths(hub)[0]
    assert [(r.type, r.message, r.handled, r.source) for r in death.raised] == [
        ("KeyError", "'step'", False, "log")
    ]
    assert death.exit is not None
    assert death.exit.code == 1


HASTY = """
import os, subprocess, sys
first = (
    "import os, sys, time\\nwhile not os.path.exists('go'): time.sleep(0.05)\\n"
    "os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(7)'])"
)
env = {**os.environ, "RANK": "0", "LOCAL_RANK": "0"}
sys.exit(subprocess.call([sys.executable, "-I", "-c", first], env=env))
"""
"""One rank that has the hook only at its very end."""


def test_a_rank_that_is_gone_when_its_hello_is_heard_is_the_one_that_was_known(node: Node, hub: Hub) -> None:
    """On a busy machine the supervisor may sleep through a short life."""
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None
    node.start([sys.executable, "-I", "-c", HASTY], hub, ranks=1)
    ranks = wait_for(lambda: [each for body in hub.bodies("beat") for each in body["beat"]["ranks"]])
    with asleep(node):
        (node.folder / "go").touch()
        wait_for(lambda: not Path(f"/proc/{ranks[0]['pid']}").exists(), what="the rank's end")

    assert node.exit_code() == 40
    assert [0] == [body["rank"]["rank"] for body in hub.bodies("death")]


TOO_LATE = """
import os, subprocess, sys, time
env = {**os.environ, "RANK": "0", "LOCAL_RANK": "0"}
first = "import os, time\\nwhile not os.path.exists('end'): time.sleep(0.05)"
elder = subprocess.Popen([sys.executable, "-c", first], env=env)
while not os.path.exists("go"):
    time.sleep(0.05)
subprocess.call([sys.executable, "-c", "raise SystemExit(7)"], env={**env, "RANK": "1", "LOCAL_RANK": "1"})
open("over", "w").close()
elder.wait()
sys.exit(1)
"""


def test_a_rank_of_which_only_its_hello_is_left_stops_nobody(node: Node, hub: Hub) -> None:
    """Its launcher has buried it; who that was is not known any more, and it is not stopped."""
    hub.judge = lambda kind, body: hub.send("end", end()) if kind == "finished" else None
    node.start([sys.executable, "-I", "-c", TOO_LATE], hub, ranks=2)
    wait_for(lambda: [each for body in hub.bodies("beat") for each in body["beat"]["ranks"]])
    with asleep(node):
        (node.folder / "go").touch()
        wait_for((node.folder / "over").exists, what="the rank's end")
    hub.wait_for("death")
    (node.folder / "end").touch()

    assert node.exit_code() == 40
    assert [1, 0] == [body["rank"]["rank"] for body in hub.bodies("death")]


def test_what_was_printed_in_a_short_life_is_shown(node: Node, hub: Hub) -> None:
    """A program that is over before its hello is heard: nobody can see any more where it printed to."""
    script = 'until [ -e go ]; do sleep 0.1; done; exec "$0" -c \'print("it runs")\''
    node.start(["sh", "-c", script, sys.executable], hub, ranks=1)
    hub.wait_for("beat")
    with asleep(node):
        (node.folder / "go").touch()
        wait_for(lambda: len(node.living()) == 2, what="an end that leaves supervisor and guardian")

    assert node.exit_code() == 0
    assert "] it runs" in node.output


@contextlib.contextmanager
def asleep(node: Node) -> Iterator[None]:
    """The supervisor has no share of the processor meanwhile."""
    assert node.process is not None
    guardian = node.process.pid
    (supervisor,) = map(int, Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split())
    os.kill(supervisor, signal.SIGSTOP)
    yield
    os.kill(supervisor, signal.SIGCONT)


def test_what_a_living_rank_has_logged_was_handled(node: Node, hub: Hub) -> None:
    program = (
        "import logging, time\ntry:\n    int('x')\nexcept ValueError:\n    logging.exception('skipped')\n"
        + WAITS
    )
    node.launch(program, 1, hub)
    wait_for(lambda: "stands" in node.output)
    hub.send("collect", {"id": 1, "why": "asked", "deadline": 3.0})
    (rank,) = evidence(hub, 1).ranks

    assert [(raised.type, raised.handled) for raised in rank.raised] == [("ValueError", True)]
