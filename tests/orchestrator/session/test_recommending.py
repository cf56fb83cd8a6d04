"""Campaigns with noisy values: the log and every view have the recommendation."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from bbkb import Result, tune
from bbkb.objectives.objective import Report
from bbkb.objectives.parameters import Choice, Range
from bbkb.orchestrator.api.campaign import Space
from bbkb.orchestrator.bandit.strategy import Recommends
from bbkb.orchestrator.campaign.events import ModelRefreshed, Recommendation
from bbkb.orchestrator.campaign.goals import Direction
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.history.comparing import side_by_side
from bbkb.orchestrator.report.page import snapshot
from bbkb.orchestrator.report.terminal import render
from bbkb.orchestrator.report.timeline import model_facts
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.wording import short_text
from tests.orchestrator.runs import history_of, tune_here
from tests.present import present


def run_quadratic(tmp_path: Path, noise: float, direction: Direction, step: float | None = None) -> Result:
    """A run that measures a quadratic of two parameters with N(0, `noise`²)."""

    def value(x: float, n: int, seed: int) -> float:
        deviate = np.random.default_rng(seed).standard_normal()
        return 100.0 + float((x - 0.4) ** 2 + 0.1 * n + noise * deviate) * (1 if direction == "minimize" else -1)

    workers = {"executor": "simulated", "count": 2}  # in virtual time a campaign is reproducible
    settings = {"runs": str(tmp_path / "runs"), "workers": workers, "seed": 1}
    space: Space = {"x": Range(0.0, 1.0, step=step), "n": Choice((0, 1))}
    return tune(value, space, evaluations=40, direction=direction, progress=False, settings=settings)


@pytest.fixture(scope="module")
def noisy_result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_quadratic(tmp_path_factory.mktemp("noisy"), 1.0, "minimize", step=0.1)


def count_of(recommendation: Recommendation) -> str:
    count = recommendation.evaluations
    return f"mean of {count} evaluations" if count > 1 else "1 evaluation"


def test_log_has_the_recommendation_after_each_refresh(noisy_result: Result) -> None:
    run = open_run(noisy_result.folder)
    problem, events = build(load(run.settings_file), lambda x, n: 0.0).problem, run.events()
    engine, recommended = problem.engine(), 0
    assert isinstance(problem.strategy, Recommends)
    for event in events:
        engine.restore(event)
        if isinstance(event, ModelRefreshed):
            arm = problem.strategy.recommend(engine.model)
            assert (event.recommended and event.recommended.arm) == arm
            recommended += arm is not None
    assert recommended
    in_log = present(engine.state.refresh.recommended)
    values = [float(row.value or 0.0) for row in history_of(noisy_result).trials if row.arm == in_log.arm]
    assert in_log.evaluations == len(values)
    assert in_log.value == pytest.approx(np.mean(values))


def test_recommendation_is_shown_by_every_view(noisy_result: Result) -> None:
    recommended = present(history_of(noisy_result).campaign.refresh.recommended)
    best_trial = noisy_result.best
    assert best_trial.parameters == recommended.parameters
    assert (best_trial.value, best_trial.evaluations) == (recommended.value, recommended.evaluations)
    assert (best_trial.estimate, best_trial.deviation) == (recommended.estimate, recommended.deviation)
    assert best_trial.trial in {row.trial for row in history_of(noisy_result).trials if row.arm == recommended.arm}
    assert str(recommended) in repr(noisy_result)
    printed = CliRunner().invoke(app, ["best", str(noisy_result.folder), "--format", "json"], catch_exceptions=False)
    assert json.loads(printed.stdout) == recommended.parameters
    best = present(history_of(noisy_result).campaign.results.best)
    assert (noisy_result.best_observed.trial, noisy_result.best_observed.value) == (best.trial, best.value)
    assert (f"the best single value, {best.value:.6g}, belongs to another" in printed.stderr) == (
        best.arm != recommended.arm
    )
    assert best.arm != recommended.arm
    screen = io.StringIO()
    Console(file=screen, width=300).print(render(history_of(noisy_result).status()))
    assert "a best single value may be noise" in screen.getvalue()
    assert recommended.estimate is not None
    assert recommended.deviation is not None
    assert abs(recommended.estimate - recommended.value) < 4 * recommended.deviation
    estimate = f"{recommended.estimate:.5g} ± {recommended.deviation:.2g}"
    shown = f"{estimate} (estimate; {count_of(recommended)}: {recommended.value:.6g})"
    assert shown in screen.getvalue()
    assert f"value {shown}, minimized" in printed.stderr
    answer = snapshot(history_of(noisy_result), "noisy", figures=[])["answer"]
    assert f"{answer['value']} {answer['deviation']}" == estimate
    assert dict(answer["parameters"]).keys() == recommended.parameters.keys()
    rows = dict(side_by_side([history_of(noisy_result)]))
    assert rows["recommended"] == [shown]
    assert {name: rows[name] for name in recommended.parameters} == {
        name: [short_text(value)] for name, value in recommended.parameters.items()
    }
    assert model_facts(history_of(noisy_result))[0][0] == "lengthscales"


def test_recommendation_is_the_best_value_without_noise(tmp_path: Path) -> None:
    quadratic = run_quadratic(tmp_path, 0.0, "maximize")
    assert history_of(quadratic).campaign.refresh.recommended is None
    assert quadratic.best == quadratic.best_observed
    assert (quadratic.best.estimate, quadratic.best.evaluations) == (None, 1)
    assert "recommended" not in dict(side_by_side([history_of(quadratic)]))
    answer = snapshot(history_of(quadratic), "smooth", figures=[])["answer"]
    assert (answer["value"], answer["deviation"]) == (f"{quadratic.best.value:.6g}", "")


@pytest.mark.parametrize("rule", [{"rule": "median", "after": 3}, {"rule": "asha"}])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_recommendation_is_never_a_configuration_that_was_only_stopped_early(
    tmp_path: Path, rule: dict[str, object], seed: int
) -> None:
    def trained(x: float, y: float, seed: int, report: Report) -> float:
        rng, top = np.random.default_rng(seed), 1.0 - (x - 0.3) ** 2 - (y - 0.6) ** 2
        value = 0.0
        for step in range(1, 13):
            value = float(top * (1.0 - np.exp(-step / 4.0)) + 0.01 * rng.standard_normal())
            report(value, step)
        return value

    settings = {"seed": seed, "early_stopping": rule, "strategy": {"name": "bbkb"}}
    space: Space = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}
    result = tune_here(tmp_path, trained, space, settings, evaluations=40)
    rows, events = history_of(result).trials, open_run(result.folder).events()
    finished: set[int] = set()
    for event in events:
        if isinstance(event, ModelRefreshed):
            finished |= {rows[trial].arm for trial in event.trials if rows[trial].status == "succeeded"}
            assert event.recommended is None or event.recommended.arm in finished
    assert any(row.status == "stopped" for row in rows)


def test_reports_that_contradict_final_values_never_recommend_a_trial_of_the_worse_half(tmp_path: Path) -> None:
    def loss(x: float, y: float, report: Report) -> float:
        if y < 0.6:
            raise ValueError("diverged")
        value, steps = float(10.0 ** (6.0 * x)), 1 + int(150 * x)
        for step in range(1, steps + 1):
            report(-value * step / steps, step)
        return value

    settings = {"runs": str(tmp_path / "runs"), "workers": {"executor": "inline"}}
    space: Space = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}
    result = tune(loss, space, evaluations=20, direction="minimize", seed=1, progress=False, settings=settings)
    values = [trial.value for trial in result.trials if trial.value is not None]
    (recommended,) = (trial.value for trial in result.trials if trial.parameters == result.best.parameters)
    assert recommended is not None
    assert recommended <= np.median(values)
