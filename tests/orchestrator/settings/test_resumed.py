"""The settings of a resume: recorded settings apply unless the new ones replace them."""

from pathlib import Path
from typing import Any

from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.settings.resumed import with_recorded


def test_resume_keeps_the_recorded_retries_unless_settings_give_them() -> None:
    tree = {
        "name": "n", "objective": {"name": "sine"}, "candidates": {"size": 10}, "strategy": {"name": "uniform"},
        "budget": {"evaluations": 3},
    }  # fmt: skip
    old = from_mapping({**tree, "workers": {"retries": 2}}).resolved()
    assert with_recorded(old, from_mapping(old), from_mapping(tree)).workers.retries == 2
    assert with_recorded(old, from_mapping(old), from_mapping({**tree, "workers": {"retries": 1}})).workers.retries == 1
    unset = from_mapping(tree).resolved()
    assert with_recorded(unset, from_mapping(unset), from_mapping(tree)).workers.retries is None


def test_older_run_keeps_its_start_unless_the_file_gives_a_strategy() -> None:
    tree = {
        "name": "sine",
        "objective": {"name": "sine"},
        "candidates": {"size": 50},
        "budget": {"evaluations": 8},
    }
    new = from_mapping(tree).resolved()
    assert with_recorded(new, from_mapping(new), from_mapping(tree)) == from_mapping(tree)
    older: Any = {key: value for key, value in new["strategy"].items() if key not in ("coverage", "verify")}
    older["warm_start"] = {"name": "spread", "pulls": 16}
    older["model"] = {key: value for key, value in older["model"].items() if key != "first_fit"}
    old = {**new, "strategy": older}
    begun = from_mapping(old).resolved()["strategy"]
    assert (begun["coverage"], begun["verify"], begun["model"]["first_fit"]) == (0.0, 0.0, 16)
    assert with_recorded(old, from_mapping(old), from_mapping(tree)).resolved()["strategy"] == begun
    other = from_mapping({**tree, "strategy": {"name": "bbkb", "coverage": 0.5}})
    assert with_recorded(old, from_mapping(old), other).resolved()["strategy"]["coverage"] == 0.5


def test_recorded_earlier_runs_are_identified_by_folder_or_by_name_if_it_is_gone(tmp_path: Path) -> None:
    tree = {
        "name": "n", "objective": {"command": "echo {x}", "direction": "maximize"},
        "space": {"x": {"low": 0.0, "high": 1.0}},
        "budget": {"evaluations": 3},
    }  # fmt: skip
    here, there, link = tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "link"
    here.mkdir(parents=True)
    there.mkdir(parents=True)
    link.symlink_to(here)
    old = from_mapping({**tree, "known_results": [{"best_of": [str(here)], "first": [{"x": 0.5}]}]}).resolved()

    def first(folder: Path) -> object:
        return with_recorded(
            old, from_mapping(old), from_mapping({**tree, "known_results": [{"best_of": [str(folder)]}]})
        ).first

    assert first(here) == first(link) == ({"x": 0.5},)
    assert first(there) == ()
    here.rmdir()
    assert first(there) == ({"x": 0.5},)
    assert first(tmp_path / "other") == ()
