"""`benchmarks.speed.rows`: The rows of the table: the measurements, what they are compared with,
and their limits.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed.__main__ import _keep, main
from benchmarks.speed.rows import ROWS, Bench
from orchestrator.errors import BbkbError, UserError


class Scripted(Bench):
    """A bench whose measurements take as long as is said here."""

    def measure(self, measurement: str, /, **options: Any) -> dict[str, Any]:
        seconds = {"ours": 2.0, "authors": 30.0, "limit": 6.0}[measurement] * (1 + options.get("seed", 0))
        horizon = options["horizon"]
        return {"seconds": seconds * horizon / 1e4, "ratio": 0.1, "batches": 7, "mebibytes": 100.0, "least": 2.0}


def bench(authors: Path | None = None) -> Scripted:
    return Scripted(threads=1, repeats=3, authors=authors, data=None)


def test_ratios_beside_the_authors_are_medians_of_runs_in_turns(tmp_path: Path) -> None:
    [row] = ROWS["cadata-10000-global"](bench(tmp_path))
    assert row.found.startswith("15.0 x faster (4.00 s, theirs 60.00 s;")
    assert row.goal == ">= 15 x"
    _keep(tmp_path / "kept.json", [row])
    assert json.loads((tmp_path / "kept.json").read_text())[0]["numbers"]["ratios"] == [15.0] * 3


def test_growth_limit_and_suggestions_are_ratios_of_medians() -> None:
    grown, suggestion = ROWS["growth"](bench())
    assert (grown.found, suggestion.found) == ("4.00 (memory 1.00)", "200 microseconds")
    assert [row.found for row in ROWS["limit"](bench())] == ["0.6", "3.0"]


def test_a_wrong_row_and_missing_code_of_the_authors_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(UserError, match=r"rows must be among cadata-2000-global, .*got nonsense"):
        main(["nonsense"])
    with pytest.raises(UserError, match="--authors must name a checkout"):
        ROWS["abalone-global"](bench())


def test_a_measurement_that_fails_says_why() -> None:
    with pytest.raises(BbkbError, match=r"measuring ours .* failed: .*objective.name must be one of"):
        Bench(1, 1, None, None).measure("ours", name="nowhere", horizon=3, rule="global")
