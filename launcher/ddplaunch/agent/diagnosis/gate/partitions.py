"""The fewest partitions of a network that explain its failed paths. Pure.

A cut is two sets of nodes between which nothing passes: a bad node and all others, a bad pair, a rack and
another. What was not tried may lie in a cut, what passed never does. Two failed paths fit into one cut just
when no path passed from the source of the one to the target of the other; so the fewest cuts are the fewest
colours of the graph of conflicts. Cuts are grown where there is no choice first, which finds what a person
would draw; of few paths, all other ways are then tried for one with fewer cuts.

A cut for each node whose paths fail would be right as well, and would tell of a rack without its uplink as of
thirty broken nodes. Growing alone depends on the order of the paths, and may need one cut too many. The
search alone finds the fewest, but takes exponential time where the mesh has no shape. So each is bounded by
its looks at a path, and what is left over is told by single nodes: always true, if not short.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, Optional

Path = tuple[int, int]

_MOST = 16
"""Cuts that are looked for. Where there are more, the rest is described by single nodes."""
_STRAYS = 8
"""Single nodes of a side for which it is tried whether a cut is shorter without them."""
_CHECKS = 100_000
"""Looks at a path, about a tenth of a second, after which the search for fewer cuts is given up."""
_GROWTH = 20 * _CHECKS
"""Looks after which cuts grow no more, and the rest is described by single nodes: the mesh has no shape."""


class Partition(NamedTuple):
    """`sources` do not reach `targets`; `both`: nor do these reach those. A node may be on both sides."""

    sources: frozenset[int]
    targets: frozenset[int]
    both: bool

    def holds(self, path: Path) -> bool:
        there = path[0] in self.sources and path[1] in self.targets
        return there or (self.both and path[1] in self.sources and path[0] in self.targets)

    def numbers(self) -> int:
        """Return how many a person has to read: '0-31 and 40' has three."""
        return sum(map(_numbers, (self.sources, self.targets)))


class Description(NamedTuple):
    """`least`: where every pair was tried, no other has fewer cuts. Else it is only known to be right."""

    partitions: list[Partition]
    least: bool


def describe(failed: Collection[Path], passed: Collection[Path], nodes: int) -> Description:
    """Cuts that hold every failed path and none that passed; those with the most failed paths first.

    Paths lead from a node to another one; none is in both collections.
    """
    of, to = _neighbours(passed)
    lost, back = set(failed), {path[::-1] for path in passed}
    one_way, least = _cover(sorted(lost & back), of, to, False)
    left = []
    for path in sorted({(min(path), max(path)) for path in lost - back}):
        ways = [way for way in (path, path[::-1]) if way in lost]
        if not all(any(cut.takes_in(way) for cut in one_way) for way in ways):
            left.append(path)
    either, _ = _neighbours([*passed, *back])
    two_way, also_least = _cover(left, either, either, True)
    partitions = _chosen([*one_way, *two_way], lost, nodes)
    stragglers = _Holders(partitions)
    size = Counter(next(stragglers.of(path)) for path in lost)
    return Description(
        [_turned(cut, lost) for cut in sorted(size, key=lambda cut: (-size[cut], *map(sorted, cut[:2])))],
        least and also_least and not (one_way and two_way),
    )


def _chosen(grown: list[_Grown], lost: set[Path], nodes: int) -> list[Partition]:
    """Paths that another cut tells anyhow must not make one longer: left out of it, while they can be."""
    stragglers = _Holders([each.filled(nodes) for each in grown])

    def is_own(path: Path) -> bool:
        ways = lost.intersection((path, path[::-1]))
        return sum(all(map(cut.holds, ways)) for cut in stragglers.of(next(iter(ways)))) < 2

    lean = [each.of_paths(filter(is_own, each.paths)) for each in grown]
    partitions = [cut for each in lean if each.paths for cut in each.partitions(lost, nodes)]
    held = _Holders(partitions)
    if all(any(held.of(path)) for path in lost):
        return partitions
    return [cut for each in grown for cut in each.partitions(lost, nodes)]


class _Holders:
    """An index of the cuts that hold a path, in their order."""

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self._by_node: dict[int, list[Partition]] = defaultdict(list)
        for cut in partitions:
            for node in cut.sources | cut.targets if cut.both else cut.sources:
                self._by_node[node].append(cut)

    def of(self, path: Path) -> Iterator[Partition]:
        return (cut for cut in self._by_node.get(path[0], ()) if cut.holds(path))


def _turned(cut: Partition, lost: set[Path]) -> Partition:
    """Holds for the direction alone that failed, where the other was not tried."""
    sources, targets, both = cut
    if both and not any(p[0] in sources and p[1] in targets for p in lost):
        return Partition(targets, sources, False)
    return Partition(sources, targets, both and any(p[1] in sources and p[0] in targets for p in lost))


class _Grown:
    """A cut as far as paths have been put into it, and who must stay out of either side."""

    def __init__(self, of: dict[int, set[int]], to: dict[int, set[int]], both: bool) -> None:
        self.of, self.to, self.both = of, to, both
        self.paths: list[Path] = []
        self.sources: set[int] = set()
        self.targets: set[int] = set()
        self.no_source: set[int] = set()
        self.no_target: set[int] = set()

    def takes_in(self, path: Path) -> bool:
        """Whether it is in now, one of its ends having been before."""
        fits = self.takes(path) and self.touches(path) > 0
        if fits:
            self.add(path)
        return fits

    def of_paths(self, paths: Iterable[Path]) -> _Grown:
        return _grown(paths, self.of, self.to, self.both)

    def takes(self, path: Path) -> bool:
        return path[0] not in self.no_source and path[1] not in self.no_target

    def touches(self, path: Path) -> int:
        """Return how many of its ends are in the part already."""
        return (path[0] in self.sources) + (path[1] in self.targets)

    def add(self, path: Path) -> None:
        source, target = path
        self.paths.append(path)
        self.sources.add(source)
        self.targets.add(target)
        self.no_target |= self.of.get(source, set())
        self.no_source |= self.to.get(target, set())

    def partitions(self, lost: set[Path], nodes: int) -> list[Partition]:
        """Return it as one partition, or as several that are shorter, or as short and suppose less."""
        whole = self.filled(nodes)
        for paths in self._splits(whole):
            parts = [self.of_paths(each) for each in paths]
            longer = sum(part.filled(nodes).numbers() for part in parts) - whole.numbers()
            held = ((a, b) for a in whole.sources for b in whole.targets if a != b)
            if longer < 0 or (longer == 0 and not lost.issuperset(held)):
                return [cut for part in parts for cut in part.partitions(lost, nodes)]
        return [whole]

    def _splits(self, whole: Partition) -> Iterator[list[list[Path]]]:
        """Yield parts that share no node, and nodes that stand by themselves."""
        parts = _parts(self.paths)
        if len(parts) > 1:
            yield parts
        for side, nodes in enumerate((whole.sources, whole.targets)):
            for node in sorted(n for n in nodes if not {n - 1, n + 1} & nodes)[:_STRAYS]:
                parts = [[p for p in self.paths if (p[side] == node) == its] for its in (True, False)]
                if all(parts):
                    yield parts

    def filled(self, nodes: int) -> Partition:
        """Return it with untried nodes that make it shorter to say, those of the smaller side first."""
        sources, targets = set(self.sources), set(self.targets)
        if len(sources) <= len(targets):
            sources = _fill(sources, self.no_source | targets, nodes)
            barred = self.no_target.union(sources, *(self.of.get(node, ()) for node in sources))
            targets = _fill(targets, barred, nodes, sources)
        else:
            targets = _fill(targets, self.no_target | sources, nodes)
            barred = self.no_source.union(targets, *(self.to.get(node, ()) for node in targets))
            sources = _fill(sources, barred, nodes, targets)
        return Partition(frozenset(sources), frozenset(targets), self.both)


def _grown(paths: Iterable[Path], of: dict[int, set[int]], to: dict[int, set[int]], both: bool) -> _Grown:
    cut = _Grown(of, to, both)
    for path in paths:
        cut.add(path)
    return cut


def _cover(
    paths: list[Path], of: dict[int, set[int]], to: dict[int, set[int]], both: bool
) -> tuple[list[_Grown], bool]:
    """And whether there is none with fewer cuts. `both`: either end of a path may be its source."""
    partitions = _grow(paths, of, to, both)
    while len(partitions) > 1:
        search = _Search(of, to, both, len(partitions) - 1)
        fewer = search.run(paths, []) if len(partitions) <= _MOST else None
        if fewer is None:
            return partitions, search.checks > 0 and len(partitions) <= _MOST
        for cut in fewer:
            cut.paths = [way for path in paths for way in _ways(path, both) if cut.touches(way) == 2]
        partitions = fewer
    return partitions, True


def _grow(paths: list[Path], of: dict[int, set[int]], to: dict[int, set[int]], both: bool) -> list[_Grown]:
    silent, left = _silent(paths, of, to, both)
    partitions: list[_Grown] = []
    looks = _GROWTH
    while left and len(partitions) <= _MOST and looks > 0:
        looks -= len(left) * (len(partitions) + 1)
        waiting = []
        for path in left:
            options = _options(path, partitions, both)
            if not options and len(partitions) <= _MOST:
                partitions.append(_grown([path], of, to, both))
            elif options and (options[0][0] == 2 or (options[0][0] and len({o[1] for o in options}) == 1)):
                partitions[options[0][1]].add(options[0][2])
            else:
                waiting.append(path)
        if len(waiting) == len(left):  # there is a choice everywhere: take the closest
            best = max(waiting, key=lambda path: _options(path, partitions, both)[0][0])
            _, cut, way = _options(best, partitions, both)[0]
            partitions[cut].add(way)
            waiting.remove(best)
        left = waiting
    return [*silent, *partitions, *(_grown(star, of, to, both) for star in _stars(left))]


def _silent(
    paths: list[Path], of: dict[int, set[int]], to: dict[int, set[int]], both: bool
) -> tuple[list[_Grown], list[Path]]:
    """Cuts around nodes that nothing passed to, or nothing from; and the other paths."""
    partitions = []
    for side, reached in ((1, to), (0, of)):
        ends = Counter(way[side] for path in paths for way in _ways(path, both))
        silent = {node for node, count in ends.items() if count > 1 and not reached.get(node)}
        found = [way for path in paths for way in _ways(path, both) if way[side] in silent]
        if found:
            partitions.append(_grown(found, of, to, both))
            paths = [path for path in paths if silent.isdisjoint(path if both else path[side : side + 1])]
    return partitions, paths


def _options(path: Path, partitions: list[_Grown], both: bool) -> list[tuple[int, int, Path]]:
    """Return the cuts that can take the path, the best first: its ends in it, its number, the direction."""
    found = [
        (cut.touches(way), index, way)
        for index, cut in enumerate(partitions)
        for way in _ways(path, both)
        if cut.takes(way)
    ]
    return sorted(found, key=lambda option: -option[0])


def _ways(path: Path, both: bool) -> tuple[Path, ...]:
    return (path, path[::-1]) if both else (path,)


def _stars(paths: list[Path]) -> Iterator[list[Path]]:
    """Yield the paths of each node, the busiest first: no such cut can hold a path that passed."""
    counts = Counter((side, path[side]) for path in paths for side in (0, 1))
    stars: dict[tuple[int, int], list[Path]] = defaultdict(list)
    for path in paths:
        stars[max((0, path[0]), (1, path[1]), key=lambda end: counts[end])].append(path)
    yield from stars.values()


class _Search:
    """Tries all ways to put paths into `most` cuts, the path with the least choice first."""

    def __init__(self, of: dict[int, set[int]], to: dict[int, set[int]], both: bool, most: int) -> None:
        self.of, self.to, self.both, self.most = of, to, both, most
        self.checks = _CHECKS  # left; none: the search was given up

    def run(self, paths: list[Path], partitions: list[_Grown]) -> Optional[list[_Grown]]:
        """Return the partitions that explain the paths; None when none were found in time."""
        self.checks -= len(paths) * (len(partitions) + 1)
        if self.checks <= 0:
            self.checks = 0
            return None
        left, fewest = [], None
        for path in paths:
            options = _options(path, partitions, self.both)
            if options and options[0][0] == 2:
                continue
            left.append(path)
            if fewest is None or len(options) < len(fewest[1]):
                fewest = path, options
        if fewest is None:
            return partitions
        path, options = fewest
        left.remove(path)
        for _, index, way in options:
            found = self.run(
                left, [_added(cut, way) if i == index else cut for i, cut in enumerate(partitions)]
            )
            if found is not None:
                return found
        if len(partitions) < self.most:
            return self.run(left, [*partitions, _grown([path], self.of, self.to, self.both)])
        return None


def _added(cut: _Grown, path: Path) -> _Grown:
    fresh = cut.of_paths(cut.paths)
    fresh.add(path)
    return fresh


def _neighbours(passed: Iterable[Path]) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """Whom each node reached, and who reached each."""
    of: dict[int, set[int]] = defaultdict(set)
    to: dict[int, set[int]] = defaultdict(set)
    for source, target in passed:
        of[source].add(target)
        to[target].add(source)
    return of, to


def _parts(paths: list[Path]) -> list[list[Path]]:
    """Paths that share their source, or their target, and so on."""
    by_end: dict[tuple[int, int], list[Path]] = defaultdict(list)
    for path in paths:
        for side in (0, 1):
            by_end[side, path[side]].append(path)
    left, parts = set(paths), []
    for first in paths:
        part, edge = [], [first]
        while edge:
            path = edge.pop()
            if path in left:
                left.remove(path)
                part.append(path)
                edge += by_end.pop((0, path[0]), []) + by_end.pop((1, path[1]), [])
        if part:
            parts.append(part)
    return parts


def _fill(needed: set[int], barred: set[int], nodes: int, other: Collection[int] = ()) -> set[int]:
    """Return `needed` in as few spans as the barred nodes allow, or all but `other` if none is barred."""
    rest = set(range(nodes)).difference(other)
    if other and len(needed) > 1 and not rest & barred:
        return rest | needed
    found = set(needed)
    run: list[int] = []
    for node in sorted(needed):
        if run and any(n in barred for n in range(run[-1] + 1, node)):
            run = []
        run.append(node)
        if len(run) > 2:
            found.update(range(run[0] if len(run) == 3 else run[-2], node))
    return found


def _numbers(nodes: Collection[int]) -> int:
    members = set(nodes)
    singles = sum(node - 1 not in members and node + 1 not in members for node in members)
    return singles + 2 * sum(node - 1 not in members and node + 1 in members for node in members)
