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
    """One node of one job. `master`: the master port, which the port check holds open.

    `again`: checks are being repeated until they pass, so none of them needs to wait by itself. `ran`: the
    node's ranks ran until now, before it came back to the gate.
    """

    plan: JobPlan
    folder: str  # the job's, as the contract names it
    node: int
    attempt: int
    key: bytes
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    master: Optional[socket.socket] = None
    again: bool = False
    ran: bool = False
    started: float = field(default_factory=time.monotonic)
    _shared: dict[str, Any] = field(default_factory=dict)
    _sharing: threading.Lock = field(default_factory=threading.Lock)

    def once(self, name: str, work: Callable[[Context], T]) -> T:
        """Return the result of `work`. Checks that use the same `name` share one call of it."""
        with self._sharing:
            if name not in self._shared:
                self._shared[name] = work(self)
            value: T = self._shared[name]
            return value

    def variable(self, name: str) -> str:
        """Return the variable as the ranks will see it: from the job's `env`, else from the node, else ""."""
        return self.plan.env.get(name, self.environment.get(name, ""))

    @property
    def master_name(self) -> str:
        """Return the name or address by which the ranks know node 0; "": the one that the gate finds.

        A program that does not get the gate's address uses its user's MASTER_ADDR. Otherwise the gate's
        address replaces any that was set before.
        """
        gate_sets_it = (
            not self.plan.command
            or bool(self.plan.keepers)
            or any("{master_addr}" in word for word in self.plan.launch)
        )
        return self.plan.master_addr or ("" if gate_sets_it else self.variable("MASTER_ADDR"))

    @property
    def workdir(self) -> str:
        """Return the folder in which the ranks start."""
        return self.plan.workdir or self.environment.get(Env.SOURCE) or os.getcwd()


def passed(check: str, observed: str, **facts: Any) -> CheckResult:
    """Return a result that lets the job pass."""
    return CheckResult(check, Status.PASS, observed, facts=facts)


def unknown(check: str, observed: str, hint: str = "", **facts: Any) -> CheckResult:
    """Return a result for something odd or unknown; the job may run."""
    return CheckResult(check, Status.UNKNOWN, observed, hint=hint, facts=facts)


def noted(check: str, code: str, observed: str, hint: str, **facts: Any) -> CheckResult:
    """Return a result of which all nodes print a note, with the code of its page; the job may run."""
    return CheckResult(check, Status.UNKNOWN, observed, hint=hint, code=code, facts=facts)


def failed(
    check: str,
    code: str,
    observed: str,
    wanted: str = "",
    hint: str = "",
    patience: Optional[float] = None,
    **facts: Any,
) -> CheckResult:
    """Return a failure. `code` is in the verdict catalogue, `observed` is a clause about this node.

    `patience`: how many seconds to wait for the failure to pass, if no node is awaited.
    """
    return CheckResult(check, Status.FAIL, observed, wanted, hint, code, facts, patience)
