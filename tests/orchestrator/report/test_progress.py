"""Figures of values over time: each equals a plain recomputation, and plotly accepts each picture; learning
curves of trials that were stopped and continued, and why; time, from which pauses are cut out."""

import html
import json
import math
import sys
from collections import Counter
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives.objective import Report
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.campaign.settings import Workers
from bbkb.orchestrator.history.facts import as_plain, facts, headline
from bbkb.orchestrator.history.fold import History, fold
from bbkb.orchestrator.history.tables import training_remark, trial_columns
from bbkb.orchestrator.report.figure import Spec, axis_range, label, quantiles, round_values, visible_range
from bbkb.orchestrator.report.one_trial import describe_trial
from bbkb.orchestrator.report.page import figures_of, trial_table
from bbkb.orchestrator.report.progress import best_so_far, learning_curves
from bbkb.orchestrator.report.timeline import CampaignClock, batch_table, sizes, timeline
from bbkb.orchestrator.wording import printable
from tests.examples import examples
from tests.orchestrator.runs import history_of, tune_here
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present

LOGS = st.builds(
    SyntheticLog,
    trials=st.integers(1, 40),
    sessions=st.integers(1, 3),
    direction=st.sampled_from(["maximize", "minimize"]),
    seed=st.integers(0, 99),
)


@given(LOGS)
@settings(max_examples=examples(15))
def test_plotly_knows_every_property_of_every_picture(log: SyntheticLog) -> None:
    for figure in figures_of(log.history()):
        spec = json.loads(json.dumps(figure.spec, allow_nan=False))
        for trace in spec["data"]:
            _resolve_colors(trace)
        _resolve_colors(spec["layout"])
        go.Figure(spec)  # raises on an unknown property or a value out of its domain


def _resolve_colors(node: object) -> None:
    """Replace CSS variables by colors, as the page's script does."""
    if isinstance(node, list):
        for item in node:
            _resolve_colors(item)
    if isinstance(node, dict):
        for key, value in list(node.items()):
            if key == "colorscale":
                node[key] = [[position, "#123456"] for position, _ in value]
            elif key.endswith("color") and isinstance(value, str):
                assert value.startswith("--")
                node[key] = "#123456"
            else:
                _resolve_colors(value)


@given(LOGS)
@settings(max_examples=examples(25))
def test_best_line_is_the_running_best_of_the_points(log: SyntheticLog) -> None:
    history = log.history()
    figure = best_so_far(history)
    if figure is None:
        assert not history.succeeded
        return
    points, line = figure.traces
    assert points["y"] == pytest.approx([row.value for row in history.succeeded], rel=1e-5)
    choose = max if history.is_maximized else min
    running = [choose(points["y"][: i + 1]) for i in range(len(points["y"]))]
    stepped = [line["y"][np.searchsorted(line["x"][:-1], i + 1, side="right") - 1] for i in range(len(running))]
    assert stepped == running
    assert line["x"][-1] == len(running)


def test_best_so_far_is_not_flattened_by_a_diverged_trial_and_mentions_it() -> None:
    history = SyntheticLog(direction="minimize", failure_share=0).history()
    history.trials[3].value = 1e9
    figure = present(best_so_far(history))
    assert figure.layout["yaxis"]["range"][1] < 10
    assert "1 outlier outside" in figure.caption
    assert history.best is not None
    assert figure.layout["yaxis"]["range"][0] <= history.best.value


def constrained(folder: Path, most: float) -> History:
    """Return a campaign whose results below x = 0.5 have values about 100, the others 0 to 1."""

    def value(x: float) -> dict[str, float]:
        return {"value": 100.0 + x if x < 0.5 else x, "memory": x}

    goal = {"metric": "value", "direction": "minimize"}
    limit = {"metric": "memory", "at_most": most}
    result = tune_here(folder, value, evaluations=40, objectives=[goal], constraints=[limit])
    return history_of(result)


