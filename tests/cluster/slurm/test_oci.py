"""Jobs in Slurm's own containers on real nodes: gate, supervisor and ranks inside, and what nodes lack."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.slurm.bundles import _bundle as _bundle
from tests.cluster.slurm.bundles import _oci as _oci
from tests.cluster.slurm.bundles import keys, make_bundle
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.containers import GIVEN, INSIDE, lacks, runs_inside
from tests.cluster.slurm.gate_jobs import BY_NAME, FIXED, GATE_ONLY, names, notes, verdict
from tests.cluster.slurm.jobs import Job
from tests.cluster.training import TRAIN

pytestmark = pytest.mark.usefixtures("oci")


@pytest.mark.parametrize("oci", ["crun", pytest.param("runc", marks=pytest.mark.whole)], indirect=True)
def test_a_healthy_job_in_slurms_own_containers(cluster: Cluster, work: Path, bundle: Path) -> None:
    """Environment, arguments and user are the job's, /tmp and /dev/shm the node's; the image is read-only."""
    job = Job.submit(
        cluster, work, INSIDE, **keys(bundle, env={"VALUE": GIVEN}, command=["program.py", GIVEN])
    )

    runs_inside(cluster, job)


@pytest.mark.whole
@pytest.mark.fault("dns-not-found")
def test_the_gate_in_slurms_own_container_finds_a_wrong_name(
    cluster: Cluster, work: Path, bundle: Path
) -> None:
    """The same verdict as without a container, of the node that it is about; mended, the job passes."""
    names(cluster, "n3", n1=None)
    started = keys(bundle, nodes=3, **{**FIXED, **BY_NAME})
    job = Job.submit(cluster, work, "", GATE_ONLY, **started)

    code, nodes, found = verdict(job)
    assert ("dns-not-found", [2]) == (code, nodes)
    assert "node 2 (n3)" in found.sentence
    names(cluster, "n3")
    assert [] == notes(Job.submit(cluster, work, "", GATE_ONLY, **started))


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.fault("rank-in-user-code")
def test_a_rank_that_hangs_in_slurms_own_container(cluster: Cluster, work: Path, bundle: Path) -> None:
    """The supervisor inside sees its rank's line, and ends all."""
    program = TRAIN.format(before="", step="rank == 1 and step == 20 and time.sleep(3600)")
    watchdog = {"notice_after": "5s", "kill_after": "12s"}
    job = Job.submit(cluster, work, program, **keys(bundle, watchdog=watchdog))

    assert ("FAILED", "50:0") == (job.ended(90), job.exit_code), job.output
    found = job.verdict
    assert ("rank-in-user-code", [1], [1], [0]) == (found.code, found.ranks, found.nodes, found.victims)
    job.leaves_nothing()


# --- what a node lacks


def configured(cluster: Cluster, work: Path, node: str, conf: str) -> None:
    """The node has this oci.conf from now on, or with "" none."""
    folder = work / "etc"
    shutil.copytree(cluster.folder / "etc/slurm", folder, ignore=shutil.ignore_patterns("oci.conf"))
    if conf:
        (folder / "oci.conf").write_text(conf)
    cluster.run(node, ["mount", "--bind", folder, "/etc/slurm"])


@pytest.mark.parametrize("runtime", ["", pytest.param("/nowhere/crun", marks=pytest.mark.whole)])
@pytest.mark.fault("container-unusable")
def test_a_node_that_is_not_configured(
    cluster: Cluster, work: Path, bundle: Path, oci: Path, runtime: str
) -> None:
    """Without oci.conf Slurm starts the step outside, and nothing of the job goes on there."""
    conf = oci.read_text().replace(str(work / "crun"), runtime) if runtime else ""
    configured(cluster, work, "n2", conf)
    try:
        said = lacks(Job.submit(cluster, work, "", GATE_ONLY, **keys(bundle, nodes=3)))
    finally:
        cluster.run("n2", ["umount", "/etc/slurm"])

    words = "/nowhere/crun: not found" if runtime else "there is no oci.conf"
    assert f"node 1 (n2) cannot start the job's container: {'/bin/sh: 1: ' if runtime else ''}{words}" in said
    assert "`slurm.constraint`" in said


def no_python(bundle: Path) -> None:
    """A device stands in its place, which no shell takes for a program."""
    file = bundle / "config.json"
    config = json.loads(file.read_text())
    place = str(Path("/usr/bin/python3").resolve())
    hidden = {"destination": place, "source": "/dev/zero", "type": "none", "options": ["bind"]}
    config["mounts"].append(hidden)
    file.write_text(json.dumps(config))


def no_tmp(bundle: Path) -> None:
    """The agent's files lie there."""
    make_bundle(bundle, "/tmp")


def no_programs(bundle: Path) -> None:
    """Neither is there a shell."""
    make_bundle(bundle, "/usr")


def no_mount(bundle: Path) -> None:
    """The node has no such folder."""
    file = bundle / "config.json"
    file.write_text(file.read_text().replace('"source": "/dev/shm"', '"source": "/data"'))


def no_bundle(bundle: Path) -> None:
    """Nothing of it."""
    shutil.rmtree(bundle)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("spoil", "words", "hint"),
    [
        (no_bundle, "Task launch failed: No such file or directory", "a shared folder"),
        (no_python, "executable file python3 not found", "python3 >= 3.9"),
        (no_tmp, "config.json does not mount /tmp", "`srun --nodelist"),
        (no_programs, "executable file `sh` not found", "python3 >= 3.9"),
        (no_mount, "/data", "`srun --nodelist"),
    ],
)
@pytest.mark.fault("container-unusable")
def test_a_node_without_what_the_bundle_is_made_of(
    cluster: Cluster, work: Path, spoil: Callable[[Path], None], words: str, hint: str
) -> None:
    """Bundles lie on each node's own disk; on one of them not all of it."""
    for node in cluster.nodes:
        make_bundle(cluster.path(node, "/tmp/bundle"))
    spoil(cluster.path("n2", "/tmp/bundle"))
    try:
        said = lacks(Job.submit(cluster, work, "", GATE_ONLY, **keys("/tmp/bundle", nodes=3)))
    finally:
        for node in cluster.nodes:
            shutil.rmtree(cluster.path(node, "/tmp/bundle"), ignore_errors=True)

    assert "node 1 (n2) cannot start the job's container: " in said
    assert words in said
    assert hint in said
