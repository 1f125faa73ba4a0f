"""Clusters of network namespaces in which gates meet."""

from __future__ import annotations

from typing import Any, Callable

from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Agent, Job, make_plan

from ddplaunch.agent.contract import Exit, JobPlan

GATE_PORT = 29400


MASTER_PORT = 29500


Make = Callable[[int], list[Host]]


class Cluster:
    """A job whose nodes are hosts. The gate's and the master's port are fixed: rules name them."""

    def __init__(self, job: Job, hosts: list[Host], **changes: Any) -> None:
        self.job = job
        self.hosts = hosts
        names = [host.name for host in hosts]
        fixed = {"master_port": MASTER_PORT, "master_addr": "n0", "names": names, "nodes": len(hosts)}
        self.plan: JobPlan = make_plan(**{**fixed, **changes})
        self.gates: list[Agent] = []

    def start(self, hub: str = "", only: range | None = None, env: dict[str, str] | None = None) -> None:
        """`hub`: by which name or address the nodes know it."""
        self.job.hub(self.plan, address=None, port=GATE_PORT, host=self.hosts[0])
        for node in only or range(len(self.hosts)):
            where = f"{hub or self.hosts[0].address}:{GATE_PORT}"
            self.gates.append(self.job.gate(self.plan, node, hub=where, host=self.hosts[node], env=env))

    def end(self) -> list[int]:
        """Exit codes of all gates."""
        return [gate.wait() for gate in self.gates]

    def verdict(self) -> tuple[str, list[int]]:
        """(code, culprits) of the job's only verdict, which all of its gates have ended with."""
        code = self.job.verdict.code
        exits = {gate.process.returncode for gate in self.gates}
        assert len(exits) == 1, [gate.output for gate in self.gates]
        assert all(f"{code}: " in gate.output for gate in self.gates)
        return code, self.job.verdict.nodes

    def mended(self) -> None:
        """The hint of the verdict was followed: started again, the job passes."""
        self.job.hub_process.wait()
        self.job.again()
        self.gates = []
        self.start()
        assert [Exit.OK] * len(self.hosts) == self.end(), [gate.output for gate in self.gates]


MakeCluster = Callable[..., Cluster]
