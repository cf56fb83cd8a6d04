"""The warning that a strategy of the user's own chose the whole budget before any result."""

import pytest

from bbkb.orchestrator.campaign.transitions import apply
from tests.orchestrator.campaign.short_logs import batch, dispatch, existing_data, fold, session, success

MINE = {"name": "mine:Strategy"}


def test_own_strategy_that_chooses_everything_at_once_is_named() -> None:
    (remark,) = fold(session(strategy=MINE), batch(0, list(range(10)))).notes.remarks
    assert remark.startswith("the strategy chose all of the 10 trials before any result, so it learns nothing: `limit`")


@pytest.mark.parametrize("strategy", [{"name": "uniform"}, {"name": "bbkb"}, {}])
def test_listed_strategies_may_choose_everything_at_once(strategy: dict[str, str]) -> None:
    assert fold(session(strategy=strategy), batch(0, list(range(10)))).notes.remarks == ()


def test_own_strategy_is_not_named_for_batches_small_budgets_or_known_results() -> None:
    assert fold(session(strategy=MINE), batch(0, list(range(9)))).notes.remarks == ()
    assert fold(session(strategy=MINE, evaluations=4), batch(0, list(range(4)))).notes.remarks == ()
    assert fold(session(strategy=MINE), existing_data(1.0), batch(0, list(range(10)))).notes.remarks == ()
    learned = fold(session(strategy=MINE), batch(0, [0]), dispatch((0, 1)), success(0))
    assert apply(learned, batch(1, list(range(9)))).notes.remarks == ()
