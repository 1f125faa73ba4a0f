"""What follows from a job file that is JSON: the plan of its nodes, or what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agent.job_file.jobs import text

from ddplaunch.agent.contract import Exit, GatePlan, JobPlan, ResourcePlan, WatchdogPlan
from ddplaunch.agent.diagnosis.catalogue import exit_code
from ddplaunch.agent.job_file import read


def wrong(**changes: Any) -> list[str]:
    """The sentences of the verdicts, without what is the same in all."""
    verdicts = read.parse(text(**changes)).verdicts
    return [each.sentence.partition("the job file cannot be used: ")[2] for each in verdicts]


def test_the_plan_follows_from_the_job_file() -> None:
    found = read.parse(
        text(
            env={"B": "2", "A": "1"},
            secrets={"TOKEN": {"secret": {"name": "keys", "key": "token"}}},
            resources={"cpus": 2, "memory": "1.5Gi", "shm": "1Gi"},
            rendezvous={"port": 29400},
            watchdog={"notice_after": "1m30s", "kill_after": "never"},
            gate={"skip": ["disk"]},
        )
    )

    assert [] == found.verdicts
    assert found.plan == JobPlan(
        job="digits",
        nodes=2,
        nproc_per_node=4,
        launch=[
            *("{python}", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=4"),
            *("--max-restarts=0", "--node-rank={node}", "--master-addr={master_addr}"),
            *("--master-port={master_port}", "--rdzv-conf=timeout=600"),
        ],
        command=["train.py", "--epochs", "3"],
        master_port=29400,
        env={"A": "1", "B": "2"},
        secrets={"TOKEN": {"env": "TOKEN"}},
        platform="kubernetes",
        gate=GatePlan(timeout=600.0, port=29401, skip=["disk"]),
        watchdog=WatchdogPlan(notice_after=90.0, kill_after=None),
        resources=ResourcePlan(cpus=2.0, memory=3 << 29, shm=1 << 30),
    )


def test_all_that_the_rules_find_is_said_at_once() -> None:
    found = read.parse(text(command=["torchrun", "a.py"], env={"RANK": "0"})).verdicts

    assert {"job-file-wrong"} == {each.code for each in found}
    assert {Exit.MISCONFIGURED} == {exit_code(each) for each in found}
    assert [
        "the job file cannot be used: env.RANK: found a name that ddplaunch sets itself, wanted another name",
        'the job file cannot be used: command[0]: found "torchrun", wanted the script and its arguments only',
    ] == [each.sentence for each in found]
    wanted = [
        "remove it",
        "ddplaunch calls torchrun itself; with `launch: none` your command is the launcher",
    ]
    assert wanted == [each.hint for each in found]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"retries": 1}, "retries: found 1, wanted 0, or kubernetes.jobset"),
        ({"launch": "mpi"}, "launch: found mpi, wanted torchrun or none for --to kubernetes"),
        ({"launch": "srun"}, "launch: found srun, wanted torchrun or none for --to kubernetes"),
        ({"resources": {"gpus": 2}}, "resources.gpus: found 2, wanted at least nproc_per_node, which is 4"),
        (
            {"gate": {"timeout": "1h2h"}},
            'gate.timeout: found "1h2h", wanted a duration such as 10s, 2m or 1h30m',
        ),
        (
            {"kubernetes": {"ttl": "400d"}},
            'kubernetes.ttl: found "400d", wanted a duration such as 10s, 2m or 1h30m',
        ),
        (
            {"resources": {"memory": "1.0001k"}},
            'resources.memory: found "1.0001k", wanted a quantity such as 16Gi or 500M, or a number of bytes',
        ),
        (
            {"rendezvous": {"port": 40000}},
            "rendezvous.port: found 40000, wanted a port from 1024 to 32767 [port-ephemeral]",
        ),
    ],
)
def test_a_wrong_value_is_named_by_its_key_and_what_is_wanted(changes: dict[str, Any], sentence: str) -> None:
    assert [sentence] == wrong(**changes)


def test_nothing_is_said_of_what_stands_in_for_a_wrong_value() -> None:
    """A notice after the end is no matter where the end itself cannot be read."""
    assert [
        'watchdog.kill_after: found "0s", wanted a duration such as 10s, 2m or 1h30m, or auto or never'
    ] == wrong(watchdog={"kill_after": "0s"})


def test_a_device_that_the_gate_does_not_have_is_refused() -> None:
    """A pod template that gives one to the trainer alone leaves the gate without proof."""
    more = {"name": "trainer", "resources": {"limits": {"rdma/hca": "1"}}}
    (said,) = wrong(kubernetes={"pod_template": {"spec": {"containers": [more]}}})

    assert said.startswith(
        "kubernetes.pod_template.spec.initContainers[gate].resources.limits.rdma/hca: found "
    )
    assert said.endswith('a change that breaks the gate, wanted "1", as the trainer has it')
    assert [] == wrong(kubernetes={"pod_template": {"spec": {"containers": ["odd"], "initContainers": 1}}})


@pytest.mark.parametrize("odd", ["", "[]", "{}", '{"resources": 7}', "7"])
def test_what_is_no_job_file_is_said_so(odd: str) -> None:
    with pytest.raises(ValueError, match=r"it is no job file|Expecting value"):
        read.parse(odd)
