"""`bbkb.orchestrator.api.campaign`: arguments of `tune` and `Campaign` are settings of a campaign file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jedi
import pytest

from bbkb import Campaign, Constraint, Objective, Range, tune
from bbkb.orchestrator.api.campaign import Space
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.errors import ConfigError
from bbkb.settings import Asha, Budget, Simulation, StopWhen, Workers

SPACE: Space = {"x": Range(0.0, 1.0)}
COMMAND = {"command": "train --x {x}"}


def resolved(**arguments: Any) -> Mapping[str, Any]:
    if "objectives" not in arguments:
        arguments.setdefault("direction", "minimize")
    return plain(Campaign(COMMAND, SPACE, **arguments).settings)


def test_arguments_are_keys_of_the_campaign_file() -> None:
    limits = {"evaluations": 7, "hours": 1.5, "steps": 40, "early_stopping": "median"}
    names = {"name": "net", "run": "first", "seed": 3, "strategy": "uniform"}
    settings = resolved(direction="minimize", executor="inline", workers=2, **limits, **names)
    budget, workers = settings["budget"], settings["workers"]
    assert (budget["evaluations"], budget["hours"], budget["steps"]) == (7, 1.5, 40)
    assert (workers["executor"], workers["count"]) == ("inline", 2)
    assert settings["early_stopping"] == {"rule": "median", "after": 3, "metric": None}
    assert settings["objective"]["direction"] == "minimize"
    assert (settings["strategy"]["name"], settings["seed"]) == ("uniform", 3)
    assert (settings["name"], settings["run"]) == ("net", "first")


def test_arguments_join_the_sections_of_settings() -> None:
    settings: dict[str, Any] = {
        "budget": {"target": 0.5},
        "workers": {"retries": 1},
        "objective": {"deterministic": True},
    }
    joined = resolved(evaluations=5, executor="inline", hours=2.0, direction="maximize", settings=settings)
    assert (joined["budget"]["target"], joined["budget"]["hours"]) == (0.5, 2.0)
    assert (joined["workers"]["retries"], joined["workers"]["executor"]) == (1, "inline")
    assert joined["objective"]["deterministic"] is True
    assert settings["budget"] == {"target": 0.5}, "the user's mapping is not changed"


@pytest.mark.parametrize(
    ("section", "mapping"),
    [
        (8, {"count": 8}),
        (Workers(count=8), {"count": 8}),
        (Workers(count=8, trial_folders=True), {"count": 8, "trial_folders": True}),
        (Workers(count=2, gpus_from="x"), {"count": 2, "gpus_from": "x"}),
        (
            Workers(executor="simulated", count=4, simulation=Simulation(sigma=0.5)),
            {"executor": "simulated", "count": 4, "simulation": {"sigma": 0.5}},
        ),
    ],
)
def test_workers_may_be_a_number_or_a_section(section: Workers | int, mapping: dict[str, Any]) -> None:
    expected = resolved(evaluations=5, settings={"workers": mapping})["workers"]
    assert resolved(evaluations=5, workers=section)["workers"] == expected
    assert resolved(evaluations=5, workers=mapping)["workers"] == expected
    if isinstance(section, Workers):
        assert resolved(evaluations=5, settings={"workers": section})["workers"] == expected


def test_tune_runs_with_a_section_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workers = Workers(count=1, trial_folders=True)
    result = tune(
        lambda x: x, SPACE, evaluations=2, direction="minimize", executor="inline", workers=workers, progress=False
    )
    assert result.outcome == "finished"
    assert (Path(result.folder) / "trials").is_dir()


def test_sections_join_arguments() -> None:
    budget = Budget(evaluations=9, stop_when=StopWhen(no_gain_of=0.1, within=4))
    joined = resolved(executor="inline", hours=2.0, workers=Workers(count=1, retries=1), settings={"budget": budget})
    assert (joined["workers"]["executor"], joined["workers"]["retries"]) == ("inline", 1)
    assert (joined["budget"]["evaluations"], joined["budget"]["hours"]) == (9, 2.0)
    assert joined["budget"]["stop_when"]["in"] == 4
    rule = {"rule": "asha", "reduction": 2.0, "after": 1, "metric": None}
    for given in (Asha(reduction=2.0), {"rule": "asha", "reduction": 2.0}):
        assert resolved(evaluations=5, early_stopping=given)["early_stopping"] == rule
    assert resolved(steps=30)["budget"]["evaluations"] == 30


def test_goals_are_objects_or_mappings() -> None:
    as_objects = resolved(
        evaluations=5,
        objectives=[Objective("accuracy"), Objective("seconds", "minimize")],
        constraints=[Constraint("memory_gb", at_most=4)],
    )
    as_mappings = resolved(
        evaluations=5,
        objectives=[{"metric": "accuracy"}, {"metric": "seconds", "direction": "minimize"}],
        constraints=[{"metric": "memory_gb", "at_most": 4}],
    )
    assert as_objects == as_mappings
    assert as_objects["constraints"] == [{"metric": "memory_gb", "at_most": 4.0, "at_least": None}]


@pytest.mark.parametrize(
    ("argument", "value", "settings"),
    [
        ("executor", "inline", {"workers": {"executor": "ray"}}),
        ("workers", 2, {"workers": {"count": 1}}),
        ("workers", {"count": 2}, {"workers": {"count": 1}}),
        ("hours", 1.0, {"budget": {"hours": 2.0}}),
        ("run", "first", {"run": "second"}),
        ("seed", 1, {"seed": 2}),
    ],
)
def test_argument_also_in_settings_is_rejected(argument: str, value: object, settings: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=rf"^{argument}\S* must be given once, as an argument or in settings; got both"
    ):
        resolved(**{"evaluations": 5, argument: value, "settings": settings})


def test_campaign_without_a_budget_names_the_argument() -> None:
    with pytest.raises(ValueError, match="evaluations is missing: write evaluations=20"):
        resolved(direction="minimize")
    with pytest.raises(ConfigError, match=r"budget\.evaluations is required"):
        resolved(hours=1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"executor": "inlin"}, r"workers\.executor .*did you mean 'inline'"),
        ({"hours": -1}, r"budget\.hours must be > 0"),
        ({"early_stopping": "mode"}, r"early_stopping\.rule"),
        ({"workers": "many"}, r"workers\.count must be a whole number"),
        ({"workers": {"cuont": 8}}, r"workers\.cuont is not a known key; did you mean 'count'"),
        ({"workers": {8: 1}}, r"workers\.8 .*strings"),
        ({"workers": Workers(count=0)}, r"workers\.count must be >= 1, got 0"),
        ({"workers": Workers(executor="inlin")}, r"workers\.executor .*did you mean 'inline'"),  # type: ignore[arg-type]
        ({"workers": Budget(evaluations=5)}, r"workers\.evaluations is not a known key"),
        ({"settings": {"workers": 3}, "executor": "inline"}, r"workers must be a mapping"),
    ],
)
def test_wrong_value_is_named_by_its_key(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(evaluations=5, **arguments)


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["tune", "Campaign"])
def test_editor_completes_the_arguments(call: str) -> None:
    code = f"import bbkb\nbbkb.{call}(abs, {{}}, "
    completed = {completion.name.rstrip("=") for completion in jedi.Script(code).complete()}
    assert {"evaluations", "executor", "hours", "steps", "early_stopping", "run", "settings"} <= completed
