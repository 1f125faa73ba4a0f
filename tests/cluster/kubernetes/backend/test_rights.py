"""What one must be allowed to do: the Role of the documentation is enough, and what it lacks is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.kubernetes.backend.conftest import SLEEP, As, Cli, Write, left
from tests.cluster.kubernetes.cluster import ROOT, Cluster

_LONG = "batch.kubernetes.io/job-name=long,batch.kubernetes.io/job-completion-index=0"
QUICK = "import os\nprint('trained by', os.environ['RANK'], flush=True)\n"


def documented() -> dict[str, Any]:
    """The Role as docs/how-to/kubernetes.md has it."""
    text = (ROOT / "docs/how-to/kubernetes.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, flags=re.DOTALL)
    role: dict[str, Any] = yaml.safe_load(block)
    return role


def without(*resources: str) -> dict[str, Any]:
    """The same Role, less these."""
    role = documented()
    rules = [rule for rule in role["rules"] if not set(rule["resources"]) & set(resources)]
    return {**role, "rules": rules}


def _until_it_trains(ann: Cli, handle: str) -> None:
    with ann.start("logs", "-f", handle) as follower:
        assert follower.stdout is not None
        assert any("training" in line for line in follower.stdout)
        follower.kill()


def _stop_by_the_uid(cluster: Cluster, namespace: str) -> str:
    """What a stranger is told who takes the Job's uid, a label of its pods, for the job's key."""
    agent = "python3 -I -S /ddplaunch/agent.pyz ask --folder /ddplaunch stop"
    words = ["sh", "-c", f"DDPLAUNCH_KEY=$DDPLAUNCH_UID {agent} 2>&1 || true"]
    pod, *_ = (each["metadata"]["name"] for each in cluster.get("pods", namespace=namespace, selector=_LONG))
    return cluster.kubectl("exec", "--namespace", namespace, pod, "--container", "hub", "--", *words)


def test_the_documented_role_is_enough(
    cluster: Cluster, as_user: As, write: Write, namespace: str, tmp_path: Path
) -> None:
    """For everything: to send, watch, ask, read, stop, and take away."""
    ann = as_user(documented())
    code, handle, said = ann("submit", write("quick", QUICK), "--to", "kubernetes", "--wait")
    assert (0, f"kubernetes://{namespace}/quick\n") == (code, handle), said
    assert {"[0/0] trained by 0", "[1/1] trained by 1"} <= set(said.splitlines())

    code, handle, said = ann("submit", write("long", SLEEP), "--to", "kubernetes")
    assert 0 == code, said
    _until_it_trains(ann, handle.strip())
    assert 101 == ann("status", handle.strip())[0]
    code, diagnosis, said = ann("diagnose", handle.strip(), "--json")
    assert (0, True) == (code, '"ranks": 2' in diagnosis), said
    assert "another job" in _stop_by_the_uid(cluster, namespace)
    assert 101 == ann("status", handle.strip())[0]
    code, _, said = ann("cancel", handle.strip())
    assert 0 == code, said
    assert ["job.batch/quick"] == [name for name in left(cluster, namespace) if "job" in name]


@pytest.mark.whole
def test_with_only_what_a_job_needs(cluster: Cluster, as_user: As, write: Write, namespace: str) -> None:
    """What is weaker is said; places are read from the pods, and a cancelled job still tells what it knew."""
    ann = as_user(without("pods/exec", "events", "secrets", "networkpolicies"))
    code, handle, said = ann("submit", write("long", SLEEP), "--to", "kubernetes")
    assert 0 == code, said
    assert (
        f"note: you may not create secrets in namespace {namespace}: the key of this job is its uid" in said
    )
    assert f"note: you may not create networkpolicies in namespace {namespace}: every pod" in said
    _until_it_trains(ann, handle.strip())
    code, shown, _ = ann("status", handle.strip())
    assert (101, True) == (code, "nodes 0-1" in shown), shown
    assert 0 == ann("cancel", handle.strip())[0]
    assert [] == left(cluster, namespace)
    assert '"ranks": 2' in ann("diagnose", handle.strip(), "--json")[1]


def test_what_is_missing_is_named(cluster: Cluster, as_user: As, write: Write, namespace: str) -> None:
    """Verb, resource and namespace, all at once, before anything is made."""
    role = without("jobs")
    role["rules"][0]["verbs"].remove("delete")
    code, out, said = as_user(role)("submit", write(), "--to", "kubernetes")

    assert (106, "") == (code, out)
    assert said.startswith(f"error: you lack permissions in namespace {namespace}; a Role there also needs")
    assert '- {apiGroups: [""], resources: [configmaps], verbs: [delete]}' in said
    assert '- {apiGroups: ["batch"], resources: [jobs], verbs: [get, create, patch, delete, list]}' in said
    assert [] == left(cluster, namespace)

    code, out, said = as_user(role)("list", "--to", "kubernetes")
    assert (106, "") == (code, out)
    assert "may not list jobs.batch in namespace default" in said
