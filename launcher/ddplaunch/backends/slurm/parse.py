"""Parses the output of Slurm's commands. Pure. Raises NonsenseError for anything that it cannot read.

The commands print text with separators that we choose; its form has been the same since Slurm 20.02.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SEPARATOR = "\x1f"
"""Separates columns: Slurm's own `|` may be part of a path."""


class NonsenseError(ValueError):
    """Output that no known version of Slurm prints."""


@dataclass(frozen=True)
class SlurmJob:
    """A job as Slurm reports it. `state` is Slurm's own word; times are seconds since the epoch.

    `started` of a pending job is when Slurm expects it to start. `ended` of a running job is when its time
    limit is over.
    """

    job_id: int
    state: str
    reason: str = ""
    name: str = ""
    partition: str = ""
    nodes: int = 0
    node_list: str = ""
    exit_code: int | None = None
    signal: int | None = None
    restarts: int | None = 0  # None: accounting does not report it
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    time_limit: float = math.inf  # in seconds
    workdir: str = ""
    command: str = ""
    dependency: str = ""
    ended_by: int | None = None  # uid of the user who cancelled it, if accounting reports it


@dataclass(frozen=True)
class Partition:
    """The limits of a partition. A limit that is not set is infinite."""

    name: str
    default: bool = False
    up: bool = True
    nodes: int = 0
    most_nodes: float = math.inf
    least_nodes: int = 0
    most_time: float = math.inf  # seconds
    accounts: frozenset[str] | None = None  # None: all
    denied_accounts: frozenset[str] = frozenset()
    qos: frozenset[str] | None = None
    denied_qos: frozenset[str] = frozenset()


# --- squeue

_SQUEUE = {
    "jobid": "job_id",
    "state": "state",
    "reason": "reason",
    "name": "name",
    "partition": "partition",
    "numnodes": "nodes",
    "nodelist": "node_list",
    "exit_code": "exit_code",
    "restartcnt": "restarts",
    "submittime": "submitted",
    "starttime": "started",
    "endtime": "ended",
    "timelimit": "time_limit",
    "workdir": "workdir",
    "command": "command",
    "dependency": "dependency",
}
"""Column of `squeue --Format` -> field of SlurmJob."""

SQUEUE_FORMAT = ",".join(f"{column}:0{SEPARATOR}" for column in _SQUEUE)
"""With a width of 0, squeue cuts nothing off."""


def squeue(text: str) -> list[SlurmJob]:
    """Return the jobs in `squeue --noheader --Format=SQUEUE_FORMAT`, which leaves unknown columns empty."""
    return [_squeue_row(line) for line in text.splitlines() if line.strip()]


def _squeue_row(line: str) -> SlurmJob:
    cells = line.split(SEPARATOR)
    if len(cells) != len(_SQUEUE) + 1 or cells[-1]:
        raise NonsenseError(
            f"a line of squeue has {len(cells) - 1} columns, not {len(_SQUEUE)}: {line[:80]!r}"
        )
    row = dict(zip(_SQUEUE.values(), map(word, cells), strict=False))
    job_id = digits(row["job_id"])
    if job_id is None or not row["state"]:
        raise NonsenseError(f"a line of squeue describes no job: {line[:80]!r}")
    code, signal = _ending(row["exit_code"])
    return SlurmJob(
        job_id=job_id,
        state=state(row["state"]),
        reason=row["reason"],
        name=row["name"],
        partition=row["partition"],
        nodes=_whole(row["nodes"]),
        node_list=row["node_list"],
        exit_code=code,
        signal=signal,
        restarts=_whole(row["restarts"]),
        submitted=_time(row["submitted"]),
        started=_time(row["started"]),
        ended=_time(row["ended"]),
        time_limit=seconds(row["time_limit"]),
        workdir=row["workdir"],
        command=row["command"],
        dependency=row["dependency"],
    )


# --- sacct

SACCT_FORMAT = "JobIDRaw,State,ExitCode,JobName,Partition,NNodes,NodeList,Submit,Start,End,Timelimit,WorkDir"
"""Fields that every version since 20.02 has: sacct fails if it does not know one."""


def sacct(text: str) -> list[SlurmJob]:
    """Return the jobs in `sacct --parsable2 --noheader --allocations --format=SACCT_FORMAT`."""
    return [_sacct_row(line) for line in text.splitlines() if line.strip()]


