"""What Slurm's commands print: text of every version, and JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import mutate, told
from tests.fuzz.target import Target

from ddplaunch.backends.job import Handle, Job, State
from ddplaunch.backends.slurm import outcomes, parse, pending
from ddplaunch.backends.slurm.parse import NonsenseError, Partition, SlurmJob

_CELLS = (
    *("71", "FAILED", "NonZeroExitCode", "digits", "gpu", "2", "n[1-2]", "5120", "1", "1700000000"),
    *("1700000010", "N/A", "2-03:00:00", "/home/a b/x|y", "/home/a b/digits.sbatch", "(null)"),
)
_SQUEUE = "".join(f"{cell}{parse.SEPARATOR}" for cell in _CELLS)
_WAITS = _SQUEUE.replace("FAILED", "PENDING").replace("NonZeroExitCode", "Resources")
_SACCT = "71|CANCELLED by 1000|0:15|digits|gpu|2|n[1-2]|1700000000|1700000010|Unknown|01:00:00|/home/me"
_PARTITION = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=normal,high Default=YES MaxNodes=UNLIMITED "
    "MaxTime=1-00:00:00 MinNodes=0 State=UP TotalCPUs=8 TotalNodes=2"
)
_NODES = parse.SEPARATOR.join(["n1", "idle~", "none", ""])
_SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2 --job-name='a b'\n#SBATCH --time=1:00\nsrun hostname\n"
_TEXTS = (_SQUEUE, _WAITS, f"{_SQUEUE}\n{_WAITS}\n", _SACCT, "71;cluster", _PARTITION, _NODES, _SCRIPT)

_REASONS = ("Resources", "Priority", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail, UnavailableNodes:n3")
_JOB: dict[str, Any] = {
    "job_id": 71,
    "name": "digits",
    "job_state": ["PENDING", "REQUEUED"],
    "partition": "gpu",
    "nodes": "n[1-2]",
    "node_count": {"set": True, "infinite": False, "number": 2},
    "restart_cnt": 1,
    "state_reason": "Resources",
    "exit_code": {
        "status": ["ERROR"],
        "return_code": {"set": True, "infinite": False, "number": 20},
        "signal": {"id": {"set": True, "infinite": False, "number": 9}, "name": "KILL"},
    },
    "submit_time": {"set": True, "infinite": False, "number": 1_700_000_000},
    "start_time": 1_700_000_010,
    "end_time": 0,
    "time_limit": {"set": True, "infinite": False, "number": 60},
    "current_working_directory": "/home/a b",
    "command": "/home/a b/digits.sbatch",
    "dependency": "",
}

_AROUND = pending.PartitionFacts(
    nodes=[("n1", "idle", ""), ("n2", "down", "Not responding")],
    partition=Partition("gpu", nodes=2, most_nodes=2.0, most_time=3600.0),
)


class Text(Target):
    """Lines of squeue, sacct, scontrol and sinfo, and batch scripts."""

    def __init__(self, _: Path) -> None:
        pass

    def make(self, random: Random) -> str:
        given = mutate.text(random, random.choice(_TEXTS), _TEXTS)
        return given.replace("Resources", random.choice(_REASONS))

    def feed(self, given: str) -> None:
        for read in (parse.squeue, parse.sacct):
            with contextlib.suppress(NonsenseError):
                for each in read(given):
                    _tell(each)
        for other in (parse.job_id, parse.node_states):
            with contextlib.suppress(NonsenseError):
                other(given)
        list(parse.directives(given))
        for partition in parse.partitions(given):
            assert not math.isnan(partition.most_time)


class Json(Target):
    """`squeue --json` of every version."""

    def __init__(self, _: Path) -> None:
        pass

    def make(self, random: Random) -> str:
        return mutate.as_json(random, mutate.tree(random, {"jobs": [_JOB]}), ())

    def feed(self, given: str) -> None:
        with contextlib.suppress(NonsenseError):
            for each in parse.squeue_json(given):
                _tell(each)


def _tell(seen: SlurmJob) -> None:
    """All that is made of a job of Slurm's before a person reads it."""
    why = pending.explain(seen, _AROUND)
    how = outcomes.outcome(seen, None, cancelled=False, me=1000)
    verdicts = outcomes.verdicts(seen, [0], "n1")
    job = Job(Handle("slurm", str(seen.job_id)), how.state, seen.submitted or 0.0, seen.name)
    told.job(dataclasses.replace(job, detail=how.detail, ended=seen.ended, verdicts=tuple(verdicts)))
    told.job(dataclasses.replace(job, state=State.PENDING, detail=why.text, hint=why.hint))
