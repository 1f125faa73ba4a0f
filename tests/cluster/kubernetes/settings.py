"""The configuration of a test cluster, as data. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path


def kind_config(workers: int, mounts: Iterable[Path]) -> str:
    """Of `kind create cluster`: one control plane, and workers that see these folders where they are here."""
    nodes = ["control-plane", *["worker"] * workers]
    shared = [{"hostPath": str(path), "containerPath": str(path), "readOnly": True} for path in mounts]
    kubelet = {"kind": "KubeletConfiguration", "failCgroupV1": False}
    return json.dumps(
        {
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "kind": "Cluster",
            # kind's own network comes as an image of its own, which cannot be had everywhere; see `network`.
            "networking": {"disableDefaultCNI": True},
            "kubeadmConfigPatches": [json.dumps(kubelet)],
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
