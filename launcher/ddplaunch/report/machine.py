"""Jobs and diagnoses as plain data for scripts, with keys that are as stable as the exit codes; and its JSON
Schema.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Final, Literal, TypedDict

from ddplaunch.agent.contract import JobStatus, Status, Verdict, codec
from ddplaunch.agent.contract.words import Where
from ddplaunch.agent.diagnosis.run import pace
from ddplaunch.backends.job import Earlier, Job, State
from ddplaunch.report import Diagnosis, gate_results, known_verdicts, verdict

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
    return {"$schema": DIALECT, "$id": ID, **_schema_of(DiagnosisData)}


def _schema_of(kind: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return {**_schema_of(arguments[0]), "description": arguments[1]}
    if origin is Literal:
        return {"enum": list(arguments)} if len(arguments) > 1 else {"const": arguments[0]}
    if origin is list:
        return {"type": "array", "items": _schema_of(arguments[0])}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema_of(argument) for argument in arguments]}
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
        "properties": {key: _schema_of(hint) for key, hint in hints.items()},
        "required": list(hints),
    }


def job_data(job: Job) -> dict[str, Any]:
    """Return `status --json`, which is also an item of `list --json`. Times are seconds since the epoch, or
    null.
    """
    status = codec.dump(job.status) if job.status else {}
    return {
        "handle": str(job.handle),
        "name": job.name,
        "state": str(job.state),
        "exit_code": job.exit_code,
        "submitted": job.submitted,
        "ended": job.ended,
        "detail": job.detail,
        "hint": job.hint,
        "never_starts": job.never_starts,
        "lingers": job.lingers,
        "attempt": job.attempt,
        "launch_attempt": job.status.launch_attempt if job.status else 0,
        "earlier": [_earlier(each) for each in job.earlier],
        "failed_attempts": _failed_attempts(job.status),
        "sweep": dict(job.sweep),
        "phase": status.get("phase"),
        "since": status.get("since"),
        "waiting_for": status.get("waiting_for", []),
        "signal": status.get("signal"),
        "nodes": status.get("nodes", []),
        "pace": asdict(job.status.pace) if job.status and job.status.pace else None,
        "verdicts": verdicts_data(known_verdicts(job)),
    }


def _earlier(attempt: Earlier) -> dict[str, Any]:
    status = attempt.status
    return {
        "attempt": attempt.number,
        "exit_code": status.exit_code if status else None,
        "failed_attempts": _failed_attempts(status),
        "verdicts": verdicts_data(status.verdicts if status else []),
    }


def _failed_attempts(status: JobStatus | None) -> list[dict[str, Any]]:
    return [
        {
            "launch_attempt": each.number,
            "ended": each.ended,
            "verdicts": verdicts_data(each.verdicts),
        }
        for each in (status.failed_attempts if status else [])
    ]


def verdicts_data(verdicts: Sequence[Verdict]) -> list[VerdictData]:
    """The verdicts as people read them: what their sentences were made of is left out."""
    bare = (replace(each.written(), text=None, sources=None, machines=None) for each in verdicts)
    return [codec.dump(each) for each in bare]


def doctor_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return `doctor --json`: `diagnosis_data`, each node's checks, how it is reached, and from which nodes.

    For the last of these, `rows` has a word for each node that tried, with a letter for each node that it
    tried; `links` has the round trip and the MTU of each path that passes, or null if they were not seen.
    """
    bundle = diagnosis.bundle
    reached = bundle and {
        "legend": gate_results.STATES,
        "rows": gate_results.matrix_rows(bundle),
        "links": [each._asdict() for each in gate_results.links(bundle)],
    }
    checks = [
        {
            "node": check_in.node,
            **{key: value for key, value in codec.dump(check).items() if key != "facts"},
            "applies": check.status != Status.PASS or gate_results.is_measured(check.check, check_in.facts),
        }
        for check_in in (bundle.check_ins if bundle else [])
        for check in check_in.checks
    ]
    network = [each._asdict() for each in gate_results.networks(bundle)] if bundle else []
    return {**diagnosis_data(diagnosis), "checks": checks, "network": network, "reachability": reached}


def diagnosis_data(diagnosis: Diagnosis) -> DiagnosisData:
    """Return `diagnose --json`: the verdicts, the job, its nodes, and which evidence there was."""
    job = diagnosis.job
    return {
        "schema": "urn:ddplaunch:diagnosis:v1",
        "verdicts": verdicts_data(diagnosis.verdicts),
        "handle": str(job.handle),
        "state": job.state,
        "exit_code": job.exit_code,
        "detail": job.detail,
        "hint": job.hint,
        "submitted": job.submitted,
        "ended": job.ended,
        "nodes": _nodes(diagnosis),
        "evidence": _evidence(diagnosis),
    }


def _nodes(diagnosis: Diagnosis) -> list[NodeData]:
    bundle, evidence, status = diagnosis.bundle, diagnosis.evidence, diagnosis.job.status
    hosts = {each.node: each.host for each in (status.nodes if status else []) if each.host}
    hosts |= {each.node: each.host for each in (evidence.evidence if evidence else [])}
    hosts |= {each.node: each.host for each in (bundle.check_ins if bundle else [])}
    return [{"node": node, "host": host} for node, host in sorted(hosts.items())]


def _evidence(diagnosis: Diagnosis) -> EvidenceData | None:
    evidence = diagnosis.evidence
    if evidence is None:
        return None
    ranks = [rank for node in evidence.evidence for rank in node.ranks]
    paces = [pace.brief(rank) for rank in ranks if rank.alive]
    return {
        "at": evidence.at,
        "why": evidence.why,
        "nodes": len(evidence.evidence),
        "ranks": len(ranks),
        "silent": evidence.silent,
        "missing": verdict.missing(diagnosis),
        "pace": [
            {
                "rank": each.rank,
                "step": each.step,
                "in_collectives": each.in_collectives,
                "for_data": each.for_data,
            }
            for each in paces
        ],
    }
