"""What can never start is known before it is sent; what may start is never refused."""

from __future__ import annotations

import math

import pytest

from ddplaunch.backends.slurm.parse import Partition
from ddplaunch.backends.slurm.pending import Requested, problems, requested
from ddplaunch.backends.slurm.submission import explained_refusal

ALL = Partition("all", default=True, nodes=8)
SHORT = Partition("short", nodes=4, most_nodes=2, least_nodes=2, most_time=600.0, accounts=frozenset({"lab"}))
LOW = Partition("low", nodes=4, denied_accounts=frozenset({"lab"}), qos=frozenset({"slow"}))
THREE = [ALL, SHORT, LOW]


@pytest.mark.parametrize(
    "script",
    [
        "#SBATCH --partition=gpu --nodes=2 --time=10 --account=lab --qos=slow",
        "#SBATCH -p gpu -N 2\n#SBATCH -t 10 -A lab -q slow",
        "#SBATCH -pgpu -N2 -t10 -Alab -qslow",
        "#SBATCH --partition gpu --nodes 2 --time 10 --account lab --qos slow",
        "#SBATCH -p x\n#SBATCH -p gpu -N2 -t10 -Alab -qslow",
    ],
)
def test_options_are_found_in_every_form(script: str) -> None:
    """As sbatch reads them: the last one counts."""
    assert Requested("gpu", "2", "10", "lab", "slow") == requested(f"#!/bin/bash\n{script}\ntrue\n", {})


def test_the_environment_stands_above_the_script() -> None:
    """As for sbatch; an empty variable says nothing."""
    environment = {
        "SBATCH_PARTITION": "gpu",
        "SBATCH_TIMELIMIT": "",
        "SBATCH_QOS": "slow",
        "SBATCH_CLUSTERS": "north",
    }

    assert Requested("gpu", "", "5", "", "slow", "north") == requested("#SBATCH -p x -t 5\n", environment)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Requested(), []),
        (Requested(nodes="8"), []),
        (Requested(nodes="9"), ["the job asks for 9 nodes, and partition all has 8"]),
        (Requested(nodes="2-9"), []),
        (Requested(partition="shrt"), ["there is no partition shrt: did you mean short?"]),
        (Requested(partition="zebra"), ["there is no partition zebra (partitions: all, low, short)"]),
        (
            Requested("short", "3", account="lab"),
            ["the job asks for 3 nodes, and partition short allows a job at most 2"],
        ),
        (
            Requested("short", "1", account="lab"),
            ["the job asks for 1 nodes, and partition short requires at least 2"],
        ),
        (Requested("short", "1-2", account="lab"), []),
        (Requested("short", "2", "10"), []),
        (
            Requested("short", "2", "11"),
            ["the job's time limit is 11, and that of partition short is 00:10:00"],
        ),
        (Requested("short,all", "2", "11"), []),
        (Requested("short,zebra", "2"), ["there is no partition zebra (partitions: all, low, short)"]),
        (
            Requested("short", "2", account="physics"),
            ["partition short is not open to account physics, only to lab"],
        ),
        (Requested("low", account="lab"), ["partition low is not open to account lab"]),
        (Requested("low", qos="fast"), ["partition low is not open to QOS fast, only to slow"]),
        (Requested("low", qos="slow"), []),
    ],
)
def test_each_limit_that_a_job_can_never_meet_is_a_sentence(wanted: Requested, found: list[str]) -> None:
    """One sentence for each limit; of several partitions one that fits is enough."""
    assert found == problems(wanted, THREE)


def test_nothing_is_refused_where_nothing_is_known() -> None:
    """A Slurm that shows no partitions, or has no default one, decides by itself."""
    assert [] == problems(Requested("gpu", "99", "9-00"), [])
    assert [] == problems(Requested(nodes="99"), [SHORT])
    assert math.isinf(ALL.most_time)


def test_a_refusal_in_words_keeps_sbatchs_own() -> None:
    """What sbatch said stands below, once, and what it did not explain is passed on."""
    first = "invalid partition specified: x"
    second = "Batch job submission failed: Invalid partition name specified"
    known = explained_refusal(f"sbatch: error: {first}\nsbatch: error: {second}\nsbatch: error: {second}\n")
    unknown = explained_refusal("sbatch: error: lua: no jobs on Fridays\n")

    begin = "Slurm refused the job: it does not know the partition"
    assert f"{begin}\n    sbatch: {first}; {second}" == known.message
    assert "Slurm refused the job: lua: no jobs on Fridays" == unknown.message
    assert "nothing was submitted" == unknown.hint
    assert "Slurm refused the job: no reason given" == explained_refusal("").message
