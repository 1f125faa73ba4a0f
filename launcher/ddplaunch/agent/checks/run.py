"""The table of a node's checks, what runs them, each with a time limit, and their results as text."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, Optional

from ddplaunch.agent.checks import configuration, gpus, interpreter, machine, network, port, rdma
from ddplaunch.agent.checks.context import Context, passed, unknown
from ddplaunch.agent.contract import CheckResult, MeshResult, Status
from ddplaunch.agent.system import phrases
from ddplaunch.agent.system.background import Task
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.text.quantities import count

Check = Callable[[Context], CheckResult]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("configuration", configuration.check_configuration),
    ("names", network.check_names),
    ("service", network.check_service),
    ("port", port.check_port),
    ("interpreter", interpreter.check_interpreter),
    ("versions", interpreter.check_versions),
    ("interfaces", network.check_interfaces),
    ("gpus", gpus.check_gpus),
    ("backend", gpus.check_backend),
    ("rdma", rdma.check_rdma),
    ("memlock", machine.check_memlock),
    ("shm", machine.check_shm),
    ("memory", machine.check_memory),
    ("threads", machine.check_threads),
    ("cpu", machine.check_cpu),
    ("disk", machine.check_disk),
    ("clock", machine.check_clock),
)
"""All checks of one node, in the order of their output, by the names in `plan.CHECKS`."""

SECONDS = 15.0
"""Seconds for all of them: a Python environment on a busy network file system is slow."""


def run(
    context: Context, checks: tuple[tuple[str, Check], ...] = CHECKS, seconds: float = SECONDS
) -> list[CheckResult]:
    """Return the results of all checks that the job does not skip, in order, after `seconds` at most."""
    deadline = time.monotonic() + seconds
    wanted = [(name, check) for name, check in checks if name not in context.plan.gate.skip]
    runs = [_Run(name, check, context) for name, check in wanted]
    return [each.result(deadline) for each in runs]


def again(context: Context, name: str, seconds: float) -> Optional[CheckResult]:
    """Run one check once more; None if it does not answer in time."""
    return _Run(name, dict(CHECKS)[name], context).answer(time.monotonic() + seconds)


def _observed(result: CheckResult) -> CheckResult:
    """Return the result of a check as one that ends no job, because the ranks ran until now. Only the port
    may: it is held again.
    """
    if result.status != Status.FAIL or result.check == "port":
        return result
    return replace(result, status=Status.UNKNOWN, patience=None)


class _Run:
    """One check. It is abandoned if it takes too long."""

    def __init__(self, name: str, check: Check, context: Context) -> None:
        self._name = name
        self._result: Optional[CheckResult] = None
        self._started = time.monotonic()
        self._task = Task(self._work, check, context, name=name)

    def _work(self, check: Check, context: Context) -> None:
        try:
            result = check(context)
            self._result = _observed(result) if context.ran else result
        except Exception as error:
            self._result = unknown(self._name, f"the check itself failed: {type(error).__name__}: {error}")

    def answer(self, deadline: float) -> Optional[CheckResult]:
        self._task.join(max(0.0, deadline - time.monotonic()))
        return self._result

    def result(self, deadline: float) -> CheckResult:
        return self.answer(deadline) or unknown(
            self._name, f"no answer in {time.monotonic() - self._started:.0f} s", hint="the node is very slow"
        )


# --- as text

_MARKS = {Status.PASS: "ok", Status.FAIL: "FAIL", Status.UNKNOWN: "?"}
_COLOURS = {Status.PASS: "32", Status.FAIL: "31;1", Status.UNKNOWN: "33"}


def rows(results: list[CheckResult], colour: bool) -> list[str]:
    """Return a line for each check; below those that did not pass, what was wanted, and a hint."""
    width = max((len(result.check) for result in results), default=0)
    lines = []
    for result in results:
        mark = f"{_MARKS[result.status]:<4}"
        if colour:
            mark = f"\033[{_COLOURS[result.status]}m{mark}\033[0m"
        lines.append(f"  {mark}  {result.check:<{width}}  {printable(result.observed)}")
        if result.status != Status.PASS:
            below = " " * (10 + width)
            lines += [f"{below}wanted: {printable(result.wanted)}"] if result.wanted else []
            lines += [f"{below}hint: {printable(result.hint)}"] if result.hint else []
    return lines


def summary(results: list[MeshResult], names: list[str]) -> CheckResult:
    """Return all paths as the result of one check."""
    bad = [result for result in results if result.outcome != "ok"]
    slowest = max((result.seconds for result in results), default=0.0)
    if not bad:
        verb = phrases.one_or(results, "passes", "pass")
        paths = f"{count(len(results), 'path')} to peers {verb}"
        return passed("mesh", f"{paths}, the slowest in {slowest * 1000:.0f} ms")
    return CheckResult(
        "mesh",
        Status.FAIL,
        f"{len(bad)} of {len(results)} paths fail, first {phrases.node(bad[0].peer, names)} at "
        f"{bad[0].address} port {bad[0].port}: {bad[0].outcome}",
    )
