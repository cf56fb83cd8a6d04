"""The table of trials and its files; runs side by side; the record of one trial."""

import csv
import io
import json
import math
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb import Result, tune
from bbkb.objectives.objective import Report
from bbkb.objectives.parameters import Parameter, Range
from bbkb.objectives.tabular import read_columns
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    Event,
    ExistingTaken,
    PickedTrial,
    SessionOpened,
    TrialFailed,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.settings import Workers
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history import tables
from bbkb.orchestrator.history.comparing import side_by_side
from bbkb.orchestrator.history.fold import History, fold
from bbkb.orchestrator.history.tables import FIRST, LAST, Format, Table, parameter_names, trial_columns
from bbkb.orchestrator.report.one_trial import describe_trial
from bbkb.workers.messages import FailureKind
from tests.orchestrator.events import created, dispatch, opening
from tests.orchestrator.runs import bbkb, history_of, tune_here
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present

CONFIGURATION = SyntheticLog().settings()
FIRST_COLUMNS = [column.name for column in FIRST]
LAST_COLUMNS = [column.name for column in LAST]
names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | texts


def one_trial(parameters: dict[str, Any], outcome: TrialSucceeded | TrialFailed | None = None) -> History:
    pick = PickedTrial(trial=0, arm=7, parameters=parameters, mean=0.0, width=0.0, variance=0.0)
    events: list[Event] = [
        created(CONFIGURATION, arms=9),
        opening(CONFIGURATION, slots=1),
        BatchChosen(time=0.0, round=1, picks=(pick,), reason="r", seconds=0.0),
    ]
    return fold([*events, dispatch((0, 1), time=1.0), outcome] if outcome else events)


def failed_trial(message: str) -> TrialFailed:
    return TrialFailed(
        time=3.0, trial=0, attempt=1, failure=FailureKind.ERROR, message=message, started=1.0, finished=3.0, worker="w"
    )  # fmt: skip


def read_csv(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def export(history: History, format_: Format, table: Table = "trials", is_safe: bool = True) -> bytes:
    return b"".join(tables.export(history, format_, table, is_safe))


@pytest.fixture(scope="module")
def history() -> History:
    return SyntheticLog(trials=60).history()


@pytest.mark.parametrize("format_", ["csv", "json"])
@pytest.mark.parametrize("rows", [1, 7, 60])
def test_export_in_parts_equals_the_complete_file(
    history: History, format_: Format, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = export(history, format_)
    monkeypatch.setattr(tables, "_PART", rows)
    parts = [*tables.export(history, format_)]
    assert len(parts) == math.ceil(len(history.trials) / rows) + (format_ == "json")
    assert b"".join(parts) == whole


def test_export_has_one_row_per_trial_in_the_order_of_choice(history: History) -> None:
    expected = [row.trial for row in history.trials]
    assert [int(row["trial"]) for row in read_csv(export(history, "csv"))] == expected
    assert [row["trial"] for row in json.loads(export(history, "json"))] == expected
    assert pq.read_table(io.BytesIO(export(history, "parquet")))["trial"].to_pylist() == expected


def test_json_export_round_trips_numbers_and_texts_with_null_for_unknown_values(history: History) -> None:
    for row, trial in zip(json.loads(export(history, "json")), history.trials, strict=True):
        for name in ("arm", "status", "attempts", "value", "batch", "worker", "error", "seconds"):
            assert row[name] == getattr(trial, name)
        for name in ("started", "finished"):
            assert row[name].endswith("Z")
            assert datetime.fromisoformat(row[name]).timestamp() == pytest.approx(getattr(trial, name), abs=1e-6)
        assert {name: row[name] for name in trial.parameters} == trial.parameters
        loss = trial.metrics.get("loss")
        assert row["metric.loss"] == (loss if loss == loss else None)  # NaN is not JSON


def test_csv_export_round_trips_floats_and_line_breaks(history: History) -> None:
    rows = read_csv(export(history, "csv"))
    for row, trial in zip(rows, history.trials, strict=True):
        assert row["value"] == ("" if trial.value is None else repr(trial.value))
        assert float(row["learning_rate"]) == trial.parameters["learning_rate"]
        assert row["error"] == trial.error
    assert any("\r\n" in row["error"] for row in rows)


def test_parquet_export_round_trips_every_value_with_its_type(history: History) -> None:
    table = pq.read_table(io.BytesIO(export(history, "parquet")))
    assert table["value"].to_pylist() == [row.value for row in history.trials]
    assert table["batch_size"].to_pylist() == [row.parameters["batch_size"] for row in history.trials]
    assert table["error"].to_pylist() == [row.error for row in history.trials]


def test_export_columns_have_the_documented_order(history: History) -> None:
    parameters = ("learning_rate", "batch_size", "dropout", "activation")
    expected = [*FIRST_COLUMNS, *parameters, *LAST_COLUMNS, "metric.noise_free", "metric.loss"]
    assert list(trial_columns(history)) == expected


def test_export_has_a_column_for_a_conditional_parameter_of_no_trial(tmp_path: Path) -> None:
    space: dict[str, Parameter] = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0, when={"x": {"above": 0.999}})}
    result = tune_here(
        tmp_path, lambda x, y=0.0: x, space, evaluations=2, settings={"enqueue": [{"x": 0.1}, {"x": 0.2}]}
    )
    assert trial_columns(history_of(result))["y"] == [None, None]


