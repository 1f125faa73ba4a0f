"""Any job file gives a manifest that the schemas of Kubernetes know, of one size for any number of nodes."""

from __future__ import annotations

import copy
import json
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.render.kubernetes_jobs import JOBS, checkable, rendered

from ddplaunch.errors import SourceTooLargeError

OLDEST, TESTED, NEWEST = "1.29", "1.34", "1.37"


@settings(max_examples=10)
@given(JOBS)
def test_the_schemas_know_every_manifest(job: dict[str, Any]) -> None:
    """Every field is there and of its type in the oldest version, the tested one and the newest."""
    for found in checkable(job):
        for version in (OLDEST, TESTED, NEWEST):
            kubernetes_validate.validate(found, version, strict=True)


@settings(max_examples=30)
@given(JOBS)
def test_every_word_arrives_as_it_was_written(job: dict[str, Any]) -> None:
    """Labels and annotations that look like numbers or booleans are text, and the plan is the job's."""
    found = {each["kind"]: each for each in yaml.load_all(rendered(job), yaml.CSafeLoader)}
    options = job.get("kubernetes", {})
    files = found["ConfigMap"]
    made = json.loads(files["data"]["plan.json"])

    assert options.get("labels", {}).items() <= files["metadata"]["labels"].items()
    assert (job["command"], job.get("env", {})) == (made["command"], made["env"])


@settings(max_examples=30)
@given(JOBS)
def test_the_size_is_the_same_for_any_number_of_nodes(job: dict[str, Any]) -> None:
    small, large = ({**job, "nodes": nodes} for nodes in (2, 1000))

    assert 30 > abs(len(rendered(large)) - len(rendered(small)))


@settings(max_examples=30)
@given(JOBS, st.randoms(use_true_random=False))
def test_the_order_of_mappings_does_not_show(job: dict[str, Any], chance: Any) -> None:
    """The same job, its variables written in another order, gives the same plan and the same digest of it."""
    other = copy.deepcopy(job)
    for key in ("env", "secrets"):
        items = list(other.get(key, {}).items())
        chance.shuffle(items)
        if items:
            other[key] = dict(items)

    assert rendered(job) == rendered(other)


def test_a_schema_that_lacks_a_field_says_so() -> None:
    """The check above sees what a version does not know."""
    found = checkable({"apiVersion": "ddplaunch/v1", "name": "job", "image": "a", "command": ["a.py"]})[-1]
    found["spec"]["template"]["spec"]["hostnameOverride"] = "x"

    kubernetes_validate.validate(found, NEWEST, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found, OLDEST, strict=True)


@pytest.mark.parametrize("jobset", [False, True])
def test_a_range_of_nodes_is_known_since_1_31(jobset: bool) -> None:
    """Whose schema has the `successPolicy`; a number needs none."""
    job = {"apiVersion": "ddplaunch/v1", "name": "job", "image": "a", "command": ["a.py"]}
    more = {"rendezvous": {"backend": "c10d"}, "kubernetes": {"jobset": jobset}}
    found = checkable({**job, **more, "nodes": 4, "min_nodes": 2})[-1]

    assert {"rules": [{"succeededIndexes": "0"}]} == found["spec"]["successPolicy"]
    for version in ("1.31", TESTED, NEWEST):
        kubernetes_validate.validate(found, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found, OLDEST, strict=True)
    assert "successPolicy" not in checkable({**job, **more, "nodes": 4})[-1]["spec"]


def test_more_than_a_config_map_holds_is_refused() -> None:
    job = {
        "apiVersion": "ddplaunch/v1",
        "name": "job",
        "image": "a",
        "command": ["a.py"],
        "env": {"A": "x" * 10**6},
    }

    with pytest.raises(
        SourceTooLargeError,
        match=r"the files of job are 1,\d\d\d,\d{3} bytes, and a ConfigMap can contain at most 1,048,576",
    ) as caught:
        rendered(job)

    assert "put code into the image or on a volume" in caught.value.hint
