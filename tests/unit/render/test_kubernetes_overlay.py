"""A pod template is merged as Kubernetes does it; tests/cluster/kubernetes/test_overlay.py asks kubectl."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ddplaunch.render.kubernetes.overlay import OverlayError, merge


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
        (
            {"volumes": [{"$patch": "replace"}, {"name": "a", "$patch": "delete"}, {"name": "b"}]},
            {"volumes": [{"name": "b"}]},
        ),
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
        ({"volumes": [{"name": None}]}, "volumes[0]: found no name, wanted name, by which the item is found"),
        ({"volumes": [{"name": ["a"]}]}, "volumes[0].name: found a list, wanted text"),
        ({"volumes": [{"name": {}, "$patch": "delete"}]}, "volumes[0].name: found a mapping, wanted text"),
        ({"ports": [{"containerPort": "http"}]}, "ports[0].containerPort: found text, wanted a number"),
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
    with pytest.raises(OverlayError) as caught:
        merge({"volumes": [{"name": "a"}], "map": {}}, patch)

    assert str(caught.value).startswith(message)
