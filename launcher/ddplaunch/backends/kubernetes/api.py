"""Requests to a cluster's API server: time limits, retries, readable errors, and what the user may do.

Only this module uses the `kubernetes` client. Importing it takes most of a second, so that happens at the
first request. The client finds the cluster and the credentials; objects stay plain JSON.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from ddplaunch import __version__
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.objects import Json
from ddplaunch.errors import ClusterError, UsageError

_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)"'
    r' in API group "(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request:?\s*(.*)', re.DOTALL)
_MUTE_WEBHOOK = re.compile(r'failed calling webhook "([^"]+)":?\s*(.*)', re.DOTALL)
_ROLE = "docs/how-to/kubernetes.md has the whole Role"


class RefusedError(ClusterError):
    """The API server refused a request. `status` is HTTP's, `reason` is the API's."""

    def __init__(self, message: str, hint: str, status: int, reason: str) -> None:
        super().__init__(message, hint)
        self.status = status
        self.reason = reason

    @property
    def of_webhook(self) -> bool:
        """Whether a webhook failed, rather than the server itself."""
        return self.status >= 500 and "webhook" in self.message


class Permission(NamedTuple):
    """A rule that a Role must have. `resource` may name a subresource, such as pods/log."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def lacking(missing: list[Permission], namespace: str) -> ClusterError:
    """Return the error for a user who lacks permissions. It names each of them."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        grouped.setdefault((each.group, each.resource), []).append(each.verb)
    rules = "".join(
        f'\n    - {{apiGroups: ["{group}"], resources: [{resource}], verbs: [{", ".join(verbs)}]}}'
        for (group, resource), verbs in grouped.items()
    )
    return ClusterError(
        f"you lack permissions in namespace {namespace}; a Role there also needs these rules:{rules}",
        hint=f"nothing was submitted; ask the cluster's administrator for a RoleBinding: {_ROLE}",
    )


def explained_refusal(status: int, body: dict[str, Any], what: str) -> RefusedError:
    """Return the error for an HTTP error status. `what` is what was requested, as in "create Job digits"."""
    message = str(body.get("message") or "").strip() or f"HTTP status {status} without a message"
    reason = str(body.get("reason") or "")
    message, hint = _explained(status, message, body.get("details") or {})
    return RefusedError(message.format(what=what), hint, status, reason)


def _explained(status: int, message: str, details: dict[str, Any]) -> tuple[str, str]:
    text = _bare(message)
    if status == 401:
        return (
            "authentication at the API server failed: your credentials are wrong or have expired",
            "log in again with your provider's command; `kubectl auth whoami` tests them",
        )
    if status == 403:
        return _forbidden(message)
    if status == 404 and details.get("kind") == "namespaces":
        return (
            f"there is no namespace {details.get('name')}",
            "`kubectl get namespaces` lists them; name one as `kubernetes.namespace`",
        )
    webhook = _WEBHOOK.search(message)
    if webhook is not None:
        why = _bare(webhook[2]) or "without a reason"
        return (
            f"an admission webhook of the cluster, {_bare(webhook[1])}, does not allow to {{what}}: {why}",
            "`kubernetes.pod_template` can add what the webhook requires",
        )
    mute = _MUTE_WEBHOOK.search(message)
    if mute is not None:
        who = f"its admission webhook {_bare(mute[1])} does not answer"
        listed = "`kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations` lists them"
        return (
            f"the API server could not {{what}}, because {who}: {_bare(mute[2])}",
            f"the cluster's administrator must repair or remove it: {listed}",
        )
    if status == 413 or "too large" in message.lower() or "Too long: must have at most" in message:
        return (
            f"the API server refused to {{what}}: it is too large: {text}",
            "make `source` smaller, or put the code into the image or on a volume",
        )
    if status == 422:
        return (
            f"the API server refused to {{what}}, because it is not valid: {text}",
            "`ddplaunch render --to kubernetes` shows what was sent; see `kubernetes.pod_template`",
        )
    if status == 409:
        return (
            f"the API server refused to {{what}}, because it has changed in the meantime: {text}",
            "try again",
        )
    return f"the API server refused to {{what}}: {text}", ""


def _forbidden(message: str) -> tuple[str, str]:
    match = _FORBIDDEN.search(message)
    if match is not None:
        group, resource, verb = match["group"], match["resource"], match["verb"]
        where = f"in namespace {match['namespace']}" if match["namespace"] else "in the whole cluster"
        return (
            f"you ({_bare(match['user'])}) may not {Permission(verb, resource, group)} {where}",
            f'a Role needs {{apiGroups: ["{group}"], resources: [{resource}], verbs: [{verb}]}}; {_ROLE}',
        )
    if "being terminated" in message:
        return f"you cannot {{what}}: {_bare(message)}", "the namespace is being deleted; use another"
    if "exceeded quota" in message:
        return (
            f"you cannot {{what}}, because the namespace's quota is used up: {_bare(message)}",
            "`kubectl describe resourcequota` shows it; request less, or end other jobs",
        )
    return f"you may not {{what}}: {_bare(message)}", "ask the cluster's administrator"


def _bare(text: str) -> str:
    """Return the text on one line, without braces, because `format` would interpret these."""
    return " ".join(text.split()).replace("{", "(").replace("}", ")")


FIRST_PATIENCE = 10.0
"""Seconds to retry a server that has never answered yet: it may be the wrong one."""
PATIENCE = 120.0
"""Seconds to retry a server that has answered before: control planes are upgraded and come back."""
_WEBHOOK_PATIENCE = 10.0
"""Seconds to retry while a webhook fails: it may be restarting."""
_YOUNG = 3.0
"""Seconds to retry a refusal by a server that has allowed nothing yet: one that has just started refuses
everybody until it has read who may do what."""
_CONNECT, _READ = 5.0, 20.0
_PAUSE = 1.0
_BUSY = frozenset({429, 500, 502, 503, 504})
_CONNECTIONS = 256
"""Connections to keep open, one for each node's log."""
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Query = Mapping[str, str | int]


