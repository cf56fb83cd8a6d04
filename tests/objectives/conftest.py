"""Fixtures of several tests of objectives: real data if available, and a report that remembers."""

import os
from pathlib import Path

import pytest

from bbkb.objectives.objective import Report
from bbkb.objectives.reference import DataSource

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def source() -> DataSource:
    """The folder in BBKB_DATA, else the one beside the repository, else none; never a download."""
    beside = REPOSITORY.parent / "shared" / "data"
    folder = os.environ.get("BBKB_DATA") or (str(beside) if beside.is_dir() else None)
    return DataSource(Path(folder) if folder else None)


@pytest.fixture
def silent() -> Report:
    def report(value: object, step: int | None = None, **metrics: float) -> None: ...

    return report