def _sacct_row(line: str) -> SlurmJob:
    cells = line.split("|", SACCT_FORMAT.count(","))
    job_id = digits(cells[0])
    if len(cells) != SACCT_FORMAT.count(",") + 1 or job_id is None:
        raise NonsenseError(f"a line of sacct describes no job: {line[:80]!r}")
    _, state_text, ending, name, partition, nodes, node_list, submitted, started, ended, limit, workdir = (
        cells
    )
    cancelled = re.fullmatch(r"(\w+) by ([0-9]{1,10})", state_text)
    code, signal = _ending(ending)
    return SlurmJob(
        job_id=job_id,
        state=state(cancelled[1] if cancelled else state_text),
        name=word(name),
        partition=word(partition),
        nodes=_whole(nodes),
        node_list="" if node_list == "None assigned" else word(node_list),
        exit_code=code,
        signal=signal,
        restarts=None,
        submitted=_time(submitted),
        started=_time(started),
        ended=_time(ended),
        time_limit=seconds(limit),
        workdir=word(workdir),
        ended_by=int(cancelled[2]) if cancelled else None,
    )


# --- sbatch, scontrol, sinfo


def job_id(text: str) -> tuple[int, str]:
    """Return id and cluster from the last line of `sbatch --parsable`. A site's notices may come before it.

    Raises NonsenseError.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    match = re.fullmatch(r"([0-9]{1,15})(?:;(\S+))?", lines[-1]) if lines else None
    if match is None:
        raise NonsenseError(f"sbatch printed no job id: {text[-80:]!r}")
    return int(match[1]), match[2] or ""


def partitions(text: str) -> list[Partition]:
    """Return the partitions in the output of `scontrol --oneliner show partition`."""
    return [_partition(line) for line in text.splitlines() if line.startswith("PartitionName=")]


def _partition(line: str) -> Partition:
    found = dict(pair.partition("=")[::2] for pair in line.split() if "=" in pair)
    return Partition(
        name=found["PartitionName"],
        default=found.get("Default") == "YES",
        up=found.get("State", "UP") == "UP",
        nodes=_whole(found.get("TotalNodes", "")),
        most_nodes=_limit(found.get("MaxNodes", "")),
        least_nodes=_whole(found.get("MinNodes", "")),
        most_time=seconds(found.get("MaxTime", "")),
        accounts=_names(found.get("AllowAccounts", "ALL")),
        denied_accounts=_names(found.get("DenyAccounts", "")) or frozenset(),
        qos=_names(found.get("AllowQos", "ALL")),
        denied_qos=_names(found.get("DenyQos", "")) or frozenset(),
    )


def output_file(text: str, job: int, node: str) -> str:
    """Return the path of a job's output, from `scontrol show job`; "" if that names none.

    scontrol fills in part of the name's pattern. `node`: the job's first one, on which the batch script runs.
    """
    for block in re.split(r"^(?=JobId=)", text, flags=re.MULTILINE):
        if re.match(rf"JobId={job}\b", block):
            # There is one line for each, because a path may contain blanks. In the first line they are words.
            path = re.search(r"^ +StdOut=(.+)$", block, flags=re.MULTILINE)
            array, task = (re.search(rf"\bArray{name}=(\d+)", block) for name in ("JobId", "TaskId"))
            values = {
                "A": array[1] if array else str(job),
                "a": task[1] if task else "4294967294",  # Slurm's name for the task when there is no array
                "j": str(job),
                "J": str(job),
                "N": node.partition(".")[0],
                "n": "0",
                "t": "0",
                "s": "batch",
            }
            return _filled(path[1], values) if path else ""
    return ""


def _filled(pattern: str, values: Mapping[str, str]) -> str:
    """Return the file's name from sbatch's pattern: `%4j` is the number with at least four digits."""

    def value(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter == "%":
            return "%"
        known = values.get(letter)
        return match[0] if known is None else known.zfill(int(width or 0)) if known.isdecimal() else known

    return re.sub(r"%([0-9]{0,2})([%A-Za-z])", value, pattern)


def node_states(text: str) -> list[tuple[str, str, str]]:
    """Return name, state and reason of each node in `sinfo --noheader --Node --Format=NODES_FORMAT`."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(SEPARATOR)]
        if len(cells) < 3:
            raise NonsenseError(f"a line of sinfo has fewer than three columns: {line[:80]!r}")
        found.append(
            (cells[0], cells[1].rstrip("*~#!%$@^-+").lower(), "" if cells[2] == "none" else cells[2])
        )
    return found


NODES_FORMAT = f"nodelist:0{SEPARATOR},statelong:0{SEPARATOR},reason:0{SEPARATOR}"


def directives(script: str) -> Iterator[str]:
    """Yield the words after each `#SBATCH`, up to the first command, where sbatch also stops reading."""
    import shlex

    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            try:
                yield from shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError:
                continue
        elif line.strip() and not line.startswith("#"):
            return


# --- words and numbers