def test_export_without_trials_is_an_empty_table_with_the_same_types(history: History) -> None:
    empty = SyntheticLog(trials=0).history()
    assert json.loads(export(empty, "json")) == []
    assert export(empty, "csv").decode().strip().split(",") == [*FIRST_COLUMNS, *LAST_COLUMNS]
    none, some = (pq.read_schema(io.BytesIO(export(campaign, "parquet"))) for campaign in (empty, history))
    assert [none.field(name) for name in none.names] == [some.field(name) for name in none.names]


@given(st.lists(names | st.sampled_from([*FIRST_COLUMNS, "parameter.value", "metric.x"]), max_size=8, unique=True))
def test_export_gives_each_parameter_a_unique_column(parameters: list[str]) -> None:
    columns = trial_columns(one_trial({name: f"is {name}" for name in parameters}))
    assert len(columns) == len(FIRST_COLUMNS) + len(LAST_COLUMNS) + len(parameters)
    assert {f"is {name}" for name in parameters} <= {column[0] for column in columns.values()}
    assert columns["trial"] == [0]
    assert not any(name.startswith("metric.") for name in columns)


@given(st.dictionaries(names, scalars, max_size=4), texts)
def test_export_round_trips_any_parameters_and_message(parameters: dict[str, Any], message: str) -> None:
    history = one_trial(parameters, failed_trial(message))
    columns = trial_columns(history)
    (from_csv,), (from_json,) = read_csv(export(history, "csv", is_safe=False)), json.loads(export(history, "json"))
    assert list(from_csv) == list(from_json) == list(columns)
    assert from_csv["error"] == from_json["error"] == f"error: {message}"
    for name, (value,) in columns.items():
        is_infinite = isinstance(value, float) and value - value != 0
        assert from_json[name] == (None if is_infinite else value)
        if isinstance(value, str):
            assert from_csv[name] == value


def test_parquet_export_writes_parameters_of_mixed_types_as_text() -> None:
    history = SyntheticLog(trials=3, failure_share=0).history()
    for row, value in zip(history.trials, (1, "auto", None), strict=True):
        row.pick = replace(row.pick, parameters={"depth": value, "nested": {"a": [1, float("nan")]}})
    table = pq.read_table(io.BytesIO(export(history, "parquet")))
    assert table["depth"].to_pylist() == ["1", "auto", None]
    assert json.loads(export(history, "json"))[0]["nested"] == {"a": [1, None]}


