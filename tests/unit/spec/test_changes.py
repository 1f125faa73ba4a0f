"""`--set KEY=VALUE`: what it changes in a job file, and what is said of one that cannot be."""

from __future__ import annotations

import pytest

from ddplaunch.agent.job_file.rules import Path
from ddplaunch.spec import changes, load
from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.problems import SpecError

NODES = "wanted a whole number from 1 to 10000, or a range such as {min: 2, max: 4}"

JOB = b"""\
apiVersion: ddplaunch/v1
name: digits
nodes: 2
command: [train.py, --epochs, "3"]
env: &env {LR: "0.2"}
resources: {gpus: 1, cpus: 4}
kubernetes: {labels: *env}
"""


def changed(*words: str) -> JobSpec:
    """The job with these changes."""
    return load.parse(JOB, "job.yaml", [changes.read(word) for word in words])


def problems(*words: str) -> list[str]:
    """The problems of the job with these changes, as they are printed, without hints."""
    with pytest.raises(SpecError) as caught:
        changed(*words)
    return [str(problem).partition("\n")[0] for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("word", "path", "text"),
    [
        ("nodes=4", ("nodes",), "4"),
        ("env.LR=a=b", ("env", "LR"), "a=b"),
        ("volumes[0].name=data", ("volumes", 0, "name"), "data"),
        (r"kubernetes.labels.example\.org/team=x", ("kubernetes", "labels", "example.org/team"), "x"),
        ("image=", ("image",), ""),
    ],
)
def test_a_word_is_a_path_and_a_value(word: str, path: Path, text: str) -> None:
    """In helm's notation: dots between keys, [n] for an item, a backslash before a dot in a key."""
    assert changes.Change(path, text) == changes.read(word)


@pytest.mark.parametrize("word", ["nodes", "=4", "nodes.=4", ".nodes=4", "a[x]=1", "[0]=1", ""])
def test_any_other_word_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="wanted KEY=VALUE, such as nodes=4"):
        changes.read(word)


def test_values_are_yaml_and_text_where_text_is_wanted() -> None:
    """No quotes are needed for 0.1 or on; quotes that are there are YAML's."""
    job = changed("nodes=4", "env.LR=0.1", "env.X=on", "env.Q='0.5'", "env.A=a: *b", "slurm.time=1:30:00")

    assert 4 == job.nodes
    assert {"LR": "0.1", "X": "on", "Q": "0.5", "A": "a: *b"} == job.env
    assert 5400.0 == job.slurm.time


def test_a_list_is_set_whole_or_by_item() -> None:
    """The item after the last is appended."""
    by_item = changed("command[2]=0.1", "command[3]=--fast", "command.4=x")

    assert ("train.py", "--epochs", "0.1", "--fast", "x") == by_item.command
    assert ("a.py", "1") == changed("command=[a.py, 1]").command


def test_null_removes_a_key_and_its_default_counts() -> None:
    """Also one that is not there; a later change sees what the earlier ones left."""
    job = changed("nodes=null", "env.LR=null", "slurm.qos=null", "command[1]=null", "resources.cpus=null")

    assert (1, {}, None, ("train.py", "3")) == (job.nodes, job.env, job.slurm.qos, job.command)
    assert (1, None) == (job.resources.gpus, job.resources.cpus)


def test_a_mapping_keeps_its_other_keys_and_an_alias_its_value() -> None:
    """What is set at one place changes no other, although YAML wrote both at once."""
    job = changed("env.LR=1", "resources.gpus=2")

    assert ({"LR": "1"}, {"LR": "0.2"}) == (job.env, job.kubernetes.labels)
    assert (2, 4.0) == (job.resources.gpus, job.resources.cpus)


def test_problems_name_the_option_in_place_of_the_line() -> None:
    """All at once, beside those of the file, with what was meant."""
    assert [
        "--set command[9]=x: command[9]: found no such item, wanted one of the 3 items",
        "--set nod=null: nod: unknown key",
        f'--set nodes=x: nodes: found "x", {NODES}',
        "--set resources={gpus: [: resources: found no value, or a bracket out of place, wanted a value",
        "--set slrum.time=1h: slrum: unknown key",
        "job.yaml:6:19: resources.gpus: found 1, wanted at least nproc_per_node, which is 8",
    ] == problems(
        "nproc_per_node=8", "slrum.time=1h", "command[9]=x", "nod=null", "nodes=x", "resources={gpus: ["
    )


def test_a_value_that_may_be_secret_is_not_repeated() -> None:
    """Neither in the option nor in what was found."""
    found = problems("secrets.KEY=hunter2", "env.API_TOKEN=[hunter2", "env={API_TOKEN: [hunter2]}", "nodes=0")

    assert f"--set nodes=0: nodes: found 0, {NODES}" in found
    assert [] == [text for text in found if "hunter2" in text]


def test_a_job_array_is_called_a_sweep_here() -> None:
    """Who looks for Slurm's word finds ours."""
    with pytest.raises(SpecError) as caught:
        changed("slurm.array=0-3")

    (problem,) = caught.value.problems
    assert problem.hint.startswith("`sweep` makes one job of each value")
