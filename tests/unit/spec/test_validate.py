"""Values against the model: each misfit, its words and its hint."""

from __future__ import annotations

import pytest

from ddplaunch.agent.checks import run
from ddplaunch.agent.contract import CHECKS, MESH
from ddplaunch.spec import load
from ddplaunch.spec.problems import Problem, SpecError

NODES = "wanted a whole number from 1 to 10000, or a range such as {min: 2, max: 4}"

HEAD = "apiVersion: ddplaunch/v1\nname: job\ncommand: [train.py]\n"


def _problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        load.parse((HEAD + text).encode(), "job.yaml")
    return caught.value.problems


def _hint(text: str) -> str:
    (problem,) = _problems(text)
    return problem.hint


ALONE = "a Kubernetes Job cannot wait for another: `ddplaunch submit first.yaml --wait && ddplaunch submit …`"
SWEEP = (
    "`sweep` makes one job of each value, as in sweep: {env.SEED: [1, 2, 3]}; `submit` prints the handles "
    "of all"
)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("node: 2", "did you mean nodes?"),
        ("nprocPerNode: 2", "did you mean nproc_per_node?"),
        ("environment: {}", "did you mean env?"),
        ("partition: gpu", "it is called slurm.partition"),
        ("timeout: 3m", "it is called rendezvous.timeout or gate.timeout"),
        ("master_port: 29500", "it is called rendezvous.port"),
        ("rendezvous: {master_port: 29500}", "did you mean port?"),
        ("slurm: {image: x}", "it is called image or slurm.container.image"),
        ("gate: {timeuot: 2m}", "did you mean timeout?"),
        ("gate: {zzz: 2m}", ""),
        ("slurm: {gpus_per_node: 8}", "it is called resources.gpus"),
        ("slurm: {topology: rack}", "see switches"),
        ("slurm: {ntasks: 8}", "the number of ranks is nodes times nproc_per_node"),
        ("slurm: {after: 7}", "did you mean dependency?"),
        ("slurm: {singleton: true}", "write dependency: singleton"),
        ("after: 7", "it is called slurm.dependency"),
        ("kubernetes: {parallelism: 2}", "it is called nodes"),
        (
            "kubernetes: {hostIPC: true}",
            "if it is a field of a pod, write pod_template: {spec: {hostIPC: …}}",
        ),
        ("kubernetes: {dependsOn: first}", ALONE),
        *((line, SWEEP) for line in ("array: 1-3", "slurm: {array: 1-3}", "kubernetes: {array: 3}")),
        ("slurm: {mem-per-cpu: 1}", "if it is an option of sbatch, write extra: [--mem-per-cpu=…]"),
        ("kubernetes: {gang: true}", "see queue and jobset"),
        (
            "kubernetes: {runtime_class_name: x}",
            "if it is a field of a pod, write pod_template: {spec: {runtimeClassName: …}}",
        ),
    ],
)
def test_an_unknown_key_is_answered_with_the_known_one(line: str, hint: str) -> None:
    """The nearest here, the same name elsewhere, or another program's word for it."""
    (problem,) = _problems(line)

    assert "an unknown key" == problem.found
    assert hint == problem.hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("env: {A: 4}", 'quote it: "4"'),
        ("env: {A: yes}", 'quote it: "yes"'),
        ("env: {A: 1:30}", 'quote it: "1:30"'),
        ("env: {A: }", 'write "" for an empty text'),
        ("env: {A: [x]}", ""),
        ("env: [A=1]", "write NAME: value, without dashes"),
        ("nodes: '2'", "remove the quotes"),
        ("nodes: 010", "write 8"),
        ("resources: {cpus: '1.5'}", "remove the quotes"),
        ("gate: off", "write gate: {enabled: false}"),
        ("gate: {enabled: 'true'}", "remove the quotes"),
        ("gate: {skip: [clocks]}", "did you mean clock?"),
        ("gate:", "it has no value: add one below it, or remove the key"),
        ("launch: MPI", "did you mean mpi?"),
        ("watchdog: {kill_after: nevr}", "did you mean never?"),
        ("watchdog: {kill_after: 10 min}", "write 10m"),
        ("slurm: {time: 1:30:00}", 'quote it: "1:30:00"'),
        ("rendezvous: {timeout: 1:30}", "the units are ms, s, m, h and d, as in 1h30m"),
        ("kubernetes: {namespace: Team_A}", "for example team-a"),
        ("nproc_per_node: auto", "torchrun's gpu, cpu and auto do not work here: write the number"),
    ],
)
def test_a_value_that_does_not_fit_has_a_hint(line: str, hint: str) -> None:
    """What to type instead, wherever it can be known."""
    assert hint == _hint(line)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nodes: 10001", f"nodes: found 10001, {NODES}"),
        ("nodes: 2.0", f"nodes: found 2.0, {NODES}"),
        ("nodes: true", f"nodes: found true, {NODES}"),
        ("resources: {cpus: 0}", "resources.cpus: found 0, wanted a number above 0"),
        ('python: "a\\nb"', 'python: found "a\\nb", wanted text on one line'),
        ('python: "a\\n"', 'python: found "a\\n", wanted text on one line'),
        ('env: {A: "a\\0b"}', "env.A: found a NUL character, wanted text without it"),
        ("image: " + "x y" * 40, f'image: found "{("x y" * 40)[:59]}…", wanted one word without spaces'),
        ('slurm: {comment: "a\\nb"}', 'slurm.comment: found "a\\nb", wanted text on one line'),
    ],
)
def test_a_value_that_does_not_fit_says_what_is_wanted(line: str, problem: str) -> None:
    """With its bounds, shortened, and on one line."""
    (found,) = _problems(line)
    place = f"job.yaml:{found.line}:{found.column}: "

    assert place + problem == str(found).partition("\n")[0]


