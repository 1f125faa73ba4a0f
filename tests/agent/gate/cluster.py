"""A job whose nodes are hosts, started one by one, and what its hub tells of it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Agent, Job, make_plan

from ddplaunch.agent.contract import Exit, JobPlan, Verdict
from ddplaunch.agent.diagnosis.catalogue import CATALOGUE

GATE_PORT = 29400
MASTER_PORT = 29500


class Cluster:
    """Node 0's hub is up from the start."""

    def __init__(self, job: Job, hosts: list[Host], **changes: Any) -> None:
        self.job = job
        self.hosts = hosts
        fixed = {"names": [host.name for host in hosts], "nodes": len(hosts), "master_port": MASTER_PORT}
        self.plan: JobPlan = make_plan(**{**fixed, **changes})
        self.gates: dict[int, Agent] = {}
        self.hub = job.hub(self.plan, address=None, port=GATE_PORT, host=hosts[0])

    def start(self, *nodes: int, hub: str = "", env: dict[str, str] | None = None) -> None:
        """`hub`: by which name these know it."""
        for node in nodes:
            where = f"{hub or self.hosts[0].address}:{GATE_PORT}"
            self.gates[node] = self.job.gate(self.plan, node, hub=where, host=self.hosts[node], env=env)

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
        """What the log tells in sentences, once all have passed."""
        said = {node: gate.output for node, gate in self.gates.items() if gate.wait(60) != Exit.OK}
        assert not said, said
        assert [] == self.job.bundle.verdicts
        return [event.text for event in self.job.bundle.events]

    def refuses(self) -> list[Verdict]:
        """The verdicts, in order, that all gates have ended with; by the exit code of the first."""
        codes = {gate.wait(60) for gate in self.gates.values()}
        verdicts = self.job.bundle.verdicts
        assert codes == {CATALOGUE[verdicts[0].code].exit_code}, {n: g.output for n, g in self.gates.items()}
        assert all(f"{v.code}: " in gate.output for v in verdicts for gate in self.gates.values())
        return verdicts
