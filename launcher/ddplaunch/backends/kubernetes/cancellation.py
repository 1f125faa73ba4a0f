"""Stops a job, takes its evidence, and deletes it from the cluster."""

from __future__ import annotations

import threading
import time

from ddplaunch.agent.contract import Bundle
from ddplaunch.backends.kubernetes import deletion, evidence
from ddplaunch.backends.kubernetes.api import Api
from ddplaunch.backends.kubernetes.queries import ApiState

STOP = 90.0
"""Seconds for a job to end after its hub was asked to: the ranks may write a checkpoint."""
_WHY = "ddplaunch cancel"


def stop(api: Api, state: ApiState) -> Bundle | None:
    """Stop the job, begin to delete it, and return its hub's bundle; None: the hub left none.

    What would start again is deleted while it stops. Raises ClusterError.
    """
    assert state.owner is not None
    bundle = None if state.comes_back else _stopped(api, state)
    if bundle is None:
        return _bundle_while_deleted(api, state)
    deletion.begin(api, state.owner, state.namespace)
    return bundle


def _stopped(api: Api, state: ApiState) -> Bundle | None:
    """Stop the job by its hub, and return the hub's bundle; None: it cannot be reached, or left none."""
    if not evidence.stop(api, state, _WHY):
        return None
    deadline = time.monotonic() + STOP
    while time.monotonic() < deadline:
        found = evidence.left(api, state)
        if found is not None:
            return found
        time.sleep(0.5)
    return None


def _bundle_while_deleted(api: Api, state: ApiState) -> Bundle | None:
    """Delete the job, and return the bundle that its hub prints at SIGTERM, before its pod is gone."""
    assert state.owner is not None
    bundles: list[Bundle] = []
    reader = threading.Thread(target=_read_bundle, args=(api, state, bundles), daemon=True)
    reader.start()
    if state.comes_back:
        evidence.stop(api, state, _WHY)
    deletion.begin(api, state.owner, state.namespace)
    reader.join(deletion.GONE)
    return bundles[-1] if bundles else None


def _read_bundle(api: Api, state: ApiState, bundles: list[Bundle]) -> None:
    found = evidence.left(api, state, follow=True)
    if found is not None:
        bundles.append(found)
