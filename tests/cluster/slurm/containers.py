"""SingularityCE on the cluster's nodes, and an image made of this machine's own programs.

The image is a folder with nothing in it but mount points; a job mounts /usr and the Python of the tests. That
costs nothing, while a Debian of its own would take minutes. Apptainer has the same command line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.busy import BUSY
from tests.cache import CACHE
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.gate_jobs import verdict
from tests.cluster.slurm.jobs import Job
from tests.cluster.slurm.machines import ROOT

from ddplaunch.agent.contract import Files

PREFIX = "/mnt"
"""Where nodes show what build-singularity has built."""
EXPORT = (
    f"--export=ALL,PATH={PREFIX}/bin:/usr/bin:/bin,SINGULARITY_USERNS=1,"
    "SINGULARITY_CONFIGDIR=/tmp/singularity"
)
"""An option of sbatch. Root uses a user namespace, too: without, it needs what this machine may not give."""
GATE_ONLY = f"{EXPORT},DDPLAUNCH_GATE_ONLY=1"
PYTHON = sorted({ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()})
"""Folders that a container must show for it."""
_BUILD = 250
"""Seconds to wait for it; `make test` has built it before."""


INSIDE = """
import errno, os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert os.path.exists("/etc/image"), "not in the image"
try:
    open("/etc/mine", "w")
except OSError as error:
    written = errno.errorcode[error.errno]
open("/tmp/mine", "w").write(os.environ["RANK"])
shm = os.statvfs("/dev/shm")
print("sum", int(total), "value", repr(os.environ["VALUE"]), "user", os.getuid(), "root", written,
      "shm", shm.f_blocks * shm.f_frsize, "argument", repr(sys.argv[1]), flush=True)
dist.destroy_process_group()
"""
"""Says what it finds in the container, once it has found its peers."""
GIVEN = "a 'b' \"c\" $d\nü"


@pytest.fixture(name="runtime", scope="session")
def _runtime() -> Path:
    """The folder with the runtime, built unless it is there."""
    script = Path(__file__).with_name("build-singularity")
    try:
        subprocess.run(
            [script], env={**os.environ, "DDPLAUNCH_CACHE": str(CACHE)}, check=True, timeout=_BUILD
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"singularity is not built within {_BUILD} s: {script.relative_to(ROOT)}")
    return CACHE / "singularity/root"


@pytest.fixture(name="installed")
def _installed(cluster: Cluster, runtime: Path) -> Iterator[None]:
    """All nodes have the runtime, for this test."""
    for node in cluster.nodes:
        cluster.run(node, ["mount", "--bind", runtime, PREFIX])
    yield
    for node in cluster.nodes:
        cluster.run(node, ["umount", PREFIX], check=False)  # a test may have


@pytest.fixture(name="image")
def _image(work: Path) -> Path:
    """The image, where all nodes see it."""
    return make_image(work / "image")


def make_image(folder: Path) -> Path:
    """A sandbox with a name for its user, and mount points for `keys`."""
    for name in ("dev", "etc", "mnt", "proc", "root", "sys", "tmp", "usr", "var/tmp", *map(_inside, PYTHON)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"usr/{name}")
    for name in ("hosts", "localtime", "resolv.conf"):
        (folder / "etc" / name).touch()
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (folder / "etc/group").write_text("root:x:0:\n")
    (folder / "etc/nsswitch.conf").write_text("hosts: files\n")
    (folder / "etc/image").touch()  # by which it is known from inside
    return folder


def keys(image: Path | str, mounts: bool = True, **more: Any) -> dict[str, Any]:
    """Of the job file: in that image, which gets its programs from the node."""
    seen = [f"{path}:{path}:ro" for path in (Path("/usr"), *PYTHON)] if mounts else []
    return {"slurm": {"container": {"runtime": "singularity", "image": str(image), "mounts": seen}}, **more}


def _inside(path: Path) -> str:
    return str(path).lstrip("/")


def runs_inside(cluster: Cluster, job: Job) -> None:
    """The job of INSIDE ends well: each rank printed what it found, and wrote into its node's /tmp."""
    assert "COMPLETED" == job.ended(90), job.output
    wanted = f"sum 2 value {GIVEN!r} user 0 root EROFS shm {2 << 30} argument {GIVEN!r}"
    for node, name in enumerate(("n1", "n2")):
        assert f"[{node}/{node}] {wanted}\n" in job.output
        assert str(node) == cluster.path(name, "/tmp/mine").read_text()
    assert [] == job.bundle().verdicts
    job.leaves_nothing()


def lacks(job: Job) -> str:
    """The sentence about n2, the culprit, without whom the job has ended soon."""
    code, nodes, found = verdict(job)
    assert ("container-unusable", [1], "n2\n") == (code, nodes, (job.folder / Files.FAULTY).read_text())
    events = job.bundle().events
    assert next(event.at for event in events if event.kind == "verdict") - events[0].at < BUSY * 6
    job.leaves_nothing()
    return f"{found.sentence}; {found.hint}"
