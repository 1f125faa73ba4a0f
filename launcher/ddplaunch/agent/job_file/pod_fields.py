"""Lists fields of a pod template that came with later versions; an older cluster would not know them.

`ddplaunch` itself writes none of them. From the OpenAPI schemas of the versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SINCE: dict[tuple[str, str], int] = {
    ("securityContext", "appArmorProfile"): 30,
    ("volumeMounts", "recursiveReadOnly"): 30,
    ("claims", "request"): 31,
    ("resourceClaims", "resourceClaimName"): 31,
    ("resourceClaims", "resourceClaimTemplateName"): 31,
    ("securityContext", "supplementalGroupsPolicy"): 31,
    ("volumes", "image"): 31,
    ("securityContext", "seLinuxChangePolicy"): 32,
    ("pod", "resources"): 32,
    ("lifecycle", "stopSignal"): 33,
    ("containers", "restartPolicyRules"): 34,
    ("initContainers", "restartPolicyRules"): 34,
    ("sources", "podCertificate"): 34,
    ("pod", "hostnameOverride"): 34,
    ("valueFrom", "fileKeyRef"): 34,
    ("podCertificate", "userAnnotations"): 35,
    ("pod", "schedulingGroup"): 36,
    ("emptyDir", "mode"): 37,
    ("httpGet", "protocol"): 37,
    ("grpc", "mode"): 37,
    ("pod", "evictionResponders"): 37,
    ("volumeMounts", "bindMountOptions"): 37,
    **{(kind, "defaultUser"): 37 for kind in ("configMap", "downwardAPI", "projected", "secret")},
    **{
        (kind, "user"): 37
        for kind in ("items", "clusterTrustBundle", "podCertificate", "serviceAccountToken")
    },
}
"""(key above, key) to the minor version; `pod` is the pod's spec, for claims have a spec too."""


def newer(overlay: Any, minor: int, path: str = "", above: str = "") -> Iterator[tuple[str, int]]:
    """Paths in `overlay` that version 1.`minor` does not know, each with the version that does."""
    if isinstance(overlay, list):
        for index, item in enumerate(overlay):
            name = item.get("name", index) if isinstance(item, dict) else index
            yield from newer(item, minor, f"{path}[{name}]", above)
    elif isinstance(overlay, dict):
        for key, value in overlay.items():
            at = f"{path}.{key}" if path else key
            if (since := SINCE.get((above, key), 0)) > minor:
                yield at, since
            else:
                yield from newer(value, minor, at, "pod" if at == "spec" else key)
