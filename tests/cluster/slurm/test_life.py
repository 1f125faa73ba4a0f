"""How a job on Slurm lives and dies: by its own end, by a person, by its scheduler, by a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.cluster.slurm.jobs import COME, STEPS, Job

ODD = ["it's $HOME `id`", "PLAN", "--", "-x", "%j,%x", "a\nb", "ü€🚀", '\\n\t"', "*", ""]


@pytest.mark.whole
def test_values_reach_the_worker_unchanged(cluster: Cluster, work: Path) -> None:
    """Through sbatch, bash, srun and torchrun, also where somebody's settings say --export=NONE."""
    program = "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ['ODD']]))\n"
    job = Job.submit(
        cluster,
        work,
        program,
        "--export=NONE",
        command=["program.py", *ODD],
        env={"ODD": "".join(ODD), "PATH": "/nowhere"},
        slurm={"comment": """it's "ours" # \\ 100 % $HOME"""},
    )

    assert ("COMPLETED", "0:0") == (job.ended(), job.exit_code)
    lines = [
        line.partition("] ")[2] for line in job.output.splitlines() if line.startswith(("[0/0]", "[1/1]"))
    ]
    assert [[ODD, "".join(ODD)]] * 2 == [json.loads(line) for line in lines]
    told = cluster.login(["scontrol", "show", "job", str(job.number)]).stdout
    assert """Comment=it's "ours" # \\ 100 % $HOME""" in told
    job.leaves_nothing()


@pytest.mark.whole
def test_a_range_of_nodes_becomes_what_slurm_has(cluster: Cluster, work: Path) -> None:
    """Three of at most four, with a core for each rank; the job needs all nodes that it got."""
    names = ("WORLD_SIZE", "SLURM_JOB_CPUS_PER_NODE")
    job = Job.submit(
        cluster,
        work,
        f"import os\nprint('of', *map(os.environ.get, {names}))\n",
        nodes="2:4",
        nproc_per_node=2,
        rendezvous={"backend": "c10d"},
    )

    assert ("COMPLETED", "0:0") == (job.ended(), job.exit_code)
    assert ["of 6 2(x3)"] * 6 == [
        line.partition("] ")[2] for line in job.output.splitlines() if "] of " in line
    ]
    assert (3, []) == (job.bundle().nodes, job.bundle().verdicts)
    job.leaves_nothing()


@pytest.mark.whole
def test_scancel_lets_the_ranks_end_by_themselves(cluster: Cluster, work: Path) -> None:
    """SIGTERM reaches them once; what was known is in the bundle."""
    program = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved')))\n" + STEPS
    )
    job = Job.submit(cluster, work, program, command=["program.py", "500"])
    job.up()
    cluster.login(["scancel", str(job.number)])

    assert ("CANCELLED", "60:0") == (job.ended(), job.exit_code)
    assert 2 == job.output.count("told to stop by SIGTERM")
    assert 1 == job.output.count("the job is ended by scancel"), job.output
    assert 2 == job.output.count("] saved")
    assert 60 == job.bundle().exit_code
    job.leaves_nothing()


@pytest.mark.whole
def test_a_signal_to_the_batch_script_alone_ends_the_job(cluster: Cluster, work: Path) -> None:
    """The supervisors do not get it, and hear of it from the hub; a second one changes nothing."""
    job = Job.submit(cluster, work, STEPS, command=["program.py", "500"])
    job.up()
    for _ in range(2):
        cluster.login(["scancel", "--signal=TERM", "--batch", str(job.number)])

    assert ("FAILED", "60:0") == (job.ended(), job.exit_code)
    found = job.bundle()
    assert found.evidence is not None
    assert [1, 1] == [len(node.ranks) for node in found.evidence.evidence]
    job.leaves_nothing()


@pytest.mark.whole
def test_scancel_at_the_gate(cluster: Cluster, work: Path) -> None:
    """A job that waits at its gate ends at once."""
    cluster.nft("n2", "tcp dport 1024-60999 drop")
    job = Job.submit(cluster, work, STEPS)
    job.said("checked in")
    cluster.login(["scancel", str(job.number)])

    assert "CANCELLED" == job.ended(15)
    job.leaves_nothing()


@pytest.mark.whole
def test_the_time_limit_is_told_before_it_ends_the_job(cluster: Cluster, work: Path) -> None:
    """The evidence of all ranks and how far they were; then Slurm's own end."""
    job = Job.submit(cluster, work, STEPS, command=["program.py", "9000"], slurm={"time": "5m"})
    job.up()
    # Slurm looks at the clock every half minute, and warns at the last look that comes in time.
    cluster.login(["scontrol", "update", f"JobId={job.number}", "EndTime=now+65"])

    assert "TIMEOUT" == job.ended(120), job.output
    told = [(verdict.code, verdict.sentence) for verdict in job.bundle().verdicts]
    assert ["node-evicted"] == [code for code, _ in told], f"{told}\n{job.output}"
    assert [0, 1] == sorted(_ranks(job)), job.output
    assert "its time limit is near" in job.verdict.sentence
    assert "ddplaunch notice: the job goes on" in job.output
    job.leaves_nothing()


def _ranks(job: Job) -> list[int]:
    evidence = job.bundle().evidence
    assert evidence is not None
    return [rank.rank for node in evidence.evidence for rank in node.ranks]


