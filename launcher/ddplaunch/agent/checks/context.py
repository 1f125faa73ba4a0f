"""The input of every check, and helpers that build its result."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, TypeVar

from ddplaunch.agent.contract import CheckResult, Env, JobPlan, Status

T = TypeVar("T")


@dataclass
class Context:
    """One node of one job. `master` is what the port check leaves behind: the master port, held open.

    `again`: this is not the first look, and whoever fails is asked again, so no check need be patient.
    """

    plan: JobPlan
    folder: str  # the job's, as the contract names it
    node: int
    attempt: int
    key: bytes
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    master: Optional[socket.socket] = None
    again: bool = False
    started: float = field(default_factory=time.monotonic)
    _shared: dict[str, Any] = field(default_factory=dict)
    _sharing: threading.Lock = field(default_factory=threading.Lock)

    def once(self, name: str, work: Callable[[Context], T]) -> T:
        """Return what `work` gives; checks that ask for the same `name` share one call of it."""
        with self._sharing:
            if name not in self._shared:
                self._shared[name] = work(self)
            found: T = self._shared[name]
            return found

    def variable(self, name: str) -> str:
        """Return the variable as the ranks will see it: the job's `env`, else the node's, else ""."""
        return self.plan.env.get(name, self.environment.get(name, ""))

    @property
    def master_name(self) -> str:
        """The name or address by which the ranks will look for node 0; empty: the one that the gate finds.

        A program that is not given what the gate finds goes by a MASTER_ADDR of its user. Where there is no
        program, what is found takes the place of whatever was set before.
        """
        found_is_used = not self.plan.command or any("{master_addr}" in word for word in self.plan.launch)
        return self.plan.master_addr or ("" if found_is_used else self.variable("MASTER_ADDR"))

    @property
    def workdir(self) -> str:
        """Return where the ranks start."""
        return self.plan.workdir or self.environment.get(Env.SOURCE) or os.getcwd()


def passed(check: str, observed: str, **facts: Any) -> CheckResult:
    """Nothing stands against the job."""
    return CheckResult(check, Status.PASS, observed, facts=facts)


def unknown(check: str, observed: str, hint: str = "", **facts: Any) -> CheckResult:
    """Odd, or not to be found out; the job may well run."""
    return CheckResult(check, Status.UNKNOWN, observed, hint=hint, facts=facts)


def failed(
    check: str,
    code: str,
    observed: str,
    wanted: str = "",
    hint: str = "",
    patience: Optional[float] = None,
    **facts: Any,
) -> CheckResult:
    """The job cannot run here; `code` is of the verdict catalogue, `observed` a clause about this node.

    `patience`: it may pass, and is worth so many seconds when nobody else is awaited.
    """
    return CheckResult(check, Status.FAIL, observed, wanted, hint, code, facts, patience)
