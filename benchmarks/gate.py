"""What the gate adds to a healthy job: three nodes of a real Slurm, against a plain step on the same nodes.

Everything before the ranks counts: unpacking the agent, the hub, sbcast, the gate itself. The plain step is
subtracted for the one that takes the files away again, where no ranks follow.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from measure import Line

ROOT = Path(__file__).resolve().parents[1]
NODES = 3

_BATCH = """\
#!/bin/bash
now() { date +%s.%N; }
for _ in $(seq @runs@); do
    a=$(now)
    srun --nodes=@nodes@ --ntasks=@nodes@ true
    b=$(now)
    DDPLAUNCH_GATE_ONLY=1 bash ./job.sbatch >job.log 2>&1 || exit
    c=$(now)
    echo "$a $b $c" >>times
    cat job-"$SLURM_JOB_ID"/@events@ >>events
    rm -rf job-"$SLURM_JOB_ID"
done
"""
_ALARM = '"kind":"notice"'
_JOB = "{apiVersion: ddplaunch/v1, name: job, nodes: 3, command: [sleep], python: @python@}"


def run(_: Path, runs: int) -> list[Line]:
    """Needs root and the packages of `scripts/system-packages`."""
    sys.path[:0] = [str(ROOT), str(ROOT / "launcher")]
    from tests.cluster.slurm.cluster import Cluster, missing

    from ddplaunch.agent.contract import Files
    from ddplaunch.plan import plan
    from ddplaunch.render import render
    from ddplaunch.spec.load import load

    reason = missing()
    if reason:
        raise SystemExit(f"no cluster here: {reason}")
    cluster = Cluster.up(nodes=NODES)
    try:
        job_file = cluster.shared / "job.yaml"  # the nodes must see its folder
        job_file.write_text(_JOB.replace("@python@", sys.executable))
        ((_name, script),) = render(plan.make(load(job_file), "slurm", job_file.parent)).files.items()
        (cluster.shared / "job.sbatch").write_bytes(script.content)
        values = {"@runs@": str(runs + 1), "@nodes@": str(NODES), "@events@": Files.EVENTS}
        batch = _BATCH
        for name, value in values.items():
            batch = batch.replace(name, value)
        job = cluster.submit(batch, f"--nodes={NODES}", "--ntasks-per-node=1", cwd=cluster.shared)
        state = cluster.ended(job, 60 + 10 * runs)
        if state != "COMPLETED":
            raise SystemExit(f"the job is {state}: {(cluster.shared / 'job.log').read_text()}")
        alarms = [line for line in (cluster.shared / "events").read_text().splitlines() if _ALARM in line]
        if alarms:
            raise SystemExit(f"healthy jobs were told of {len(alarms)} faults: {alarms[0]}")
        rows = [
            list(map(float, line.split())) for line in (cluster.shared / "times").read_text().splitlines()
        ]
    finally:
        cluster.down()
    plain = [b - a for a, b, _ in rows[1:]]
    gated = [c - b for _, b, c in rows[1:]]
    added = statistics.median(g - p for g, p in zip(gated, plain, strict=True))
    detail = f"{statistics.median(gated):.2f} s, of which a plain step is {statistics.median(plain):.2f} s"
    return [Line(f"what the gate adds to a job of {NODES} nodes", added, 1.5, " s", detail)]
