"""Names that a headless Service gives to pods: late, stale, several at once, of two families."""

from __future__ import annotations

from typing import Callable

import pytest
from tests.agent.gate.hosts import Host
from tests.agent.gate.jobs import Agent, Job, make_plan

from ddplaunch.agent.contract import Env, Exit

PORT = 29400
NAMES = [f"run-{node}.run.team.svc.cluster.local" for node in (0, 1)]
Make = Callable[[int], list[Host]]


class Pods:
    """Node 0 on the first host, node 1 on the second, and on the third whoever had node 0's name before."""

    def __init__(self, job: Job, hosts: list[Host], timeout: float = 30.0) -> None:
        self.job = job
        self.hosts = hosts
        self.plan = make_plan(names=NAMES, platform="kubernetes", gate={"timeout": timeout})

    def resolve(self, *addresses: str) -> None:
        """What node 1 takes for node 0."""
        own = f"{self.hosts[1].address} {NAMES[1]}"
        lines = ["127.0.0.1 localhost", own, *(f"{address} {NAMES[0]}" for address in addresses)]
        (self.hosts[1].files / "hosts").write_text("\n".join(lines) + "\n")

    def earlier(self) -> Agent:
        """The hub of an earlier job of this name, which has not ended yet."""
        key = self.job.key
        self.job.key = b"another uid"
        plan = make_plan(names=NAMES, platform="kubernetes")
        hub = self.job.hub(plan, address=None, port=PORT, host=self.hosts[2])
        self.job.key = key
        hub.folder.rename(hub.folder.with_name("earlier"))
        return hub

    def start(self, *nodes: int) -> list[Agent]:
        """The hub and these nodes."""
        names = {NAMES[0]: self.hosts[0].address, NAMES[1]: self.hosts[1].address}
        self.hosts[0].hosts(names)
        self.job.hub(self.plan, address=None, port=PORT, host=self.hosts[0])
        where = f"{NAMES[0]}:{PORT}"
        return [self.job.gate(self.plan, node, hub=where, host=self.hosts[node]) for node in nodes]


@pytest.fixture(name="pods")
def _pods(network: Make, job: Job) -> Callable[..., Pods]:
    """A function that makes three hosts."""
    return lambda **more: Pods(job, network(3), **more)


@pytest.mark.whole
def test_of_a_name_with_two_pods_both_are_asked(pods: Callable[..., Pods]) -> None:
    trial = pods()
    trial.earlier()
    trial.resolve(trial.hosts[2].address, trial.hosts[0].address)

    assert [Exit.OK, Exit.OK] == [gate.wait() for gate in trial.start(0, 1)]


def test_a_name_that_leads_to_an_earlier_job_for_a_while_is_waited_out(pods: Callable[..., Pods]) -> None:
    trial = pods()
    trial.earlier()
    trial.resolve(trial.hosts[2].address)
    gates = trial.start(0, 1)
    gates[1].says("waiting for the hub on node 0")
    trial.resolve(trial.hosts[0].address)

    assert [Exit.OK, Exit.OK] == [gate.wait() for gate in gates], gates[1].output


@pytest.mark.fault("dns-disagrees")
def test_a_name_that_goes_on_leading_to_an_earlier_job_is_a_verdict(pods: Callable[..., Pods]) -> None:
    trial = pods(timeout=6.0)
    trial.earlier()
    trial.resolve(trial.hosts[2].address)
    (gate,) = trial.start(1)

    assert Exit.NODE_AT_FAULT == gate.wait()
    assert f"dns-disagrees: node 1 (run-1) resolves {NAMES[0]} to" in gate.output
    assert trial.hosts[2].address in gate.output


@pytest.mark.whole
def test_a_name_that_is_known_late_is_noted_with_what_may_be_the_cause(pods: Callable[..., Pods]) -> None:
    trial = pods()
    trial.resolve()
    gates = trial.start(0, 1)
    gates[1].says("waiting for the hub on node 0")
    trial.resolve(trial.hosts[0].address)

    assert [Exit.OK, Exit.OK] == [gate.wait() for gate in gates]
    assert "node 0's name was not known for" in gates[1].output
    assert "CoreDNS' cache of denials" in gates[1].output


@pytest.mark.whole
def test_ranks_are_given_the_address_by_which_node_zero_was_reached(pods: Callable[..., Pods]) -> None:
    """An IPv6 record that is not routed: the ranks are given the address by which node 0 was reached."""
    trial = pods()
    trial.resolve("fd00::bad", trial.hosts[0].address)
    gates = trial.start(0, 1)

    assert [Exit.OK, Exit.OK] == [gate.wait() for gate in gates]
    assert f"node 0 is {trial.hosts[0].address}:" in gates[1].output


@pytest.mark.whole
def test_what_a_pod_meets_is_in_its_log_at_once(pods: Callable[..., Pods]) -> None:
    """It tells the hub nothing; whoever started the job reads logs, and need not wait until it gives up."""
    trial = pods(timeout=60.0)
    trial.resolve()
    where = f"{NAMES[0]}:{PORT}"
    end = {Env.TERMINATION: str(trial.hosts[1].files / "end")}
    gate = trial.job.gate(trial.plan, 1, hub=where, host=trial.hosts[1], env=end)

    gate.says('{"unreached":1,')
    assert "waiting for the hub on node 0 (" in gate.output
    assert '"code":"dns-not-found"' in gate.output
