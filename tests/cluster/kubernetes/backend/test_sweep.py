"""Many jobs from one file: each a job of its own in the cluster, all of them or none."""

from __future__ import annotations

import json

from tests.cluster.kubernetes.backend.conftest import NEVER, Cli, Write, left
from tests.cluster.kubernetes.cluster import Cluster


def test_a_sweep_is_a_job_for_each_value(cluster: Cluster, cli: Cli, write: Write, namespace: str) -> None:
    """A name and a handle for each, its own value in its environment, and one table of all."""
    path = write("digits", resources=NEVER, sweep={"env.LR": ["0.1", "0.01"], "command[1]": ["3"]})
    code, out, said = cli("submit", path, "--to", "kubernetes", "--set", "nodes=1")

    assert 0 == code, said
    assert [f"kubernetes://{namespace}/digits-{number}" for number in range(2)] == out.split()
    assert {"digits-0", "digits-1"} == {
        each["metadata"]["name"] for each in cluster.get("jobs", namespace=namespace)
    }
    plans = [
        json.loads(cluster.get("configmaps", name, namespace=namespace)["data"]["plan.json"])
        for name in ("digits-0", "digits-1")
    ]
    assert [("0.1", "3", 1), ("0.01", "3", 1)] == [
        (plan["env"]["LR"], plan["command"][-1], plan["nodes"]) for plan in plans
    ]
    table = [line.split() for line in cli("list", "--to", "kubernetes")[1].splitlines()]
    rows = {line[0]: line for line in table if f"kubernetes://{namespace}/" in line[0]}
    assert "SWEEP" in table[0]
    assert ["command[1]=3", "env.LR=0.1"] == rows[f"kubernetes://{namespace}/digits-0"][1:3]
    assert ["command[1]=3", "env.LR=0.01"] == rows[f"kubernetes://{namespace}/digits-1"][1:3]


def test_a_sweep_of_which_one_is_refused_leaves_nothing(
    cluster: Cluster, cli: Cli, write: Write, namespace: str
) -> None:
    """The quota has room for two jobs of three: those before it are cancelled, and the reason is told."""
    cluster.kubectl("create", "quota", "few", "--hard=count/jobs.batch=2", "--namespace", namespace)
    cluster.until(
        lambda: "hard" in cluster.get("resourcequotas", "few", namespace=namespace).get("status", {}),
        "the quota counts",
        60,
    )
    path = write("digits", resources=NEVER, nodes=1, sweep={"env.LR": ["1", "2", "3"]})
    code, out, said = cli("submit", path, "--to", "kubernetes")

    assert 0 != code
    handles = [f"kubernetes://{namespace}/digits-{number}" for number in range(2)]
    assert handles == out.split()
    assert (
        "digits-2 was not submitted; a sweep is submitted as a whole, so the jobs before it are cancelled: "
        f"{', '.join(handles)}" in said
    )
    assert "exceeded quota: few" in said
    cluster.until(
        lambda: not left(cluster, namespace), "nothing is left", 60, lambda: str(left(cluster, namespace))
    )