def test_parquet_export_without_pyarrow_names_the_remedy(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match='pip install "pyarrow>=17"'):
        export(history, "parquet")


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_export_writes_existing_data_only_on_request(format: Format, tmp_path: Path) -> None:
    events = SyntheticLog(trials=5).events()
    existing = ExistingTaken(time=0.0, source="t.csv", arms=(4, 2), values=(0.5, 0.1), left_out=("row 3: x=9",))
    without, history = fold(events), fold([events[0], existing, *events[1:]])
    assert export(history, format) == export(without, format)
    path = tmp_path / f"known.{format}"
    path.write_bytes(export(history, format, table="existing"))
    if format == "json":
        assert json.loads(path.read_text()) == [{"arm": 4, "reward": 0.5}, {"arm": 2, "reward": 0.1}]
    else:  # the written file can be read again as existing data
        read = {name: column.tolist() for name, column in read_columns(path).items()}
        assert read == {"arm": [4, 2], "reward": [0.5, 0.1]}
    assert export(without, "csv", table="existing") == b"arm,reward\r\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_csv_export_contains_no_formula_unless_requested(text: str) -> None:
    history = one_trial({text: text, "number": -1.5})
    assert f"'{text}" in export(history, "csv").decode()
    plain = export(history, "csv", is_safe=False).decode()
    assert f"'{text}" not in plain
    assert text in plain
    assert "'-1.5" not in export(history, "csv").decode()


def test_parameters_have_the_order_of_the_space_and_then_of_their_appearance() -> None:
    rows = SyntheticLog(trials=2, failure_share=0).history().trials
    for row, names in zip(rows, ("ct", "cba"), strict=True):
        row.pick = replace(row.pick, parameters=dict.fromkeys(names, 1))
    assert parameter_names(rows, ["a", "b", "c", "unused"]) == ["a", "b", "c", "t"]


def test_finished_campaign_lists_only_trials_that_were_begun() -> None:
    first, *rest = SyntheticLog(trials=5, failure_share=0, sessions=1).events()
    pick = PickedTrial(trial=5, arm=1, parameters={}, mean=0.0, width=0.0, variance=0.0)
    late = BatchChosen(time=rest[-1].time, round=2, picks=(pick,), reason="r", seconds=0.0)
    finished, open_ = fold([first, *rest[:-1], late, rest[-1]]), fold([first, *rest[:-1], late])
    for history, count in ((finished, 5), (open_, 6)):
        assert trial_columns(history)["trial"] == list(range(count))
        assert history.status().trials.waiting == count - 5


def history_with(**settings: Any) -> History:
    def changed(event: Event) -> Event:
        return (
            replace(event, settings=replace(event.settings, **settings)) if isinstance(event, SessionOpened) else event
        )

    return fold(map(changed, SyntheticLog(trials=12, sessions=1).events()))


def test_comparison_has_a_row_for_each_setting_that_differs() -> None:
    one, two = history_with(tags=["a"], note="x" * 500), history_with(tags=["b"], note="x" * 500)
    rows = dict(side_by_side([one, two]))
    assert rows["tags"] == ["['a']", "['b']"]
    assert "note" not in rows
    assert rows["strategy"][0] == rows["strategy"][1] != ""
    assert dict(side_by_side([one, one])).keys() == rows.keys() - {"tags"}


def test_comparison_ignores_the_storage_and_shows_a_missing_setting_as_empty() -> None:
    rows = dict(side_by_side([history_with(store="sqlite", runs="a"), history_with(runs="b", note="long " * 100)]))
    assert not {"store", "runs"} & rows.keys()
    assert rows["note"][0] == ""
    assert len(rows["note"][1]) <= 60


def test_comparison_ignores_options_that_only_some_strategies_have() -> None:
    one = history_with(strategy={"name": "bbkb", "delta": 0.1, "mode": "async"})
    other = history_with(strategy={"name": "uniform", "mode": "batch"})
    rows = dict(side_by_side([one, other]))
    assert (rows["strategy.name"], rows["strategy.mode"]) == (["bbkb", "uniform"], ["async", "batch"])
    assert "strategy.delta" not in rows
    again = history_with(strategy={"name": "bbkb", "mode": "async"})
    assert dict(side_by_side([one, again]))["strategy.delta"] == ["0.1", ""]


def test_comparison_shows_the_best_parameters_of_each_run() -> None:
    history = history_with()
    assert history.best is not None
    rows = dict(side_by_side([history]))
    assert set(history.best.parameters) <= rows.keys()
    assert rows["found by"] == [f"trial {history.best.trial}"]


def test_comparison_averages_runs_that_differ_only_in_their_seed() -> None:
    one, two, other = history_with(seed=1), history_with(seed=2), history_with(seed=3, workers=Workers(retries=9))
    rows = dict(side_by_side([one, two, other]))
    assert one.best is not None
    assert rows["mean over seeds"] == [f"{one.best.value:.6g} ± 0 (2 runs)"] * 2 + [""]
    assert "mean over seeds" not in dict(side_by_side([one, other]))
    assert "mean over seeds" not in dict(
        side_by_side([one, history_with(seed=2, tags=["1"], workers=Workers(retries=1))])
    )


