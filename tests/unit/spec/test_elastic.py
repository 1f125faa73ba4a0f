"""A range of nodes in the job file."""

from __future__ import annotations

import pytest

from ddplaunch.spec import load
from ddplaunch.spec.models import JobSpec
from ddplaunch.spec.problems import SpecError

HEAD = "apiVersion: ddplaunch/v1\nname: job\ncommand: [train.py]\n"
C10D = "rendezvous: {backend: c10d}\n"


def read(text: str) -> JobSpec:
    """The job file of that name and command with `text` below."""
    return load.parse((HEAD + text).encode(), "job.yaml")


@pytest.mark.parametrize("text", ["{min: 2, max: 4}", "2:4", '"2:4"', "4\nmin_nodes: 2"])
def test_a_range_is_read_as_people_write_it(text: str) -> None:
    """YAML 1.1 reads the bare 2:4 as 124, torchrun and the rest of the world as a range."""
    spec = read(f"{C10D}nodes: {text}\n")

    assert (4, 2) == (spec.nodes, spec.min_nodes)


_RANGE = "a whole number from 1 to 10000, or a range such as {min: 2, max: 4}"


@pytest.mark.parametrize("text", ["{min: 2, max: 4, newcomers: join}", "2:4\nnewcomers: join"])
def test_newcomers_are_asked_for_beside_the_range(text: str) -> None:
    """In the range itself, or as a key of its own; by default they are refused."""
    spec = read(f"{C10D}nodes: {text}\n")

    assert (4, 2, "join") == (spec.nodes, spec.min_nodes, spec.newcomers)
    assert "refuse" == read(f"{C10D}nodes: 2:4\n").newcomers


@pytest.mark.parametrize(
    ("text", "path", "wanted"),
    [
        ("nodes: 4\nnewcomers: join", "newcomers", "a range of nodes"),
        (f"{C10D}nodes: {{min: 2, max: 4, newcomers: welcome}}", "nodes", _RANGE),
    ],
)
def test_newcomers_that_cannot_be_are_refused(text: str, path: str, wanted: str) -> None:
    """A number that is fixed has none, and other words mean nothing."""
    with pytest.raises(SpecError) as caught:
        read(f"{text}\n")

    assert [(path, wanted)] == [(each.path, each.wanted) for each in caught.value.problems]


@pytest.mark.parametrize(
    "text",
    [
        "{min: 2}",
        "{min: 0, max: 2}",
        "{min: 2, max: 4, step: 1}",
        "[2, 4]",
        "2-4",
        "0:2",
        "0",
        "2:4\nmin_nodes: 1",
    ],
)
def test_what_is_no_range_is_refused_once(text: str) -> None:
    """The message shows how a range is written."""
    with pytest.raises(SpecError) as caught:
        read(f"{C10D}nodes: {text}\n")

    (problem,) = caught.value.problems
    assert ("nodes", _RANGE) == (problem.path, problem.wanted)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("", "rendezvous.backend"),
        ("launch: mpi", "nodes"),
        ("launch: srun", "nodes"),
        (f"{C10D}gate: {{enabled: false}}", "gate.enabled"),
        (f"{C10D}gate: {{smoke_test: true}}", "gate.smoke_test"),
    ],
)
def test_what_a_range_does_not_go_with_is_refused(more: str, path: str) -> None:
    """Each with its reason; the same is fine for a fixed number."""
    with pytest.raises(SpecError) as caught:
        read(f"nodes: 2:4\n{more}\n")

    assert [path] == [problem.path for problem in caught.value.problems]
    assert 2 == read(f"nodes: 2\n{more}\n").nodes


@pytest.mark.parametrize("text", ["4:2", "{min: 2, max: 2}"])
def test_a_range_goes_up(text: str) -> None:
    """One number is written as such."""
    with pytest.raises(SpecError, match="wanted min below max"):
        read(f"{C10D}nodes: {text}\n")
