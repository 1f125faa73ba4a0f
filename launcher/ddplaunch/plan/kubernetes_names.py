"""The forms in which Kubernetes takes names, each None when `text` has it, else what would have it."""

from __future__ import annotations

import re

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_HOST = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*(:[0-9]+)?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = (
    rf"({_HOST}/)?{_PART}(/{_PART})*(:[A-Za-z0-9_][-.A-Za-z0-9_]{{0,127}})?(@[a-z0-9+._-]+:[0-9a-f]{{32,}})?"
)


def key(text: str) -> str | None:
    """Return what is wanted where `text` is no key of a label, an annotation or a taint, else None."""
    domain, slash, name = text.rpartition("/")
    good = bool(re.fullmatch(_NAME, name)) and (not slash or _is_domain(domain))
    return None if good else "a key such as example.com/team: letters, digits, '-', '_', '.', at most 63"


def label_value(text: str) -> str | None:
    """Return what is wanted where `text` is no value of a label or a taint, else None."""
    good = not text or re.fullmatch(_NAME, text)
    return None if good else "at most 63 letters, digits, '-', '_', '.', with a letter or digit at both ends"


def resource(text: str) -> str | None:
    """Return what is wanted where `text` names no resource of a device plugin, else None."""
    good = "/" in text and key(text) is None and not text.startswith("kubernetes.io/")
    return None if good else "a device plugin's resource, such as nvidia.com/gpu"


def secret_key(text: str) -> str | None:
    """Inside a Secret."""
    good = re.fullmatch(r"[-._A-Za-z0-9]{1,253}", text)
    return None if good else "at most 253 letters, digits, '-', '_', '.'"


def image(text: str) -> str | None:
    """A reference as registries read it; a wrong one is seen only when a node shall pull it."""
    return None if re.fullmatch(_IMAGE, text) else "an image such as registry.example.com/team/trainer:1.0"


def network(text: str) -> str | None:
    """A NetworkAttachmentDefinition as Multus reads it."""
    match = re.fullmatch(r"((?P<namespace>[^/@]+)/)?(?P<name>[^/@]+)(@[^/@\s]{1,15})?", text)
    good = match and all(_is_domain(match[part]) for part in ("namespace", "name") if match[part])
    return None if good else "NAME, NAMESPACE/NAME or NAME@INTERFACE"


def _is_domain(text: str) -> bool:
    return len(text) <= 253 and bool(re.fullmatch(_DOMAIN, text))
