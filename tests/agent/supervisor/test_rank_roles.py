"""Which processes are ranks, by their environments, their calls and their parents."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ddplaunch.agent.supervisor.rank_roles import Candidate, Candidates, Numbers, assign_roles

LAUNCHER, PARENT = 10, 20


def worker(pid: int, rank: int, world: int = 2, **more: object) -> Candidate:
    """A process that torchrun has started, below the launcher."""
    known = Candidate(pid, (LAUNCHER,), environment=Numbers(rank, rank, world))
    return replace(known, **more)  # type: ignore[arg-type]


def child(pid: int, place: int, rank: int | None = None, world: int = 4, by_torch: bool = True) -> Candidate:
    """One of mp.spawn's; with a rank once it has called init_process_group."""
    call = None if rank is None else Numbers(rank, None, world)
    return Candidate(pid, (PARENT, LAUNCHER), call=call, spawned=place, by_torch=by_torch)


def ranks(candidates: list[Candidate]) -> list[tuple[int, int, int | None, str]]:
    """(pid, rank, world size, where the number comes from) of each member."""
    return [
        (each.pid, each.rank, each.world_size, each.numbered_by) for each in assign_roles(candidates).members
    ]


def test_torchruns_workers_are_ranks_before_they_call() -> None:
    assert [(31, 0, 2, "environment"), (32, 1, 2, "environment")] == ranks([worker(31, 0), worker(32, 1)])


def test_a_call_has_the_last_word_on_the_number() -> None:
    """A script that takes its rank from LOCAL_RANK is the rank that it says."""
    called = worker(31, 2, world=4, call=Numbers(0, None, 4))

    assert [(31, 0, 4, "call")] == ranks([called])


def test_mp_spawns_children_are_the_ranks_and_their_parent_is_none() -> None:
    children = [child(40 + number, number, number) for number in range(4)]
    expected = [(40 + number, number, 4, "call") for number in range(4)]

    assert expected == ranks(children)
    below_torchrun = assign_roles([Candidate(PARENT, (LAUNCHER,), environment=Numbers(0, 0, 1)), *children])
    assert expected == [(m.pid, m.rank, m.world_size, m.numbered_by) for m in below_torchrun.members]
    assert frozenset([PARENT]) == below_torchrun.launchers


@pytest.mark.parametrize("offset", [0, 4])
def test_a_child_that_has_not_called_is_numbered_by_its_siblings(offset: int) -> None:
    """The one that sleeps before init_process_group is the number that is free, on any node."""
    called = [child(40 + number, number, number + offset, 8) for number in (0, 1, 3)]

    assert (42, 2 + offset, 8, "spawn") in ranks([*called, child(42, 2)])


def test_mp_spawns_children_are_ranks_by_the_order_of_their_start() -> None:
    by_torch = [child(41, 1), child(40, 0)]
    others = [child(51, 1, by_torch=False), child(50, 0, by_torch=False)]

    assert [(40, 0, None, "spawn"), (41, 1, None, "spawn")] == ranks(by_torch)
    assert [] == ranks(others)


def test_a_loaders_worker_is_no_rank() -> None:
    """Its parent is a rank, but no sibling of it has called anything."""
    loader = Candidate(61, (31, LAUNCHER), spawned=0)

    assert [(31, 0, 2, "call")] == ranks([worker(31, 0, call=Numbers(0, None, 2)), loader])


def test_a_logger_beside_the_ranks_has_no_number_of_theirs() -> None:
    """Its place among its siblings lies beyond the world."""
    called = [child(40 + number, number, number, 2, by_torch=False) for number in range(2)]

    assert [40, 41] == [pid for pid, *_ in ranks([*called, child(49, 2, by_torch=False)])]


def test_a_rank_inside_a_shell_script_ends_with_the_script() -> None:
    """The outermost process with the number is what torchrun waits for; the Python in it computes."""
    python = Candidate(35, (31, LAUNCHER), environment=Numbers(0, 0, 2), call=Numbers(0, None, 2))
    (member,) = assign_roles([worker(31, 0), python]).members

    assert (31, 35) == (member.pid, member.program)


def test_several_launchers_side_by_side_have_ranks_of_their_own() -> None:
    """Two torchruns of one script count from 0 each; no process is left out."""
    assert [31, 41, 32, 42] == [
        pid for pid, *_ in ranks([worker(31, 0), worker(32, 1), worker(41, 0), worker(42, 1)])
    ]


def test_a_loaders_workers_are_dropped_with_their_end_and_ranks_are_kept() -> None:
    """Every epoch brings new workers; what has called init_process_group stays known after its death."""
    candidates = Candidates()
    with subprocess.Popen(["sleep", "60"]) as worker, subprocess.Popen(["sleep", "60"]) as rank:
        lines: Any = [
            SimpleNamespace(pid=worker.pid, answer={"spawned": 0}),
            SimpleNamespace(pid=rank.pid, answer=None),
        ]
        assert candidates.take_answers(lines)
        candidates.note_call(lines[1], 0, 1)
        candidates.find()
        assert {worker.pid, rank.pid} == set(candidates._known)
        worker.kill()
        rank.kill()
        worker.wait()
        rank.wait()
    candidates.find()

    known: dict[int, Candidate] = candidates._known
    assert {rank.pid} == set(known)
