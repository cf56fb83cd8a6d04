"""Runs that are named: found again, never begun twice, on every database."""

from pathlib import Path
from typing import Any

import pytest

from objectives.objective import Candidates
from orchestrator.errors import RunError
from orchestrator.session.assemble import build
from orchestrator.settings.model import from_mapping
from orchestrator.store import runs


@pytest.fixture
def settings(tmp_path: Path, database_url: str, campaign: str) -> dict[str, Any]:
    return from_mapping(
        {
            "name": "sine",
            "objective": {"name": "sine"},
            "candidates": {"size": 20},
            "strategy": {"name": "uniform"},
            "budget": {"evaluations": 5},
            "store": "sqlite" if database_url.startswith("sqlite") else database_url,
            "runs": str(tmp_path / "runs"),
            "run": campaign,
        }
    ).resolved()


@pytest.fixture
def candidates(settings: dict[str, Any]) -> Candidates:
    return build(from_mapping(settings)).problem.candidates


def test_a_named_run_is_found_once_it_has_begun(settings: dict[str, Any], candidates: Candidates) -> None:
    assert runs.find(settings) is None
    begun = runs.create(settings, candidates, "", None, "a test")
    assert begun.folder == Path(settings["runs"]).resolve() / settings["run"]
    assert runs.find(settings) == begun == runs.open_run(begun.folder)
    assert runs.find({**settings, "run": None}) is None


def test_a_named_run_is_not_begun_twice(settings: dict[str, Any], candidates: Candidates) -> None:
    runs.create(settings, candidates, "", None, "a test")
    with pytest.raises(RunError, match=r"is in .* already"):
        runs.create(settings, candidates, "", None, "a test")


def test_a_folder_that_a_dead_process_left_without_a_log_is_used_again(
    settings: dict[str, Any], candidates: Candidates
) -> None:
    (Path(settings["runs"]) / settings["run"]).mkdir(parents=True)
    assert runs.find(settings) is None
    assert len(runs.create(settings, candidates, "", None, "a test").events()) == 1


def test_a_campaign_in_a_database_is_found_where_its_folder_is_not(
    settings: dict[str, Any], candidates: Candidates, tmp_path: Path, database_url: str
) -> None:
    settings["store"] = database_url  # of a file that is not in the run's folder, or of a server
    runs.create(settings, candidates, "", None, "a test")
    found = runs.find({**settings, "runs": str(tmp_path / "elsewhere")})
    assert found is not None
    assert found.folder == tmp_path / "elsewhere" / settings["run"]
    assert found.folder.is_dir()
    assert len(found.events()) == 1


def test_a_folder_that_cannot_be_made_is_a_users_mistake(
    settings: dict[str, Any], candidates: Candidates, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot be made .*: set `runs:`"):
        runs.create({**settings, "runs": str(tmp_path / "file")}, candidates, "", None, "a test")
