"""`benchmarks.asynchrony.problems`: The problems: recorded tables as bandit problems on one scale,
so that one set of hyper-parameters suits all of them.
"""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.asynchrony.problems import FCNET, Name, Standardised
from objectives.datasets import DataSource
from objectives.objective import ObjectiveError


@pytest.fixture
def source(data_folder: Path) -> DataSource:
    return DataSource.find(data_folder)


@pytest.mark.parametrize("name", ["cadata", "cells"])
def test_features_and_targets_have_mean_zero_and_deviation_one(name: Name, source: DataSource) -> None:
    table = Standardised(name).load(source)
    spread = table.features.std(axis=0)
    np.testing.assert_allclose(table.features.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(spread[spread > 0.0], 1.0)
    assert (table.target.mean(), table.target.std()) == pytest.approx((0.0, 1.0))


def test_repeats_keep_their_spread_around_the_standardised_mean(tmp_path: Path) -> None:
    (tmp_path / FCNET).parent.mkdir()
    rng = np.random.default_rng(0)
    errors = 10 ** rng.normal(size=(30, 4))
    np.savez(tmp_path / FCNET, index=rng.integers(0, 4, (30, 9)).astype(np.uint8), protein_structure=errors)
    table = Standardised("fcnet").load(DataSource.find(tmp_path))
    worth = -np.log10(errors)
    deviation = worth.mean(axis=1).std()
    np.testing.assert_allclose(table.target, (worth - worth.mean()) / deviation)
    assert table.noise_std == 0.0
    assert table.optimum(True) == pytest.approx((worth.mean(axis=1).max() - worth.mean()) / deviation)


def test_durations_come_only_out_of_a_table_that_has_them(source: DataSource) -> None:
    seconds = Standardised("cells", has_seconds=True).load(source).seconds
    assert seconds is not None
    assert ((seconds > 499.0) & (seconds < 4001.0)).all()
    assert Standardised("cells").load(source).seconds is None
    with pytest.raises(ObjectiveError, match="has_seconds must be false"):
        Standardised("cadata", has_seconds=True).load(source)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=FCNET):
        Standardised("fcnet").load(DataSource.find(tmp_path))
