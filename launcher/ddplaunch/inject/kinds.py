"""Reads what several kinds have in common. Pure."""

from __future__ import annotations

from ddplaunch.inject.document import Value
from ddplaunch.inject.pod import training_container

INDEXED = "Indexed, by which each pod knows its number"
"""What is wanted as a Job's completionMode."""
_MASTERS = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
_MASTER_WORDS = ("--master", "--rdzv-endpoint", "--rdzv_endpoint")


def count(spec: Value) -> int:
    """Return the number of pods of an Indexed Job's spec. Raises UsageError."""
    wanted = "as many completions as pods at once: one pod for each node"
    completions = spec.need("completions", wanted=wanted).number()
    parallelism = spec.need("parallelism", wanted=wanted)
    if parallelism.number() != completions:
        raise parallelism.refused(f"{parallelism.text()} of {completions} completions", wanted)
    return completions


def has_master(pod: Value, container: str | None) -> bool:
    """Whether the container is given node 0's address, by its environment or torchrun's arguments."""
    trains = training_container(pod, container)
    env = trains.get("env")
    names = [item.name() for item in env.items()] if env else []
    lists = [value for key in ("command", "args") if (value := trains.get(key))]
    words = [item.text() for value in lists for item in value.items()]
    return any(name in _MASTERS for name in names) or any(word.startswith(_MASTER_WORDS) for word in words)


def is_true(value: Value | None) -> bool:
    """Whether the value is there, and true."""
    return value is not None and value.text() == "true"
