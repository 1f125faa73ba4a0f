"""What Slurm's commands print, of several versions, read as the same facts."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.backends.slurm import parse
from ddplaunch.backends.slurm.parse import NonsenseError, Partition, SlurmJob

SEEN = SlurmJob(
    job_id=71,
    state="FAILED",
    reason="NonZeroExitCode",
    name="digits",
    partition="gpu",
    nodes=2,
    node_list="n[1-2]",
    exit_code=20,
    restarts=1,
    submitted=1700000000.0,
    started=1700000010.0,
    ended=1700000070.0,
    time_limit=3600.0,
    workdir="/home/a b/x|y",
    command="/home/a b/digits.sbatch",
)


def row(**changes: str) -> str:
    """A line of squeue as Slurm 22.05 prints it."""
    cells = {
        "jobid": "71",
        "state": "FAILED",
        "reason": "NonZeroExitCode",
        "name": "digits",
        "partition": "gpu",
        "numnodes": "2",
        "nodelist": "n[1-2]",
        "exit_code": "5120",
        "restartcnt": "1",
        "submittime": "1700000000",
        "starttime": "1700000010",
        "endtime": "1700000070",
        "timelimit": "1:00:00",
        "workdir": "/home/a b/x|y",
        "command": "/home/a b/digits.sbatch",
        "dependency": "(null)",
    }
    return "".join(f"{cell}{parse.SEPARATOR}" for cell in (cells | changes).values())


def test_a_row_of_squeue_is_a_job() -> None:
    """Paths with blanks and bars come through, and a wait status is an exit code."""
    assert [SEEN] == parse.squeue(row() + "\n")


@pytest.mark.parametrize(
    ("cells", "field", "value"),
    [
        ({"exit_code": "20:0"}, "exit_code", 20),
        ({"exit_code": "9"}, "signal", 9),
        ({"exit_code": "0:15"}, "signal", 15),
        ({"exit_code": ""}, "exit_code", None),
        ({"restartcnt": ""}, "restarts", 0),
        ({"numnodes": "2-4"}, "nodes", 2),
        ({"starttime": "N/A"}, "started", None),
        ({"endtime": "NONE"}, "ended", None),
        ({"starttime": "2026-01-02T03:04:05"}, "started", None),
        ({"timelimit": "UNLIMITED"}, "time_limit", math.inf),
        ({"timelimit": "2-03:00:00"}, "time_limit", 51 * 3600.0),
        ({"nodelist": ""}, "node_list", ""),
        (
            {"reason": "ReqNodeNotAvail, UnavailableNodes:n3"},
            "reason",
            "ReqNodeNotAvail, UnavailableNodes:n3",
        ),
        ({"reason": "None"}, "reason", ""),
        ({"dependency": "afterok:70(unfulfilled)"}, "dependency", "afterok:70(unfulfilled)"),
    ],
)
def test_cells_have_many_forms(cells: dict[str, str], field: str, value: object) -> None:
    """Codes with and without a signal, times that are none, columns that this version does not know."""
    [seen] = parse.squeue(row(**cells))

    assert value == getattr(seen, field)


@pytest.mark.parametrize(
    "text",
    [
        "JOBID PARTITION NAME",
        "71|FAILED",
        row() + "more",
        row(jobid="x"),
        row(state=""),
        "Welcome to the cluster!",
    ],
)
def test_a_line_that_is_no_job_is_nonsense(text: str) -> None:
    """A notice or a table for people is not taken for a job."""
    with pytest.raises(NonsenseError):
        parse.squeue(text)


def unset() -> dict[str, Any]:
    """A number of Slurm 23.02 and later that nobody has set."""
    return {"set": False, "infinite": False, "number": 0}


def number(value: float) -> dict[str, Any]:
    """A number of Slurm 23.02 and later."""
    return {"set": True, "infinite": False, "number": value}


def ending(code: int, signal: int = 0) -> dict[str, Any]:
    """An exit code of Slurm 23.11 and later."""
    return {
        "status": ["ERROR" if code else "SUCCESS"],
        "return_code": number(code),
        "signal": {"id": number(signal) if signal else unset(), "name": ""},
    }


COMMON = {
    "job_id": 71,
    "name": "digits",
    "partition": "gpu",
    "nodes": "n[1-2]",
    "restart_cnt": 1,
    "state_reason": "NonZeroExitCode",
    "current_working_directory": "/home/a b/x|y",
    "command": "/home/a b/digits.sbatch",
    "dependency": "",
}
PLAIN_TIMES = {"submit_time": 1700000000, "start_time": 1700000010, "end_time": 1700000070}
VERSIONS: dict[str, dict[str, Any]] = {
    # One word for the state, bare numbers, a wait status; a time limit in minutes or null.
    "21.08": {"job_state": "FAILED", "exit_code": 5120, "node_count": 2, "time_limit": 60, **PLAIN_TIMES},
    # Numbers become objects, but for times; the exit code is still a wait status.
    "23.02": {
        "job_state": "FAILED",
        "exit_code": number(5120),
        "node_count": number(2),
        "time_limit": number(60),
        **PLAIN_TIMES,
    },
    # The state is a list, with flags behind it; times are objects, and the exit code has parts.
    "23.11": {
        "job_state": ["FAILED"],
        "exit_code": ending(20),
        "node_count": number(2),
        "time_limit": number(60),
        **{name: number(value) for name, value in PLAIN_TIMES.items()},
    },
    # Resources are told elsewhere and in another form; what we read stays.
    "24.05": {
        "job_state": ["FAILED"],
        "exit_code": ending(20),
        "node_count": number(2),
        "time_limit": number(60),
        "job_resources": {"nodes": {"list": "n[1-2]", "count": 2}},
        **{name: number(value) for name, value in PLAIN_TIMES.items()},
    },
    "24.11": {
        "job_state": ["FAILED", "LAUNCH_FAILED"],
        "exit_code": ending(20),
        "node_count": number(2),
        "time_limit": number(60),
        "standard_output": "",
        "stdout_expanded": "/home/a b/x|y/digits-71.out",
        **{name: number(value) for name, value in PLAIN_TIMES.items()},
    },
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_versions_json_says_the_same(version: str) -> None:
    """Words or lists of words, bare numbers or objects, wait statuses or parts."""
    text = json.dumps({"meta": {}, "jobs": [COMMON | VERSIONS[version]], "errors": []})

    assert [SEEN] == parse.squeue_json(text)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"job_state": ["RUNNING", "CONFIGURING"]}, "state", "CONFIGURING"),
        ({"job_state": ["CANCELLED", "COMPLETING"]}, "state", "COMPLETING"),
        ({"job_state": ["PENDING", "REQUEUE_HOLD"]}, "state", "REQUEUE_HOLD"),
        ({"time_limit": {"set": False, "infinite": True, "number": 0}}, "time_limit", math.inf),
        ({"time_limit": None}, "time_limit", math.inf),
        ({"start_time": number(0)}, "started", None),
        ({"start_time": 0}, "started", None),
        ({"exit_code": ending(0, 9)}, "signal", 9),
        ({"exit_code": {"return_code": 20, "signal": {"signal_id": 0}}}, "exit_code", 20),
        ({"exit_code": unset()}, "exit_code", None),
        ({"nodes": {"list": []}}, "node_list", ""),
        ({"state_description": "launch failed requeued held"}, "reason", "launch failed requeued held"),
        ({"state_reason": None}, "reason", ""),
    ],
)
def test_json_has_many_forms(changes: dict[str, Any], field: str, value: object) -> None:
    """A flag stands for the state, as in text; what is not set is not zero."""
    [seen] = parse.squeue_json(json.dumps({"jobs": [COMMON | VERSIONS["23.11"] | changes]}))

    assert value == getattr(seen, field)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"jobs": 3}', '{"jobs": [7]}', '{"jobs": [{"job_id": 7}]}', '{"jobs": [{}]}'],
)
def test_json_without_jobs_is_nonsense(text: str) -> None:
    with pytest.raises(NonsenseError):
        parse.squeue_json(text)


@given(st.text(max_size=200))
def test_whatever_is_printed_nothing_breaks(text: str) -> None:
    """Any text is jobs or nonsense."""
    for read in (parse.squeue, parse.squeue_json, parse.sacct, parse.node_states, parse.job_id):
        try:
            read(text)
        except NonsenseError:
            continue
    parse.partitions(text)
    parse.seconds(text)
    list(parse.directives(text))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    ),
    st.sampled_from(sorted(COMMON | VERSIONS["23.11"])),
)
def test_whatever_a_field_of_json_holds_nothing_breaks(value: object, name: str) -> None:
    """A form that no version has yet is passed over, or is nonsense."""
    with contextlib.suppress(NonsenseError):
        parse.squeue_json(json.dumps({"jobs": [COMMON | VERSIONS["23.11"] | {name: value}]}))


def test_sacct_says_who_cancelled() -> None:
    """The state has the uid behind it, and the folder may hold a bar."""
    line = "71|CANCELLED by 1000|0:15|digits|gpu|2|n[1-2]|1700000000|1700000010|1700000070|01:00:00|/home/x|y"
    [seen] = parse.sacct(line)

    assert ("CANCELLED", 1000, 0, 15) == (seen.state, seen.ended_by, seen.exit_code, seen.signal)
    assert ("/home/x|y", 3600.0, 1700000070.0) == (seen.workdir, seen.time_limit, seen.ended)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("71|COMPLETED|0:0|d|gpu|2|n1|1|2|3|UNLIMITED|/w", "time_limit", math.inf),
        ("71|NODE_FAIL|1:0|d|gpu|2|n1|1|2|3|UNLIMITED|/w", "state", "NODE_FAIL"),
        ("71|PENDING|0:0|d|gpu|2|None assigned|1|Unknown|Unknown|10:00|/w", "node_list", ""),
        ("71|PENDING|0:0|d|gpu|2|None assigned|1|Unknown|Unknown|10:00|/w", "ended", None),
        ("71|FAILED|20:0|d|gpu|2|n1|1|2|3|Partition_Limit|/w", "time_limit", math.inf),
        ("71|FAILED|20:0|d|gpu|2|n1|1|2|3|Partition_Limit|/w", "restarts", None),
    ],
)
def test_a_row_of_sacct_is_a_job(line: str, field: str, value: object) -> None:
    """Jobs that ran and jobs that did not."""
    assert value == getattr(parse.sacct(line)[0], field)


@pytest.mark.parametrize(
    "line", ["71.batch|COMPLETED|0:0|||||||||", "Slurm accounting storage is disabled", "71|A"]
)
def test_what_is_no_job_of_sacct_is_nonsense(line: str) -> None:
    with pytest.raises(NonsenseError):
        parse.sacct(line)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("71\n", (71, "")),
        ("71;north\n", (71, "north")),
        ("Welcome! Your project has 3 GPU hours left.\n71\n", (71, "")),
    ],
)
def test_the_last_line_of_sbatch_is_the_id(text: str, found: tuple[int, str]) -> None:
    """With its cluster, and behind whatever a site prints first."""
    assert found == parse.job_id(text)


@pytest.mark.parametrize("text", ["", "\n", "Submitted batch job 71", "71 72"])
def test_sbatch_without_an_id_is_nonsense(text: str) -> None:
    with pytest.raises(NonsenseError):
        parse.job_id(text)


def test_a_partition_has_limits() -> None:
    """Of scontrol's one line; hidden, shut and reserved ones too."""
    text = (
        "PartitionName=all AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES MaxNodes=UNLIMITED "
        "MaxTime=UNLIMITED MinNodes=0 Nodes=n[1-3] State=UP TotalCPUs=12 TotalNodes=3\n"
        "PartitionName=short AllowAccounts=lab,physics DenyQos=slow Default=NO MaxNodes=2 MaxTime=1-00:00:00 "
        "MinNodes=1 State=DOWN TotalNodes=2\n"
    )

    assert [
        Partition("all", default=True, nodes=3),
        Partition(
            "short",
            up=False,
            nodes=2,
            most_nodes=2,
            least_nodes=1,
            most_time=86400.0,
            accounts=frozenset({"lab", "physics"}),
            denied_qos=frozenset({"slow"}),
        ),
    ] == parse.partitions(text)


