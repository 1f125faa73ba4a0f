"""Measures how much longer the gate of three nodes takes in a container on a real Slurm than outside.

Slurm's own container, and SingularityCE's where it is built. Each job is whole, from the batch script's begin
to its end, and ends when its gate is passed.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from measure import Line

ROOT = Path(__file__).resolve().parents[1]
NODES = 3
_MOST = 1.5
"""Seconds that the gate may take longer in a container."""

_BATCH = """\
#!/bin/bash
now() { date +%s.%N; }
for _ in $(seq @runs@); do
    line=
    for kind in @kinds@; do
        a=$(now)
        DDPLAUNCH_GATE_ONLY=1 bash "./$kind.sbatch" >job.log 2>&1 || exit
        line="$line $a $(now)"
        rm -rf job-"$SLURM_JOB_ID"
    done
    echo "$line" >>times
done
"""


def run(_: Path, runs: int) -> list[Line]:
    """Needs root and the packages of `scripts/system-packages`."""
    sys.path[:0] = [str(ROOT), str(ROOT / "launcher")]
    from tests.cache import CACHE
    from tests.cluster.slurm import bundles, containers
    from tests.cluster.slurm.cluster import Cluster, missing

    reason = missing()
    if reason:
        raise SystemExit(f"no cluster here: {reason}")
    cluster = Cluster.up(nodes=NODES)
    try:
        bundles.configure(cluster, cluster.shared, "crun")
        jobs = {"outside": {}, "oci": bundles.keys(bundles.make_bundle(cluster.shared / "bundle"))}
        built = CACHE / "singularity/root"
        if built.exists():
            for node in cluster.nodes:
                cluster.run(node, ["mount", "--bind", built, containers.PREFIX])
            jobs["singularity"] = containers.keys(containers.make_image(cluster.shared / "image"))
        for kind, keys in jobs.items():
            (cluster.shared / f"{kind}.sbatch").write_bytes(_script(cluster.shared, keys))
        batch = _BATCH.replace("@runs@", str(runs + 1)).replace("@kinds@", " ".join(jobs))
        options = (f"--nodes={NODES}", "--ntasks-per-node=1", containers.EXPORT)
        state = cluster.ended(cluster.submit(batch, *options, cwd=cluster.shared), 60 + 40 * runs)
        if state != "COMPLETED":
            raise SystemExit(f"the job is {state}: {(cluster.shared / 'job.log').read_text()}")
        lines = (cluster.shared / "times").read_text().splitlines()[1:]
    finally:
        cluster.down()
    rows = [list(map(float, line.split())) for line in lines]
    outside, *others = zip(
        *([b - a for a, b in zip(row[::2], row[1::2], strict=True)] for row in rows), strict=True
    )
    return [_line(kind, outside, inside) for kind, inside in zip(list(jobs)[1:], others, strict=True)]


def _script(folder: Path, keys: dict[str, Any]) -> bytes:
    """Return the batch script of a job in this folder, which the nodes must see."""
    from ddplaunch.plan import plan
    from ddplaunch.render import render
    from ddplaunch.spec.load import load

    values = {"apiVersion": "ddplaunch/v1", "name": "job", "nodes": NODES, "command": ["sleep"]}
    (folder / "job.yaml").write_text(json.dumps({**values, "python": sys.executable, **keys}))
    ((_, script),) = render(plan.make(load(folder / "job.yaml"), "slurm", folder)).files.items()
    return script.content


def _line(kind: str, outside: tuple[float, ...], inside: tuple[float, ...]) -> Line:
    added = statistics.median(b - a for a, b in zip(outside, inside, strict=True))
    detail = f"{statistics.median(inside):.2f} s, and {statistics.median(outside):.2f} s outside"
    return Line(f"what a container ({kind}) adds to the gate of {NODES} nodes", added, _MOST, " s", detail)
