"""Numbers, ranges, seconds and bytes as people write them: rough in a sentence, exact in a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def plural(number: int, noun: str) -> str:
    """'node' for 1, else 'nodes'."""
    return noun if number == 1 else f"{noun}s"


def count(number: int, noun: str) -> str:
    """'1 node', '2 nodes'."""
    return f"{number} {plural(number, noun)}"


def span(seconds: float) -> str:
    """'0.4 s', '12 s', '4 min', '3 h': as exact as a sentence wants it."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def duration(seconds: float) -> str:
    """'4.2 s', '42 s', '3 min 12 s', '2 h 5 min', '3 d 4 h': at most two units, as a table wants it."""
    if seconds < 9.95:
        return span(seconds)
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(seconds)


def size(number: float) -> str:
    """'64 MiB', '15.9 GiB': bytes as a sentence wants them."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def exact_size(number: float) -> str:
    """'812 B', '64 MiB', '1.5 GiB': bytes as a table wants them."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    return f"{number:.1f}".removesuffix(".0") + f" {units[0]}"


# --- numbers of nodes and ranks


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
