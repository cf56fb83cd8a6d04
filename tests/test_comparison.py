"""The comparison with other projects is complete, and an existing test shows each entry of this project."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "comparison.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")][
    2:
]


def test_every_row_says_something_of_all_projects() -> None:
    assert len(ROWS) >= 40
    assert [row for row in ROWS if len(row) != 9 or not all(row[:8])] == []


def test_what_we_can_do_is_shown_by_a_test_and_what_we_cannot_is_not() -> None:
    assert [row[0] for row in ROWS if bool(row[8]) == row[1].startswith(("no", "not"))] == []


@pytest.mark.parametrize("row", [row for row in ROWS if row[8]], ids=lambda row: row[0])
def test_the_named_test_exists(row: list[str]) -> None:
    file, _, name = row[8].strip("`").partition("::")
    tests = re.findall(r"^(?:async )?def (test_\w+)", (REPOSITORY / "tests" / file).read_text(), re.MULTILINE)
    assert name in tests or (name == "*" and tests)
