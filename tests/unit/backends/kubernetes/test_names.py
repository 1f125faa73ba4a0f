"""A job that is submitted again gets a number behind its name, and one that is deleted leaves nothing."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backends.kubernetes.api_server import Server, served

from ddplaunch.backends.job import Handle
from ddplaunch.backends.kubernetes.backend import KubernetesBackend
from ddplaunch.errors import NotFoundError
from ddplaunch.plan import plan
from ddplaunch.render import Rendered, render
from ddplaunch.spec.load import load


class Store(Server):
    """An API server that keeps what it is sent, and lists it by its labels."""

    objects: dict[str, Any]

    def got(self) -> None:
        """A version, an object, or a list."""
        path, _, query = self.path.partition("?")
        if path == "/version":
            self.answer(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
        elif path in self.objects:
            self.answer(200, self.objects[path])
        elif path.endswith(("/jobs", "/pods", "/jobsets")):
            (selector,) = urllib.parse.parse_qs(query)["labelSelector"]
            labels = {tuple(each.split("=")) for each in selector.split(",")}
            items = [
                each
                for at, each in self.objects.items()
                if at.startswith(path) and labels <= set(each["metadata"].get("labels", {}).items())
            ]
            self.answer(200, {"apiVersion": "batch/v1", "kind": "JobList", "items": items})
        else:
            self.answer(404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": "none"})

    def patched(self, body: dict[str, Any]) -> None:
        """Keep it."""
        path = self.path.partition("?")[0]
        new = path not in self.objects
        if new:
            body["metadata"]["uid"] = f"uid {len(self.objects)}"
            self.objects[path] = body
        self.answer(201 if new else 200, self.objects[path])

    def deleted(self) -> None:
        """Gone at once."""
        self.objects.pop(self.path.partition("?")[0], None)
        self.answer(200, {"kind": "Status"})


JOBS = "/apis/batch/v1/namespaces/team/jobs"


@pytest.fixture(name="store")
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    kept: dict[str, Any] = {}
    with served(type("_Store", (Store,), {"objects": kept}), tmp_path, monkeypatch):
        yield kept


@pytest.fixture(name="backend")
def _backend(store: dict[str, Any], tmp_path: Path) -> Iterator[KubernetesBackend]:
    backend = KubernetesBackend(tmp_path / "state")
    yield backend
    backend.close()


@pytest.fixture(name="toy")
def _toy(tmp_path: Path) -> Rendered:
    path = tmp_path / "job.yaml"
    path.write_text("apiVersion: ddplaunch/v1\nname: toy\nimage: trainer\ncommand: [train.py]\n")
    return render(plan.make(load(path), "kubernetes", tmp_path))


def test_the_same_job_is_submitted_again(
    store: dict[str, Any], backend: KubernetesBackend, toy: Rendered
) -> None:
    """The first has the plain name; each later one has the next number, whole."""
    handles = [backend.submit(toy) for _ in range(3)]

    assert [Handle("kubernetes", f"team/{name}") for name in ("toy", "toy-2", "toy-3")] == handles
    assert ["toy", "toy-2", "toy-3"] == sorted(
        at.removeprefix(f"{JOBS}/") for at in store if at.startswith(JOBS)
    )
    for kind in ("services", "configmaps", "networkpolicies"):
        assert ["toy", "toy-2", "toy-3"] == sorted(
            at.rpartition("/")[2] for at in store if at.rpartition("/")[0].endswith(f"/{kind}")
        )
    policies = [each for at, each in store.items() if "networkpolicies" in at]
    chosen = [json.dumps(each["spec"]["podSelector"]["matchLabels"]) for each in policies]
    assert ['"toy"', '"toy-2"', '"toy-3"'] == sorted(text[:-1].split(": ")[1] for text in chosen)
    assert ["toy"] * 3 == [each.name for each in backend.known()]
    assert handles[-1] == backend.known()[0].handle


def test_a_number_is_not_given_twice(
    store: dict[str, Any], backend: KubernetesBackend, toy: Rendered
) -> None:
    """Also when the job is gone: what was kept of it is still found by its handle."""
    backend.submit(toy)
    backend.submit(toy)
    store.clear()

    assert "team/toy-3" == backend.submit(toy).path


def test_a_job_of_another_machine_counts(
    store: dict[str, Any], backend: KubernetesBackend, toy: Rendered, tmp_path: Path
) -> None:
    """Nothing is known of it here but its label."""
    backend.submit(toy)
    backend.submit(toy)
    elsewhere = KubernetesBackend(tmp_path / "elsewhere")

    assert "team/toy-3" == elsewhere.submit(toy).path
    elsewhere.close()


def test_a_name_that_another_job_has_is_left_out(
    store: dict[str, Any], backend: KubernetesBackend, toy: Rendered
) -> None:
    """Its job file may be called toy-2; and somebody's own Job, toy."""
    for name in ("toy", "toy-2"):
        store[f"{JOBS}/{name}"] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "uid": name},
            "spec": {"completions": 1},
        }

    assert "team/toy-3" == backend.submit(toy).path
    assert "toy-2" == store[f"{JOBS}/toy-2"]["metadata"]["uid"]


def test_a_job_is_deleted_with_all_that_is_its_own(
    store: dict[str, Any], backend: KubernetesBackend, toy: Rendered, tmp_path: Path
) -> None:
    """And no other: not the next submission, not somebody's object of its name."""
    first, second = backend.submit(toy), backend.submit(toy)
    foreign = "/api/v1/namespaces/team/secrets/toy"
    store[foreign] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "toy", "uid": "theirs"}}
    others = {at for at in store if "toy-2" in at} | {foreign}

    left = backend.remains(first)
    assert left is not None
    parts = ["jobs/toy", "networkpolicies/toy", "services/toy", "configmaps/toy", "secrets/toy-key"]
    assert [f"{part} in namespace team" for part in parts] == list(left.parts[:-1])
    assert left.parts[-1].endswith("/team/toy.json")
    backend.delete(first)

    assert others == set(store)
    assert [second] == [each.handle for each in backend.known()]
    later = KubernetesBackend(tmp_path / "state")
    with pytest.raises(NotFoundError):
        later.remains(first)
    later.close()


def test_a_job_of_others_is_not_ours_to_delete(store: dict[str, Any], backend: KubernetesBackend) -> None:
    """It has a name, and no label of ours."""
    store[f"{JOBS}/toy"] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "toy", "uid": "theirs"},
        "spec": {"completions": 1},
    }
    handle = Handle("kubernetes", "team/toy")
    assert None is backend.remains(handle)

    backend.delete(handle)
    assert f"{JOBS}/toy" in store


def test_another_job_that_has_taken_the_name_stays(
    store: dict[str, Any], backend: KubernetesBackend, toy: Rendered
) -> None:
    """A colleague's, in a namespace that is shared: what is kept here of the first goes alone."""
    handle = backend.submit(toy)
    store[f"{JOBS}/toy"]["metadata"]["uid"] = "theirs"
    left = backend.remains(handle)
    assert left is not None
    assert (1, ("the Job that has this name now is another submission, and is kept",)) == (
        len(left.parts),
        left.stays,
    )
    before = set(store)

    backend.delete(handle)
    assert (before, []) == (set(store), backend.known())
