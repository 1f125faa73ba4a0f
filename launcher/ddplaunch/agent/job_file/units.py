"""Converts the durations and quantities of a job file to numbers, and back. Pure.

Each parser takes a value as YAML reads it and returns a number. It raises `UnitError`, whose text is a hint,
which may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Union

SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}

BYTES = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
"""Kubernetes' suffixes: decimal `k M G T`, binary `Ki Mi Gi Ti`."""

_DURATION = re.compile(r"(?:[0-9]{1,30}(?:\.[0-9]{1,30})?(?:ms|[smhd]))+")
_DURATION_PART = re.compile(r"([0-9.]+)(ms|[smhd])")
_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)([A-Za-z]{0,3})")
_SLURM_DAYS = re.compile(r"([0-9]{1,4})-([0-9]{1,2})(?::([0-5]?[0-9]))?(?::([0-5]?[0-9]))?")
_SLURM_CLOCK = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5}):([0-5][0-9])")


class UnitError(ValueError):
    """The value does not have that unit; the text is a hint."""


def parse_duration(value: object) -> float:
    """Return the seconds of `10s`, `2m`, `1h30m`, `500ms`, `1.5h`, or of a plain number of seconds."""
    if isinstance(value, bool):
        raise UnitError
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, str):
        raise UnitError
    if not _DURATION.fullmatch(value):
        raise UnitError(_duration_hint(value))
    parts = [(Decimal(number), unit) for number, unit in _DURATION_PART.findall(value)]
    units = [unit for _, unit in parts]
    if len(set(units)) != len(units):
        raise UnitError("name each unit once")
    return float(sum(number * SECONDS[unit] for number, unit in parts))


def _duration_hint(value: str) -> str:
    words = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hr": "h", "hour": "h", "day": "d"}
    match = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]+)", value.strip())
    if not match:
        if re.fullmatch(r"[0-9.]+", value):
            return f"write {value}s, or the number without quotes"
        return "the units are ms, s, m, h and d, as in 1h30m"
    number, word = match.groups()
    lower = word.lower()
    unit = words.get(lower.removesuffix("s") or lower, lower)
    return f"write {number}{unit}" if unit in SECONDS else "the units are ms, s, m, h and d"


def parse_slurm_time(value: object) -> float:
    """Return the seconds of a duration, or of `mm:ss`, `hh:mm:ss`, `d-hh`, `d-hh:mm` or `d-hh:mm:ss`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise UnitError(f"Slurm would read {value} as minutes: write {value}m, or {value}s for seconds")
    if not isinstance(value, str):
        raise UnitError
    if match := _SLURM_DAYS.fullmatch(value):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
    if match := _SLURM_CLOCK.fullmatch(value):
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(hours * 3600 + minutes * 60 + seconds)
    if re.fullmatch(r"[0-9]+", value):
        raise UnitError(f"write {value}m for minutes, which is how Slurm reads a bare number")
    return parse_duration(value)


def parse_quantity(value: object) -> int:
    """Return the bytes of `16Gi`, `500M`, `1.5G`, or of a plain number of bytes, which must be whole."""
    if isinstance(value, bool):
        raise UnitError
    if isinstance(value, int):
        return value
    if not isinstance(value, str):
        raise UnitError(
            "a plain number of bytes must be whole; with a suffix it may have a fraction, as in 1.5Gi"
        )
    match = _QUANTITY.fullmatch(value)
    if not match or match[2] not in BYTES:
        raise UnitError(_quantity_hint(value))
    exact = Decimal(match[1]) * BYTES[match[2]]
    if exact != int(exact):
        raise UnitError(f"{value} is not a whole number of bytes")
    return int(exact)


def _quantity_hint(value: str) -> str:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", value.strip())
    if not match:
        return ""
    number, suffix = match.groups()
    if suffix == "m":
        return f"m means thousandths in Kubernetes: write {number}M or {number}Mi"
    letter = suffix.lower().removesuffix("b").removesuffix("i").upper()
    decimal = letter.lower() if letter == "K" else letter
    if letter == "" and suffix:
        return f"bytes have no suffix: write {number}"
    if decimal not in BYTES:
        return ""
    if suffix.lower().endswith(("i", "ib")):
        return f"write {number}{letter}i"
    if not suffix:
        return f"write {number}"
    return f"write {number}{decimal} (powers of 1000) or {number}{letter}i (powers of 1024)"


def format_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` reads as *seconds*: `90.0` gives `1m30s`."""
    if seconds != round(seconds, 3):
        return f"{Decimal(repr(seconds)):f}s"
    rest = round(seconds * 1000)
    text = ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def format_quantity(count: int) -> str:
    """Return the shortest text that `parse_quantity` reads as *count* bytes: `17179869184` gives `16Gi`."""
    written = [f"{count // size}{suffix}" for suffix, size in BYTES.items() if count % size == 0]
    return min(written, key=len)


PARSERS: dict[str, Callable[[object], Union[float, int]]] = {
    "duration": parse_duration,
    "slurm_time": parse_slurm_time,
    "quantity": parse_quantity,
}
"""Parser of each `x-unit` in `spec.fields`."""

MOST = {"duration": 31_536_000, "slurm_time": 31_536_000, "quantity": 2**60}
"""The largest value of each unit; of time that is a year, well below what timers overflow at."""