def test_best_line_is_visible_if_infeasible_values_are_better(tmp_path: Path) -> None:
    history = constrained(tmp_path, most=0.499)
    assert history.best is not None
    assert history.best.value is not None
    figure = present(best_so_far(history))
    low, high = figure.layout["yaxis"]["range"]
    feasible = [row.value or 0.0 for row in history.succeeded if row.is_feasible]
    assert len(feasible) > 5
    assert low <= min(feasible) <= max(feasible) <= high
    assert high - low <= 1.1 * 2 * (high - min(feasible))
    assert f"{len(history.succeeded) - len(feasible)} outliers outside" in figure.caption


def test_best_so_far_without_a_feasible_result_has_no_line(tmp_path: Path) -> None:
    history = constrained(tmp_path, most=-1.0)
    figure = present(best_so_far(history))
    assert "best so far" not in [trace["name"] for trace in figure.traces]


def test_hover_text_is_escaped() -> None:
    history = SyntheticLog(failure_share=0).history()
    figure = present(best_so_far(history))
    texts = figure.traces[0]["text"]
    assert any("<b>gelu</b>" in unescape(text) for text in texts)
    assert not any("<b>" in text for text in texts)


@pytest.mark.parametrize("trials", [30, 3000])
def test_internals_show_every_batch_and_dictionary_and_the_time_lost_to_waiting(trials: int) -> None:
    history = SyntheticLog(trials=trials, failure_share=0).history()
    figure = present(sizes(history))
    assert sum(figure.traces[0]["y"]) == trials
    assert figure.traces[1]["y"] == [refresh.dictionary_size for refresh in history.refreshes]
    table = present(batch_table(history))
    names = [column["name"] for column in table["columns"]]
    column = {name: [row[index] for row in table["rows"]] for index, name in enumerate(names)}
    newest = history.batches[-len(table["rows"]) :]
    assert column["trials"] == [len(batch.picks) for batch in newest]
    assert column["why it ended"] == [batch.reason for batch in newest]
    assert all(0 <= int(share.rstrip("%")) <= 100 for share in column["time lost to waiting"])


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


def test_learning_curves_need_reports_and_draw_the_best_last() -> None:
    history = SyntheticLog(trials=12, failure_share=0.0).history()
    assert learning_curves(history) is None
    for row in history.trials:  # trials with a single step have no curve
        row.own_training().reports = {1: 0.5}
        history.reporting[row.trial] = row
    assert learning_curves(history) is None
    for row in history.trials:
        row.training.reports.update({step: row.trial + step / 10 for step in range(1, 4)})
    figure = present(learning_curves(history))
    assert history.best is not None
    assert figure.traces[-1]["name"] == f"trial {history.best.trial}"
    assert figure.traces[-1]["x"] == [1, 2, 3]
    assert len(figure.traces) == 12


def test_learning_curves_axis_shows_the_better_values() -> None:
    history = SyntheticLog(trials=12, failure_share=0.0).history()
    for row in history.trials:
        row.own_training().reports = {step: 0.1 if step == 1 else 0.9 + row.trial / 1000 for step in range(1, 9)}
        history.reporting[row.trial] = row
    figure = present(learning_curves(history))
    low, high = figure.layout["yaxis"]["range"]
    assert 0.85 < low < 0.905
    assert 0.911 < high < 0.95
    assert "double-click to see all" in figure.caption


LARGEST = sys.float_info.max


@given(st.text(max_size=80))
@settings(max_examples=examples(100))
def test_label_shows_the_text_without_markup(text: str) -> None:
    shown = label(text, limit=900)
    assert "<" not in shown
    assert html.unescape(shown) == html.unescape(html.escape(printable(" ".join(text.split())), quote=False))


@given(st.text(min_size=1), st.integers(1, 30))
@settings(max_examples=examples(100))
def test_label_is_never_longer_than_its_limit(text: str, limit: int) -> None:
    assert len(html.unescape(label(text, limit))) <= limit


