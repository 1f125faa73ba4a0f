"""The agent's command line: what it takes from the environment of a scheduler, and what it asks a hub."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent import printed
from tests.agent.gate.jobs import COME, Job, make_plan, wait_for

from ddplaunch.agent.contract import Env, Exit, Files, JobStatus, Phase, codec


@pytest.fixture(name="job")
def _job(tmp_path: Path, agent: list[str]) -> Iterator[Job]:
    job = Job(tmp_path, agent)
    yield job
    job.close()


def ask(job: Job, agent: list[str], *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """From the hub's folder, with nothing but what the hub left there and `env`."""
    command = [*agent, "ask", *words, "--folder", str(job.folder("hub"))]
    own = {name: value for name, value in os.environ.items() if not name.startswith("DDPLAUNCH_")}
    return subprocess.run(command, capture_output=True, text=True, env={**own, **env}, check=False)


def named(**changes: Any) -> dict[str, str]:
    """The environment of a job of two nodes that have names."""
    return {Env.NAMES: "n1,n2", **changes}


@pytest.mark.whole
def test_a_plan_without_names_takes_those_of_the_scheduler(job: Job) -> None:
    plan = make_plan(gate={"timeout": COME})
    hub = job.hub(plan, env=named())
    gate = job.gate(plan, 0, env=named())

    assert gate.wait() == Exit.NODE_AT_FAULT
    assert job.verdict.sentence == f"node 1 (n2) never came: waited {COME:.0f} s; node 0 (n1) is here"
    assert "gate of trial, node 0 (n1) of 2" in gate.output
    assert "waiting for node 1 (n2)" in gate.output
    assert "node 0 (n1) checked in" in hub.output
    assert hub.wait(5) == Exit.NODE_AT_FAULT
    assert (job.folder("hub") / Files.FAULTY).read_text() == "n2\n"


def test_without_names_nobody_is_named_to_the_scheduler(job: Job) -> None:
    plan = make_plan(gate={"timeout": 2.0})
    hub = job.hub(plan)
    job.gate(plan, 0).wait()

    assert hub.wait(5) == Exit.NODE_AT_FAULT
    assert not (job.folder("hub") / Files.FAULTY).exists()


def test_more_or_fewer_names_than_nodes_are_refused(job: Job) -> None:
    gate = job.gate(make_plan(), 0, hub="127.0.0.1:1", env={Env.NAMES: "n1,n2,n3"})

    assert gate.wait() == Exit.UNUSABLE
    assert f"error: {Env.NAMES} names 3 nodes, the job has 2: n1,n2,n3" in gate.output


def test_without_a_number_of_ours_sruns_is_the_nodes(job: Job) -> None:
    plan = make_plan()
    job.hub(plan)
    gates = [
        job.gate(plan, node, env={Env.NODE: "", "SLURM_NODEID": str(node)}, name=f"by-srun-{node}")
        for node in range(2)
    ]

    assert [Exit.OK, Exit.OK] == [gate.wait() for gate in gates]


def test_a_hub_is_given_by_a_list_of_hosts_and_ports(job: Job) -> None:
    gate = job.gate(make_plan(), 0, hub="n1")

    assert gate.wait() == Exit.UNUSABLE
    assert f"error: {Env.HUB} is 'n1'; wanted host:port of the hub" in gate.output


def test_the_hub_tells_its_name_and_every_address_but_loopback(job: Job) -> None:
    job.hub(make_plan(), address=None, name="n1")
    line = (job.folder("hub") / Files.HUB_ADDRESS).read_text()

    assert line.startswith(f"n1:{job.hub_port},")
    assert line.endswith(f":{job.hub_port}\n")
    assert "127." not in line


