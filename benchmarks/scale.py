"""The hub and thousands of gates: check-ins and mesh results over loopback, of nodes that are simulated.

What a node says is what a real gate on this machine said; it goes over a connection of its own, by the code
with which gates speak. Their processes and the hub share the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Line

ROOT = Path(__file__).resolve().parents[1]
SIZES = (64, 512, 4096)
CROWDS = 2
"""Processes among which the nodes are shared out."""
SECONDS = 15.0
MEGABYTES = 500.0
GROWTH = 2.0
"""Times as much work for each node of the largest job as of the smallest, at most."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Measured:
    """One job at the gate."""

    nodes: int
    seconds: float  # from the first connection until the last node is released
    cpu: float  # seconds of the hub until then
    megabytes: float  # of the hub, at its largest
    idle_megabytes: float  # before the first node
    longest: int  # bytes of the largest message to a node

    def __str__(self) -> str:
        per_node = f"{self.cpu / self.nodes * 1000:.2f} ms CPU and {self.kilobytes:.0f} kB a node"
        return f"{self.nodes} nodes: {self.cpu:.1f} s CPU, {per_node}, messages up to {self.longest} bytes"

    @property
    def kilobytes(self) -> float:
        """Of memory for each node."""
        return (self.megabytes - self.idle_megabytes) * 1000 / self.nodes


def run(folder: Path, runs: int) -> list[Line]:
    """The last of `runs` at each size, the first of which only warms caches."""
    sys.path[:0] = [str(ROOT), str(ROOT / "launcher")]
    from ddplaunch.render.archive import agent_archive

    pyz = folder / "agent.pyz"
    pyz.write_bytes(agent_archive())
    agent = [sys.executable, "-I", "-S", str(pyz)]
    check_in = _check_in(folder / "one", agent)
    found = [_measure(folder / f"{n}-{i}", agent, n, check_in) for n in SIZES for i in range(runs)]
    last = {each.nodes: each for each in found}
    few, many = last[SIZES[0]], last[SIZES[-1]]
    lines = [Line(f"the hub releases {n} nodes", last[n].seconds, SECONDS, " s", str(last[n])) for n in SIZES]
    ratio = (many.cpu / many.nodes) / (few.cpu / few.nodes)
    return [
        *lines,
        Line(f"the hub's memory for {many.nodes} nodes", many.megabytes, MEGABYTES, " MB"),
        Line(f"work for each of {many.nodes} nodes, against {few.nodes}", ratio, GROWTH),
        _verdict(folder / "cut", agent, check_in),
    ]


def _check_in(folder: Path, agent: list[str]) -> Path:
    """What a real gate here says of itself."""
    from tests.agent.gate.jobs import Job, make_plan

    from ddplaunch.agent.contract import codec

    folder.mkdir()
    job = Job(folder, agent)
    try:
        hub = job.hub(make_plan(nodes=1, python=sys.executable), gate_only=True)
        job.gate(make_plan(nodes=1, python=sys.executable), 0).wait()
        hub.wait()
        path = folder / "check-in.json"
        codec.write(str(path), job.bundle.check_ins[0])
        return path
    finally:
        job.close()


def _measure(folder: Path, agent: list[str], nodes: int, check_in: Path) -> Measured:
    job, before, results, seconds = _gate(folder, agent, nodes, check_in)
    try:
        if sum(each["ended"].get("release", 0) for each in results) != nodes:
            raise SystemExit(
                f"not released: {[each['ended'] for each in results]}\n{job.hub_process.output[-2000:]}"
            )
        pid = _hub(job)
        longest = max(each["longest"] for each in results)
        cpu, idle = _cpu(pid) - before[0], before[1]
        return Measured(nodes, seconds, cpu, _memory(pid, "VmHWM"), idle, longest)
    finally:
        job.close()


def _verdict(folder: Path, agent: list[str], check_in: Path) -> Line:
    nodes = SIZES[-1]
    job, _, _, seconds = _gate(folder, agent, nodes, check_in, cut=nodes - 64)
    try:
        job.hub_process.wait()
        sentence = job.verdict.sentence
    finally:
        job.close()
    return Line(f"verdict on a rack of {nodes} nodes that is cut off", seconds, SECONDS, " s", sentence)


def _gate(
    folder: Path, agent: list[str], nodes: int, check_in: Path, cut: int = 0
) -> tuple[Any, tuple[float, float], list[Any], float]:
    """The job, the hub's CPU and megabytes before anybody came, what the crowds say, how long it took."""
    from tests.agent.gate.jobs import Job, make_plan

    folder.mkdir()
    job = Job(folder, agent)
    plan = make_plan(nodes=nodes, names=[f"n{n}" for n in range(nodes)])
    job.hub(plan, gate_only=cut > 0)
    pid = _hub(job)
    before = _cpu(pid), _memory(pid, "VmRSS")
    shares = [(nodes * i // CROWDS, nodes * (i + 1) // CROWDS) for i in range(CROWDS)]
    words = [sys.executable, str(ROOT / "tests" / "agent" / "hub" / "crowd.py"), str(job.hub_port)]
    started = time.perf_counter()
    crowds = [
        subprocess.Popen(
            [*words, job.key.decode(), str(first), str(end), str(check_in), str(cut)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "launcher")},
            stdout=subprocess.PIPE,
        )
        for first, end in shares
    ]
    results = [json.loads(crowd.communicate()[0]) for crowd in crowds]
    return job, before, results, time.perf_counter() - started


def _hub(job: Any) -> int:
    """Return the process id of the hub itself: the process that was started only starts it again."""
    parent = job.hub_process.process.pid
    (child,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(child)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _memory(pid: int, name: str) -> float:
    """In MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024 / 1e6