class SilentError(ClusterError):
    """The API server cannot be reached, or did not answer in time."""


class Response(NamedTuple):
    """The API server's answer. `unsure`: an earlier try got no answer, and may have taken effect."""

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
    """Client of the cluster that kubectl finds: from $KUBECONFIG, ~/.kube/config or a service account.

    Every request raises UsageError if the `kubernetes` package is missing, and ClusterError if there is no
    usable kubeconfig.
    """

    def __init__(self) -> None:
        self._has_answered = False
        self._has_allowed = False  # something, since it was last silent
        self._lock = threading.RLock()

    # --- which cluster, and as whom

    @property
    def place(self) -> ClusterContext:
        return self._access[0]

    @property
    def configuration(self) -> Any:
        """Return the client's configuration, for a WebSocket."""
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
        configuration.socket_options = _keepalive()
        return ApiClient(configuration).rest_client.pool_manager

    def close(self) -> None:
        """Close the connections. A later request opens new ones."""
        if "_pool" in self.__dict__:
            self._pool.clear()

    def headers(self) -> dict[str, str]:
        """Return headers with the user's credentials. An expired token is renewed. Raises ClusterError."""
        found = {"User-Agent": f"ddplaunch/{__version__}", "Accept": "application/json"}
        with self._lock, _logged_errors() as errors:
            for auth in self.configuration.auth_settings().values():
                if auth["in"] == "header" and auth["value"]:
                    found[auth["key"]] = auth["value"]
        if errors:
            raise _no_credentials(self.place.context, errors[-1])
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
        """Send a request and return the answer. `what` it does, as in "list the pods", is for messages.

        A request that gets no answer is sent again for `patience` seconds, so it may arrive twice. Raises
        RefusedError for an error of the server, and SilentError if no answer comes.
        """
        if patience is None:
            patience = PATIENCE if self._has_answered else FIRST_PATIENCE
        started = time.monotonic()
        unsure = False
        refused = 0.0
        while True:
            error: ClusterError
            try:
                response = self._send(method, path, query, body, kind, _READ)
                data = response.data
            except self._failures as failure:
                error = self._silent(failure, time.monotonic() - started)
                unsure = True
                self._has_allowed = False
            else:
                self._has_answered = True
                young = response.status == 403 and not self._has_allowed
                self._has_allowed = self._has_allowed or response.status not in {401, 403, *_BUSY}
                found = _json(data)
                if response.status < 300:
                    return Response(response.status, found, unsure)
                error = answer = explained_refusal(response.status, found, what)
                if response.status not in _BUSY and not young:
                    raise error
                if answer.of_webhook:
                    patience = min(patience, _WEBHOOK_PATIENCE)
                if young:
                    refused = refused or time.monotonic()
                    patience = min(patience, refused - started + _YOUNG)
                unsure = unsure or response.status >= 500
            if time.monotonic() - started + _PAUSE > patience or _is_hopeless(error):
                raise error
            time.sleep(_PAUSE)

    def get(self, path: str, what: str, query: Query | None = None, patience: float | None = None) -> Json:
        """Return an object or a list. Raises RefusedError and SilentError."""
        return self.request("GET", path, what, query=query, patience=patience).body

    def find(self, path: str, what: str, patience: float | None = None) -> Json | None:
        """Return an object; None if the name or the kind is unknown. Raises RefusedError and SilentError."""
        try:
            return self.get(path, what, patience=patience)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    @contextmanager
    def stream(self, path: str, what: str, query: Query, silence: float) -> Iterator[Any]:
        """Yield urllib3's response, so that it can be read as it grows.

        Raises RefusedError, and SilentError after `silence` seconds without a byte.
        """
        try:
            response = self._send("GET", path, query, None, "application/json", silence)
        except self._failures as failure:
            raise self._silent(failure, 0.0) from failure
        try:
            if response.status >= 300:
                raise explained_refusal(response.status, _json(response.data), what)
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
                f"the API server {self.place} has a certificate that is not trusted on this machine",
                hint="if the cluster was created anew, fetch its kubeconfig again",
            )
        if "Name or service not known" in text or "Temporary failure in name" in text:
            why = "its name does not resolve"
        elif "refused" in text:
            why = "the connection is refused"
        elif "timed out" in text:
            why = "it does not answer"
        else:
            why = f"the connection broke ({type(failure).__name__})"
        tried = f", tried for {seconds:.0f} s" if seconds >= 1 else ""
        return SilentError(
            f"the API server {self.place} cannot be reached: {why}{tried}",
            hint="`kubectl config get-contexts` shows the current one, and `kubectl version` tests it",
        )


