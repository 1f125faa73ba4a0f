"""Describes what `diagnose --json` prints, as types and as a JSON Schema. Pure and deterministic.

Within a version, keys and words are added only: a reader skips those that it does not know.
"""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Final, Literal, TypedDict

from ddplaunch.agent.contract.words import Where
from ddplaunch.backends.job import State

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
ID: Final = "urn:ddplaunch:diagnosis:v1"

_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


class VerdictData(TypedDict):
    """A cause, its culprits, and the facts."""

    code: Annotated[str, "stable name of the cause; `ddplaunch explain CODE` has its page"]
    sentence: Annotated[str, "the cause for people; its wording may change"]
    where: Annotated[Where, "stage of the job to which the cause belongs"]
    nodes: Annotated[list[int], "nodes at fault; empty: none is named"]
    ranks: Annotated[list[int], "global ranks at fault; empty: none is named"]
    victims: Annotated[list[int], "global ranks that only wait, or ended because of others"]
    confidence: Annotated[float, "0 to 1"]
    facts: Annotated[list[str], "what the verdict rests on, one sentence each"]
    hint: Annotated[str, "what to do, for people; empty: nothing is known"]


class NodeData(TypedDict):
    """A node and the host on which it was seen last."""

    node: Annotated[int, "its number, from 0"]
    host: Annotated[str, "its host name; of a pod, its name and machine: 'digits-2 on worker2'"]


class PaceData(TypedDict):
    """The pace of a rank."""

    rank: Annotated[int, "global rank"]
    step: Annotated[float | None, "seconds of a step; null: unknown"]
    in_collectives: Annotated[float | None, "share of the last minute spent there; null: unknown"]
    for_data: Annotated[float | None, "share of it spent waiting for a batch; null: unknown"]


class EvidenceData(TypedDict):
    """The moment and the extent of the evidence, which itself is in the bundle."""

    at: Annotated[float, "when it was collected, in seconds since the epoch"]
    why: Annotated[str, "what had it collected: 'still', 'death', 'asked' or another word"]
    nodes: Annotated[int, "number of nodes that answered"]
    ranks: Annotated[int, "number of their ranks"]
    silent: Annotated[list[int], "nodes that did not answer"]
    missing: Annotated[list[str], "evidence that there was not, and why, for people"]
    pace: Annotated[list[PaceData], "of the ranks that were alive"]


class DiagnosisData(TypedDict):
    """The output of `ddplaunch diagnose --json`."""

    schema: Annotated[Literal["urn:ddplaunch:diagnosis:v1"], "this schema and its version"]
    verdicts: Annotated[list[VerdictData], "the cause to fix first is first; empty: none is known"]
    handle: Annotated[
        str,
        "the job, `target://path`; of a bundle, its file; of a process, `pid://1234`; of "
        "anybody's pods, `kubernetes://team/job/llm`",
    ]
    state: Annotated[State, "`lost`: it is gone, and `ddplaunch cancel` was not the cause"]
    exit_code: Annotated[int | None, "of the job's agents; null: it runs, or left none"]
    detail: Annotated[str, "why it is pending or lost, for people"]
    hint: Annotated[str, "what to do about that, for people"]
    submitted: Annotated[float, "seconds since the epoch"]
    ended: Annotated[float | None, "seconds since the epoch; null: it has not, or nobody knows when"]
    nodes: Annotated[list[NodeData], "the nodes that came, by number"]
    evidence: Annotated[EvidenceData | None, "null: there is none"]


def json_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12."""
    return {"$schema": DIALECT, "$id": ID, **_of(DiagnosisData)}


def _of(kind: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return {**_of(arguments[0]), "description": arguments[1]}
    if origin is Literal:
        return {"enum": list(arguments)} if len(arguments) > 1 else {"const": arguments[0]}
    if origin is list:
        return {"type": "array", "items": _of(arguments[0])}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(argument) for argument in arguments]}
    if kind is types.NoneType:
        return {"type": "null"}
    if kind is State:
        return {"enum": [str(state) for state in State]}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "description": kind.__doc__,
        "properties": {key: _of(hint) for key, hint in hints.items()},
        "required": list(hints),
    }
