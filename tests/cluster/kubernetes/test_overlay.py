"""A pod template is merged as Kubernetes itself merges one: kubectl is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cluster.kubernetes.cluster import Cluster

from ddplaunch.plan import plan
from ddplaunch.render.kubernetes import pod
from ddplaunch.render.kubernetes.overlay import merge
from ddplaunch.spec.load import load

FULL = Path(__file__).parents[3] / "tests" / "golden" / "kubernetes" / "full"
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


def kubectl(cluster: Cluster, template: dict[str, Any], patch: dict[str, Any]) -> Any:
    """What kubectl makes of the two by itself; the server is not asked."""
    given = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
    words = ["patch", "--local", "--type=strategic", "--output=json", "--filename=-"]
    made = cluster.kubectl(*words, "--patch", json.dumps({"template": patch}), stdin=json.dumps(given))
    return json.loads(made)["template"]


def bare(data: Any) -> Any:
    """Without what is empty, which typed objects do not tell from what is not there."""
    if isinstance(data, dict):
        items = {key: bare(value) for key, value in data.items()}
        return {key: value for key, value in items.items() if value not in ({}, [], "", None, False)}
    return [bare(each) for each in data] if isinstance(data, list) else data


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(PATCHES)
def test_any_patch_gives_what_kubectl_makes_of_it(cluster: Cluster, patch: dict[str, Any]) -> None:
    """Maps, lists by their keys, deletions, replacements, and the order of what comes out."""
    assert bare(kubectl(cluster, TEMPLATE, patch)) == bare(merge(TEMPLATE, patch))
