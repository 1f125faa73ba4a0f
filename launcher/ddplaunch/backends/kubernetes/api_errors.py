"""Explains why the API server refused a request, and what to do about it. Pure."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ddplaunch.errors import ClusterError

_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)"'
    r' in API group "(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request:?\s*(.*)', re.DOTALL)
_MUTE_WEBHOOK = re.compile(r'failed calling webhook "([^"]+)":?\s*(.*)', re.DOTALL)
_ROLE = "docs/how-to/kubernetes.md has the whole Role"


class RefusedError(ClusterError):
    """The API server refused a request. `status` is HTTP's, `reason` the API's."""

    def __init__(self, message: str, hint: str, status: int, reason: str) -> None:
        super().__init__(message, hint)
        self.status = status
        self.reason = reason

    @property
    def of_webhook(self) -> bool:
        """Whether a webhook failed, and not the server itself."""
        return self.status >= 500 and "webhook" in self.message


class Permission(NamedTuple):
    """A rule that a Role must have. `resource` may name a subresource, as in pods/log."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def lacking(missing: list[Permission], namespace: str, user: str = "") -> ClusterError:
    """Return the error for a user who lacks permissions; it names each of them."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        grouped.setdefault((each.group, each.resource), []).append(each.verb)
    rules = "".join(
        f'\n    - {{apiGroups: ["{group}"], resources: [{resource}], verbs: [{", ".join(verbs)}]}}'
        for (group, resource), verbs in grouped.items()
    )
    who = f"you ({user})" if user else "you"
    return ClusterError(
        f"{who} lack permissions in namespace {namespace}; a Role there needs these rules as well:{rules}",
        hint=f"nothing was submitted; ask the cluster's administrator for a RoleBinding: {_ROLE}",
    )


def refused(status: int, body: dict[str, Any], what: str) -> RefusedError:
    """Return the error for an HTTP error status; `what` was requested, as in "create Job digits"."""
    message = str(body.get("message") or "").strip() or f"HTTP status {status} without a message"
    reason = str(body.get("reason") or "")
    message, hint = _explained(status, message, body.get("details") or {})
    return RefusedError(message.format(what=what), hint, status, reason)


def _explained(status: int, message: str, details: dict[str, Any]) -> tuple[str, str]:
    text = _bare(message)
    if status == 401:
        return (
            "authentication at the API server failed: your credentials are wrong or have expired",
            "log in again with your provider's command; `kubectl auth whoami` tries them",
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
        return f"the API server refused to {{what}}, because it has changed meanwhile: {text}", "try again"
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
            "`kubectl describe resourcequota` shows it; ask for less, or end other jobs",
        )
    return f"you may not {{what}}: {_bare(message)}", "ask the cluster's administrator"


def _bare(text: str) -> str:
    """Return the text on one line, without braces, which `format` would read."""
    return " ".join(text.split()).replace("{", "(").replace("}", ")")
