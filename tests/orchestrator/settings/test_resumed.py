"""The settings of a resume: recorded settings apply unless the new ones replace them."""

from pathlib import Path

from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.settings.resumed import with_recorded


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
    old = from_mapping({**tree, "known_results": [{"best_of": [str(here)], "first": [{"x": 0.5}]}]})

    def first(folder: Path) -> object:
        return with_recorded(old, from_mapping({**tree, "known_results": [{"best_of": [str(folder)]}]})).first

    assert first(here) == first(link) == ({"x": 0.5},)
    assert first(there) == ()
    here.rmdir()
    assert first(there) == ({"x": 0.5},)
    assert first(tmp_path / "other") == ()
