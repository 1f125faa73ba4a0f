"""Looks up a job's secrets on the node.

A value is never printed, written or sent: `redactor` removes it from all output.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ddplaunch.agent.text.printable import HintedError
from ddplaunch.agent.text.redact import Redactor


class MissingSecretError(HintedError):
    """A secret is missing; the message names it and its place, `hint` has the remedy."""


def value(name: str, reference: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Return the value at `reference`, in `own`, the environment, or in a file. Raises MissingSecretError."""
    if "env" in reference:
        text = own.get(reference["env"])
        if text is None:
            raise MissingSecretError(
                f"the secret {name} is not there: the variable {reference['env']} is not set on this node",
                f"export {reference['env']} before submitting, or take {name} out of `secrets`",
            )
        return text
    path = reference["file"]
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise MissingSecretError(
            f"the secret {name} is not there: {path}: {reason}",
            f"put the file there, readable on every node, or take {name} out of `secrets`",
        ) from error


def redactor(references: Mapping[str, Mapping[str, str]], own: Mapping[str, str]) -> Redactor:
    """Return a redactor of the secrets that this process can read; in a pod only the trainer can."""
    known: dict[str, str] = {}
    for name, reference in references.items():
        with contextlib.suppress(MissingSecretError):
            known[name] = value(name, reference, own)
    return Redactor(known)