@pytest.mark.whole
def test_a_node_at_fault_is_left_out_of_the_next_attempt(cluster: Cluster, work: Path) -> None:
    """Same job, same output, other nodes; the first attempt's verdict stays to be read."""
    cluster.nft("n2", "tcp dport 1024-60999 drop")
    job = Job.submit(
        cluster,
        work,
        STEPS,
        retries=1,
        gate={"timeout": COME},
        command=["program.py", "3"],
    )

    job.said("a node is at fault")
    job.comes_back()
    assert ("COMPLETED", "0:0") == (job.ended(60), job.exit_code)
    assert "a node is at fault: retry 1 of 1, without n2" in job.output
    assert 2 == job.output.count("step 2")
    assert [1] == job.bundle("run-0").verdicts[0].nodes
    assert [] == job.bundle().verdicts
    job.leaves_nothing()


@pytest.mark.whole
def test_without_retries_a_node_at_fault_ends_the_job(cluster: Cluster, work: Path) -> None:
    """With the gate's exit code, which says whether another try could help."""
    cluster.nft("n2", "tcp dport 1024-60999 drop")
    job = Job.submit(cluster, work, STEPS, gate={"timeout": COME})

    assert ("FAILED", "20:0", [1]) == (job.ended(40), job.exit_code, job.verdict.nodes)
    assert "(n2)" in job.verdict.sentence
    assert f"ddplaunch: {job.verdict.code}: {job.verdict.sentence}"[:200] == job.comment
    job.leaves_nothing()


@pytest.mark.whole
def test_the_node_of_the_batch_script_loses_power(cluster: Cluster, work: Path) -> None:
    """The hub goes with it: then the job's state is Slurm's to tell, and the other nodes are left clean."""
    job = Job.submit(cluster, work, STEPS, command=["program.py", "900"])
    job.up()
    cluster.power_off("n1")

    assert "NODE_FAIL" == job.ended(100)
    cluster.until(
        lambda: not cluster.processes("n2"), "nothing runs on n2", 30, lambda: str(cluster.processes("n2"))
    )


@pytest.mark.fault("network-lost")
def test_a_node_that_loses_power(cluster: Cluster, work: Path) -> None:
    """The others say which, long before Slurm knows."""
    cluster.configure("SlurmdTimeout=120")
    job = Job.submit(cluster, work, STEPS, command=["program.py", "900"], watchdog={"kill_after": "15s"})
    job.up()
    cluster.power_off("n2")

    job.said("the job has failed, for a node or the network", seconds=60)
    assert ("network-lost", [1]) == (job.verdict.code, job.verdict.nodes)
    assert "n2" in job.verdict.sentence
    cluster.until(
        lambda: not cluster.processes("n1"), "nothing runs on n1", 40, lambda: str(cluster.processes("n1"))
    )


@pytest.mark.whole
def test_a_node_whose_network_is_cut(cluster: Cluster, work: Path) -> None:
    """It is named; and once it is back, nothing of the job goes on there."""
    cluster.configure("SlurmdTimeout=120")
    job = Job.submit(cluster, work, STEPS, command=["program.py", "900"], watchdog={"kill_after": "15s"})
    job.up()
    cluster.link("n2", up=False)

    job.said("the job has failed, for a node or the network", seconds=60)
    assert ("network-lost", [1]) == (job.verdict.code, job.verdict.nodes)
    cluster.link("n2", up=True)
    assert ("FAILED", "20:0") == (job.ended(60), job.exit_code)
    cluster.until(lambda: not cluster.processes("n2"), "nothing runs on n2", 20)


@pytest.mark.whole
def test_a_daemon_that_dies_ends_nothing(cluster: Cluster, work: Path) -> None:
    """The job outlives slurmd, and its end is told to the new one."""
    job = Job.submit(cluster, work, STEPS, command=["program.py", "30"])
    job.up()
    cluster.kill_slurmd("n2")
    cluster.start_slurmd("n2")

    assert ("COMPLETED", "0:0") == (job.ended(), job.exit_code)
    job.leaves_nothing()


def test_a_preempted_job_says_what_it_was_doing(cluster: Cluster, work: Path) -> None:
    """Its ranks are told once and may end by themselves; the state is Slurm's."""
    cluster.configure(
        "PreemptType=preempt/partition_prio",
        "PreemptMode=CANCEL",
        "PartitionName=urgent Nodes=ALL PriorityTier=9",
    )
    cluster.restart_controller()
    job = Job.submit(cluster, work, STEPS, command=["program.py", "900"])
    job.up()
    cluster.submit("#!/bin/bash\ntrue\n", "--nodes=3", "--exclusive", "--partition=urgent", cwd=work)

    assert "PREEMPTED" == job.ended(60)
    assert 2 == job.output.count("told to stop by SIGTERM")
    assert 1 == job.output.count("the job is ended by Slurm, for a job of higher priority"), job.output
    assert 60 == job.bundle().exit_code
    job.leaves_nothing()


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--nodes=3", "this file is for 2 nodes and Slurm gave 3: change `nodes` in the job file"),
        pytest.param(
            "--chdir=/proc", "cannot be made on n1: submit from one that is shared", marks=pytest.mark.whole
        ),
    ],
)
def test_what_cannot_work_is_said_at_once(cluster: Cluster, work: Path, option: str, sentence: str) -> None:
    """A file that somebody changed on the command line."""
    job = Job.submit(cluster, work, STEPS, option, f"--output={work}/%x-%j.out", command=["program.py", "1"])
    job.ended()

    assert sentence in job.output
