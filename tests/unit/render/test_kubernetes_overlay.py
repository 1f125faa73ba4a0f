"""A pod template is merged as Kubernetes itself merges one: kubectl is asked."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddplaunch.plan import plan
from ddplaunch.render.kubernetes import pod
from ddplaunch.render.kubernetes.overlay import OverlayError, merge
from ddplaunch.spec.load import load

FULL = Path(__file__).parents[2] / "golden" / "kubernetes" / "full"
TEMPLATE = pod.template(plan.make(load(FULL / "job.yaml"), "kubernetes", FULL))

TEXT = st.sampled_from(["1", "2"])
MAYBE = st.one_of(TEXT, st.none())


def named(
    key: str, there: list[Any], new: list[Any], body: dict[str, Any], changes: dict[str, Any] | None = None
) -> st.SearchStrategy[list[Any]]:
    """Items of a list by their key: those that are there may be deleted, or push out all others."""
    speaking = {**body, **(changes or {}), "$patch": st.sampled_from(["delete", "replace"])}
    items = st.one_of(
        st.fixed_dictionaries({key: st.sampled_from(there)}, optional=speaking),
        st.fixed_dictionaries({key: st.sampled_from(new)}, optional=body),
    )
    return st.lists(items, max_size=3, unique_by=lambda item: item[key])


def mapping(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


WORDS = st.fixed_dictionaries({}, optional={"$patch": st.sampled_from(["replace", "delete"])})
RESOURCES = st.tuples(
    WORDS, mapping(limits=st.dictionaries(st.sampled_from(["memory", "rdma/hca", "new/one"]), TEXT))
).map(lambda parts: {**parts[0], **parts[1]})


def containers(*there: str) -> st.SearchStrategy[list[Any]]:
    """Changes to those that are there, and others."""
    env = named("name", ["DDPLAUNCH_NODE", "DDPLAUNCH_HUB"], ["A", "B"], {"value": TEXT})
    mounts = named("mountPath", ["/ddplaunch", "/ddplaunch/plan.json"], ["/new", "/newer"], {"name": TEXT})
    return named(
        "name",
        list(there),
        ["mine", "mine-too"],
        {"image": TEXT, "env": st.just([{"name": "A", "value": "1"}])},
        {
            "image": MAYBE,
            "command": st.one_of(st.lists(TEXT, max_size=2), st.none()),
            "env": env,
            "volumeMounts": mounts,
        },
    )


TRAINER = RESOURCES.map(lambda resources: [{"name": "trainer", "resources": resources}])
PATCHES = mapping(
    metadata=mapping(
        labels=st.dictionaries(st.sampled_from(["team", "a", "b"]), MAYBE),
        finalizers=st.lists(st.sampled_from(["x/a", "x/b"]), unique=True),
    ),
    spec=mapping(
        containers=st.one_of(containers("trainer"), TRAINER),
        initContainers=containers("hub", "gate"),
        volumes=named("name", ["shm", "data"], ["more"], {"hostPath": st.fixed_dictionaries({"path": TEXT})}),
        nodeSelector=st.one_of(st.none(), st.dictionaries(st.sampled_from(["gpu", "a"]), MAYBE)),
        tolerations=st.lists(st.fixed_dictionaries({"key": TEXT})),
        topologySpreadConstraints=named(
            "topologyKey", ["kubernetes.io/hostname"], ["a", "b"], {"maxSkew": st.integers(1, 3)}
        ),
        hostNetwork=st.booleans(),
        securityContext=st.one_of(st.none(), mapping(runAsUser=st.integers(1, 9), fsGroup=st.none())),
        unknown=st.none(),
    ),
)


def kubectl(template: dict[str, Any], patch: dict[str, Any], folder: Path) -> Any:
    """What kubectl makes of the two, without any cluster."""
    file = folder / "template.json"
    file.write_text(
        json.dumps(
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
        )
    )
    words = ["kubectl", "patch", "--local", "--type=strategic", "--output=json", f"--filename={file}"]
    result = subprocess.run(
        [*words, "--patch", json.dumps({"template": patch})], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)["template"]


def bare(data: Any) -> Any:
    """Without what is empty, which typed objects do not tell from what is not there."""
    if isinstance(data, dict):
        items = {key: bare(value) for key, value in data.items()}
        return {key: value for key, value in items.items() if value not in ({}, [], "", None, False)}
    return [bare(each) for each in data] if isinstance(data, list) else data


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@settings(max_examples=40)
@given(PATCHES)
def test_any_patch_gives_what_kubectl_makes_of_it(
    tmp_path_factory: pytest.TempPathFactory, patch: dict[str, Any]
) -> None:
    """Maps, lists by their keys, deletions, replacements, and the order of what comes out."""
    assert bare(kubectl(TEMPLATE, patch, tmp_path_factory.mktemp("patch"))) == bare(merge(TEMPLATE, patch))


def test_the_order_is_kept() -> None:
    """New init containers run first; what was there stays in its order."""
    patch = {"initContainers": [{"name": "mine"}, {"name": "gate", "tty": True}]}
    merged = merge({"initContainers": [{"name": "hub"}, {"name": "gate"}]}, patch)

    assert [{"name": "mine"}, {"name": "hub"}, {"name": "gate", "tty": True}] == merged["initContainers"]


@pytest.mark.parametrize(
    ("patch", "merged"),
    [
        (
            {"volumes": [{"name": "a", "$retainKeys": ["name", "b"], "b": 1}]},
            {"volumes": [{"name": "a", "b": 1}]},
        ),
        ({"$deleteFromPrimitiveList/args": ["x"]}, {"volumes": [{"name": "a", "c": 2}], "args": ["y"]}),
        (
            {"$setElementOrder/args": ["y", "x"], "args": ["z"]},
            {"volumes": [{"name": "a", "c": 2}], "args": ["z"]},
        ),
        ({"$patch": "replace", "b": 1}, {"b": 1}),
        ({"$patch": "delete"}, {}),
    ],
)
def test_the_words_of_a_patch_are_obeyed(patch: dict[str, Any], merged: dict[str, Any]) -> None:
    """Those that `kubectl patch` writes itself, and people now and then; the original stays as it was."""
    original = {"volumes": [{"name": "a", "c": 2}], "args": ["x", "y"]}
    kept = copy.deepcopy(original)
    expected = merged if "$patch" in patch else {"args": ["x", "y"], **merged}

    assert (expected, kept) == (merge(original, patch), original)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"volumes": {"name": "a"}}, "volumes: found a mapping, wanted a list"),
        ({"volumes": ["a"]}, "volumes[0]: found text, wanted a mapping with name"),
        ({"volumes": [{"c": 1}]}, "volumes[0]: found no name, wanted name, by which the item is found"),
        (
            {"volumes": [{"name": "a", "$patch": "x"}]},
            "volumes[0].$patch: found 'x', wanted replace or delete",
        ),
        ({"$patch": "x"}, "$patch: found 'x', wanted merge, replace or delete"),
        ({"map": [1]}, "map: found a list, wanted a mapping"),
        (
            {"volumes": [{"name": "a", "$retainKeys": ["name"], "b": 1}]},
            "volumes[a].$retainKeys: found a list without b",
        ),
    ],
)
def test_what_is_no_patch_is_named(patch: dict[str, Any], message: str) -> None:
    """With the place where it stands."""
    with pytest.raises(OverlayError) as caught:
        merge({"volumes": [{"name": "a"}], "map": {}}, patch)

    assert str(caught.value).startswith(message)
