"""What the API server answers when it says no, in a person's words. The answers are those of a real one."""

from __future__ import annotations

from typing import Any

import pytest

from ddplaunch.backends.kubernetes.api import Permission, explained_refusal, lacking

FORBIDDEN = (
    'jobs.batch is forbidden: User "system:serviceaccount:lab:ann" cannot create resource "jobs" in API '
    'group "batch" in the namespace "lab"'
)
QUOTA = (
    'configmaps "digits" is forbidden: exceeded quota: small, requested: count/configmaps=1, '
    "used: 1, limited: 1"
)
TERMINATING = (
    'configmaps "digits" is forbidden: unable to create new content in namespace lab because it is being '
    "terminated"
)
WEBHOOK = 'admission webhook "images.example.com" denied the request: only images of registry.example.com'
MUTE = (
    'Internal error occurred: failed calling webhook "pods.example.com": failed to call webhook: Post '
    '"https://webhook.lab.svc:443/": dial tcp 10.96.0.7:443: connect: connection refused'
)
NO_NAMESPACE = {"message": 'namespaces "lab" not found', "details": {"kind": "namespaces", "name": "lab"}}
TOO_LARGE = 'ConfigMap "digits" is invalid: []: Too long: must have at most 1048576 bytes'


@pytest.mark.parametrize(
    ("status", "said", "message", "hint"),
    [
        (
            401,
            "Unauthorized",
            "authentication at the API server failed: your credentials are wrong",
            "log in",
        ),
        (
            403,
            FORBIDDEN,
            "you (system:serviceaccount:lab:ann) may not create jobs.batch in namespace lab",
            'a Role needs {apiGroups: ["batch"], resources: [jobs], verbs: [create]}',
        ),
        (
            403,
            QUOTA,
            "you cannot create Job digits, because the namespace's quota is used up",
            "resourcequota",
        ),
        (403, TERMINATING, "you cannot create Job digits: configmaps", "the namespace is being deleted"),
        (404, NO_NAMESPACE, "there is no namespace lab", "`kubernetes.namespace`"),
        (
            400,
            WEBHOOK,
            "of the cluster, images.example.com, does not allow to create Job digits: only images",
            "`kubernetes.pod_template`",
        ),
        (422, TOO_LARGE, "the API server refused to create Job digits: it is too large", "`source`"),
        (413, "limit is 3145728", "the API server refused to create Job digits: it is too large", "`source`"),
        (
            422,
            'Job.batch "digits" is invalid: spec.template.spec.x: {Required}',
            "the API server refused to create Job digits, because it is not valid: Job.batch",
            "`kubernetes.pod_template`",
        ),
        (409, "the object has been modified", "because it has changed in the meantime", "try again"),
        (500, "etcdserver: request timed out", "refused to create Job digits: etcdserver: request", ""),
        (
            500,
            MUTE,
            "could not create Job digits, because its admission webhook pods.example.com does not answer",
            "the cluster's administrator",
        ),
        (502, "", "HTTP status 502 without a message", ""),
    ],
)
def test_a_refusal_is_told_in_words(status: int, said: str | dict[str, Any], message: str, hint: str) -> None:
    """Who may not do what where, and what to do about it."""
    body = {"message": said} if isinstance(said, str) else said
    error = explained_refusal(status, body, "create Job digits")

    assert (message in error.message, hint in error.hint) == (True, True), error
    assert 106 == error.exit_code


def test_all_that_is_missing_is_told_at_once() -> None:
    """One rule for each resource, as it would stand in a Role."""
    missing = [
        Permission("create", "jobs", "batch"),
        Permission("patch", "jobs", "batch"),
        Permission("get", "pods/log"),
    ]

    assert (
        "you lack permissions in namespace lab; a Role there also needs these rules:\n"
        '    - {apiGroups: ["batch"], resources: [jobs], verbs: [create, patch]}\n'
        '    - {apiGroups: [""], resources: [pods/log], verbs: [get]}'
    ) == lacking(missing, "lab").message
