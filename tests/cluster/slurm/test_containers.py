"""Jobs in containers on real nodes: gate, supervisor and ranks inside, and nodes that cannot start them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.conftest import TaskProlog
from tests.cluster.slurm.containers import (
    EXPORT,
    GATE_ONLY,
    GIVEN,
    INSIDE,
    PREFIX,
    keys,
    lacks,
    make_image,
    runs_inside,
)
from tests.cluster.slurm.containers import _image as _image
from tests.cluster.slurm.containers import _installed as _installed
from tests.cluster.slurm.containers import _runtime as _runtime
from tests.cluster.slurm.gate_jobs import notes, verdict
from tests.cluster.slurm.jobs import Job
from tests.cluster.training import TRAIN

pytestmark = pytest.mark.usefixtures("installed")

REFUSE = """
import ctypes, os, struct, sys
# Loads the number of the call; unshare is 272 here, and gets ENOSPC, as above user.max_user_namespaces.
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, 272), (0x06, 0, 0, 0x0005001c), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(lines), ctypes.addressof(code))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.byref(program)) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a program to which the kernel refuses new namespaces: a filter of seccomp(2)."""


def test_a_healthy_job_in_containers(cluster: Cluster, work: Path, image: Path) -> None:
    """Environment, arguments and user are the job's, /tmp and /dev/shm the node's; the image is read-only."""
    job = Job.submit(
        cluster, work, INSIDE, EXPORT, **keys(image, env={"VALUE": GIVEN}, command=["program.py", GIVEN])
    )

    runs_inside(cluster, job)


@pytest.mark.whole
def test_an_ordinary_user_with_an_image_that_is_a_file(cluster: Cluster, work: Path, image: Path) -> None:
    """A SIF, which each node unpacks into its /tmp for as long as the gate runs.

    Root cannot do that here: the runtime asks for all capabilities then, and this machine has not all.
    """
    cluster.run(
        "n1", ["env", f"PATH={PREFIX}/bin:/usr/bin:/bin", "singularity", "build", "image.sif", image], work
    )
    work.chmod(0o777)
    started = keys(
        work / "image.sif", nodes=3, python="/usr/bin/python3", gate={"skip": ["interpreter", "versions"]}
    )
    started["slurm"]["container"]["mounts"] = ["/usr:/usr:ro"]
    job = Job.submit(cluster, work, "", f"{GATE_ONLY},HOME=/tmp", as_user="nobody", **started)

    assert [] == notes(job)
    assert 3 == (job.folder / "run/gate.log").read_text().count("Converting SIF file to temporary sandbox")
    job.leaves_nothing()


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.fault("rank-in-user-code")
def test_a_rank_that_hangs_inside(cluster: Cluster, work: Path, image: Path) -> None:
    """The supervisor inside sees its rank's line, and ends all."""
    program = TRAIN.format(before="", step="rank == 1 and step == 20 and time.sleep(3600)")
    watchdog = {"notice_after": "5s", "kill_after": "12s"}
    job = Job.submit(cluster, work, program, EXPORT, **keys(image, watchdog=watchdog))

    assert ("FAILED", "50:0") == (job.ended(90), job.exit_code), job.output
    found = job.verdict
    assert ("rank-in-user-code", [1], [1], [0]) == (found.code, found.ranks, found.nodes, found.victims)
    assert "(program.py:" in found.sentence
    job.leaves_nothing()


# --- what a node lacks


@pytest.mark.fault("container-unusable")
def test_a_node_without_the_runtime(cluster: Cluster, work: Path, image: Path) -> None:
    """Both names are looked for; installed, the job passes."""
    cluster.run("n2", ["umount", PREFIX])
    started = keys(image, nodes=3)
    said = lacks(Job.submit(cluster, work, "", GATE_ONLY, **started))

    assert (
        "node 1 (n2) cannot start the job's container: neither singularity nor apptainer is on PATH" in said
    )
    assert "`slurm.constraint`" in said


@pytest.mark.whole
@pytest.mark.parametrize(
    ("spoil", "words", "hint"),
    [
        ("rm -r /tmp/image", "could not open image /tmp/image", "a shared folder"),
        ("rm -r /tmp/data", "mount source /tmp/data doesn't exist", "`slurm.container.mounts`"),
        ("rm /tmp/usr; mkdir /tmp/usr", "executable file not found", "python3 >= 3.9"),
    ],
)
@pytest.mark.fault("container-unusable")
def test_a_node_without_what_the_container_is_made_of(
    cluster: Cluster, work: Path, spoil: str, words: str, hint: str
) -> None:
    """Image and mounts lie on each node's own disk; on one of them not all of it."""
    for node in cluster.nodes:
        make_image(cluster.path(node, "/tmp/image"))
        cluster.path(node, "/tmp/data").mkdir()
        cluster.path(node, "/tmp/usr").symlink_to("/usr")
    cluster.run("n2", ["sh", "-c", spoil])
    started = keys("/tmp/image", nodes=3)
    mounts = started["slurm"]["container"]["mounts"]
    started["slurm"]["container"]["mounts"] = ["/tmp/data:/mnt", "/tmp/usr:/usr", *mounts[1:]]
    try:
        said = lacks(Job.submit(cluster, work, "", GATE_ONLY, **started))
    finally:
        for node in cluster.nodes:
            cluster.run(node, ["rm", "-r", "/tmp/usr"])

    assert words in said
    assert hint in said


@pytest.mark.whole
@pytest.mark.fault("container-unusable")
def test_a_node_without_user_namespaces(
    cluster: Cluster, work: Path, image: Path, task_prolog: TaskProlog
) -> None:
    """Its kernel refuses them to one program only, so that the machine under the tests keeps its own."""
    (work / "bin").mkdir()
    wrapper = work / "bin/singularity"
    wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/python3 {work}/refuse.py {PREFIX}/bin/singularity "$@"\n')
    wrapper.chmod(0o755)
    (work / "refuse.py").write_text(REFUSE)
    places = f"{work}/bin:{PREFIX}/bin:/usr/bin:/bin"
    task_prolog(f'[ "$SLURMD_NODENAME" = n2 ] || exit 0\necho export PATH={places}')
    said = lacks(Job.submit(cluster, work, "", GATE_ONLY, **keys(image, nodes=3)))

    assert "maximum number of user namespaces exceeded" in said
    assert "`sysctl user.max_user_namespaces`" in said


@pytest.mark.whole
@pytest.mark.fault("launch-failed")
def test_an_image_that_is_nowhere(cluster: Cluster, work: Path) -> None:
    """No node has it, so none is at fault, and none is left out of another attempt."""
    job = Job.submit(cluster, work, "", GATE_ONLY, **keys("/nowhere.sif", nodes=1))

    code, _, found = verdict(job)
    assert ("launch-failed", "40:0") == (code, job.exit_code)
    assert "cannot start the job's container: could not open image /nowhere.sif" in found.sentence
