"""A job whose hub is killed: who waits for it is told all the same, by what the nodes have said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cluster.slurm.backend.commands import ddplaunch
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.conftest import TaskProlog

pytestmark = pytest.mark.slurm

JOB = """\
apiVersion: ddplaunch/v1
name: short
nodes: 2
source: [short.py]
command: [short.py]
resources: {memory: 900Mi}
"""
KILLED = r"""
[ "$SLURMD_NODENAME" = n1 ] && compgen -G "/tmp/ddplaunch-$SLURM_JOB_ID-*.tar" >/dev/null || exit 0
kill -KILL $(pgrep --full 'agent.pyz hub')
"""
"""The hub and its parent, once, when the gate's step begins."""
AGAIN = r"""
for _ in {1..600}; do
    [ ! -e "$1" ] || exit 0
    ! grep --quiet --no-messages "listens on" "${1%/*}"/*/run/hub.log ||
        pkill --signal KILL --full "[a]gent.pyz hub"
    sleep 0.2
done
"""
"""Every hub on this node, from when the first one listens until the file `$1` is there. A task prolog
cannot do this: Slurm ends what it leaves behind. The bracket keeps pkill from killing this loop, whose own
command line has the words as well."""


@pytest.mark.whole
def test_a_hub_that_is_killed_at_the_gate(cluster: Cluster, work: Path, task_prolog: TaskProlog) -> None:
    """The script starts another, the gates come back to it, and the job trains."""
    (work / "job.yaml").write_text(JOB)
    (work / "short.py").write_text("print('up')\n")
    task_prolog(KILLED)
    waited = ddplaunch(cluster, work, "submit", "--to", "slurm", "--wait", "job.yaml", check=False)

    assert 0 == waited.returncode, waited.stderr
    assert "the hub on n1 was killed by signal 9" in waited.stderr
    assert "the hub is started again" in waited.stderr


@pytest.mark.whole
@pytest.mark.fault("port-refused")
def test_a_hub_that_is_killed_whenever_it_starts(cluster: Cluster, work: Path) -> None:
    """Its node answers, and its port is closed. The next controller starts the job."""
    (work / "job.yaml").write_text(JOB)
    (work / "short.py").write_text("print('up')\n")
    killer = cluster.start("n1", ["bash", "-c", AGAIN, "bash", work / "stop"])
    try:
        waited = ddplaunch(cluster, work, "submit", "--to", "slurm", "--wait", "job.yaml", check=False)
    finally:
        (work / "stop").touch()
        killer.communicate()
    handle = waited.stdout.strip()
    (found,) = json.loads(ddplaunch(cluster, work, "diagnose", "--json", handle, check=False).stdout)[
        "verdicts"
    ]

    assert 0 != waited.returncode
    assert ("port-refused", [0]) == (found["code"], found["nodes"])
    assert re.match(r"node \d \(n\d\) -> the hub at 10.99.0.11:\d+ refused for ", found["sentence"])
    assert found["sentence"] in " ".join(waited.stderr.split())
    assert "is the hub on node 0 up? Its log says" in found["hint"]
    log = (work / f"short-{handle.rpartition('/')[2]}" / "run/hub.log").read_text()
    assert "listens on n1" in log
    assert "the job has ended" not in log
    again = ddplaunch(cluster, work, "submit", "--to", "slurm", "--wait", "job.yaml", check=False)
    assert 0 == again.returncode, again.stderr
