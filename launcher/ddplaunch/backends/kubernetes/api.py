"""One cluster's API server: requests with limits and patience, and errors in a person's words.

The only module that knows the `kubernetes` client, which takes most of a second to import: at the first
request, and no sooner. It is used for what is hard to get right, which is to find the cluster and to prove
who we are; objects stay the JSON that they are.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from ddplaunch import __version__
from ddplaunch.backends.kubernetes.api_errors import RefusedError, refused
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.errors import ClusterError, UsageError

FIRST_PATIENCE = 10.0
"""Seconds for a server that has never answered us: it may be the wrong one."""
PATIENCE = 120.0
"""Seconds for one that has: control planes are upgraded, and come back."""
_WEBHOOK_PATIENCE = 10.0
"""Seconds for what the server itself must ask. It is restarted at times; a broken one stays as it is."""
_CONNECT, _READ = 5.0, 20.0
_PAUSE = 1.0
_BUSY = frozenset({429, 500, 502, 503, 504})
_CONNECTIONS = 256
"""Kept open. One for each node's log."""
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Query = Mapping[str, str | int]


class SilentError(ClusterError):
    """The server cannot be reached, or does not answer."""


class Response(NamedTuple):
    """`unsure`: an earlier try got no answer, and may have been taken."""

    status: int
    body: Json
    unsure: bool = False


class ClusterContext(NamedTuple):
    """Cluster, namespace and credentials of a job."""

    server: str
    context: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.server} (context {self.context})" if self.context else self.server


class Api:
    """Finds the cluster as kubectl does: $KUBECONFIG, ~/.kube/config, or the pod that we are in."""

    def __init__(self) -> None:
        self._has_answered = False
        self._lock = threading.RLock()

    # --- which cluster, and as whom

    @property
    def place(self) -> ClusterContext:
        return self._access[0]

    @property
    def configuration(self) -> Any:
        """The client's own, for what is no plain request."""
        return self._access[1]

    @cached_property
    def _access(self) -> tuple[ClusterContext, Any]:
        with self._lock:
            return _configured()

    @cached_property
    def _pool(self) -> Any:
        from kubernetes.client import ApiClient

        configuration = self.configuration
        configuration.connection_pool_maxsize = _CONNECTIONS
        configuration.socket_options = _alive()
        return ApiClient(configuration).rest_client.pool_manager

    def close(self) -> None:
        """Let go of the connections; a later request makes new ones."""
        if "_pool" in self.__dict__:
            self._pool.clear()

    def headers(self) -> dict[str, str]:
        """Return who we are. A token that has expired is fetched anew."""
        found = {"User-Agent": f"ddplaunch/{__version__}", "Accept": "application/json"}
        with self._lock, _heard() as complaints:
            for auth in self.configuration.auth_settings().values():
                if auth["in"] == "header" and auth["value"]:
                    found[auth["key"]] = auth["value"]
        if complaints:
            raise _no_credentials(self.place.context, complaints[-1])
        return found

    # --- requests

    def request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Query | None = None,
        body: object = None,
        kind: str = "application/json",
        patience: float | None = None,
    ) -> Response:
        """The server's answer. `what` is asked, as in "list the pods", for errors.

        Whatever is sent may be sent twice: when no answer comes, it is tried again until `patience` ends.
        Raises RefusedError when the server says no, SilentError when it says nothing.
        """
        if patience is None:
            patience = PATIENCE if self._has_answered else FIRST_PATIENCE
        started = time.monotonic()
        unsure = False
        while True:
            error: ClusterError
            try:
                response = self._send(method, path, query, body, kind, _READ)
                data = response.data
            except self._failures as failure:
                error = self._silent(failure, time.monotonic() - started)
                unsure = True
            else:
                self._has_answered = True
                found = _json(data)
                if response.status < 300:
                    return Response(response.status, found, unsure)
                error = answer = refused(response.status, found, what)
                if response.status not in _BUSY:
                    raise error
                if answer.of_webhook:
                    patience = min(patience, _WEBHOOK_PATIENCE)
                unsure = unsure or response.status >= 500
            if time.monotonic() - started + _PAUSE > patience or _is_hopeless(error):
                raise error
            time.sleep(_PAUSE)

    def get(self, path: str, what: str, query: Query | None = None, patience: float | None = None) -> Json:
        """An object or a list."""
        return self.request("GET", path, what, query=query, patience=patience).body

    def find(self, path: str, what: str, patience: float | None = None) -> Json | None:
        """An object, None when there is none of that name, or none of that kind here."""
        try:
            return self.get(path, what, patience=patience)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    @contextmanager
    def stream(self, path: str, what: str, query: Query, silence: float) -> Iterator[Any]:
        """The answer as it grows: urllib3's response. `silence`: seconds without a byte that are too many."""
        try:
            response = self._send("GET", path, query, None, "application/json", silence)
        except self._failures as failure:
            raise self._silent(failure, 0.0) from failure
        try:
            if response.status >= 300:
                raise refused(response.status, _json(response.data), what)
            yield response
        except self._failures as failure:
            raise self._silent(failure, 0.0) from failure
        finally:
            response.close()
            response.release_conn()

    def _send(
        self, method: str, path: str, query: Query | None, body: object, kind: str, limit: float
    ) -> Any:
        import urllib3

        headers = self.headers()
        if body is not None:
            headers["Content-Type"] = kind
        return self._pool.request(
            method,
            self.place.server + path + (f"?{urlencode(query)}" if query else ""),
            headers=headers,
            body=None if body is None else json.dumps(body),
            timeout=urllib3.Timeout(connect=_CONNECT, read=limit),
            retries=False,
            redirect=False,
            preload_content=False,
        )

    @cached_property
    def _failures(self) -> tuple[type[Exception], ...]:
        import urllib3

        return (urllib3.exceptions.HTTPError, OSError)

    def _silent(self, failure: Exception, seconds: float) -> SilentError:
        text = str(failure)
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return SilentError(
                f"the API server {self.place} proves itself by a certificate that is not trusted here",
                hint="the cluster may have been made anew: fetch its kubeconfig again",
            )
        if "Name or service not known" in text or "Temporary failure in name" in text:
            why = "its name does not resolve"
        elif "refused" in text:
            why = "nobody listens there"
        elif "timed out" in text:
            why = "it does not answer"
        else:
            why = f"the connection broke ({type(failure).__name__})"
        tried = f", tried for {seconds:.0f} s" if seconds >= 1 else ""
        return SilentError(
            f"the API server {self.place} cannot be reached: {why}{tried}",
            hint="`kubectl config get-contexts` shows which cluster is meant, `kubectl version` tries it",
        )


