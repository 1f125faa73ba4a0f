"""Jobs on a Kubernetes cluster, through its API server alone: no operator, no daemon, no access for the pods.

`api` alone uses the `kubernetes` client, which it imports at the first request; it explains refusals, and
asks what the user may do. Pure modules: `objects` (how objects are named, found and read), `pods` (why a pod,
or a whole job, does not run), `node_status` (the phase of each node) and `outcomes` (how a job ended).
Modules that talk to the cluster: `submission` creates all of a job's objects or none, and keeps what this
user has sent, `queries` fetches them, `snapshot` limits how often, `pod_exec` runs a command in a pod,
`output` reads the ranks' logs, `evidence` the hub's status and bundle and the logs of gates that do not reach
it, `volume` what ranks wrote, and `deletion` cancels and removes the job. `foreign_pods` and
`foreign_evidence` look at jobs that ddplaunch did not start. `backend` is the Backend.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ddplaunch.spec.document import LOADER

if TYPE_CHECKING:
    from ddplaunch.spec.models import JobSpec


def destination(job: JobSpec) -> str:
    """Return the context and the namespace to which this job would go; "" when there is no context.

    Neither the cluster nor its client is asked.
    """
    files = [_read(path) for path in _paths()]
    name = next((each["current-context"] for each in files if each.get("current-context")), "")
    contexts = [each for file in files for each in file.get("contexts") or [] if isinstance(each, dict)]
    found = next((each.get("context") for each in contexts if name and each.get("name") == name), None)
    if not isinstance(found, dict):
        return ""
    namespace = job.kubernetes.namespace or found.get("namespace") or "default"
    return f"context {name}, namespace {namespace}"


def _paths() -> list[Path]:
    paths = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    return [Path(path) for path in paths.split(os.pathsep) if path]


def _read(path: Path) -> dict[str, Any]:
    """Return what stands in a kubeconfig; nothing for one that cannot be read: submitting says why."""
    try:
        found = yaml.load(path.read_bytes(), LOADER)  # noqa: S506 - it makes plain data alone
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}
