"""Writes this pod's verdict into the status of its TrainJob (Kubeflow Trainer 2), as the condition Verdict.

It runs beside the container that trains, with the pod's only token for the API server, and may read and write
the status of TrainJobs, nothing else. The agent leaves the verdict in a file that both containers see. All
nodes may have one: that of the hub is the same on each, and a node without a hub has its own.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import threading
import time
from calendar import timegm
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib import error, request

CONDITION = "Verdict"
TOKEN = Path("/var/run/secrets/ddplaunch")
"""The folder of token and certificate."""
_LEAST = "node-missing"
"""The hub's verdict on a node that did not come. That node's own verdict is more exact, and replaces it."""
_POLL = 0.5
_PATIENCE = 20.0
"""Seconds for the API server, of the 30 that a pod has to end."""
_TIMEOUT = 5.0
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_CONFLICT, _PASSING = 409, (408, 429)
Conditions = list[dict[str, Any]]


def main() -> int:
    """Wait for a verdict, or for the end of the pod without one. Returns 0, or 1 if it is not written."""
    begun = time.time()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    verdict = None
    while verdict is None:
        ends = stopping.wait(_POLL)
        verdict = first_verdict(Path(os.environ["DDPLAUNCH_TERMINATION"]))
        if ends and verdict is None:
            return 0
    written = _write(verdict, begun)
    stopping.wait()  # a sidecar that ends is started again
    return 0 if written else 1


def first_verdict(file: Path) -> dict[str, Any] | None:
    """Return the verdict in the agent's message; None where there is none, or none whole yet."""
    try:
        message = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    found: list[dict[str, Any]] = message["verdicts"] if message["exit_code"] else []
    return found[0] if found else None


def with_verdict(there: Conditions, verdict: dict[str, Any], begun: float, now: float) -> Conditions | None:
    """Return the conditions with the verdict; None where that of another node says as much.

    `begun`: when this pod began, in seconds since 1970; what is older is of an earlier attempt.
    """
    own = [each for each in there if each["type"] == CONDITION]
    for each in own:
        is_least = each["reason"] == reason(_LEAST) and verdict["code"] != _LEAST
        if _seconds(each["lastTransitionTime"]) >= int(begun) and not is_least:
            return None
    made = {
        "type": CONDITION,
        "status": "True",
        "reason": reason(verdict["code"]),
        "message": f"{verdict['code']}: {verdict['sentence']}",
        "lastTransitionTime": time.strftime(_TIME, time.gmtime(now)),
    }
    # In front: `kubectl get trainjob` shows the last one as the state.
    return [made, *(each for each in there if each not in own)]


def reason(code: str) -> str:
    """Return a verdict's code as the reason of a condition: DnsUnanswered."""
    return "".join(part.capitalize() for part in code.split("-"))


def _seconds(stamp: str) -> int:
    return timegm(time.strptime(stamp, _TIME))


def _write(verdict: dict[str, Any], begun: float) -> bool:
    """Write the verdict into the status. Returns whether it stands there, or another that says as much."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            job = _call("GET")
            conditions = job.get("status", {}).get("conditions", [])
            wanted = with_verdict(conditions, verdict, begun, time.time())
            if wanted is not None:
                version = {"resourceVersion": job["metadata"]["resourceVersion"]}
                _call("PATCH", {"metadata": version, "status": {"conditions": wanted}})
            return True
        except error.HTTPError as answer:
            if answer.code != _CONFLICT:
                print(f"the API server answers {answer.code}: {_sentence(answer)}", flush=True)
                if answer.code < 500 and answer.code not in _PASSING:
                    return False
        except (OSError, HTTPException, ValueError) as failed:
            print(f"the API server does not answer: {failed}", flush=True)
        if time.monotonic() > until:
            return False
        time.sleep(_POLL)  # the API server, or another node's write, needs a moment


def _call(method: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the TrainJob. Raises HTTPError, OSError, HTTPException, ValueError."""
    own = os.environ
    host = own["KUBERNETES_SERVICE_HOST"]
    server = f"[{host}]" if ":" in host else host
    api = f"https://{server}:{own['KUBERNETES_SERVICE_PORT']}/apis/trainer.kubeflow.org/v1alpha1"
    url = f"{api}/namespaces/{own['DDPLAUNCH_NAMESPACE']}/trainjobs/{own['DDPLAUNCH_JOB']}/status"
    headers = {
        "Authorization": f"Bearer {(TOKEN / 'token').read_text()}",
        "Content-Type": "application/merge-patch+json",
    }
    tls = ssl.create_default_context(cafile=str(TOKEN / "ca.crt"))
    opener = request.build_opener(request.HTTPSHandler(context=tls), request.ProxyHandler({}))
    data = json.dumps(body).encode() if body else None
    made = request.Request(url, data, headers, method=method)  # noqa: S310 - https, see above
    with opener.open(made, timeout=_TIMEOUT) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _sentence(answer: error.HTTPError) -> str:
    """Return the API server's own words, which name the right that is missing."""
    try:
        return str(json.load(answer)["message"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return answer.reason


if __name__ == "__main__":
    sys.exit(main())