def test_comparison_counts_a_repeated_run_once() -> None:
    one, two = history_with(seed=1), history_with(seed=2, name="again", note="later")
    assert "mean over seeds" not in dict(side_by_side([one, one, history_with(seed=1, tags=["b"])]))
    cells = dict(side_by_side([one, two, one]))["mean over seeds"]
    assert cells[0].endswith("(2 runs)")
    assert len(set(cells)) == 1


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1e308] * 3, "1e+308 ± 0 (3 runs)"),
        ([sys.float_info.max, -sys.float_info.max], "0 ± 1.8e+308 (2 runs)"),
        ([0.0, 0.0], "0 ± 0 (2 runs)"),
        ([1.0, 2.0, 3.0], "2 ± 0.58 (3 runs)"),
    ],
)
def test_comparison_shows_the_mean_of_huge_values(values: list[float], text: str) -> None:
    def valued(seed: int) -> History:
        def changed(event: Event) -> Event:
            if isinstance(event, SessionOpened):
                return replace(event, settings=replace(event.settings, seed=seed))
            return replace(event, value=values[seed]) if isinstance(event, TrialSucceeded) else event

        return fold(map(changed, SyntheticLog(trials=3, sessions=1).events()))

    assert dict(side_by_side([*map(valued, range(len(values)))]))["mean over seeds"] == [text] * len(values)


def trained(x: float, report: Report) -> float:
    report(x / 2.0, 1)
    print("trained", x)
    if x > 0.6:
        raise ValueError("x is too large")
    return x


def tent(x: float) -> float:
    return -abs(x - 0.3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    settings = {"workers": {"executor": "inline", "retries": 0}}
    return tune_here(tmp_path_factory.mktemp("my runs"), trained, settings=settings, evaluations=6)


def status_of(run: Result, *arguments: str) -> str:
    return bbkb("status", run.folder, *arguments).output


def test_trial_status_shows_the_whole_error_and_the_path_of_the_output(run: Result) -> None:
    failed = next(row for row in history_of(run).trials if row.status == "failed")
    shown = status_of(run, "--trial", str(failed.trial))
    assert f"trial {failed.trial}: failed" in shown
    assert "ValueError: x is too large" in shown
    assert "raise ValueError" in shown  # the line of the user's code
    assert "step 1: " in shown
    assert "Chosen in batch" in shown
    assert f"bbkb logs '{run.folder}' --trial {failed.trial}" in " ".join(shown.split())


def test_trial_traceback_shows_only_the_users_calls(run: Result) -> None:
    failed = next(row for row in history_of(run).trials if row.status == "failed")
    described = present(describe_trial(history_of(run), failed.trial))
    message = described["attempts"][0]["message"]
    assert "in trained" in message
    assert "workers/evaluate.py" not in message


def test_trial_status_can_be_written_as_json(run: Result) -> None:
    best = run.best.trial
    described = json.loads(status_of(run, "--trial", str(best), "--json"))
    assert described["value"] == run.best.value
    assert described["outputs"] == [1]


def test_trial_status_rejects_an_unknown_trial(run: Result) -> None:
    with pytest.raises(UserError, match="must be one of the 6 trials"):
        status_of(run, "--trial", "6")
    assert describe_trial(history_of(run), 6) is None


def test_trial_status_finds_a_run_by_its_name(run: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").symlink_to(run.folder.parent)
    monkeypatch.chdir(tmp_path)
    bbkb("status", run.folder.name)


def test_trial_reason_names_the_priors_of_the_space(tmp_path: Path) -> None:
    settings = {"runs": str(tmp_path), "workers": {"executor": "inline"}}
    for prior, words in (({"prior": 0.3}, "best, including the priors of the space:"), ({}, "best: a predicted")):
        space = {"x": {"low": 0.0, "high": 1.0, **prior}}
        result = tune(tent, space, evaluations=12, direction="maximize", progress=False, settings=settings)
        described = present(describe_trial(history_of(result), 11))
        assert f"because it could still be the {words}" in described["reason"]
