"""`bandit.arms`: features, the parameters behind them, and whether arms repeat."""

from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import Arms, as_arms, feature_extents


def test_feature_is_its_own_parameter_by_default() -> None:
    assert Arms.of(np.random.default_rng(0).random((5, 3))).layout.parameters.tolist() == [0, 1, 2]
    assert Arms.of(np.eye(3), (0, 0, 1)).layout.parameter_count == 2


def test_array_means_arms_that_may_repeat() -> None:
    features = np.random.default_rng(0).random((5, 3))
    assert as_arms(features) == Arms.of(features)
    assert as_arms(features).layout.repeats
    assert as_arms(arms := Arms.of(features, repeats=False)) is arms
    assert arms != Arms.of(features)


def test_extent_is_the_range_of_a_feature_and_the_distance_of_two_choices() -> None:
    choice = np.eye(3)[[0, 1, 2, 0]] / np.sqrt(2)
    features = np.column_stack((np.linspace(0, 50, 4), choice, np.full(4, 7.0)))
    np.testing.assert_allclose(feature_extents(features, np.array([0, 1, 1, 1, 2])), [50.0, 1.0, 1.0])


def test_single_outlier_hardly_changes_an_extent() -> None:
    values = np.append(np.linspace(0, 1, 1000), 1000.0)[:, None]
    assert feature_extents(values, np.array([0]))[0] < 200


@pytest.mark.parametrize(
    ("features", "parameters", "message"),
    [
        (np.zeros((0, 2)), None, "A, d >= 1"),
        (np.array([[0.0], [np.nan]]), None, "row 1 is"),
        (np.zeros((3, 2)), (0,), "one number a feature"),
        (np.zeros((3, 2)), (0, 2), "must be the indices"),
    ],
)
def test_parts_that_do_not_fit_together_are_rejected(features: Any, parameters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arms.of(features, parameters)
