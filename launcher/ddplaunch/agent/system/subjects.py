"""Nodes and ranks as subjects of a text; `agent.text.saying` spells them out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddplaunch.agent.system.resolve import is_loopback, numeric
from ddplaunch.agent.text.quantities import rows
from ddplaunch.agent.text.saying import Part, Subject

_NAMED = 4
"""Nodes up to which a sentence names each; more would bury what it says."""
ROW = 3
"""Numbers in a row from which on a sentence has '0-2' for '0, 1 and 2'."""


def ranks(numbers: Iterable[int]) -> Subject:
    """'rank 3', 'ranks 2 and 5', 'ranks 0-3 and 7'; 'no rank' where there is no number."""
    return Subject("rank", _rows(numbers))


def node(number: int, names: Sequence[str] = (), address: str = "") -> Subject:
    """'node 2', 'node 2 (10.0.0.5)', and where the nodes have names 'node 2 (n3, 10.0.0.5)'.

    `names` are the job's, in node order.
    """
    return Subject("node", (Part(number, number, name(number, names), address),))


def nodes(numbers: Iterable[int], names: Sequence[str] = ()) -> Subject:
    """'node 3 (n4)', 'nodes 2 and 5', 'nodes 2 (n3) and 5 (n6)', 'nodes 0-511'."""
    ordered = sorted(set(numbers))
    if not are_named(ordered, names):
        return Subject("node", _rows(ordered))
    return Subject("node", tuple(Part(each, each, name(each, names)) for each in ordered))


def _rows(numbers: Iterable[int]) -> tuple[Part, ...]:
    return tuple(Part(first, last) for first, last in rows(numbers, ROW))


def are_named(numbers: Sequence[int], names: Sequence[str]) -> bool:
    """Whether `nodes` gives these their names: some have one, and they are few."""
    return len(numbers) <= _NAMED and any(name(number, names) for number in numbers)


def name(number: int, names: Sequence[str]) -> str:
    """Return a node's name as people use it; empty where it has none.

    A loopback address is none: the nodes of one machine share it. A name loses its domain where node 0 has
    the same.
    """
    whole = names[number] if 0 <= number < len(names) else ""
    if is_loopback(whole):
        return ""
    host, dot, domain = whole.partition(".")
    is_whole = " " in whole or numeric(whole)  # with its machine, or an address
    return host if dot and not is_whole and names[0].partition(".")[2] == domain else whole
