"""Networks whose parts disagree on how large a packet may be: real interfaces, a real switch, real gates."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.gate.hosts import Host, run
from tests.agent.gate.jobs import Job
from tests.agent.gate.test_network import Cluster, Make

from ddplaunch.agent.contract import Exit


def believe(host: Host, mtu: int) -> None:
    """Only this end of the cable; a packet of more than its other end takes is dropped there."""
    # In one piece, as on a wire: between namespaces large ones would travel whole, whatever their size.
    run("ip", "-n", host.namespace, "link", "set", "eth0", "mtu", str(mtu), "gso_max_segs", "1")


@pytest.mark.fault("mtu-black-hole")
def test_jumbo_frames_on_two_nodes_and_not_on_the_switch(
    network: Make, job: Job, tmp_path: Path, agent: list[str]
) -> None:
    """The verdict says who believes what; when all believe the same, the job starts."""
    trial = Cluster(job, network(4))
    for host in trial.hosts[2:]:
        believe(host, 9000)
    trial.start()

    assert [Exit.NODE_AT_FAULT] * 4 == trial.end()
    assert ("mtu-black-hole", [2, 3]) == trial.verdict()
    assert "the MTU is 9000 on nodes 2 (n2) and 3 (n3), 1500 on all other nodes" in job.verdict.facts
    assert "compare `ip link` on both nodes" in job.verdict.hint
    job.close()
    (tmp_path / "again").mkdir()
    again = Job(tmp_path / "again", agent)
    job.on_close.append(again.close)
    for host in trial.hosts:
        believe(host, 1500)
    trial = Cluster(again, trial.hosts)
    trial.start()
    assert [Exit.OK] * 4 == trial.end()


def test_jumbo_frames_on_one_node(network: Make, job: Job) -> None:
    """It agrees with every other on less: that is a note."""
    trial = Cluster(job, network(2))
    believe(trial.hosts[1], 9000)
    trial.start()

    assert [Exit.OK] * 2 == trial.end(), [gate.output for gate in trial.gates]
    assert "note: the MTU is 9000 on node 1 (n1), 1500 on all other nodes" in trial.gates[0].output
