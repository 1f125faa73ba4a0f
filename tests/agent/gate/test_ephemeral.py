"""Machines on which the kernel may hand out any port, as those are set up that open many connections."""

from __future__ import annotations

import pytest
from tests.agent.gate.clusters import MASTER_PORT, Cluster, Make
from tests.agent.gate.hosts import Host, run
from tests.agent.gate.jobs import Agent, Job, make_plan

from ddplaunch.agent.contract import Exit

EVERYTHING = "net.ipv4.ip_local_port_range=1024 65535"
RESERVE = f"sysctl net.ipv4.ip_local_reserved_ports={MASTER_PORT}"


def sysctl(host: Host, setting: str) -> None:
    """Of its own network namespace."""
    run("ip", "netns", "exec", host.namespace, "sysctl", "-qw", setting)


def test_a_job_finds_its_ports_where_all_are_the_kernels(network: Make, job: Job) -> None:
    """The hub's and the master's own choice: none is outside, and the gate passes all the same."""
    (host,) = network(1)
    sysctl(host, EVERYTHING)
    plan = make_plan(nodes=2)
    job.hub(plan, host=host)
    gates = [job.gate(plan, node, host=host) for node in range(2)]

    assert [Exit.OK] * 2 == [gate.wait() for gate in gates], [gate.output for gate in gates]


@pytest.mark.fault("port-ephemeral")
def test_a_given_port_that_the_kernel_may_hand_out(network: Make, job: Job) -> None:
    """The gate passes, and says so, with how to have it left out."""
    gate = _passed(Cluster(job, network(2)))

    assert f"{MASTER_PORT} is free now, but lies where the kernel hands out ports (1024-65535)" in gate.output
    assert f"`{RESERVE}` on node 0" in gate.output


def test_a_given_port_that_is_left_out_as_the_hint_says(network: Make, job: Job) -> None:
    """Nothing is said any more."""
    hosts = network(2)
    sysctl(hosts[0], RESERVE.partition(" ")[2])
    gate = _passed(Cluster(job, hosts))

    assert "hands out" not in gate.output


def _passed(trial: Cluster) -> Agent:
    sysctl(trial.hosts[0], EVERYTHING)
    trial.start()
    assert [Exit.OK] * 2 == trial.end(), [gate.output for gate in trial.gates]
    return trial.gates[0]
