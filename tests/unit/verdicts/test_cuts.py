"""Cuts that were put into a mesh are found back, and no description contradicts what was seen."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from functools import cache
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ddplaunch.agent.diagnosis.gate.partitions import Description, Partition, Path, describe
from ddplaunch.agent.hub import mesh_plan


def cut(sources: Collection[int], targets: Collection[int], both: bool = True) -> Partition:
    """Of any collections."""
    return Partition(frozenset(sources), frozenset(targets), both)


@cache
def tried(nodes: int) -> tuple[Path, ...]:
    """As the hub has them tried."""
    return tuple((node, peer) for node, peers in enumerate(mesh_plan.partners(nodes)) for peer in peers)


def broken(nodes: int, *partitions: Partition) -> tuple[set[Path], set[Path]]:
    """The paths that fail where a network is cut so, and those that pass."""
    failed = {path for path in tried(nodes) if any(each.holds(path) for each in partitions)}
    return failed, {*tried(nodes)} - failed


def found(nodes: int, *partitions: Partition) -> Description:
    """What is found of these, and is right in any case."""
    failed, passed = broken(nodes, *partitions)
    description = describe(failed, passed, nodes)
    is_right(description, failed, passed)
    return description


def is_right(description: Description, failed: set[Path], passed: set[Path]) -> None:
    """Every failed path is told, and none that passed."""
    assert all(any(each.holds(path) for each in description.partitions) for path in failed)
    assert not any(each.holds(path) for each in description.partitions for path in passed)


def sides(description: Description) -> list[set[frozenset[int]]]:
    """Of each cut, in order."""
    return [{each.sources, each.targets} for each in description.partitions]


def numbers(partitions: Collection[Partition]) -> int:
    """How many there are to read."""
    return sum(each.numbers() for each in partitions)


NODES = 7
SOME = st.frozensets(st.integers(0, NODES - 1), min_size=1)
PATHS = st.sampled_from([(a, b) for a in range(NODES) for b in range(NODES) if a != b])


@given(st.sets(PATHS), st.sets(PATHS))
def test_no_description_contradicts_what_was_seen(failed: set[Path], passed: set[Path]) -> None:
    """Whatever failed, passed or was not tried."""
    is_right(describe(failed, passed - failed, NODES), failed, passed - failed)


@settings(max_examples=10)
@given(st.integers(33, 120), st.integers(0, 99), st.floats(0.02, 0.6))
def test_where_anything_fails_the_description_is_still_right(nodes: int, seed: int, share: float) -> None:
    """Paths that fail at random are no cuts; all are told nevertheless."""
    chance = Random(seed)
    failed = {path for path in tried(nodes) if chance.random() < share}
    passed = {*tried(nodes)} - failed
    is_right(describe(failed, passed, nodes), failed, passed)


@given(st.lists(st.tuples(SOME, SOME), min_size=1, max_size=3), st.booleans())
def test_what_was_planted_is_told_in_no_more_cuts(
    sides: list[tuple[frozenset[int], frozenset[int]]], both: bool
) -> None:
    """Where all pairs were tried, up to three cuts are never told as more, if that is said of them."""
    planted = [cut(sources, targets, both) for sources, targets in sides]

    description = found(NODES, *planted)

    assert description.least or not both
    assert len(description.partitions) <= len(planted) or not description.least


FEW = 4
ALL = [(a, b) for a in range(FEW) for b in range(FEW) if a != b]
SUBSETS = [frozenset(c) for size in range(1, FEW + 1) for c in itertools.combinations(range(FEW), size)]


@given(st.sets(st.sampled_from(ALL)))
def test_the_least_is_the_least(failed: set[Path]) -> None:
    """Compared with all descriptions of a small mesh that there are."""
    partitions = itertools.starmap(cut, itertools.product(SUBSETS, SUBSETS, (False, True)))
    held = {each: frozenset(filter(each.holds, ALL)) for each in partitions}
    told = {paths for paths in held.values() if paths <= failed}
    told = {each for each in told if not any(each < other for other in told)}

    description = describe(failed, {*ALL} - failed, FEW)

    if description.least:
        fewest = next(
            count
            for count in range(len(failed) + 1)
            if any(failed <= set().union(*chosen) for chosen in itertools.combinations(told, count))
        )
        assert fewest == len(description.partitions)
    assert description.least or len(description.partitions) > 1


@settings(max_examples=30)
@given(st.data())
def test_a_bad_node_is_found_at_any_size(data: st.DataObject) -> None:
    """Deaf, dumb or both, alone or with a few others: one cut, between these and all others."""
    nodes = data.draw(st.integers(33, 600))
    bad = data.draw(st.frozensets(st.integers(0, nodes - 1), min_size=1, max_size=4))
    way = data.draw(st.sampled_from(["in", "out", "both"]))
    rest = frozenset(range(nodes)) - bad
    planted = cut(bad, range(nodes), way == "both") if way != "in" else cut(range(nodes), bad, False)

    (one,) = found(nodes, planted).partitions

    assert one.both == (way == "both")
    assert bad == (one.sources if way == "out" else min(one.sources, one.targets, key=len))
    assert rest <= max(one.sources, one.targets, key=len)


@settings(max_examples=30)
@given(st.data())
def test_a_rack_that_is_cut_off_is_found_at_any_size(data: st.DataObject) -> None:
    """From all others, in one direction or both: exactly the rack is named."""
    nodes = data.draw(st.integers(64, 600))
    size = data.draw(st.integers(2, nodes // 2))
    first = data.draw(st.integers(0, nodes - size))
    rack = frozenset(range(first, first + size))
    both = data.draw(st.booleans())

    description = found(nodes, cut(rack, frozenset(range(nodes)) - rack, both))

    assert [{rack, frozenset(range(nodes)) - rack}] == sides(description)
    assert [both] == [each.both for each in description.partitions]


@settings(max_examples=30)
@given(st.data())
def test_two_racks_that_are_parted_are_found_at_any_size(data: st.DataObject) -> None:
    """Both of the length that the mesh plan promises: some path shows it, and nobody else is named."""
    nodes = data.draw(st.integers(64, 1500))
    size = mesh_plan.block(nodes)
    one, other = data.draw(st.lists(st.integers(0, nodes // size - 1), min_size=2, max_size=2, unique=True))
    racks = [frozenset(range(rack * size, rack * size + size)) for rack in (one, other)]
    planted = cut(racks[0], racks[1], data.draw(st.booleans()))

    description = found(nodes, planted)

    assert description.partitions
    assert numbers(description.partitions) <= numbers([planted])
    for each in description.partitions:
        assert each.sources | each.targets <= racks[0] | racks[1]


def test_independent_faults_are_told_apart() -> None:
    """A dead node, two parted racks and a bad pair in a job of 512: three cuts, the largest first."""
    racks = range(64, 96), range(96, 128)
    description = found(512, cut([17], range(512)), cut(*racks), cut([200], [201]))

    assert [
        {frozenset(racks[0]), frozenset(racks[1])},
        {frozenset([17]), frozenset(range(512)) - {17}},
        {frozenset([200]), frozenset([201])},
    ] == sides(description)


def test_a_path_that_was_tried_in_one_direction_is_told_in_that_one() -> None:
    """Nothing is said of the way back, which nobody has tried."""
    assert [cut([1], [0], False)] == describe([(1, 0)], [(2, 0), (2, 1)], 3).partitions