def _alive() -> list[tuple[int, int, int]]:
    """A stream may be quiet for hours, and its other end vanish: that is noticed in half a minute."""
    from urllib3.connection import HTTPConnection

    return [
        *HTTPConnection.default_socket_options,
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    ]


def _is_hopeless(error: ClusterError) -> bool:
    return "certificate" in error.message


def _json(data: bytes) -> Json:
    """A proxy in between may answer anything."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {"message": data.decode("utf-8", "replace")[:500]}
    return found if isinstance(found, dict) else {"message": str(found)}


def _configured() -> tuple[ClusterContext, Any]:
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise UsageError(
            f"the Python package `kubernetes`, which reaches the cluster, is not here: {error}",
            hint="`pip install '.[kubernetes]'` in ddplaunch's repository brings it",
        ) from error
    configuration = client.Configuration()
    paths = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    there = [path for path in paths.split(os.pathsep) if path and Path(path).exists()]
    if not there and os.environ.get("KUBERNETES_SERVICE_HOST"):
        with _said_as_ours(""):
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        namespace = _NAMESPACE.read_text("ascii").strip() if _NAMESPACE.exists() else "default"
        return ClusterContext(configuration.host, "", namespace), configuration
    if not there:
        raise ClusterError(
            f"there is no kubeconfig at {paths}, so it is not known which cluster is meant",
            hint="fetch it with your provider's command, or set KUBECONFIG to where it lies",
        )
    with _said_as_ours(paths):
        _, active = config.list_kube_config_contexts(paths)  # type: ignore[no-untyped-call]
    context = str(active["name"])
    with _said_as_ours(paths), _heard() as complaints:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=paths, client_configuration=configuration, persist_config=False
        )
    if complaints:
        raise _no_credentials(context, complaints[-1])
    namespace = active.get("context", {}).get("namespace") or "default"
    return ClusterContext(configuration.host, context, namespace), configuration


@contextmanager
def _said_as_ours(paths: str) -> Iterator[None]:
    from kubernetes.config import ConfigException

    try:
        yield
    except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
        where = f"the kubeconfig {paths}" if paths else "the pod's service account"
        text = " ".join(str(error).split())
        raise ClusterError(
            f"{where} names no cluster that can be used: {text}",
            hint="`kubectl config get-contexts` lists what it has; `kubectl config use-context NAME` chooses"
            if paths
            else "the pod needs a mounted service account token",
        ) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] != "yaml":
            raise
        raise ClusterError(
            f"the kubeconfig {paths} is no YAML: {' '.join(str(error).split())}", hint="fetch it again"
        ) from error


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Yield what the client only logs: that a credential plugin failed."""
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(" ".join(record.getMessage().split()))

    ear = Ear(logging.ERROR)
    logging.getLogger().addHandler(ear)
    try:
        yield said
    finally:
        logging.getLogger().removeHandler(ear)


def _no_credentials(context: str, said: str) -> ClusterError:
    return ClusterError(
        f"context {context} gives no credentials: {said}",
        hint="log in again with your provider's command; `kubectl auth whoami` tries it",
    )
