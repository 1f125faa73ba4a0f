"""Clusters of network namespaces in which gates meet."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Callable

from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Agent, Job, make_plan

from ddplaunch.agent.contract import Exit, JobPlan, Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

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
        self.gates: dict[int, Agent] = {}
        self.hub: Agent | None = None

    def start(self, *nodes: int, hub: str = "", env: dict[str, str] | None = None) -> None:
        """These nodes, or all; the hub with the first. `hub`: by which name or address these know it."""
        if self.hub is None:
            self.hub = self.job.hub(self.plan, address=None, port=GATE_PORT, host=self.hosts[0])
        for node in nodes or range(len(self.hosts)):
            where = f"{hub or self.hosts[0].address}:{GATE_PORT}"
            self.gates[node] = self.job.gate(self.plan, node, hub=where, host=self.hosts[node], env=env)

    def hub_says(self, text: str) -> None:
        """Wait until it has."""
        assert self.hub is not None
        self.hub.says(text)

    def hold(self, port: int, **env: str) -> subprocess.Popen[bytes]:
        """Somebody who listens on node 0."""
        code = f"import socket, time; s = socket.create_server(('', {port})); print(1, flush=True)"
        words = [*self.hosts[0].words, "env", *(f"{k}={v}" for k, v in env.items())]
        words += [sys.executable, "-c", f"{code}; time.sleep(300)"]
        holder = subprocess.Popen(words, stdout=subprocess.PIPE)
        self.ends_with(holder)
        return holder

    def ends_with(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for its first line; it is ended with the job."""
        assert process.stdout is not None
        process.stdout.readline()

        def close() -> None:
            process.kill()
            process.communicate()

        self.job.on_close.append(close)

    def starts(self) -> list[str]:
        """All gates let their nodes go on. Returns what the log tells in sentences."""
        self._start_if_needed()
        said = {node: gate.output for node, gate in self.gates.items() if gate.wait(60) != Exit.OK}
        assert not said, said
        assert [] == self.job.bundle.verdicts
        return [event.text for event in self.job.bundle.events]

    def refuses(self) -> list[Verdict]:
        """The verdicts, in order, that all gates have told; they have ended by the exit code of the first."""
        self._start_if_needed()
        codes = {gate.wait(60) for gate in self.gates.values()}
        verdicts = self.job.bundle.verdicts
        assert codes == {CATALOGUE[verdicts[0].code].exit_code}, {n: g.output for n, g in self.gates.items()}
        assert all(f"{v.code}: " in gate.output for v in verdicts for gate in self.gates.values())
        return verdicts

    def verdict(self) -> tuple[str, list[int]]:
        """(code, culprits) of the only one."""
        (verdict,) = self.refuses()
        return verdict.code, verdict.nodes

    def again(self) -> None:
        """The job is to be started once more, on the same hosts."""
        self.job.hub_process.wait()
        self.job.again()
        self.gates, self.hub = {}, None

    def mended(self) -> None:
        """The hint of the verdict was followed: started again, the job passes."""
        self.again()
        self.starts()

    def _start_if_needed(self) -> None:
        if not self.gates:
            self.start()


MakeCluster = Callable[..., Cluster]