def test_nodes_have_states_and_reasons() -> None:
    """Marks behind the state, such as * for a node that does not answer, are no part of it."""
    text = "\n".join(
        parse.SEPARATOR.join([*cells, ""])
        for cells in [("n1", "idle", "none"), ("n2", "down*", "Not responding"), ("n3", "idle~", "none")]
    )

    assert [("n1", "idle", ""), ("n2", "down", "Not responding"), ("n3", "idle", "")] == parse.node_states(
        text
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("10:30", 630),
        ("1:00:00", 3600),
        ("1-00", 86400),
        ("1-02:03", 93780),
        ("1-02:03:04", 93784),
        ("UNLIMITED", math.inf),
        ("INFINITE", math.inf),
        ("", math.inf),
    ],
)
def test_times_are_read_in_each_of_slurms_forms(text: str, seconds: float) -> None:
    assert seconds == parse.seconds(text)


def test_directives_end_with_the_first_command() -> None:
    """As for sbatch: comments and empty lines may stand between, and quotes hold blanks together."""
    script = '#!/bin/bash\n#SBATCH -p a -N 2\n# x\n\n#SBATCH --comment="a b" # no\necho\n#SBATCH --nodes=9\n'

    assert ["-p", "a", "-N", "2", "--comment=a b"] == list(parse.directives(script))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a b/slurm-7.out", "/a b/slurm-7.out"),
        ("/a b/o-%N-%%-%n.log", "/a b/o-n1-%-0.log"),
        ("/a/%A_%4a-%5j-%s-%J.log", "/a/70_0003-00007-batch-7.log"),
        ("/a/%q-%", "/a/%q-%"),
    ],
)
def test_the_output_of_a_batch_script_is_found(path: str, expected: str) -> None:
    """Slurm 22.05 fills in part of the pattern; of an array it shows all tasks."""
    text = (
        f"JobId=71 JobName=other\n   StdOut=/other\n\nJobId=7 ArrayJobId=70 ArrayTaskId=3 JobName=x\n"
        f"   StdErr=/err\n   StdIn=/dev/null\n   StdOut={path}\n   Power=\n\n"
    )

    assert expected == parse.output_file(text, 7, "n1.example.com")
    assert "" == parse.output_file(text, 8, "n1")
