"""One scenario, played on a backend: the job, its injuries in their time, and the facts of its end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any, Protocol

from tests.busy import BUSY
from tests.chaos import injuries
from tests.chaos.injuries import Process
from tests.chaos.oracle import AT_GATE as GATE_SAID_NO
from tests.chaos.oracle import CANCELLED, CODES, FAILED, HANG, STOPPED, SUCCEEDED, Accused, Facts, expected
from tests.chaos.scenario import GATE, KILL, MACHINE, PAUSE, RANK, STOP, Injury, Scenario

POLL = 0.1
MISSED = 3.0
"""Seconds after its moment in which an injury must find its target; else it does not land."""
PATIENCE = BUSY * 40.0
"""Seconds for a job to end by itself: kill_after, patience with a silent node, SIGKILL."""
HOPELESS = BUSY * 15.0
"""Seconds, where it need not end by itself."""
IMPORTS = BUSY * 15.0
"""Seconds more, for torch."""
GONE = 12.0
"""Seconds for the last processes to go once the job has ended."""
_ENDS = {0: SUCCEEDED, 40: FAILED, 41: FAILED, 50: HANG, 60: STOPPED, 79: GATE_SAID_NO}


def answer(words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command that ran to its end; exit code -1 where it had none within two minutes."""
    try:
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, -1, "", "no answer within two minutes")


class World(Protocol):
    """A place where one job runs, seen from outside."""

    def submit(self) -> None:
        """Start the job; `ddplaunch submit --wait` goes on beside."""

    def processes(self) -> list[Process]:
        """The job's, and ours of it."""

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`ddplaunch` with these words, `{job}` among them standing for the job's handle."""

    def strike(self, injury: Injury) -> bool:
        """Whatever is not done to processes. False when there is nothing to be hit."""

    def heal(self, injury: Injury) -> None:
        """Undo it."""

    def over(self, living: list[Process]) -> bool:
        """Whether nothing of the job goes on. `living`: `processes` of this moment."""

    def bundle(self) -> bool:
        """Whether its bundle is there and can be read."""

    def left(self) -> list[str]:
        """What of the job is left once it has ended: processes and files."""

    def output(self) -> str:
        """All that was printed, by ranks and by ours."""


class _Attack:
    """One injury on its way: waits for its phase, its delay, its target; later it heals."""

    def __init__(self, injury: Injury) -> None:
        self.injury = injury
        self.landed = False
        self.over = False
        self.targets: list[Process] = []
        self._heals: float | None = None

    def turn(self, world: World, living: list[Process], since: dict[str, float]) -> None:
        now = time.monotonic()
        if self.over or self.injury.phase not in since:
            return
        if self.landed:
            if self._heals is not None and now >= self._heals:
                self.heal(world)
            return
        due = since[self.injury.phase] + self.injury.delay
        if now < due:
            return
        self.targets = injuries.hit(self.injury, living)
        if self.injury.action in (KILL, STOP, PAUSE) and self.injury.target != MACHINE:
            number = signal.SIGKILL if self.injury.action == KILL else signal.SIGSTOP
            injuries.send(self.targets, number)
            self.landed = bool(self.targets)
        else:
            self.landed = world.strike(self.injury)
        self.over = not self.landed and now > due + MISSED
        self._heals = None if self.injury.seconds is None else now + self.injury.seconds

    def heal(self, world: World) -> None:
        """Once."""
        if self.landed and not self.over:
            self.over = True
            if self.targets:
                injuries.send(self.targets, signal.SIGCONT)
            else:
                world.heal(self.injury)


def play(world: World, scenario: Scenario, last_line: str) -> Facts:
    """Run it to its end. `last_line`: what a rank prints when it has done its work."""
    attacks = [_Attack(injury) for injury in scenario.injuries]
    since: dict[str, float] = {}
    begun = time.monotonic()
    world.submit()
    late = False
    while not world.over(living := world.processes()):
        for phase, role in (("gate", GATE), ("ranks", RANK)):
            if phase not in since and any(each.role == role for each in living):
                since[phase] = time.monotonic()
                since.setdefault("gate", since[phase])
        for attack in attacks:
            attack.turn(world, living, since)
        late = time.monotonic() - begun > _patience(scenario, attacks)
        if late:
            break
        time.sleep(POLL)
    seconds = time.monotonic() - begun
    for attack in attacks:
        if attack.injury.seconds is not None:
            attack.heal(world)
    if late:
        world.call("cancel", "{job}")
    _until_over(world)
    return _facts(world, attacks, last_line, scenario, seconds, late)


def _patience(scenario: Scenario, attacks: list[_Attack]) -> float:
    """Seconds for the job to end by itself, after the injuries that have landed by now."""
    landed = [each.injury for each in attacks if each.landed]
    seconds = HOPELESS if CANCELLED in expected(scenario, landed) else PATIENCE
    return seconds + (IMPORTS if scenario.torch else 0.0)


def _until_over(world: World) -> None:
    deadline = time.monotonic() + GONE
    while not world.over(world.processes()) and time.monotonic() < deadline:
        time.sleep(POLL)


def _facts(
    world: World, attacks: list[_Attack], last_line: str, scenario: Scenario, seconds: float, late: bool
) -> Facts:
    left = world.left()  # before anything else of ours begins
    asked = world.call("status", "{job}", "--json")
    told: dict[str, Any] = json.loads(asked.stdout) if asked.stdout.startswith("{") else {}
    output = world.output()
    steps = output.splitlines()
    done = sum(line.endswith(f"] {last_line}") for line in steps) == scenario.world
    tracebacks = {
        line.strip()
        for line in f"{output}\n{asked.stderr}".splitlines()
        if "an error in ddplaunch itself" in line
    }
    if "Traceback" in asked.stderr:
        tracebacks.add(asked.stderr.strip().splitlines()[-1])
    return Facts(
        end=_end(told, asked.returncode),
        status_code=asked.returncode,
        verdicts=tuple(
            Accused(each["code"], tuple(each["nodes"]), tuple(each["ranks"]))
            for each in told.get("verdicts", [])
        ),
        landed=tuple(number for number, attack in enumerate(attacks) if attack.landed),
        done=done,
        bundle=world.bundle(),
        late=late,
        left=tuple(left),
        seconds=round(seconds, 1),
        said=tuple(sorted(tracebacks)),
    )


def _end(told: dict[str, Any], status: int) -> str:
    """In the words of the oracle; what is not among them is a complaint."""
    state, code = told.get("state", "not known"), told.get("exit_code")
    if state == "failed":
        if code in (20, 30):  # of a node, or of the wiring: only `status` says whether the gate had passed
            return GATE_SAID_NO if status == CODES[GATE_SAID_NO] else FAILED
        return _ENDS.get(int(code), str(state)) if code is not None else str(state)
    return str(state)
