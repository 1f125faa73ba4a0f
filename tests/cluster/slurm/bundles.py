"""Slurm's own containers on the cluster's nodes: oci.conf with Debian's crun or runc, and a bundle for them.

As in `containers` the bundle has nothing in it but mount points, and shows the programs of the node.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.containers import PYTHON, make_image

_CONF = """\
RunTimeQuery="{runtime} state %n.%u.%j.%s.%t"
RunTimeKill="{runtime} kill --all %n.%u.%j.%s.%t"
RunTimeDelete="{runtime} delete --force %n.%u.%j.%s.%t"
RunTimeRun="{runtime} run --bundle %b %n.%u.%j.%s.%t"
"""
_CRUN = """\
#!/bin/sh
# crun starts nothing where both versions of control groups are mounted; so it does not see the second.
exec unshare --mount sh -c '
    umount --lazy /sys/fs/cgroup/unified 2>/dev/null
    exec /usr/bin/crun --root=/tmp/crun --cgroup-manager=disabled "$@"' crun "$@"
"""
_RUNC = """\
#!/bin/sh
exec /usr/sbin/runc --root=/tmp/runc "$@"
"""


@pytest.fixture(name="oci", params=["crun"])
def _oci(cluster: Cluster, work: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The cluster's oci.conf, as long as the test runs; steps read it when they start."""
    name = request.param
    if not shutil.which(name, path="/usr/bin:/usr/sbin"):
        pytest.skip(f"{name} is not installed: scripts/system-packages")
    conf = configure(cluster, work, name)
    yield conf
    conf.unlink()


def configure(cluster: Cluster, folder: Path, name: str) -> Path:
    """Write oci.conf for crun or runc, which is started by a script in `folder`; returns its path."""
    runtime = folder / name
    runtime.write_text({"crun": _CRUN, "runc": _RUNC}[name])
    runtime.chmod(0o755)
    conf = cluster.folder / "etc/slurm/oci.conf"
    conf.write_text(_CONF.format(runtime=runtime))
    return conf


@pytest.fixture(name="bundle")
def _bundle(work: Path) -> Path:
    """The bundle, where all nodes see it."""
    return make_bundle(work / "bundle")


def make_bundle(folder: Path, *without: str) -> Path:
    """An OCI bundle that shows /usr, /tmp, /dev/shm and the Python of the tests, but for those `without`."""
    make_image(folder / "rootfs")
    file = folder / "config.json"
    file.unlink(missing_ok=True)
    subprocess.run(["/usr/sbin/runc", "spec", "--bundle", folder], check=True)
    config = json.loads(file.read_text())
    seen = dict.fromkeys(("/usr", "/etc/hosts", "/etc/resolv.conf", *map(str, PYTHON)), "ro")
    seen |= {"/tmp": "rw", "/dev/shm": "rw"}
    mounts = [each for each in config["mounts"] if each["destination"] not in seen]
    config["mounts"] = [*mounts, *(_mount(path, mode) for path, mode in seen.items() if path not in without)]
    # The network of the node, by its name; processes of its own.
    kept = [each for each in config["linux"]["namespaces"] if each["type"] in ("mount", "pid")]
    config["linux"]["namespaces"] = kept
    del config["hostname"]
    file.write_text(json.dumps(config))
    return folder


def _mount(path: str, mode: str) -> dict[str, Any]:
    return {"destination": path, "source": path, "type": "none", "options": ["rbind", mode]}


def keys(bundle: Path | str, **more: Any) -> dict[str, Any]:
    """Of the job file: in that bundle."""
    return {"slurm": {"container": {"runtime": "oci", "image": str(bundle)}}, **more}
