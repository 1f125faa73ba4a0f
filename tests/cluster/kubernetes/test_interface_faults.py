"""The interface that NCCL or Gloo takes in a pod: what the job file sets is tried, and not overridden."""

from __future__ import annotations

import pytest
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.faults import Faults
from tests.cluster.kubernetes.gates import MENDED, Start, faulty, pod, told, trained
from tests.cluster.kubernetes.jobs import Documents, Job, unplaced, with_torch

NET1 = "ip link add net1 type veth peer name far; ip address add 192.168.77.1{node}/24 dev net1; "
NET1 += "ip link set far up; ip link set net1 up"
"""A second network, whose interface is up in every pod and leads nowhere: a VLAN that no switch carries."""
UNTIL_ATTACHED = """
import time
while "net1:" not in open("/proc/net/dev").read():
    time.sleep(0.1)
"""


def attached(documents: Documents) -> None:
    """Containers start when their pod has its second network, as those of Multus have it."""
    first = pod(documents)["initContainers"][0]
    command = ["python3", "-c", UNTIL_ATTACHED]
    attached = {"name": "network", "image": first["image"], "command": command}
    pod(documents)["initContainers"].insert(0, attached)


def attach(faults: Faults, job: Job) -> Job:
    """Give both pods that network."""
    for node in (0, 1):
        faults.in_pod(job.machine(node), job.address(node), NET1.format(node=node))
    return job


@pytest.mark.whole
@pytest.mark.fault("nccl-interface-missing")
def test_a_name_that_no_interface_has(cluster: Cluster, faults: Faults, submit: Start) -> None:
    """InfiniBand's, say, in pods that were given none. With a device of a GPU there torch takes NCCL."""
    volumes = [*with_torch(cluster)["volumes"], *faults.add_devices(1)]
    code, _, found = told(submit(env={"NCCL_SOCKET_IFNAME": "ib0"}, volumes=volumes), 0)

    assert ("nccl-interface-missing", [0, 1]) == (code, faulty(found))
    assert "NCCL_SOCKET_IFNAME=ib0" in found.sentence
    assert "or leave it out, and the gate finds what works" in found.hint

    trained(submit(**MENDED, volumes=volumes))


@pytest.mark.fault("nccl-interface-wrong")
@pytest.mark.whole
def test_nccl_was_told_a_network_that_leads_nowhere(cluster: Cluster, faults: Faults, submit: Start) -> None:
    """It would announce its address there to all peers; the pods' own network works."""
    volumes = [*with_torch(cluster)["volumes"], *faults.add_devices(1)]
    job = attach(faults, submit(attached, env={"NCCL_SOCKET_IFNAME": "net1"}, volumes=volumes))

    _asks_for_eth0(job, "NCCL", [0, 1])
    trained(attach(faults, submit(attached, **MENDED, volumes=volumes)))


@pytest.mark.whole
@pytest.mark.fault("gloo-interface-wrong")
def test_gloo_was_told_a_network_that_leads_nowhere(faults: Faults, submit: Start) -> None:
    """Likewise, and there is no GPU. Node 1 has the higher address there, and so it is the one to connect."""
    job = attach(faults, submit(attached, env={"GLOO_SOCKET_IFNAME": "net1"}))

    _asks_for_eth0(job, "Gloo", [0])
    trained(attach(faults, submit(attached, **MENDED, env={"GLOO_SOCKET_IFNAME": "eth0"})))


def _asks_for_eth0(job: Job, library: str, who: list[int]) -> None:
    code, nodes, found = told(job, 0)
    assert (f"{library.lower()}-interface-wrong", who) == (code, nodes)
    takes = f"node 0 (job-0)'s {library} takes net1 192.168.77.10, which node 1 (job-1) cannot reach"
    assert unplaced(found).startswith(takes)
    assert found.sentence.endswith("; eth0 works")
    variable = f"{library.upper()}_SOCKET_IFNAME"
    assert f"leave {variable} out, and the gate sets what works; or name eth0" in found.hint
