"""Reads objects and logs from the cluster's API server, in this process.

Tests ask several times a second, and each call of kubectl takes a fifth of a second of a core.
"""

from __future__ import annotations

import json
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.cluster.kubernetes.cache import ClusterError

_CORE, _BATCH, _APPS = "api/v1", "apis/batch/v1", "apis/apps/v1"
_PATHS = {
    "configmaps": _CORE,
    "deployments": _APPS,
    "events": _CORE,
    "jobs": _BATCH,
    "jobsets": "apis/jobset.x-k8s.io/v1alpha2",
    "networkpolicies": "apis/networking.k8s.io/v1",
    "nodes": _CORE,
    "pods": _CORE,
    "resourcequotas": _CORE,
    "secrets": _CORE,
    "services": _CORE,
    "trainjobs": "apis/trainer.kubeflow.org/v1alpha1",
}
_SECONDS = 60.0
_NO_LOG = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.INTERNAL_SERVER_ERROR)
"""The container has not begun, its pod is gone, or its machine does not answer."""


class NotReadError(ClusterError):
    """The API server refuses, or has nothing of this name."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """The API server that this kubeconfig names."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def get(self, kind: str, name: str, namespace: str, selector: str) -> Any:
        """Return the object of this name, or without a name the list of objects. Raises ClusterError."""
        place = f"namespaces/{namespace}/{kind}" if namespace else kind
        query = [("labelSelector", selector)] if selector else []
        found = json.loads(self._read(f"/{_PATHS[kind]}/{place}" + (f"/{name}" if name else ""), query))
        return found if name else found["items"]

    def log(self, pod: str, container: str, namespace: str, *, timestamps: bool = False) -> str:
        """Return what the container has said so far; empty where it has no log."""
        query = [("container", container), *([("timestamps", "true")] if timestamps else [])]
        try:
            return self._read(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query)
        except NotReadError as error:
            if error.status in _NO_LOG:
                return ""
            raise

    @cached_property
    def _client(self) -> Any:
        from kubernetes import config  # images are built before there is an environment that has it

        # The package has type hints for its API, and none for this function.
        return config.new_client_from_config(str(self._kubeconfig))  # type: ignore[no-untyped-call]

    def _read(self, path: str, query: list[tuple[str, str]]) -> str:
        request = self._client.param_serialize("GET", path, query_params=query, auth_settings=["BearerToken"])
        answer = self._client.call_api(*request, _request_timeout=_SECONDS)
        text: str = answer.read().decode(errors="replace")
        if answer.status not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            raise NotReadError(f"GET {path}: {answer.status} {text}", answer.status)
        return text
