"""The forms in which Kubernetes takes names, each None when `text` has it, else what would have it."""

from __future__ import annotations

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_HOST = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*(:[0-9]+)?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"

KEY = rf"({_DOMAIN}/)?{_NAME}"
LABEL_VALUE = rf"({_NAME})?"
RESOURCE = rf"{_DOMAIN}/{_NAME}"
KUBERNETES_OWN = r"kubernetes\.io/.*"
SECRET_KEY = r"[-._A-Za-z0-9]{1,253}"
IMAGE = (
    rf"({_HOST}/)?{_PART}(/{_PART})*(:[A-Za-z0-9_][-.A-Za-z0-9_]{{0,127}})?(@[a-z0-9+._-]+:[0-9a-f]{{32,}})?"
)
NETWORK = rf"({_DOMAIN}/)?{_DOMAIN}(@[^/@\s]{{1,15}})?"


def key(text: str) -> str | None:
    """Return what is wanted where `text` is no key of a label, an annotation or a taint, else None."""
    good = _fits(KEY, text) and _is_short(text)
    return None if good else "a key such as example.com/team: letters, digits, '-', '_', '.', at most 63"


def label_value(text: str) -> str | None:
    """Return what is wanted where `text` is no value of a label or a taint, else None."""
    good = _fits(LABEL_VALUE, text)
    return None if good else "at most 63 letters, digits, '-', '_', '.', with a letter or digit at both ends"


def resource(text: str) -> str | None:
    """Return what is wanted where `text` names no resource of a device plugin, else None."""
    good = _fits(RESOURCE, text) and _is_short(text) and not _fits(KUBERNETES_OWN, text)
    return None if good else "a device plugin's resource, such as nvidia.com/gpu"


def secret_key(text: str) -> str | None:
    """Return what is wanted where `text` is no key inside a Secret, else None."""
    return None if _fits(SECRET_KEY, text) else "at most 253 letters, digits, '-', '_', '.'"


def image(text: str) -> str | None:
    """A reference as registries read it; a wrong one is seen only when a node shall pull it."""
    return None if _fits(IMAGE, text) else "an image such as registry.example.com/team/trainer:1.0"


def network(text: str) -> str | None:
    """A NetworkAttachmentDefinition as Multus reads it."""
    return None if _fits(NETWORK, text) and _is_short(text) else "NAME, NAMESPACE/NAME or NAME@INTERFACE"


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _is_short(text: str) -> bool:
    """Whether each domain in `text` has a length that Kubernetes takes."""
    return max(map(len, re.split("[/@]", text))) <= 253
