"""The configuration of a test cluster, as data. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

SHARED = "/mnt/shared"
"""One folder on all nodes, which pods may write into: the file system that machines of a cluster share."""


def kind_config(workers: int, mounts: Iterable[Path], shared_folder: Path) -> str:
    """Of `kind create cluster`: one control plane, and workers that see `mounts` where they are here.

    All nodes have `shared_folder` as SHARED.
    """
    nodes = ["control-plane", *["worker"] * workers]
    shared = [{"hostPath": str(path), "containerPath": str(path), "readOnly": True} for path in mounts]
    shared.append({"hostPath": str(shared_folder), "containerPath": SHARED, "readOnly": False})
    kubelet = {"kind": "KubeletConfiguration", "failCgroupV1": False}
    # There is one of each. On a busy machine they lost their leases, ended, and nothing was scheduled.
    alone = {"extraArgs": {"leader-elect": "false"}}
    control = {"kind": "ClusterConfiguration", "controllerManager": alone, "scheduler": alone}
    control["apiVersion"] = "kubeadm.k8s.io/v1beta3"
    return json.dumps(
        {
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "kind": "Cluster",
            # kind's own network comes as an image of its own, which cannot be had everywhere; see `network`.
            "networking": {"disableDefaultCNI": True},
            "kubeadmConfigPatches": [json.dumps(kubelet), json.dumps(control)],
            "nodes": [{"role": role, "extraMounts": shared} for role in nodes],
        }
    )


def network(pods: str) -> str:
    """What gives pods of one node their addresses, which lie in `pods`; routes join the nodes."""
    ranges = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return json.dumps(
        {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": ranges},
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }
    )