def test_the_addresses_of_a_hub_are_tried_in_turn(job: Job) -> None:
    plan = make_plan(nodes=1)
    job.hub(plan)
    where = f"nosuch.invalid:{job.hub_port},127.0.0.1:9,127.0.0.1:{job.hub_port}"
    gate = job.gate(plan, 0, hub=where)

    assert gate.wait() == Exit.OK
    facts = job.bundle.check_ins[0].facts["hub"]
    assert f"127.0.0.1:{job.hub_port}" == facts["met"]
    assert ["127.0.0.1:9"] == list(facts["detours"])


def test_a_verdict_about_the_hub_is_about_its_address(job: Job) -> None:
    plan = make_plan(nodes=2, gate={"timeout": 3.0})
    gate = job.gate(plan, 1, hub="nosuch.invalid:9,127.0.0.1:9", env=named())

    assert gate.wait() == Exit.MISCONFIGURED
    assert "master-is-loopback: node 1 (n2) resolves 127.0.0.1" in gate.output
    assert "- nosuch.invalid:9: nosuch.invalid: " in gate.output


def test_status_answers_as_json_by_what_lies_in_the_folder(job: Job, agent: list[str]) -> None:
    job.hub(make_plan(), attempt=3)
    (job.folder("hub") / Files.KEY).write_bytes(job.key)
    done = ask(job, agent, "status")

    status = codec.load(JobStatus, json.loads(done.stdout))
    assert (Exit.OK, "trial", 3, Phase.STARTING) == (
        done.returncode,
        status.job,
        status.attempt,
        status.phase,
    )


def test_who_waits_at_the_gate_is_told_to_stop_and_not_blamed(job: Job, agent: list[str]) -> None:
    plan = make_plan()
    hub = job.hub(plan)
    gate = job.gate(plan, 0)
    hub.says("node 0 checked in")
    done = ask(job, agent, "stop", "somebody pulled the plug", DDPLAUNCH_KEY=job.key.decode())

    assert (Exit.OK, "") == (done.returncode, done.stdout)
    assert [Exit.STOPPED, Exit.STOPPED] == [gate.wait(5), hub.wait(5)]
    assert "somebody pulled the plug" in hub.output
    assert [] == job.bundle.verdicts


def test_a_time_limit_at_the_gate_names_who_was_waited_for(job: Job, agent: list[str]) -> None:
    plan = make_plan()
    hub = job.hub(plan, env=named())
    first = job.gate(plan, 0, env=named())
    wait_for(lambda: job.status.waiting_for == [1])
    done = ask(job, agent, "ending", "time limit", DDPLAUNCH_KEY=job.key.decode())

    assert done.returncode == Exit.OK
    assert ["node-evicted"] == [verdict.code for verdict in job.bundle.verdicts]
    assert (
        "the job is being ended from outside: time limit; "
        "the nodes were at the gate, waiting for node 1 (n2)" == job.verdict.sentence
    )
    second = job.gate(plan, 1, env=named())
    assert [Exit.OK, Exit.OK] == [first.wait(), second.wait()]
    assert hub.process.poll() is None


def test_diagnose_answers_with_the_bundle_of_now(job: Job, agent: list[str]) -> None:
    plan = make_plan(nodes=1)
    job.hub(plan)
    job.gate(plan, 0).wait()
    done = ask(job, agent, "diagnose", DDPLAUNCH_KEY=job.key.decode(), DDPLAUNCH_ATTEMPT="0")

    bundle = printed.bundle(done.stdout)
    assert [0] == [check_in.node for check_in in bundle.check_ins]


@pytest.mark.parametrize("break_it", ["address", "key", "hub"])
def test_why_there_is_nobody_to_ask_is_said_in_one_line(job: Job, agent: list[str], break_it: str) -> None:
    hub = job.hub(make_plan())
    key = "wrong" if break_it == "key" else job.key.decode()
    if break_it == "address":
        (job.folder("hub") / Files.HUB_ADDRESS).unlink()
    if break_it == "hub":
        hub.process.kill()
        hub.process.wait()
    done = ask(job, agent, "status", DDPLAUNCH_KEY=key)

    assert (Exit.UNUSABLE, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))
    assert done.stderr.startswith("error: the hub of the job in ")
