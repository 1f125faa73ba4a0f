"""Reads the termination messages that agents leave in their pods' status. Pure."""

from __future__ import annotations

from typing import NamedTuple

from ddplaunch.agent.contract import Exit, Verdict, codec
from ddplaunch.backends import files
from ddplaunch.backends.kubernetes import objects
from ddplaunch.backends.kubernetes.objects import GATE, Json


class TerminationMessage(NamedTuple):
    """Termination message of an agent, or the combined one of a job's agents."""

    exit_code: int | None
    verdicts: list[Verdict]


def parse(message: str) -> TerminationMessage | None:
    """Return the agent's termination message; None where the container ended before it wrote one."""
    try:
        body = files.parse(message)
        verdicts = codec.load(list[Verdict], body.get("verdicts", []))
        return TerminationMessage(codec.load(int, body["exit_code"]), verdicts)
    except (ValueError, KeyError, AttributeError, codec.ContractError):
        return None


def has_passed(pod: Json) -> bool:
    """Whether the node's gate has let it pass."""
    ended = objects.state(pod, GATE, "terminated")
    return ended is not None and not ended.get("exitCode") and not is_left_out(pod)


def is_left_out(pod: Json) -> bool:
    """Whether the node did not pass its gate, and its pod fails no Job by that: an elastic one needs it not.

    The gate's container ended with 0 then, and left the code of its verdict in its message.
    """
    ended = objects.state(pod, GATE, "terminated")
    words = parse(str(ended.get("message") or "")) if ended and not ended.get("exitCode") else None
    return words is not None and words.exit_code != Exit.OK