@given(st.lists(st.floats()))
def test_rounded_numbers_are_strict_json_and_close_to_the_originals(values: list[float]) -> None:
    result = json.loads(json.dumps(round_values(values), allow_nan=False))
    for value, short in zip(values, result, strict=True):
        assert (short is None) == (value - value != 0)
        assert short is None or abs(short - value) <= 1e-5 * abs(value)


@given(st.lists(st.floats(-LARGEST, LARGEST), min_size=1, max_size=9))
def test_quantiles_lie_between_the_smallest_and_the_largest_value(values: list[float]) -> None:
    low, high = quantiles(values, 0.0, 1.0)
    np.testing.assert_allclose([low, high], [min(values), max(values)], atol=1e-300)
    inner = quantiles(values, 0.25, 0.75)
    assert low <= inner[0] <= inner[1] <= high
    all_values = np.array([-LARGEST, LARGEST, *values])
    visible_range(all_values, np.ones(len(all_values), dtype=bool), True)  # a warning would be an error


def test_rounded_values_keep_the_largest_float_finite() -> None:
    largest = sys.float_info.max
    for digits in range(1, 8):
        numbers = round_values([largest, -largest, 1.5, float("inf")], digits=digits)
        assert numbers[3] is None
        assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


@given(st.lists(st.tuples(st.floats(-LARGEST, LARGEST), st.booleans()), min_size=1, max_size=30), st.booleans())
@settings(max_examples=examples(200))
def test_visible_range_is_finite_and_contains_the_best_feasible_value(
    results: list[tuple[float, bool]], is_maximized: bool
) -> None:
    values, is_feasible = (np.array(column) for column in zip(*results, strict=True))
    visible = visible_range(values, is_feasible, is_maximized)
    feasible = values[is_feasible] if is_feasible.any() else values
    best = feasible.max() if is_maximized else feasible.min()
    assert visible is None or visible[0] <= best <= visible[1]
    assert json.loads(json.dumps(visible, allow_nan=False)) == (visible and list(visible))


