"""Scores of values at any step: one increasing scale, or ranks nested over the steps."""

import numpy as np
import pytest

from benchmarks.curves.scores import Scores, score_curves
from orchestrator.bandit.model.outputs import Outputs, scores_of

CURVES = [{1: 0.1, 2: 0.4}, {1: 0.3}, {1: 0.2, 2: 0.5, 4: 0.9}, {}, {1: 0.05}]


def test_the_latest_values_have_their_half_rank_scores() -> None:
    scores = score_curves(CURVES, Scores.REFERENCE)
    latest = np.array([0.4, 0.3, 0.9, 0.05])
    found = [scores[0][2], scores[1][1], scores[2][4], scores[4][1]]
    assert found == pytest.approx(scores_of(latest, Outputs.HALF_RANK).tolist())


def test_scores_increase_with_the_value_whatever_the_step() -> None:
    pairs = sorted(
        (value, score)
        for values, scores in zip(CURVES, score_curves(CURVES, Scores.REFERENCE), strict=True)
        for (value, score) in ((values[step], scores[step]) for step in values)
    )
    assert [score for _, score in pairs] == sorted(score for _, score in pairs)


def test_nested_ranks_place_a_late_value_above_the_trials_that_were_stopped() -> None:
    scores = score_curves(CURVES, Scores.NESTED)
    assert scores[2][4] > scores[2][1]
    assert scores[0][2] > scores[1][1] - 1.0
    assert scores[4][1] == min(score for one in scores for score in one.values())


@pytest.mark.parametrize("kind", list(Scores))
def test_without_values_there_are_no_scores(kind: Scores) -> None:
    assert score_curves([{}, {}], kind) == [{}, {}]