def test_a_switch_may_be_yes_or_no() -> None:
    """YAML's words for true and false are good where true or false is wanted."""
    spec = load.parse((HEAD + "gate: {enabled: no, smoke_test: on}").encode(), "job.yaml")

    assert (False, True) == (spec.gate.enabled, spec.gate.smoke_test)


def test_one_source_needs_no_brackets() -> None:
    spec = load.parse((HEAD + "source: src").encode(), "job.yaml")

    assert ("src",) == spec.source


def test_free_form_mappings_are_passed_on() -> None:
    """YAML's own numbers count there, as they do for kubectl; a date stays text."""
    text = "kubernetes: {pod_template: {spec: {mode: 0644, since: 2024-01-01, on_: [yes, null]}}}"
    spec = load.parse((HEAD + text).encode(), "job.yaml")

    expected = {"spec": {"mode": 420, "since": "2024-01-01", "on_": [True, None]}}
    assert expected == spec.kubernetes.pod_template


@pytest.mark.parametrize("written", ["never", "auto", "10m", "600"])
def test_kill_after_is_seconds_or_a_word(written: str) -> None:
    """The one duration that may be a word."""
    spec = load.parse(f"{HEAD}watchdog: {{kill_after: {written}}}".encode(), "job.yaml")

    assert (written if written.isalpha() else 600.0) == spec.watchdog.kill_after


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "secrets: hunter2",
        "secrets: [TOKEN=hunter2]",
        "secrets: {A: hunter2}",
        "secrets: {A: [hunter2]}",
        "secrets: {A: {value: hunter2}}",
        "secrets: {A: {hunter2}}",
        "secrets: {A: {env: 'hunter2 '}}",
        "secrets: {A: {env: {hunter2: hunter2}}}",
        "secrets: {A: {secret: hunter2}}",
        "secrets: {A: {secret: {hunter2: x}}}",
        "secrets: {A: !hunter2}",
        "secrets: {A: *hunter2}",
        'secrets: {A: "hunter2\\0"}',
        'secrets: {A: {file: "hunter2\\n"}}',
        "secrets: {A=hunter2: x}",
        "secrets: {'7hunter2': x}",
        "secrets: {A=hunter2: {env: A}, A=hunter2: {env: B}}",
        "secrets: {A: {<<: hunter2}}",
        "secrets: {A: @hunter2}",
        "secrets: {A: 'hunter2",
        "secrets: {A: hunter2: x}",
        "secret: hunter2",
        "secrts: {A: hunter2}",
        "env: [A=hunter2]",
        "env: {A=hunter2: x}",
        "env: {API_TOKEN: [hunter2]}",
    ],
)
def test_no_problem_repeats_a_secret(text: str) -> None:
    """Wherever a secret was written by mistake, it stays out of logs and terminals."""
    problems = _problems(text)

    assert problems
    assert SECRET not in "\n".join(map(str, problems))


def test_numbers_that_may_be_secret_are_not_repeated_either() -> None:
    """A key of digits in `env` needs quotes, and is nobody's business all the same."""
    for line in ("env: {API_KEY: 271828}", "secrets: {A: 271828}", "secrets: {271828: x}"):
        assert "271828" not in "\n".join(map(str, _problems(line)))


def test_redaction_is_what_hides_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the value is printed: the tests above can fail."""
    monkeypatch.setattr("ddplaunch.spec.messages.hidden", lambda path: False)

    assert SECRET in str(_problems("secrets: {A: hunter2}")[0])


def test_checks_have_one_list() -> None:
    """`gate.skip` takes exactly the names in CHECKS, which are those of the agent."""
    spec = load.parse(f"{HEAD}gate: {{skip: [{', '.join(CHECKS)}]}}".encode(), "job.yaml")

    assert CHECKS == spec.gate.skip
    assert {MESH, *(name for name, _ in run.CHECKS)} == set(CHECKS)
