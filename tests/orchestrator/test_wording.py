"""Tests of orchestrator/wording.py."""

import pytest

from bbkb.orchestrator.wording import duration, iso, moment, plural, printable, rounded


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (59.4, "59.4 s"), (60, "1 min 0 s"), (3599.9, "1 h 0 min"), (7380, "2 h 3 min"), (9e4, "1 d 1 h")],
)
def test_durations_have_readable_units(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_wall_clock_and_virtual_times_are_written_differently() -> None:
    assert moment(1.75e9) == "2025-06-15 15:06:40 UTC"
    assert moment(12.25) == "12.2 s (virtual)"


def test_time_that_no_date_can_have_is_written_as_the_nearest_one() -> None:
    assert iso(3.6e15) == "9999-12-31T23:59:59.000000Z"
    assert moment(1e300) == "9999-12-31 23:59:59 UTC"
    assert iso(float("nan")).endswith("Z")
    assert iso(1_772_374_509.25) == "2026-03-01T14:15:09.250000Z"


def test_characters_that_mislead_a_reader_are_escaped_and_all_others_stay() -> None:
    assert printable("a\u202eb\u200b\ufeff\U000e0041\x1b") == r"a\u202eb\u200b\ufeff\U000e0041\x1b"
    plain = "Größe ≥ 2\n\tשלום नमस्ते 👩\u200d🔬 می\u200cخواهم"
    assert printable(plain) == plain


def test_plural_of_one_is_singular() -> None:
    assert [plural(count, "batch", "es") for count in (0, 1, 2)] == ["0 batches", "1 batch", "2 batches"]


@pytest.mark.parametrize(
    ("number", "digits", "expected"),
    [(71605.2, 4, "71610"), (1634.0, 2, "1600"), (0.0031249, 3, "0.00312"), (12e6, 2, "1.2e+07"), (0.0, 2, "0")],
)
def test_rounded_numbers_have_an_exponent_only_from_a_million_on(number: float, digits: int, expected: str) -> None:
    assert rounded(number, digits) == expected