def test_axis_range_is_none_if_its_margin_exceeds_the_largest_float() -> None:
    assert axis_range(0.9 * LARGEST, LARGEST) is None
    assert axis_range(10.0, 0.0) == (-0.5, 10.5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_visible_range_is_at_most_doubled_by_better_infeasible_values(sign: float) -> None:
    feasible, infeasible = np.linspace(100.0, 102.0, 20), np.linspace(103.0, 200.0, 20)
    is_feasible = np.arange(40) < 20
    visible = visible_range(sign * np.append(feasible, infeasible), is_feasible, sign > 0)
    assert visible == tuple(sorted((sign * 99.8, sign * 104.2)))


def test_visible_range_shows_few_feasible_values_among_the_others() -> None:
    values = np.array([*np.linspace(0.0, 1.0, 36), 100.0, 100.0001, 1e9])
    visible = present(visible_range(values, np.isin(values, (100.0, 100.0001)), False))
    assert visible[0] < 0.0
    assert 100.0001 < visible[1] < 200.0


def test_visible_range_may_follow_the_earliest_values() -> None:
    values = np.append(np.linspace(-0.6, -0.1, 32), np.linspace(-1e-6, 0.0, 100))
    is_feasible = np.ones(len(values), dtype=bool)
    visible = present(visible_range(values, is_feasible, True))
    assert visible[0] > -1e-4
    assert visible_range(values, is_feasible, True, earliest=32) is None


LOGS_WITH_PAUSES = st.builds(
    SyntheticLog,
    trials=st.integers(1, 60),
    workers=st.integers(1, 12),
    sessions=st.integers(1, 4),
    start=st.sampled_from([0.0, 1.75e9]),
    seed=st.integers(0, 99),
)


@given(LOGS_WITH_PAUSES)
@settings(max_examples=examples(25))
def test_campaign_clock_stops_between_sessions(log: SyntheticLog) -> None:
    history = log.history()
    clock = CampaignClock.of(history)
    ends = clock([session.ended for session in history.sessions])
    assert ends[-1] == pytest.approx(history.status().budget.elapsed_seconds, abs=1e-5)
    assert clock([session.started for session in history.sessions]) == pytest.approx(np.r_[0.0, ends[:-1]], abs=1e-5)
    assert clock(history.sessions[0].started - 5) == 0
    assert clock(history.sessions[-1].ended + 5) == pytest.approx(ends[-1], abs=1e-5)


def bars_of(history: History) -> list[Spec]:
    return [trace for trace in present(timeline(history)).traces if trace["type"] == "bar"]


@given(LOGS_WITH_PAUSES)
@settings(max_examples=examples(25))
def test_gantt_has_a_bar_for_each_attempt_in_its_workers_lane(log: SyntheticLog) -> None:
    history = log.history()
    bars = bars_of(history)
    lanes = Counter(worker for trace in bars for worker in trace["y"])
    assert lanes == Counter(attempt.worker for attempt in history.attempts)
    assert len(bars) == len({attempt.failure for attempt in history.attempts})
    seconds, _ = CampaignClock.of(history).unit
    seconds_drawn = sum(sum(trace["x"]) for trace in bars) * seconds
    assert seconds_drawn == pytest.approx(sum(a.finished - a.started for a in history.attempts), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("stop", ["stopped early", "paused"])
def test_gantt_does_not_count_a_stopped_attempt_as_success(stop: str) -> None:
    history = SyntheticLog(trials=12, sessions=1).history()
    history.attempts[:] = [
        attempt._replace(stop=stop) if attempt.trial % 2 else attempt for attempt in history.attempts
    ]
    bars = {trace["name"].partition(" (")[0]: trace for trace in bars_of(history)}
    assert len(bars[stop]["y"]) == sum(attempt.trial % 2 and not attempt.failure for attempt in history.attempts)
    assert all(stop in text for text in bars[stop]["text"])
    assert bars["succeeded"]["marker"]["color"] != bars[stop]["marker"]["color"]


def test_gantt_merges_bars_of_thousands_of_attempts_without_loss() -> None:
    history = SyntheticLog(trials=6000, workers=8, failure_share=0.01).history()
    texts = [text for trace in bars_of(history) for text in trace["text"]]
    assert len(texts) < len(history.attempts) / 2
    counts = [int(text.split()[0].removeprefix("<b>")) if "attempts" in text else 1 for text in texts]
    assert sum(counts) == len(history.attempts)


def test_gantt_bar_names_the_machines_and_gpus_of_its_trial() -> None:
    history = SyntheticLog(trials=2, failure_share=0, workers=1).history()
    workers = Workers(machines=2, gpus=8, gpus_from="gpus")
    history.campaign = replace(history.campaign, settings=replace(history.settings, workers=workers))
    for row, gpus in zip(history.trials, (1, 4), strict=True):
        row.pick = replace(row.pick, parameters={"gpus": gpus})
    (trace,) = bars_of(history)
    assert [text.rpartition("<br>")[2] for text in trace["text"]] == ["2 machines, 2 GPUs", "2 machines, 8 GPUs"]


def test_gantt_lanes_have_natural_order() -> None:
    figure = present(timeline(SyntheticLog(workers=11).history()))
    assert figure.layout["yaxis"]["categoryarray"][::-1][-3:] == ["10.0.0.9", "10.0.0.10", "10.0.0.11"]


@given(LOGS_WITH_PAUSES, st.floats(0, 1))
@settings(max_examples=examples(25))
def test_utilization_curve_has_the_mean_of_the_campaign_and_counts_running_trials(
    log: SyntheticLog, share: float
) -> None:
    events = log.events()
    history = fold(events[: 1 + int(share * (len(events) - 1))])
    figure = timeline(history)
    if figure is None:
        assert not history.attempts
        return
    (curve,) = (trace for trace in figure.traces if trace["type"] == "scatter")
    shares = np.array(curve["y"][:-1])
    assert ((shares >= 0) & (shares <= 100)).all()
    assert shares.mean() / 100 == pytest.approx(history.status().workers.utilization, abs=0.01)
