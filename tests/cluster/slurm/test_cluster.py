"""The cluster that all tests here stand on: what it promises is true, and it leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.busy import BUSY
from tests.cluster.slurm import box
from tests.cluster.slurm.cluster import Cluster, sweep
from tests.cluster.slurm.machines import ROOT, ClusterError

pytestmark = pytest.mark.whole  # what all other tests on Slurm stand on

HOSTNAMES = "#!/bin/bash\nsrun hostname\n"


def output(folder: Path, job: int) -> str:
    """What the job printed."""
    return (folder / f"slurm-{job}.out").read_text()


def sleepers(cluster: Cluster) -> int:
    """How many processes sleep on the first node."""
    return sum(words == "sleep 60" for words in cluster.processes("n1").values())


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