def seconds(text: str) -> float:
    """Return the seconds in `minutes`, `[hours:]min:sec` or `days-hours[:min[:sec]]`; infinity for anything
    else.
    """
    match = re.fullmatch(r"(?:(#)-)?(#)(?::(#))?(?::(#))?".replace("#", "[0-9]{1,15}"), text)
    if match is None:
        return math.inf
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, rest = (*numbers, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + rest
    if len(numbers) == 1:
        return numbers[0] * 60
    hours, minutes, rest = (0, *numbers)[-3:]
    return (hours * 60 + minutes) * 60 + rest


_FLAGS = (
    "COMPLETING",
    "CONFIGURING",
    "POWER_UP_NODE",
    "RESIZING",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "REQUEUED",
    "SPECIAL_EXIT",
    "STOPPED",
    "RESV_DEL_HOLD",
    "SIGNALING",
    "STAGE_OUT",
)
"""Flags that the text form shows in place of the state. A list in JSON has both."""


def state(*words: str) -> str:
    """Return the state as one word, which is a flag if there is one. Raises NonsenseError for an empty
    state.
    """
    upper = [str(word).upper() for word in words]
    first = upper[0].split()
    if not first:
        raise NonsenseError("a job without a state")
    return next((flag for flag in _FLAGS if flag in upper), first[0])


def _ending(text: str) -> tuple[int | None, int | None]:
    """Return exit code and signal from `code:signal` or from a wait status."""
    first, colon, signal = text.partition(":")
    code = digits(first)
    if code is None:
        return None, None
    return (code, digits(signal) or None) if colon else wait_status(code)


def wait_status(status: int) -> tuple[int, int | None]:
    """Return the exit code and the signal in a 16-bit wait status."""
    status &= 0xFFFF
    if os.WIFSIGNALED(status):
        return 0, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def digits(text: str) -> int | None:
    """Return the number; None for other text, such as `²`, and if it has more than 15 digits."""
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None


def word(text: str) -> str:
    """Return the text; "" for what Slurm prints when a value is empty."""
    text = text.strip()
    return "" if text in ("(null)", "N/A", "None", "NONE", "Unknown") else text


def _whole(text: str) -> int:
    """Return the number with which the text begins, as in `2-4` or `1K`; 0 if there is none."""
    match = re.match(r"[0-9]{1,15}", text)
    return int(match[0]) if match else 0


def _limit(text: str) -> float:
    most = digits(text)
    return math.inf if most is None else most


def _time(text: str) -> float | None:
    """Return seconds since the epoch; None for text in another form."""
    at = digits(text.strip())
    return None if at is None else float(at)


def _names(text: str) -> frozenset[str] | None:
    return None if text == "ALL" else frozenset(name for name in text.split(",") if name and name != "(null)")


_MOST = 10**15
"""Slurm prints no number larger than this."""


def squeue_json(text: str) -> list[SlurmJob]:
    """Return the jobs in `squeue --json`. Raises NonsenseError."""
    return [_json_job(each) for each in _json_jobs(text)]


def _json_jobs(text: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text)
        jobs = found["jobs"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NonsenseError(f"no JSON with jobs: {text[:80]!r}") from error
    if not isinstance(jobs, list) or not all(isinstance(each, dict) for each in jobs):
        raise NonsenseError("the JSON's jobs are no list of objects")
    return jobs


def _json_job(job: dict[str, Any]) -> SlurmJob:
    job_id, states = _number(job.get("job_id")), job.get("job_state")
    if job_id is None or not states:
        raise NonsenseError(f"a job without id or state: {str(job)[:80]!r}")
    code, signal = _json_ending(job.get("exit_code"))
    limit = _number(job.get("time_limit"))
    return SlurmJob(
        job_id=int(job_id),
        state=state(*states) if isinstance(states, list) else state(str(states)),
        reason=word(str(job.get("state_description") or job.get("state_reason") or "")),
        name=str(job.get("name") or ""),
        partition=str(job.get("partition") or ""),
        nodes=int(_number(job.get("node_count")) or 0),
        node_list=job["nodes"] if isinstance(job.get("nodes"), str) else "",
        exit_code=code,
        signal=signal,
        restarts=int(_number(job.get("restart_cnt")) or 0),
        submitted=_number(job.get("submit_time")) or None,
        started=_number(job.get("start_time")) or None,
        ended=_number(job.get("end_time")) or None,
        time_limit=math.inf if limit is None else limit * 60,
        workdir=str(job.get("current_working_directory") or ""),
        command=str(job.get("command") or ""),
        dependency=str(job.get("dependency") or ""),
    )


def _number(value: Any) -> float | None:
    """Return a number, bare or in an object with a flag that says whether it is set; None if it is beyond
    _MOST.
    """
    if isinstance(value, dict):
        return _number(value.get("number")) if value.get("set") and not value.get("infinite") else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and abs(value) <= _MOST else None


def _json_ending(value: Any) -> tuple[int | None, int | None]:
    """Return exit code and signal from a wait status, or from an object, in which the signal has two
    names.
    """
    if isinstance(value, dict) and "return_code" in value:
        code, signal = _number(value["return_code"]), value.get("signal") or {}
        number = _number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else None
        return (None if code is None else int(code)), (int(number) if number else None)
    raw = _number(value)
    return (None, None) if raw is None else wait_status(int(raw))
