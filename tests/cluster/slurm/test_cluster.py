"""The cluster that all tests here stand on: what it promises is true, and it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.cluster.slurm import box, cgroups
from tests.cluster.slurm.cluster import Cluster, sweep
from tests.cluster.slurm.machines import ROOT, ClusterError

pytestmark = pytest.mark.whole  # what all other tests on Slurm stand on

HOSTNAMES = "#!/bin/bash\nsrun hostname\n"
CONNECT = "import socket; socket.create_connection(('n2', 29500), 1)"


def output(folder: Path, job: int) -> str:
    """What the job printed."""
    return (folder / f"slurm-{job}.out").read_text()


def sleepers(cluster: Cluster) -> int:
    """How many processes sleep on the first node."""
    return sum(words == "sleep 60" for words in cluster.processes("n1").values())


def test_a_job_runs_on_all_nodes(cluster: Cluster, work: Path) -> None:
    """Three tasks are on three machines."""
    job = cluster.submit(HOSTNAMES, "--nodes=3", cwd=work)

    assert "COMPLETED" == cluster.ended(job)
    assert ["n1", "n2", "n3"] == sorted(output(work, job).split())


def test_nodes_share_the_repository_and_nothing_private(cluster: Cluster) -> None:
    """A node has the project's Python, and its own temporary files, shared memory and network devices."""
    show = "echo x > /tmp/mine; echo x > /dev/shm/mine; command -v python; ls /sys/class/net"

    said = cluster.run("n1", ["sh", "-c", show]).stdout

    assert [str(Path(sys.executable).parent / "python"), "eth0", "lo"] == said.split()
    assert ["/dev/shm/mine", "/tmp/mine"] == cluster.leftovers("n1")
    assert [] == cluster.leftovers("n2")


def test_two_clusters_do_not_meet(cluster: Cluster, tmp_path: Path) -> None:
    """A second one has nodes of the same names, and its jobs run there alone."""
    other = Cluster.up(nodes=2)
    try:
        with pytest.raises(ClusterError, match="not empty"):
            Cluster.up(other.folder)
        ours, theirs = (each.submit("#!/bin/bash\nsleep 60\n") for each in (cluster, other))
        for each, job, stranger in ((cluster, ours, theirs), (other, theirs, ours)):
            each.running(job)
            assert "" == each.state(stranger)
            each.until(lambda each=each: sleepers(each) > 0, "it sleeps", 10)  # type: ignore[misc]
            assert 1 == sleepers(each)
    finally:
        other.down()
    assert not other.folder.exists()
    assert "RUNNING" == cluster.state(ours)


def test_no_two_clusters_share_the_numbers_of_their_jobs() -> None:
    """Where all others are taken, the one that is left is found."""
    every = {number * 10_000 + 1 for number in range(1, 6700)}
    assert 4_210_001 == cgroups.first_job(every - {4_210_001})


def test_a_killed_test_run_leaves_no_process_and_the_next_no_file() -> None:
    """With its test run the whole cluster dies; its folder is swept away by whoever comes next."""
    program = (
        "import time; from tests.cluster.slurm.cluster import Cluster; cluster = Cluster.up(nodes=1)\n"
        "print(cluster.folder, flush=True); time.sleep(60)"
    )
    run = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    with run.stdout:
        folder = Path(run.stdout.readline().strip())
    firsts = [int(file.read_text()) for file in (folder / "boxes").iterdir()]
    assert [True] * 3 == [box.alive(pid) for pid in firsts]  # the holder, ctl, n1

    run.send_signal(signal.SIGKILL)
    run.wait()

    deadline = time.monotonic() + BUSY * 5
    while any(map(box.alive, firsts)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [False] * 3 == [box.alive(pid) for pid in firsts]
    sweep()
    assert not folder.exists()


def test_a_job_beyond_its_memory_is_killed(cluster: Cluster, work: Path) -> None:
    """The kernel does it, and Slurm tells, on that node."""
    script = "#!/bin/bash\nexec srun python3 -c 'import time; x = b\"x\" * (300 << 20); time.sleep(60)'\n"

    job = cluster.submit(script, "--mem=100", cwd=work)

    assert cluster.ended(job) in ("OUT_OF_MEMORY", "FAILED")
    assert "srun: error: n1: task 0: Out Of Memory" in output(work, job).splitlines()


def test_a_firewall_spares_slurm(cluster: Cluster, work: Path) -> None:
    """All else that comes into a node vanishes, while jobs start there; without the rule it is refused."""
    cluster.nft("n2", "tcp dport 1-65535 drop")

    blocked = cluster.run("n1", ["python", "-c", CONNECT], check=False).stderr
    job = cluster.submit(HOSTNAMES, "--nodes=3", cwd=work)

    assert "COMPLETED" == cluster.ended(job)
    assert "TimeoutError" in blocked
    cluster.clear_faults()
    assert "ConnectionRefusedError" in cluster.run("n1", ["python", "-c", CONNECT], check=False).stderr


def test_whatever_was_broken_is_restored(cluster: Cluster, work: Path) -> None:
    """Power, cables, names, devices, firewalls and daemons: afterwards three nodes take jobs as before."""
    names = cluster.hosts("n1").read_text()
    running = cluster.submit("#!/bin/bash\nsrun sleep 60\n", "--nodes=3")
    cluster.running(running)
    cluster.power_off("n1")
    cluster.link("n2", up=False)
    cluster.kill_slurmd("n2")
    cluster.run("n3", ["ip", "link", "add", "docker0", "type", "bridge"])
    cluster.nft("n3", "drop", sparing_slurm=False)
    cluster.hosts("n1").write_text("127.0.1.1 n1\n")
    cluster.login(["scontrol", "update", "nodename=n3", "state=drain", "reason=test"])
    cluster.stop_controller()
    with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
        cluster.login(["squeue"])

    cluster.restore()

    assert names == cluster.hosts("n1").read_text()
    assert "docker0" not in cluster.run("n3", ["ip", "link"]).stdout
    assert "COMPLETED" == cluster.ended(cluster.submit(HOSTNAMES, "--nodes=3", cwd=work))


def test_processes_shows_what_a_job_left(cluster: Cluster) -> None:
    """A process that detached itself is seen, by the id that this machine gives it."""
    cluster.run("n1", ["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 &"])
    cluster.until(lambda: sleepers(cluster) == 1, "it sleeps", 10)

    found = cluster.processes("n1")

    assert ["sleep 60"] == list(found.values())
    os.kill(next(iter(found)), signal.SIGKILL)


def test_fake_gpus_are_given_out(cluster: Cluster, work: Path) -> None:
    """A job that asks for GPUs is told which are its own."""
    job = cluster.submit("#!/bin/bash\necho $CUDA_VISIBLE_DEVICES\n", "--gpus-per-node=2", cwd=work)

    assert "COMPLETED" == cluster.ended(job)
    assert "0,1\n" == output(work, job)


def test_configuration_lasts_until_restored(cluster: Cluster) -> None:
    """Added lines count at once, and are gone after the test."""
    cluster.configure("KillWait=17")
    during = cluster.login(["scontrol", "show", "config"]).stdout
    cluster.restore()
    after = cluster.login(["scontrol", "show", "config"]).stdout

    assert ("KillWait                = 17 sec", "KillWait                = 30 sec") == tuple(
        next(line for line in text.splitlines() if line.startswith("KillWait")) for text in (during, after)
    )
