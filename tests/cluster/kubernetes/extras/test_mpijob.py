"""MPIJobs, by the real mpi-operator: mpirun in the launcher's pod, its ranks over ssh in those of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.kubernetes import images
from tests.cluster.kubernetes.cluster import Cluster
from tests.cluster.kubernetes.workloads import Workloads

pytestmark = [pytest.mark.usefixtures("mpi_operator"), pytest.mark.timeout(2400)]
"""The first of them may have to wait until the controller is compiled, and installed."""

NAME = "waves"
LABEL = "training.kubeflow.org/job-name"
OURS = f"{LABEL}={NAME}"
LAUNCHER = "training.kubeflow.org/job-role=launcher"
MPI = "ddplaunch-test/mpi:bookworm"
PACKAGES = ("python3", "python3-mpi4py", "openmpi-bin", "openssh-server", "ca-certificates")
SSHD = r"""
RUN mkdir -p /run/sshd && printf 'UsePAM no\nStrictModes no\n' >/etc/ssh/sshd_config.d/mpi.conf \
    && printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n' >/etc/ssh/ssh_config.d/mpi.conf
"""
"""As in mpi-operator's own images: the keys are of a Secret, and of this job alone."""
PROGRAM = """
import sys, time
from mpi4py import MPI
comm, sleeper = MPI.COMM_WORLD, int(sys.argv[1])
for step in range(100000):
    if comm.rank == sleeper and step == 5:
        time.sleep(3600)
    comm.Barrier()
    if step == 3:
        print("up", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(name="image", scope="module")
def _image(cluster: Cluster, mpi_operator: None) -> str:
    """Open MPI, its Python and an ssh server, on both machines that take pods."""
    base = images.debian("ddplaunch-test/openmpi:bookworm", *PACKAGES)
    tag = images.derived(base, MPI, SSHD)
    for node in cluster.workers:
        images.load(node, tag)
    return tag


@pytest.fixture(name="jobs")
def _jobs(cluster: Cluster, namespace: str, tmp_path: Path) -> Workloads:
    return Workloads(cluster, namespace, tmp_path)


def mpijob(jobs: Workloads, image: str, arguments: list[str], **spec: Any) -> dict[str, Any]:
    """Two workers on two machines with two ranks each, named and started as mpi-operator's examples are."""
    command = ["mpirun", "--allow-run-as-root", "python3", "/code/t.py", *arguments]
    apart = {LABEL: NAME, "training.kubeflow.org/job-role": "worker"}
    launcher = jobs.pod("mpi-launcher", command, {"none": "none"}, image=image)
    worker = jobs.pod("mpi-worker", ["/usr/sbin/sshd", "-De"], apart, image=image)
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": NAME},
        "spec": {
            "slotsPerWorker": 2,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": launcher},
                "Worker": {"replicas": 2, "template": worker},
            },
            **spec,
        },
    }


def test_a_rank_in_a_worker_is_told(jobs: Workloads, image: str) -> None:
    """Rank 3 sleeps. The launcher's pod, in which no rank runs, is no node of the job."""
    jobs.program(PROGRAM)
    document = mpijob(jobs, image, ["3"], launcherCreationPolicy="WaitForWorkersReady")
    (worker,) = document["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    worker["readinessProbe"] = {"tcpSocket": {"port": 22}, "periodSeconds": 1}
    jobs.apply(document)
    jobs.hangs(f"{OURS},{LAUNCHER}", "mpi-launcher", 4)

    verdict = jobs.diagnosed("mpijob", NAME)

    assert ("rank-in-user-code", [3], [0, 1, 2]) == (verdict["code"], verdict["ranks"], verdict["victims"])
    assert [1] == verdict["nodes"]
    (launcher,) = jobs.cluster.get("pods", namespace=jobs.namespace, selector=LAUNCHER)
    # What `ddplaunch inject` says to do in place of a gate.
    assert 0 == launcher["status"]["containerStatuses"][0]["restartCount"]


def test_of_one_worker_alone_nothing_is_told(jobs: Workloads, image: str) -> None:
    """Its ranks wait for one in the other worker, of which this look knows no more than the number."""
    jobs.program(PROGRAM)
    jobs.apply(mpijob(jobs, image, ["3"]))
    jobs.hangs(f"{OURS},{LAUNCHER}", "mpi-launcher", 4)

    verdict = jobs.diagnosed("pod", f"{NAME}-worker-0")

    assert ("unknown", [], []) == (verdict["code"], verdict["ranks"], verdict["victims"])
    assert "2 of 4 ranks seen" in verdict["sentence"]
