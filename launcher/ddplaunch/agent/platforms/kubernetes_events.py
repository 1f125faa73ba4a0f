"""Shows a message as an Event of the job's Kubernetes Job, by the token of the hub's container."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from ddplaunch.agent.contract import Env, Exit, Occasion
from ddplaunch.agent.system.delivery import UndeliveredError, post, reason
from ddplaunch.agent.text.printable import printable
from ddplaunch.agent.transport.endpoints import Endpoint

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The folder in which the hub's pod has a token."""
_NOTE = 1000
"""Bytes; the API server takes 1024."""
_REASONS = {Occasion.NOTICE: "Notice", Occasion.WITHDRAWN: "NoticeWithdrawn", Occasion.END: "Ended"}
_WELL = (None, Exit.OK, Exit.STOPPED)


def event(message: dict[str, Any], own: Mapping[str, str]) -> dict[str, Any]:
    """Return the Event, by the environment of the hub's container."""
    namespace = own[Env.NAMESPACE]
    job = own[Env.NAMES].partition("-{")[0]  # that of a JobSet has a name of its own
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": namespace, "name": job}
    is_well = message["occasion"] != Occasion.NOTICE and message["exit_code"] in _WELL
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{job}-", "namespace": namespace},
        "eventTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(message["at"])),
        "reportingController": "ddplaunch",
        "reportingInstance": socket.gethostname(),
        "action": "Watch",
        "reason": _REASONS[message["occasion"]],
        "regarding": {**about, "uid": own[Env.UID]},
        "note": printable(message["text"]).encode()[:_NOTE].decode(errors="ignore"),
        "type": "Normal" if is_well else "Warning",
    }


def post_event(message: dict[str, Any]) -> None:
    """Make the message an Event of the Job. Raises UndeliveredError."""
    import ssl  # which most jobs do without

    made = event(message, os.environ)

    host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    try:
        with open(f"{ACCOUNT}/token", encoding="ascii") as file:
            token = file.read()
        tls = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    except OSError as error:
        raise UndeliveredError(f"its service account: {reason(error)}", lasts=True) from error
    path = f"apis/events.k8s.io/v1/namespaces/{made['metadata']['namespace']}/events"
    try:
        url = f"https://{Endpoint(host, int(port))}/{path}"
        post(url, json.dumps(made).encode(), "the API server", token, tls)
    except UndeliveredError as error:
        raise UndeliveredError(f"{error}{words(error.answer)}", error.lasts) from None


def words(answer: bytes) -> str:
    """Return the API server's sentence, which names the right that is missing."""
    try:
        return f": {json.loads(answer)['message']}"[:_NOTE]
    except (ValueError, TypeError, KeyError):
        return ""
