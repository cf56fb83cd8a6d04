"""Learning curves of trials that were stopped and continued: bands of forecasts, and why each
decision was made."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bbkb.objectives.objective import Report
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.history.export import trial_columns
from bbkb.orchestrator.history.facts import as_plain, facts, headline
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.one_trial import describe_trial
from bbkb.orchestrator.history.remarks import training_remark
from bbkb.orchestrator.report.curves import learning_curves
from bbkb.orchestrator.report.progress import best_so_far
from bbkb.orchestrator.report.snapshot import trial_table
from bbkb.orchestrator.report.timeline import timeline
from tests.histories import history_of
from tests.orchestrator.quick import tune_here
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present

STEPS = 27


def train(lr: float, folder: Path, report: Any) -> float:
    """A curve that falls to an end that is best at lr = 0.01; continues from a checkpoint."""
    checkpoint, value = folder / "epoch.json", 0.0
    first = json.loads(checkpoint.read_text()) + 1 if checkpoint.exists() else 1
    for epoch in range(first, STEPS + 1):
        value = abs(math.log10(lr) + 2.0) + 0.5 / epoch
        checkpoint.write_text(json.dumps(epoch))
        report(value, epoch)
    return value


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    settings = {
        "strategy": {"name": "bbkb"},
        "early_stopping": {"rule": "model", "last_step": STEPS, "first_trials": 12, "first_steps": 3},
        "budget": {"steps": 12 * STEPS},
    }
    space = {"lr": Range(1e-4, 1.0, log=True)}
    folder = tmp_path_factory.mktemp("runs")
    return history_of(tune_here(folder, train, space, settings, direction="minimize", evaluations=200))


def test_learning_curves_have_a_band_from_the_latest_value_to_the_forecast(history: History) -> None:
    figure = present(learning_curves(history))
    forecasts = history.campaign.trainings.forecasts
    bands = {line["name"].split()[1].strip(","): line for line in figure.traces if line.get("fill") == "toself"}
    assert 1 <= len(bands) <= 8
    for name, band in bands.items():
        row, one = history.trials[int(name)], forecasts[int(name)]
        last = max(row.training.reports)
        assert band["x"] == [last, STEPS, STEPS, last]
        assert band["y"] == pytest.approx(
            [row.training.reports[last], one.high, one.low, row.training.reports[last]], rel=1e-4
        )
        assert row.status in ("stopped", "queued")
    means = {trial: one.mean for trial, one in forecasts.items() if history.trials[trial].status == "stopped"}
    others = [mean for trial, mean in means.items() if str(trial) not in bands]
    assert max(forecasts[int(name)].mean for name in bands) <= min(others, default=math.inf)


def test_remark_gives_the_reason_of_a_stop_and_a_continuation(history: History) -> None:
    stopped = next(row for row in history.trials if row.status == "stopped" and not row.training.continuations)
    assert (
        training_remark(history, stopped)
        == f"stopped early at step {stopped.training.stopped_at}: {stopped.training.stop_cause}"
    )
    continued = next(row for row in history.trials if row.status == "succeeded" and row.training.continuations)
    assert "continued " in training_remark(history, continued)
    described = present(describe_trial(history, continued.trial))
    assert described["training"] == training_remark(history, continued)
    *before, last = (one["ended"] for one in described["attempts"])
    assert set(before) <= {"stopped early", "paused"}
    assert before
    assert last == "succeeded"


def test_exports_and_report_table_have_the_step_and_the_cause_of_a_stop(history: History) -> None:
    columns, stopped = trial_columns(history), next(row for row in history.trials if row.status == "stopped")
    assert columns["trial.step"] == [max(row.training.reports, default=None) for row in history.trials]
    assert columns["trial.remark"] == [training_remark(history, row) or None for row in history.trials]
    assert f"at step {stopped.training.stopped_at}" in columns["trial.remark"][stopped.trial]
    assert "trial.feasible" not in columns
    table = trial_table(history)
    place = [column["name"] for column in table["columns"]].index("remark")
    assert [row[place] for row in table["rows"]] == columns["trial.remark"]


def test_summary_names_a_budget_of_steps_and_counts_trials_consistently(history: History) -> None:
    now = history.status()
    ended = f"{now.trials.succeeded} succeeded, {now.trials.stopped} stopped early, 0 failed"
    assert now.trials.outcomes == ended
    told = next(fact for fact in facts(now) if fact.label == "trials")
    assert told.value == f"{now.trials.done} of 200"
    assert told.remark.startswith(ended)
    assert told.remark.endswith(f"{now.budget.steps} of {12 * STEPS} steps")
    assert f"{now.trials.done}/200 done ({now.trials.stopped} stopped early)" in headline(now)
    assert as_plain(now)["outcomes"] == ended


def test_reliability_excludes_the_last_step(history: History) -> None:
    learned = present(history.campaign.refresh.learned)
    assert history.status().model.steps_reliability == tuple(pair for pair in learned.steps if pair[0] < STEPS)


def test_gantt_counts_paused_and_early_stopped_attempts_separately(history: History) -> None:
    bars = [trace for trace in present(timeline(history)).traces if trace["type"] == "bar"]
    ends = Counter(attempt.ended for attempt in history.attempts)
    assert {trace["name"] for trace in bars} == {f"{name} ({count})" for name, count in ends.items()}


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("others", [[math.nan], [math.inf], [-math.inf], [1.79e308], [math.nan, math.inf, -1.79e308]])
def test_learning_curves_with_diverged_values_have_a_finite_axis(direction: str, others: list[float]) -> None:
    history = SyntheticLog(trials=12, failure_share=0.0, direction=direction).history()
    for row in history.trials:
        row.own_training().reports = {step: 0.9 + 0.01 * step * row.trial for step in range(1, 9)}
        history.reporting[row.trial] = row
    history.trials[3].training.reports.update(dict(enumerate(others, start=2)))
    curves = present(learning_curves(history)).spec
    assert all(math.isfinite(bound) for bound in curves["layout"]["yaxis"].get("range", []))
    line = next(line for line in curves["data"] if line["name"] == "trial 3")
    assert [value is None for value in line["y"][1:4]] == [
        not math.isfinite(value) for value in [*others, 0.0, 0.0][:3]
    ]


@pytest.mark.parametrize("values", [[math.nan, math.inf], [-1.7e308, *[1.6e308] * 7, 1.797e308]])
def test_learning_curves_without_finite_bounds_show_all_values(values: list[float]) -> None:
    history = SyntheticLog(trials=5, failure_share=0.0).history()
    for row in history.trials:
        row.own_training().reports = dict(enumerate(values, start=1))
        history.reporting[row.trial] = row
    figure = present(learning_curves(history))
    assert "range" not in figure.layout["yaxis"]
    json.dumps(figure.spec, allow_nan=False)


def test_best_so_far_is_drawn_by_steps_if_the_budget_counts_them(tmp_path: Path) -> None:
    space, budget = {"rate": Range(0.1, 1.0)}, {"steps": 24}
    result = tune_here(tmp_path, learn, space, {"budget": budget}, evaluations=20)
    history = history_of(result)
    figure = present(best_so_far(history))
    assert "steps" in figure.layout["xaxis"]["title"]["text"]
    assert figure.traces[0]["x"] == [4 * count for count in range(1, len(history.succeeded) + 1)]


def learn(rate: float, report: Report) -> float:
    for step in range(1, 5):
        report(rate * step, step)
    return 4 * rate
