"""Durations and quantities: text to numbers and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddplaunch.agent.job_file import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("2m", 120.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        (90, 90.0),
        (0.25, 0.25),
    ],
)
def test_durations_are_seconds(text: object, seconds: float) -> None:
    """Text with units and plain numbers of seconds mean what they say."""
    assert seconds == units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10", "write 10s, or the number without quotes"),
        ("10 s", "write 10s"),
        ("5 minutes", "write 5m"),
        ("2hours", "write 2h"),
        ("1m1m", "name each unit once"),
        ("1:30", "the units are ms, s, m, h and d, as in 1h30m"),
        ("soon", "the units are ms, s, m, h and d, as in 1h30m"),
        ("10 fortnights", "the units are ms, s, m, h and d"),
        (True, ""),
        (None, ""),
    ],
)
def test_a_wrong_duration_says_how_to_write_it(text: object, hint: str) -> None:
    """What nearly is a duration is answered with the duration that was meant."""
    with pytest.raises(units.UnitError) as caught:
        units.parse_duration(text)

    assert hint == str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90m", 5400.0),
        ("30:00", 1800.0),
        ("1:30:00", 5400.0),
        ("2-00:00:00", 172_800.0),
        ("1-12", 129_600.0),
        ("1-02:03", 93_780.0),
    ],
)
def test_slurm_times_are_seconds(text: object, seconds: float) -> None:
    """Slurm's own notations are read as sbatch reads them, and durations beside them."""
    assert seconds == units.parse_slurm_time(text)


@pytest.mark.parametrize("text", [60, 1.5, "60"])
def test_a_bare_number_is_no_slurm_time(text: object) -> None:
    """Slurm reads a bare number as minutes and everybody else as seconds, so it must be said."""
    with pytest.raises(units.UnitError, match="minutes"):
        units.parse_slurm_time(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("16Gi", 16 * 2**30), ("500M", 500_000_000), ("1.5Gi", 3 * 2**29), ("8k", 8000), ("7", 7), (7, 7)],
)
def test_quantities_are_bytes(text: object, count: int) -> None:
    """Kubernetes' suffixes mean what they mean there."""
    assert count == units.parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("16GB", "write 16G (powers of 1000) or 16Gi (powers of 1024)"),
        ("16 gib", "write 16Gi"),
        ("16g", "write 16G (powers of 1000) or 16Gi (powers of 1024)"),
        ("16K", "write 16k (powers of 1000) or 16Ki (powers of 1024)"),
        ("16 ", "write 16"),
        ("100m", "m means thousandths in Kubernetes: write 100M or 100Mi"),
        ("12B", "bytes have no suffix: write 12"),
        ("0.1", "0.1 is not a whole number of bytes"),
        ("3Xi", ""),
        ("lots", ""),
        (1.5, "a plain number of bytes must be whole; with a suffix it may have a fraction, as in 1.5Gi"),
        (True, ""),
    ],
)
def test_a_wrong_quantity_says_how_to_write_it(text: object, hint: str) -> None:
    """What nearly is a quantity is answered with the quantity that was meant."""
    with pytest.raises(units.UnitError) as caught:
        units.parse_quantity(text)

    assert hint == str(caught.value)


@given(st.integers(min_value=0, max_value=31_536_000_000))
def test_a_duration_survives_its_text(milliseconds: int) -> None:
    seconds = milliseconds / 1000

    assert seconds == units.parse_duration(units.format_duration(seconds))


@given(st.floats(min_value=1e-6, max_value=3e7, allow_nan=False))
def test_a_fraction_of_a_duration_survives_its_text(seconds: float) -> None:
    assert seconds == units.parse_duration(units.format_duration(seconds))


@given(st.integers(min_value=0, max_value=2**60))
def test_a_quantity_survives_its_text(count: int) -> None:
    assert count == units.parse_quantity(units.format_quantity(count))


@pytest.mark.parametrize("unit", sorted(units.PARSERS))
@given(value=st.one_of(st.text(), st.text("0123456789.:-smhdKMGTi "), st.none(), st.booleans(), st.floats()))
def test_a_parser_returns_a_number_or_a_hint(unit: str, value: object) -> None:
    """Whatever is written, a parser answers with a number or with `UnitError`."""
    try:
        number = units.PARSERS[unit](value)
    except units.UnitError:
        return

    assert isinstance(number, int | float)
