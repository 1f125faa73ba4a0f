"""Numbers of nodes and ranks as people write them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddplaunch.agent.text.quantities import plural


def rows(numbers: Iterable[int], shortest: int = 2) -> list[tuple[int, int]]:
    """Return (0, 3) and (7, 7) of 0 1 2 3 7. Fewer than `shortest` numbers in a row stand one by one."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    parts: list[tuple[int, int]] = []
    for row in found:
        parts += [(row[0], row[-1])] if len(row) >= shortest else [(number, number) for number in row]
    return parts


def spans(numbers: Iterable[int], shortest: int = 2) -> list[str]:
    """Return '0-3' and '7' of 0 1 2 3 7. Fewer than `shortest` numbers in a row are written one by one."""
    return [str(first) if first == last else f"{first}-{last}" for first, last in rows(numbers, shortest)]


def some(noun: str, numbers: Iterable[int]) -> str:
    """Return 'rank 5', or 'ranks 0-2, 5': short, for a table."""
    every = set(numbers)
    return f"{plural(len(every), noun)} {', '.join(spans(every))}"


def listing(items: Sequence[str]) -> str:
    """Return 'a', 'a and b', or 'a, b and c'. Raises IndexError where there is no item."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
