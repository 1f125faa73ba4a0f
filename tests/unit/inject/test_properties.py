"""Any manifest and any script: what is added is exactly what removal takes away, and nothing else changes."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ddplaunch.inject import Settings, change

IMAGE = Settings(agent_image="registry.example/ddplaunch-agent:1")
TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["Cc", "Cs"]), max_size=12
)
VARIABLES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("ABC"), "value": TEXT}), min_size=1, max_size=3
)
OTHERS = st.fixed_dictionaries(
    {},
    optional={
        "env": VARIABLES,
        "volumeMounts": st.just([{"name": "data", "mountPath": "/data"}]),
        "resources": st.just({"limits": {"nvidia.com/gpu": 8}}),
        "args": st.lists(TEXT, min_size=1, max_size=2),
    },
)
POD = st.fixed_dictionaries(
    {"subdomain": st.just("train")},
    optional={
        "initContainers": st.just([{"name": "first", "image": "i"}]),
        "volumes": st.just(
            [{"name": "data", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
        ),
        "restartPolicy": st.just("Never"),
    },
)


def manifest(words: list[str], container: dict[str, Any], pod: dict[str, Any], first: bool) -> dict[str, Any]:
    """A Job of two pods; `first`: `containers` begins the pod, and `command` the container."""
    trains = {"command": words, "name": "train", **container} if first else {"name": "t", **container}
    trains.setdefault("command", words)
    spec = {"containers": [trains], **pod} if first else {**pod, "containers": [trains]}
    job = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": {"spec": spec}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": job}


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(TEXT, min_size=1, max_size=4),
    container=OTHERS,
    pod=POD,
    first=st.booleans(),
    flow=st.sampled_from([True, False, None]),
    indent=st.integers(2, 6),
    width=st.sampled_from([20, 80, 1000]),
)
def test_removal_is_the_inverse(
    words: list[str],
    container: dict[str, Any],
    pod: dict[str, Any],
    first: bool,
    flow: bool | None,
    indent: int,
    width: int,
) -> None:
    """The same bytes come back; between the two stand what was there, and the additions."""
    before = manifest(words, container, pod, first)
    text = yaml.safe_dump(before, sort_keys=False, default_flow_style=flow, indent=indent, width=width)

    there = change.inject(text, "train.yaml", IMAGE).text

    assert text == change.remove(there, "train.yaml").text
    assert before == without_ours(yaml.safe_load(there))


def without_ours(document: dict[str, Any]) -> dict[str, Any]:
    """The document as plain data, less what inject adds, whose count is right."""
    found = copy.deepcopy(document)
    spec = found["spec"]["template"]["spec"]
    (trains,) = spec["containers"]
    for mapping, key, names in (
        (spec, "initContainers", ["ddplaunch"]),
        (spec, "volumes", ["ddplaunch"]),
        (trains, "volumeMounts", ["ddplaunch"]),
        (trains, "env", ["DDPLAUNCH_KEY"]),
    ):
        assert names == [each["name"] for each in mapping[key] if "ddplaunch" in each["name"].lower()]
        mapping[key] = [each for each in mapping[key] if "ddplaunch" not in each["name"].lower()]
        if not mapping[key]:
            del mapping[key]
    head = ["python3", "-I", "-S", "/ddplaunch/agent.pyz", "run", "--join", "--name=train", "--nodes=2", "--"]
    assert head == trains["command"][: len(head)]
    trains["command"] = trains["command"][len(head) :]
    return found


OPTIONS = st.sampled_from(
    ["--label", "-N2", "-N 2", "--nodes=2", "--mem 2000", "--cpu-bind=none", "\\\n  --exact"]
)
BEFORE = st.sampled_from(["", "time ", "LR=1 A='b c' ", "exec ", "if ! ", "cd x && ", "out=$("])
AFTER = st.sampled_from(["", " > log 2>&1", " | tee log", " &", "  # the training", " \\\n  --epochs 3", ")"])


@settings(max_examples=100, deadline=None)
@given(before=BEFORE, options=st.lists(OPTIONS, max_size=3), after=AFTER, lines=st.lists(TEXT, max_size=3))
def test_removal_is_the_inverse_for_scripts(
    before: str, options: list[str], after: str, lines: list[str]
) -> None:
    """Comments may hold anything, as the shell does not read them."""
    comments = "".join(f"# {line}\n" for line in lines)
    head, tail = (
        f"#!/bin/bash\n{comments}{before}{' '.join(['srun', *options])} ",
        f"torchrun t.py{after}\n{comments}",
    )

    there = change.inject(head + tail, "train.sbatch", Settings()).text

    assert f"{head}python3 -I -S agent.pyz run --join -- {tail}" == there
    assert head + tail == change.remove(there, "train.sbatch").text