def _keepalive() -> list[tuple[int, int, int]]:
    """Return socket options that notice within half a minute that the peer of a quiet stream has vanished."""
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
    """Return the JSON object in `data`. Any other text, such as a proxy's, becomes the message of one."""
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
            f"the Python package `kubernetes` is not installed: {error}",
            hint="`pip install '.[kubernetes]'` in a clone of ddplaunch installs it; for an installed wheel, "
            "`pip install 'ddplaunch-…-py3-none-any.whl[kubernetes]'`",
        ) from error
    configuration = client.Configuration()
    paths = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    there = [path for path in paths.split(os.pathsep) if path and Path(path).exists()]
    if not there and os.environ.get("KUBERNETES_SERVICE_HOST"):
        with _config_errors(""):
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        namespace = _NAMESPACE.read_text("ascii").strip() if _NAMESPACE.exists() else "default"
        return ClusterContext(configuration.host, "", namespace), configuration
    if not there:
        raise ClusterError(
            f"there is no kubeconfig at {paths}, so ddplaunch does not know the cluster",
            hint="fetch it with your provider's command, or set KUBECONFIG to its path",
        )
    with _config_errors(paths):
        _, active = config.list_kube_config_contexts(paths)  # type: ignore[no-untyped-call]
    context = str(active["name"])
    with _config_errors(paths), _logged_errors() as errors:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=paths, client_configuration=configuration, persist_config=False
        )
    if errors:
        raise _no_credentials(context, errors[-1])
    namespace = active.get("context", {}).get("namespace") or "default"
    return ClusterContext(configuration.host, context, namespace), configuration


@contextmanager
def _config_errors(paths: str) -> Iterator[None]:
    """Raise ClusterError for the errors that the client raises about a kubeconfig."""
    from kubernetes.config import ConfigException

    try:
        yield
    except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
        where = f"the kubeconfig {paths}" if paths else "the pod's service account"
        text = " ".join(str(error).split())
        raise ClusterError(
            f"{where} names no usable cluster: {text}",
            hint="`kubectl config get-contexts` lists what it has; `kubectl config use-context NAME` chooses"
            if paths
            else "the pod needs a mounted service account token",
        ) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] != "yaml":
            raise
        raise ClusterError(
            f"the kubeconfig {paths} is not YAML: {' '.join(str(error).split())}", hint="fetch it again"
        ) from error


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Yield a list that collects errors which the client only logs, such as those of credential plugins.

    Errors that other threads log meanwhile are left out: they belong to the program that uses this one.
    """
    messages: list[str] = []
    here = threading.get_ident()

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == here:
                messages.append(" ".join(record.getMessage().split()))

    collector = Collector(logging.ERROR)
    logging.getLogger().addHandler(collector)
    try:
        yield messages
    finally:
        logging.getLogger().removeHandler(collector)


def _no_credentials(context: str, message: str) -> ClusterError:
    return ClusterError(
        f"context {context} gives no credentials: {message}",
        hint="log in again with your provider's command; `kubectl auth whoami` tests it",
    )


_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MADE = ("get", "create", "patch", "delete")
_ASKED_AT_ONCE = 8


def needed_permissions(documents: Iterable[Mapping[str, Any]]) -> list[Permission]:
    """Return the permissions that it takes to create, watch and delete these objects."""
    found = [
        Permission(verb, objects.plural(each["kind"]), objects.group(each["apiVersion"]))
        for each in documents
        for verb in (*_MADE, *(["list"] if each["kind"] in objects.OWNERS else []))
    ]
    return [*found, Permission("list", "pods"), Permission("get", "pods/log")]


def check_permissions(
    api: Api, documents: Iterable[Mapping[str, Any]], namespace: str, spare: Collection[str]
) -> set[str]:
    """Return which of the kinds in `spare`, which a job can do without, the user may not create.

    Raises ClusterError, which names every other permission that is missing.
    """
    wanted = needed_permissions(documents)
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        allowed = list(pool.map(lambda permission: _is_allowed(api, permission, namespace), wanted))
    refused = [permission for permission, yes in zip(wanted, allowed, strict=True) if not yes]
    kinds = {objects.plural(kind): kind for kind in spare}
    missing = [permission for permission in refused if permission.resource not in kinds]
    if missing:
        raise lacking(missing, namespace)
    return {kinds[permission.resource] for permission in refused}


def _is_allowed(api: Api, permission: Permission, namespace: str) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = api.request("POST", _REVIEW, "ask what you may do", body=review)
    except RefusedError as error:
        if error.status == 403:
            return True  # reviews are not allowed either, so the request itself will fail
        raise
    return bool(objects.status(answer.body).get("allowed"))
