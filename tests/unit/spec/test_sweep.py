"""`sweep`: which jobs a file becomes, and what is no sweep."""

from __future__ import annotations

import pytest

from ddplaunch.spec import changes, load
from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.problems import SpecError

NODES = "wanted a whole number from 1 to 10000, or a range such as {min: 2, max: 4}"

JOB = """\
apiVersion: ddplaunch/v1
name: digits
command: [train.py, --epochs, "3"]
env: {LR: "0.2", SEED: "1"}
"""


def jobs(sweep: str, *words: str) -> list[JobSpec]:
    """The jobs of the file with this sweep."""
    text = f"{JOB}sweep: {sweep}\n"
    return load.parse_all(text.encode(), "job.yaml", [changes.read(word) for word in words])


def problems(sweep: str, *words: str) -> list[str]:
    """What is said of it, without hints."""
    with pytest.raises(SpecError) as caught:
        jobs(sweep, *words)
    return [str(problem).partition("\n")[0] for problem in caught.value.problems]


def test_every_combination_is_a_job() -> None:
    """The last key changes fastest; text is text without quotes; null removes a key."""
    made = jobs("{env.LR: [0.1, 010], 'command[2]': [3, 1e1], env.SEED: [null]}")

    assert ["digits-0", "digits-1", "digits-2", "digits-3"] == [job.name for job in made]
    assert [("0.1", "3"), ("0.1", "1e1"), ("010", "3"), ("010", "1e1")] == [
        (job.env["LR"], job.command[2]) for job in made
    ]
    assert [{}] == [job.sweep for job in made[:1]]
    assert [["LR"]] == [list(job.env) for job in made[:1]]
    assert {"env.LR": "0.1", "command[2]": "1e1", "env.SEED": "null"} == made[1].sweep_values


def test_a_whole_section_and_a_new_key_may_be_swept() -> None:
    """Each job is checked as a file of its own; secrets are shown by their number."""
    made = jobs("{resources: [{gpus: 1}, {cpus: 2}], nproc_per_node: [1], env.API_TOKEN: [abc]}")

    assert [(1, None), (None, 2.0)] == [(job.resources.gpus, job.resources.cpus) for job in made]
    assert {"resources": "{gpus: 1}", "nproc_per_node": "1", "env.API_TOKEN": "#0"} == made[0].sweep_values


@pytest.mark.parametrize("sweep", ["{}", "{nodes: [2]}"])
def test_a_file_without_sweep_is_one_job_of_its_own_name(sweep: str) -> None:
    """And so is one whose sweep the command line removes."""
    (job,) = jobs(sweep, "sweep=null")

    assert ("digits", {}, 1) == (job.name, job.sweep_values, job.nodes)
    assert {} == jobs("{}")[0].sweep_values


def test_all_problems_of_all_jobs_are_told_once() -> None:
    """At the value's place in the file."""
    assert [f'job.yaml:5:33: nodes: found "x", {NODES}', "job.yaml:5:45: nodez: unknown key"] == problems(
        "{env.LR: [1], nodes: [2, x], nodez: [1, 2]}"
    )


@pytest.mark.parametrize(
    ("sweep", "words", "said"),
    [
        ("[1]", (), "sweep: found a list, wanted a mapping of keys to lists"),
        ("{env.LR: 0.1}", (), "sweep.env.LR: found 0.1, wanted a list of values"),
        ("{env.LR: []}", (), "sweep.env.LR: found an empty list, wanted a list of values"),
        ("{env..LR: [1]}", (), "sweep.env..LR: found this key, wanted the path of one"),
        ("{name: [a, b]}", (), "sweep.name: found this key, wanted another"),
        ("{env.LR: [1]}", ("env.LR=2",), "sweep.env.LR: found the key in `sweep` as well, wanted it once"),
        (
            f"{{env.A: {list(range(40))}, env.B: {list(range(26))}}}",
            (),
            "sweep: found 1040 jobs, wanted at most 1000",
        ),
    ],
)
def test_what_is_no_sweep_is_refused(sweep: str, words: tuple[str, ...], said: str) -> None:
    (problem,) = problems(sweep, *words)

    assert said in problem


def test_a_name_without_room_for_a_number_is_told_once() -> None:
    (problem,) = problems("{env.A: [1, 2, 3]}", f"name={'x' * 50}")

    assert f'name: found "{"x" * 50}-0", wanted at most 50' in problem
