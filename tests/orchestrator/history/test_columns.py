"""The columns of trials: every screen shows the numbers of a result."""

from dataclasses import replace

import pytest

from bbkb.orchestrator.history.columns import RESULT, Column, parameter_names
from bbkb.orchestrator.history.export import trial_columns
from bbkb.orchestrator.history.one_trial import describe_trial, result_text
from bbkb.orchestrator.history.rows import RESULT_FIELDS
from bbkb.orchestrator.report.snapshot import trial_table
from tests.orchestrator.synthetic_log import SyntheticLog


@pytest.mark.parametrize("column", RESULT, ids=lambda column: column.name)
def test_every_screen_shows_the_numbers_of_a_result(column: Column) -> None:
    history = SyntheticLog(trials=12, failure_share=0).history()
    for row in history.trials:
        setattr(row, column.key, row.trial + 1)
    cells = [column.cell(row) for row in history.trials]
    assert cells == list(range(1, 13))
    assert trial_columns(history)[column.name] == cells
    table = trial_table(history)
    headings = [shown["name"] for shown in table["columns"]]
    assert [float(row[headings.index(column.heading)]) for row in table["rows"]] == cells
    described = describe_trial(history, 3)
    assert described is not None
    assert described[column.key] == cells[3]
    assert f", {column.heading} " in result_text(described)


def test_numbers_of_a_result_are_the_fields_that_a_continued_trial_loses() -> None:
    assert tuple(column.key for column in RESULT) == RESULT_FIELDS


def test_text_of_a_result_omits_unknown_numbers() -> None:
    unknown: dict[str, object] = {column.key: None for column in RESULT}
    assert result_text(unknown | {"status": "queued"}) == "queued"
    assert result_text(unknown | {"status": "succeeded", "value": 0.1234567}) == "succeeded, value 0.123457"


def test_parameters_have_the_order_of_the_space_and_then_of_their_appearance() -> None:
    rows = SyntheticLog(trials=2, failure_share=0).history().trials
    for row, names in zip(rows, ("ct", "cba"), strict=True):
        row.pick = replace(row.pick, parameters=dict.fromkeys(names, 1))
    assert parameter_names(rows, ["a", "b", "c", "unused"]) == ["a", "b", "c", "t"]
