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
    """The server answered, and said no. `status` is HTTP's, `reason` the API's own word."""

    def __init__(self, message: str, hint: str, status: int, reason: str) -> None:
        super().__init__(message, hint)
        self.status = status
        self.reason = reason

    @property
    def of_webhook(self) -> bool:
        """Whether somebody behind the server is broken, and not the server."""
        return self.status >= 500 and "webhook" in self.message


class Permission(NamedTuple):
    """A rule that a Role must have. `resource` may name a subresource, as in pods/log."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def lacking(missing: list[Permission], namespace: str, user: str = "") -> ClusterError:
    """The error of somebody who may not do all of it; each permission is named."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        grouped.setdefault((each.group, each.resource), []).append(each.verb)
    rules = "".join(
        f'\n    - {{apiGroups: ["{group}"], resources: [{resource}], verbs: [{", ".join(verbs)}]}}'
        for (group, resource), verbs in grouped.items()
    )
    who = f"you ({user})" if user else "you"
    return ClusterError(
        f"{who} may not do in namespace {namespace} what a job needs; a Role there lacks these rules:{rules}",
        hint=f"nothing was submitted; ask whoever runs the cluster for a RoleBinding: {_ROLE}",
    )


def refused(status: int, body: dict[str, Any], what: str) -> RefusedError:
    """The error of an answer that is none. `what` was asked, as in "create Job digits"."""
    said = str(body.get("message") or "").strip() or f"HTTP status {status}, without a word"
    reason = str(body.get("reason") or "")
    message, hint = _explained(status, said, body.get("details") or {})
    return RefusedError(message.format(what=what), hint, status, reason)


def _explained(status: int, said: str, details: dict[str, Any]) -> tuple[str, str]:
    text = _bare(said)
    if status == 401:
        return (
            "the API server does not know you: your credentials are wrong, or have expired",
            "log in again with your provider's command; `kubectl auth whoami` tries them",
        )
    if status == 403:
        return _forbidden(said)
    if status == 404 and details.get("kind") == "namespaces":
        return (
            f"there is no namespace {details.get('name')}",
            "`kubectl get namespaces` lists them; name one as `kubernetes.namespace`",
        )
    webhook = _WEBHOOK.search(said)
    if webhook is not None:
        why = _bare(webhook[2]) or "without a reason"
        return (
            f"the cluster's own rules forbid to {{what}}: webhook {_bare(webhook[1])} says: {why}",
            "the webhook is the cluster's; `kubernetes.pod_template` can add what it wants",
        )
    mute = _MUTE_WEBHOOK.search(said)
    if mute is not None:
        who = f"webhook {_bare(mute[1])}, which it must ask, does not answer"
        listed = "`kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations` lists them"
        return (
            f"the API server would not {{what}}, for {who}: {_bare(mute[2])}",
            f"whoever runs the cluster must mend it, or take it away: {listed}",
        )
    if status == 413 or "too large" in said.lower() or "Too long: must have at most" in said:
        return (
            f"the API server would not {{what}}: it is too large: {text}",
            "make `source` smaller, or bring the code in the image or on a volume",
        )
    if status == 422:
        return (
            f"the API server would not {{what}}, for it is not valid: {text}",
            "`ddplaunch render --to kubernetes` shows what was sent; see `kubernetes.pod_template`",
        )
    if status == 409:
        return f"the API server would not {{what}}, for another has changed it: {text}", "try it again"
    return f"the API server would not {{what}}: {text}", ""


def _forbidden(said: str) -> tuple[str, str]:
    match = _FORBIDDEN.search(said)
    if match is not None:
        group, resource, verb = match["group"], match["resource"], match["verb"]
        where = f"in namespace {match['namespace']}" if match["namespace"] else "in the whole cluster"
        return (
            f"you ({_bare(match['user'])}) may not {Permission(verb, resource, group)} {where}",
            f'it takes {{apiGroups: ["{group}"], resources: [{resource}], verbs: [{verb}]}}; {_ROLE}',
        )
    if "being terminated" in said:
        return f"you cannot {{what}}: {_bare(said)}", "the namespace is being deleted; use another"
    if "exceeded quota" in said:
        return (
            f"you cannot {{what}}, for the namespace's quota is used up: {_bare(said)}",
            "`kubectl describe resourcequota` shows it; ask for less, or end other jobs",
        )
    return f"you may not {{what}}: {_bare(said)}", "ask whoever runs the cluster"


def _bare(text: str) -> str:
    """Return the text on one line, without braces for `format` to stumble on."""
    return " ".join(text.split()).replace("{", "(").replace("}", ")")
