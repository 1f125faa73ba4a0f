"""A job's secret on a real Slurm: neither Slurm nor any file of ours learns what a rank gives away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cluster.slurm.cluster import Cluster
from tests.local.secret_forms import FORMS, SECRET, texts
from tests.webhook import SECRET as CHANNEL

PROGRAM = """
import os, time
token = os.environ["TOKEN"]
print("token", token, flush=True)
try:
    raise ValueError(f"caught password={token}")
except ValueError as error:
    print(repr(error), flush=True)
if os.environ["RANK"] == "1":
    raise ValueError(f"password={token} {os.environ['HOOK']}")
time.sleep(60)
"""
JOB = {
    "apiVersion": "ddplaunch/v1",
    "name": "leak",
    "nodes": 2,
    "source": ["program.py"],
    "command": ["program.py"],
    "resources": {"memory": "900Mi"},
    "secrets": {"TOKEN": {"env": "MINE"}},
    "notify": [{"webhook": {"env": "HOOK"}}],
}


@pytest.mark.whole
def test_a_secret_that_a_rank_raises(cluster: Cluster, work: Path) -> None:
    """In a comment, a log, a bundle, a status or a report stands its name; a rank's own lines are its own.

    A webhook's URL is a secret, too, and `submit` has it from its environment, as the ranks have.
    """
    (work / "program.py").write_text(PROGRAM)
    (work / "job.json").write_text(json.dumps(JOB))
    env = {"XDG_STATE_HOME": str(work / "state"), "MINE": SECRET, "HOOK": f"http://127.0.0.1:9/{CHANNEL}"}

    def shown(*words: str) -> str:
        done = cluster.login(list(words), cwd=work, env=env, check=False)
        return done.stdout + done.stderr

    waited = shown("ddplaunch", "submit", "job.json", "--to", "slurm", "--wait")
    handle = next(line for line in waited.splitlines() if line.startswith("slurm://"))
    number = handle.rpartition("/")[2]
    comment = shown("scontrol", "show", "job", number) + shown("sacct", "-c", "--parsable2")
    told = _without_ranks(waited) + shown("ddplaunch", "status", handle, "--json")
    told += shown("ddplaunch", "diagnose", handle) + shown("ddplaunch", "diagnose", handle, "--json")
    files = {name: text for name, text in texts(work).items() if name != "program.py"}
    output = f"leak-{number}.out"
    files = {**files, output: _without_ranks(files[output])}

    found = [name for name, text in {**files, "1": comment, "2": told}.items() if _has(text)]
    assert [] == found
    bundle = files[f"leak-{number}/run/bundle.zip"]
    for text in (comment, told, bundle):
        assert "password=[secret TOKEN] [secret webhook 0]" in text
    assert "notify[0] got no message: its webhook does not answer: Connection refused" in waited


def _without_ranks(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(("[0/0]", "[1/1]")))


def _has(text: str) -> bool:
    return any(form in text for form in (*FORMS, CHANNEL))
