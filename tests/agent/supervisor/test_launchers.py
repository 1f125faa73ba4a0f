"""Which launchers are held over a rank's bad end, and for how long: real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.agent.supervisor.conftest import wait_for

from ddplaunch.agent.supervisor import ends
from ddplaunch.agent.supervisor.ends import Launchers
from ddplaunch.agent.supervisor.ranks import Rank
from ddplaunch.agent.system import proc

PARENT = """
import subprocess
with subprocess.Popen(["sleep", "60"]) as child:
    print(child.pid, flush=True)
"""


class Family:
    """A rank and the process that has started it."""

    def __init__(self, words: list[str]) -> None:
        self.parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.parent.stdout is not None
        self.rank = Rank(0, 0, int(self.parent.stdout.readline()))

    @property
    def state(self) -> str:
        stat = proc.stat(self.parent.pid)
        return stat.state if stat is not None else ""

    def close(self) -> None:
        for pid in (self.rank.pid, self.parent.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        self.parent.wait()
        assert self.parent.stdout is not None
        self.parent.stdout.close()


@pytest.fixture(name="python")
def _python() -> Iterator[Family]:
    family = Family([sys.executable, "-c", PARENT])
    yield family
    family.close()


@pytest.fixture(name="shell")
def _shell() -> Iterator[Family]:
    family = Family(["sh", "-c", "sleep 60 & echo $!; wait"])
    yield family
    family.close()


def test_a_launcher_is_held_until_the_evidence_is_there(python: Family) -> None:
    """torchrun, and the parent of mp.spawn, end the others over one: not before these have been looked at."""
    held = Launchers()
    held.hold(python.rank)
    wait_for(lambda: python.state == "T", what="a stopped launcher")
    held.let_go([])

    wait_for(lambda: python.state != "T", what="a launcher that goes on")


def test_a_launcher_is_held_for_a_second_at_most(python: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the evidence takes, and over however many of its ranks it might be held."""
    monkeypatch.setattr(ends, "HOLD", 0.2)
    held = Launchers()
    held.hold(python.rank)

    def goes_on() -> bool:
        held.let_go_late()
        return python.state != "T"

    wait_for(lambda: python.state == "T", what="a stopped launcher")
    wait_for(goes_on, what="a launcher that goes on")
    held.hold(python.rank)
    assert "T" != python.state


def test_a_shell_is_never_held(shell: Family) -> None:
    """It ends no rank over another."""
    Launchers().hold(shell.rank)

    assert "T" != shell.state


def test_who_is_stopped_by_somebody_else_stays_stopped(python: Family) -> None:
    """Ctrl-Z, or a debugger: it is not ours to let it go on."""
    held: Any = Launchers()
    subprocess.run(["kill", "-STOP", str(python.parent.pid)], check=True)
    wait_for(lambda: python.state == "T", what="a stopped launcher")
    held.hold(python.rank)
    held.let_go([])
    held.begin_attempt()

    assert "T" == python.state
