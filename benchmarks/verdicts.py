"""A fault of the network, until somebody says something: the gate, and plain torchrun, on the same hosts.

Hosts are network namespaces, with a rank each. For both it counts from the start of the first process until
the last one has ended. `python benchmarks/verdicts.py` prints the table of docs/explanation/how-soon.md.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from measure import Line

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.agent.gate import hosts
from tests.agent.gate.hosts import Host, Network
from tests.agent.gate.jobs import Job, make_plan
from tests.faults.times import seconds

from ddplaunch.render.archive import agent_archive

NODES = 3
GATE_PORT, MASTER_PORT = 29400, 29500
SECONDS = 5.0
"""From the check-in of the last healthy node to the verdict, at most."""
CAP = 60.0
"""Seconds that torch is given. By itself it would wait for up to half an hour."""
PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Fault:
    """What is wrong, the code it must be given, and the variables of node 1's environment."""

    name: str
    code: str
    spoil: Callable[[list[Host]], None]
    env: dict[str, str] = field(default_factory=dict)


def drop(node: int, rule: str) -> Callable[[list[Host]], None]:
    """A firewall in front of this node."""
    return lambda machines: machines[node].firewall(f"{rule} drop")


def wrong_name(machines: list[Host]) -> None:
    """Node 1 takes another machine for node 0."""
    machines[1].hosts({"n0": machines[2].address, "n1": machines[1].address, "n2": machines[2].address})


def bridge(machines: list[Host]) -> None:
    """Node 1 has docker0, which nobody reaches; of two ranks Gloo has that of the higher address connect."""
    there = ["ip", "-n", machines[1].namespace]
    for words in (
        "link add docker0 type veth peer name docker1",
        "addr add 10.0.3.1/24 dev docker0",
        "link set docker0 up",
        "link set docker1 up",
    ):
        hosts.run(*there, *words.split())


FAULTS = [
    Fault("the master's port is dropped", "port-filtered", drop(0, f"tcp dport {MASTER_PORT}")),
    Fault("two nodes do not reach each other", "port-filtered", drop(2, "ip saddr 10.77.0.2")),
    Fault("node 0's name is wrong on one node", "dns-disagrees", wrong_name),
    Fault(
        "GLOO_SOCKET_IFNAME=docker0 on one node",
        "gloo-interface-wrong",
        bridge,
        {"GLOO_SOCKET_IFNAME": "docker0"},
    ),
    Fault(
        "ephemeral ports of one node are dropped",
        "network-one-way",
        drop(1, "tcp dport 32768-60999 ct state new"),
    ),
]


@dataclass
class Row:
    """Of one fault, in seconds; `torch` is CAP when it had not ended."""

    fault: Fault
    ours: float
    since_check_in: float  # of it, from the last healthy check-in to the verdict
    torch: float
    sentence: str
    codes: list[str]


def run(folder: Path, runs: int) -> list[Line]:
    """Needs root and the packages of `scripts/system-packages`."""
    rows = measure(folder, runs)
    print("\n".join(table(rows)))
    slowest = [max(row.since_check_in for row in rows if row.fault == fault) for fault in FAULTS]
    wrong = [row.fault.name for row in rows if row.codes != [row.fault.code]]
    return [
        Line("fault to verdict: slowest", max(slowest), SECONDS, " s", f"of {len(rows)} jobs"),
        Line("fault to verdict: wrong cause", len(wrong), 0, "", ", ".join(wrong)),
    ]


def measure(folder: Path, runs: int) -> list[Row]:
    """Each fault so many times."""
    reason = hosts.missing()
    if reason:
        raise SystemExit(f"no hosts here: {reason}")
    archive = folder / "agent.pyz"
    archive.write_bytes(agent_archive())
    return [
        _row(fault, folder / f"{place}-{n}", archive)
        for n in range(runs)
        for place, fault in enumerate(FAULTS)
    ]


def table(rows: list[Row]) -> Iterator[str]:
    """In Markdown, by medians."""
    yield "| fault | ddplaunch | of it, after the last check-in | torchrun | the verdict |"
    yield "|---|---|---|---|---|"
    for fault in FAULTS:
        those = [row for row in rows if row.fault == fault]
        ours, since_check_in, torch = (
            statistics.median(values)
            for values in zip(*((row.ours, row.since_check_in, row.torch) for row in those), strict=True)
        )
        plain = f"> {CAP:.0f} s" if torch >= CAP else f"{torch:.0f} s"
        verdict = f"{'+'.join(those[0].codes)}: {those[0].sentence}"
        yield f"| {fault.name} | {ours:.1f} s | {since_check_in:.1f} s | {plain} | {verdict} |"


def _row(fault: Fault, folder: Path, archive: Path) -> Row:
    folder.mkdir()
    network = Network(NODES, folder)
    try:
        fault.spoil(network.hosts)
        torch = _plain(fault, network.hosts, folder)
        job = Job(folder, [sys.executable, "-I", "-S", str(archive)])
        try:
            return _gated(fault, network.hosts, job, torch)
        finally:
            job.close()
    finally:
        network.close()


def _gated(fault: Fault, machines: list[Host], job: Job, torch: float) -> Row:
    names = [host.name for host in machines]
    plan = make_plan(
        nodes=NODES, names=names, master_addr="n0", master_port=MASTER_PORT, python=sys.executable
    )
    start = time.monotonic()
    job.hub(plan, address=None, port=GATE_PORT, host=machines[0])
    where = f"{machines[0].address}:{GATE_PORT}"
    gates = [job.gate(plan, n, hub=where, host=host, env=_env(fault, n)) for n, host in enumerate(machines)]
    for gate in gates:
        gate.wait()
    ours = time.monotonic() - start
    found = job.bundle
    codes = sorted({verdict.code for verdict in found.verdicts})
    return Row(fault, ours, seconds(found, fault.code) or 0.0, torch, found.verdicts[0].sentence, codes)


def _plain(fault: Fault, machines: list[Host], folder: Path) -> float:
    """Until the last torchrun has ended, CAP at most."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    start = time.monotonic()
    ranks = []
    for node, host in enumerate(machines):
        words = [
            "-m",
            "torch.distributed.run",
            f"--nnodes={NODES}",
            f"--node-rank={node}",
            "--nproc-per-node=1",
        ]
        words += ["--master-addr=n0", f"--master-port={MASTER_PORT}", str(program)]
        with (folder / f"torchrun-{node}").open("wb") as log:
            ranks.append(
                subprocess.Popen(
                    [*host.words, sys.executable, *words],
                    env={**os.environ, "OMP_NUM_THREADS": "1", **_env(fault, node)},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    for rank in ranks:
        try:
            rank.wait(max(start + CAP - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            os.killpg(rank.pid, signal.SIGTERM)
    took = min(time.monotonic() - start, CAP)
    for rank in ranks:
        try:
            rank.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
    if not any(rank.returncode for rank in ranks):
        raise SystemExit(f"torch trains with this fault: {fault.name}")
    return took


def _env(fault: Fault, node: int) -> dict[str, str]:
    return fault.env if node == 1 else {}


def main() -> int:
    """Once each; the load stands below the table."""
    with tempfile.TemporaryDirectory() as folder:
        lines = run(Path(folder), int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print(f"\nload {os.getloadavg()[1]:.1f} on {os.cpu_count()} CPUs")
    print("\n".join(map(str, lines)))
    return 0 if all(line.kept for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
