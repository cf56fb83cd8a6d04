"""Earlier runs of the same space: their portfolio begins a campaign, and is recorded with it."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.api import Campaign, Result, tune
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.errors import RunError, UserError
from bbkb.orchestrator.session.known_results import with_best_of
from bbkb.orchestrator.session.portfolio import EarlierRun, portfolio
from bbkb.orchestrator.settings.loading import from_mapping

SPACE: dict[str, Any] = {"x": {"low": 0.0, "high": 1.0}, "kind": {"choices": ["a", "b"]}}
GRID: list[dict[str, Any]] = [{"x": float(x), "kind": kind} for x in np.linspace(0, 1, 9) for kind in "ab"]


def near(place: float, kind: str) -> EarlierRun:
    rewards = [-((configuration["x"] - place) ** 2) - (configuration["kind"] != kind) for configuration in GRID]
    return EarlierRun("run", GRID, rewards)


def other(x: float, kind: str) -> float:
    return (x - 0.2) ** 2 + (kind != "b")


def loss(x: float, kind: str) -> float:
    return (x - 0.25) ** 2 + (kind != "b")


def loss_and_size(x: float, kind: str) -> dict[str, float]:
    return {"value": loss(x, kind), "size": x}


def only_loss(metric: str) -> Callable[..., dict[str, float]]:
    def measured(x: float, kind: str) -> dict[str, float]:
        return {metric: loss(x, kind)}

    return measured


def settings_of(runs: Path, **changes: Any) -> dict[str, Any]:
    return {"workers": {"executor": "inline"}, "runs": str(runs), **changes}


def earlier(runs: Path, evaluations: int = 16, function: Any = other, **changes: Any) -> Result:
    settings = settings_of(runs, **changes)
    return tune(function, SPACE, evaluations=evaluations, direction="minimize", settings=settings)


def best_of(run: Result) -> list[dict[str, Any]]:
    """The section `known_results` of a campaign that begins with the best of `run`."""
    return [{"best_of": [str(run.folder)]}]


def test_portfolio_has_the_best_of_each_run_and_hardly_any_other() -> None:
    space = _space()
    configurations = portfolio(space, [near(0.0, "a"), near(1.0, "b")])
    assert {(configuration["x"], configuration["kind"]) for configuration in configurations} >= {(0.0, "a"), (1.0, "b")}
    assert len(configurations) <= 3
    assert portfolio(space, [near(0.0, "a")] * 3) == [{"x": 0.0, "kind": "a"}]


def test_portfolio_of_a_run_with_one_configuration_contains_it() -> None:
    assert portfolio(_space(), [EarlierRun("run", GRID[:1], [0.5])]) == GRID[:1]


def test_portfolio_has_one_configuration_for_runs_that_agree() -> None:
    runs = [near(0.5, "a"), near(0.5, "a"), near(0.625, "a")]
    (first,) = portfolio(_space(), runs, 1)
    ranks = {
        configuration["x"]: sum(np.argsort(-np.array(run.rewards)).tolist().index(2 * place) for run in runs)
        for place, configuration in enumerate(GRID[::2])
    }
    assert first["kind"] == "a"
    assert first["x"] in (0.5, 0.625)
    assert ranks[first["x"]] == min(ranks.values())


def campaign(**changes: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "objective": {"command": "echo {x} {kind}", "direction": "maximize"},
        "space": SPACE,
        "budget": {"evaluations": 20},
        **changes,
    }


def test_campaign_begins_with_the_best_of_an_earlier_run_and_resumes_without_it(tmp_path: Path) -> None:
    before = earlier(tmp_path / "a")
    settings = settings_of(tmp_path / "b", known_results=best_of(before))
    result = tune(loss, SPACE, evaluations=10, direction="minimize", settings=settings)
    first = result.trials[0].parameters
    assert first in [trial.parameters for trial in before.trials]
    assert float(first["x"]) == pytest.approx(0.2, abs=0.1)
    shutil.rmtree(before.folder)
    continued = tune(loss, SPACE, evaluations=14, direction="minimize", settings=settings, resume=result.folder)
    assert len(continued.trials) == 14
    assert continued.trials[0].parameters == first


def test_resolved_settings_keep_the_configurations_of_earlier_runs(tmp_path: Path) -> None:
    before = earlier(tmp_path)
    settings = with_best_of(from_mapping(campaign(known_results=best_of(before))))
    again = from_mapping(plain(settings))
    assert again.first == settings.first
    assert len(again.first) == 1
    assert with_best_of(again) is again
    unread = plain(from_mapping(campaign(known_results=best_of(before))))["known_results"]
    assert unread == [{**best_of(before)[0], "first": None}]


def test_run_is_read_without_importing_its_code(tmp_path: Path) -> None:
    code = tmp_path / "there" / "trained_elsewhere.py"
    code.parent.mkdir()
    code.write_text("def f(x, kind):\n    return x\n")
    file = tmp_path / "campaign.yaml"
    tree = campaign(
        objective={"callable": f"{code}:f", "direction": "maximize"},
        workers={"executor": "inline"},
        runs=str(tmp_path / "runs"),
    )
    file.write_text(json.dumps(tree))
    result = Campaign.from_file(file).run(progress=False)
    code.unlink()
    sys.modules.pop("trained_elsewhere", None)
    assert with_best_of(from_mapping(campaign(known_results=best_of(result)))).first
    assert "trained_elsewhere" not in sys.modules


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (
            {**SPACE, "x": {"low": 0.0, "high": 2.0}},
            r"known_results\.0\.best_of\.0: run .* and x\.high is 1\.0 there and 2\.0 here",
        ),
        ({"x": SPACE["x"]}, r"kind\.choices is \['a', 'b'\] there and None here"),
    ],
    ids=["range", "parameter"],
)
def test_earlier_run_with_another_space_is_rejected_with_the_difference(
    tmp_path: Path, space: Mapping[str, Any], words: str
) -> None:
    before = earlier(tmp_path, 2)
    tree = campaign(
        space=dict(space),
        objective={"command": "echo {x}", "direction": "maximize"},
        known_results=best_of(before),
    )
    with pytest.raises(RunError, match=words):
        with_best_of(from_mapping(tree))


def test_space_of_an_earlier_run_may_differ_in_priors(tmp_path: Path) -> None:
    before = earlier(tmp_path, 4)
    space = {**SPACE, "x": {**SPACE["x"], "prior": 0.3}}
    assert with_best_of(from_mapping(campaign(space=space, known_results=best_of(before)))).first


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"best_of": "runs/a"}, r"known_results\.0\.best_of must be a list"),
        ({"best_of": []}, "best_of must have at least 1 entries"),
        ({"best_of": [3]}, r"best_of\.0 must be text"),
        ({"best_of": ["a"], "first": 5}, r"known_results\.0\.first must be a list"),
    ],
)
def test_earlier_runs_are_a_list_of_folders(source: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        from_mapping(campaign(known_results=[source]))


def test_portfolio_takes_a_quarter_of_a_budget_at_most() -> None:
    assert all(
        len(portfolio(_space(), runs, 2)) <= 2
        for runs in combinations([near(p, k) for p in (0.0, 0.5, 1.0) for k in "ab"], 4)
    )


def test_resume_with_other_earlier_runs_is_rejected(tmp_path: Path) -> None:
    runs = [earlier(tmp_path, 8, run=name) for name in ("a", "b")]
    settings = settings_of(tmp_path, known_results=best_of(runs[0]))
    result = tune(loss, SPACE, evaluations=4, direction="minimize", settings=settings)
    for changed in ({"known_results": best_of(runs[1])}, {}):
        settings = settings_of(tmp_path, **changed)
        with pytest.raises(RunError, match=r"known_results.*became"):
            tune(loss, SPACE, evaluations=6, direction="minimize", settings=settings, resume=result.folder)


def test_portfolio_and_enqueued_configurations_do_not_exceed_the_budget(tmp_path: Path) -> None:
    before = earlier(tmp_path, 8)
    enqueue = [{"x": float(x), "kind": "a"} for x in (0.0, 0.5, 1.0)]
    tree = campaign(known_results=best_of(before), enqueue=enqueue, budget={"evaluations": 3})
    assert with_best_of(from_mapping(tree)).first == tuple(enqueue)
    tree["budget"] = {"evaluations": 4}
    assert len(with_best_of(from_mapping(tree)).first) == 4


def test_configurations_that_violated_a_constraint_do_not_begin_a_campaign(tmp_path: Path) -> None:
    before = earlier(tmp_path, function=loss_and_size)
    constrained = campaign(
        objective={"command": "echo {x} {kind}"},
        known_results=best_of(before),
        objectives=[{"metric": "loss", "direction": "minimize"}],
        constraints=[{"metric": "size", "at_most": 0.1}],
    )
    first = with_best_of(from_mapping(constrained)).first
    assert first
    assert all(float(str(configuration["x"])) <= 0.1 for configuration in first)
    all_first = with_best_of(from_mapping(campaign(known_results=best_of(before)))).first
    assert any(float(str(configuration["x"])) > 0.1 for configuration in all_first)
    constrained["constraints"] = [{"metric": "size", "at_most": -1.0}]
    with pytest.raises(
        RunError, match=r"known_results\.0\.best_of\.0: run .* has no result .* that satisfies the constraints"
    ):
        with_best_of(from_mapping(constrained))
    constrained["constraints"] = [{"metric": "seconds", "at_most": -1.0}]
    assert with_best_of(from_mapping(constrained)).first  # a metric that the run did not record


@pytest.mark.parametrize("metric", ["value", "loss"])
def test_constraint_on_the_objective_itself_holds_for_earlier_results(tmp_path: Path, metric: str) -> None:
    goals: dict[str, Any] = {"objectives": [{"metric": metric, "direction": "minimize"}]}
    before = earlier(tmp_path, function=only_loss(metric), **(goals if metric == "loss" else {}))
    values = sorted(trial.value for trial in before.trials if trial.value is not None)
    tree = campaign(
        objective={"command": "echo {x} {kind}"},
        known_results=best_of(before),
        **goals,
        constraints=[{"metric": metric, "at_least": values[-1]}],
    )
    (first,) = with_best_of(from_mapping(tree)).first or ()
    assert loss(float(str(first["x"])), str(first["kind"])) == pytest.approx(values[-1])
    tree["constraints"] = [{"metric": metric, "at_most": values[0] - 1.0}]
    with pytest.raises(RunError, match="that satisfies the constraints"):
        with_best_of(from_mapping(tree))


def _space() -> SearchSpace:
    return SearchSpace(from_mapping(campaign()).space)
