"""`bbkb.objectives.problems.regression`: regression data sets as bandit problems."""

import numpy as np
import pytest

from bbkb.objectives.datasets import DataSource
from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.problems.datasets import Regression
from bbkb.objectives.problems.regression import Abalone, Cadata


def test_data_set_is_standardized_and_its_target_scaled_to_the_unit_interval(
    monkeypatch: pytest.MonkeyPatch, source: DataSource, silent: Report
) -> None:
    """Both named problems on the real data if the folder exists, else on a stand-in of the same
    shape."""
    if source.file("abalone/abalone.csv") is None:
        rng = np.random.default_rng(0)
        names = tuple("abcdefgh")
        stand_in = Regression(names, rng.random((50, 8)), rng.random(50) * 28 + 1, "a stand-in")
        monkeypatch.setattr("bbkb.objectives.problems.regression.load_abalone", lambda source: stand_in)
        monkeypatch.setattr("bbkb.objectives.problems.regression.load_cadata", lambda source: stand_in)
    for options in (Abalone(), Cadata()):
        table = options.load(source)
        assert table.features.shape[1] == 8
        np.testing.assert_allclose(table.features.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(table.features.std(axis=0), 1)
        assert (table.optimum(maximize=False), table.optimum(maximize=True)) == (0, 1)
        best = int(table.target[:, 0].argmax())
        evaluation = table.evaluate(table.candidates().parameters(best), 0, silent)
        assert 0 < abs(evaluation.value - 1) < 0.1
        assert table.description


@pytest.mark.parametrize("options", [Abalone, Cadata])
def test_missing_data_are_reported_with_the_environment_variable(options: type[Abalone | Cadata]) -> None:
    with pytest.raises(ObjectiveError, match="BBKB_DATA"):
        options().load(DataSource())
