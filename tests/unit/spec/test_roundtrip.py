"""Any job that can be written is read as it was meant."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.agent.contract import CHECKS
from ddplaunch.agent.job_file.units import format_duration, format_quantity
from ddplaunch.spec import load, schema
from ddplaunch.spec.models import JobSpec

# YAML forbids control characters and lone surrogates outright.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=20)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).map(lambda name: f"MY_{name}")
WORDS = st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True)
SECONDS = st.integers(1, 31_000_000_000).map(lambda milliseconds: milliseconds / 1000)
SIZES = st.integers(1, 2**50)


def _section(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


SECRETS = st.one_of(
    st.fixed_dictionaries({"env": NAMES}),
    st.fixed_dictionaries({"file": WORDS}),
    st.fixed_dictionaries({"secret": st.fixed_dictionaries({"name": WORDS, "key": WORDS})}),
)
JOBS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "apiVersion": st.just("ddplaunch/v1"),
        "name": WORDS,
        "command": st.lists(TEXT, max_size=3).map(lambda rest: ["train.py", *rest]),
    },
    optional={
        "nodes": st.integers(1, 10_000),
        "nproc_per_node": st.integers(1, 8),
        "python": WORDS,
        "source": st.lists(WORDS, max_size=2),
        "env": st.dictionaries(NAMES, TEXT, max_size=3),
        "secrets": st.dictionaries(NAMES.map(lambda name: f"S_{name}"), SECRETS, max_size=2),
        "resources": _section(gpus=st.integers(8, 64), cpus=st.floats(0.1, 256), memory=SIZES),
        "rendezvous": _section(timeout=SECONDS, port=st.integers(20_000, 30_000), backend=st.just("c10d")),
        "gate": _section(
            enabled=st.booleans(),
            timeout=SECONDS,
            port=st.integers(1024, 19_999),
            skip=st.lists(st.sampled_from(CHECKS)),
            smoke_test=st.booleans(),
        ),
        "watchdog": _section(kill_after=st.one_of(st.just("never"), SECONDS.map(lambda s: s + 11))),
        "retry_hangs": st.booleans(),
        "retries": st.integers(0, 100),
        "kubernetes": _section(
            namespace=WORDS,
            labels=st.dictionaries(WORDS, TEXT),
            pod_template=st.dictionaries(
                WORDS, st.one_of(TEXT, st.integers(-(2**40), 2**40), st.booleans(), st.none())
            ),
        ),
        "slurm": _section(
            partition=WORDS, nodelist=WORDS, extra=st.lists(WORDS.map(lambda word: f"--{word}"))
        ),
    },
)

VALIDATOR = jsonschema.Draft202012Validator(schema.json_schema())


def _json(job: dict[str, Any]) -> str:
    # With characters as they are: YAML does not know JSON's pairs of escapes.
    return json.dumps(job, ensure_ascii=False)


def _meant(job: dict[str, Any]) -> JobSpec:
    return JobSpec.model_validate(job, strict=False)


def _written(job: Any) -> Any:
    """The same job as a person writes it: 90.0 seconds as 1m30s, 2048 bytes as 2Ki."""
    if isinstance(job, dict):
        return {key: _unit(key, _written(value)) for key, value in job.items()}
    return [_written(item) for item in job] if isinstance(job, list) else job


def _unit(key: str, value: Any) -> Any:
    if key in ("timeout", "kill_after") and isinstance(value, float):
        return format_duration(value)
    return format_quantity(value) if key == "memory" else value


@given(JOBS)
def test_any_job_survives_yaml_and_json(job: dict[str, Any]) -> None:
    """In block style, in flow style and as JSON the same job is read."""
    texts = [
        yaml.safe_dump(job, allow_unicode=True),
        yaml.safe_dump(job, default_flow_style=True),
        _json(job),
    ]

    assert [_meant(job)] * 3 == [load.parse(text.encode(), "job.yaml") for text in texts]


@given(JOBS)
def test_any_job_survives_its_units(job: dict[str, Any]) -> None:
    """Durations and quantities mean the same as text and as numbers."""
    assert _meant(job) == load.parse(yaml.safe_dump(_written(job)).encode(), "job.yaml")


@given(JOBS)
def test_any_job_fits_the_schema(job: dict[str, Any]) -> None:
    """The schema knows every job that the loader knows."""
    assert [] == [error.message for error in VALIDATOR.iter_errors(_written(job))]


@given(JOBS)
def test_a_spec_survives_its_own_data(job: dict[str, Any]) -> None:
    """What pydantic writes of a spec is the same spec again."""
    spec = load.parse(_json(job).encode(), "job.yaml")

    assert spec == JobSpec.model_validate(spec.model_dump(by_alias=True))
