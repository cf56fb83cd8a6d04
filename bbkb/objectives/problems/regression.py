"""Regression data sets as bandit problems: Abalone and California housing (Cadata), as in Calandriello
et al. 2020.

Every row is an arm. The reward is the target scaled to [0, 1] plus N(0, 0.01²). The paper does not
state how features are scaled; here they are standardized.
"""

from dataclasses import dataclass

from bbkb.objectives.datasets import DataSource
from bbkb.objectives.parameters import Space
from bbkb.objectives.problems.datasets import Regression, load_abalone, load_cadata
from bbkb.objectives.tabular import NoiseOption, Table


@dataclass(frozen=True, slots=True)
class _RegressionData:
    """The options of a regression data set, each row of which is an arm."""

    noise_std: NoiseOption = 0.01

    def default_space(self) -> Space | None:
        """Return None, because the table has its own candidates."""
        return None


@dataclass(frozen=True, slots=True)
class Abalone(_RegressionData):
    """The age of 4177 abalones, in rings, from eight measurements (UCI), as a bandit problem."""

    def load(self, source: DataSource) -> Table:
        """Return the table. Raises ObjectiveError if the data are not available."""
        return _standardize(load_abalone(source), self.noise_std)


@dataclass(frozen=True, slots=True)
class Cadata(_RegressionData):
    """The median house value of 20640 Californian blocks (Pace & Barry 1997) as bandit arms."""

    def load(self, source: DataSource) -> Table:
        """Return the table. Raises ObjectiveError if the data are not available."""
        return _standardize(load_cadata(source), self.noise_std)


def _standardize(regression: Regression, noise_std: float) -> Table:
    features = regression.features
    low = regression.target.min()
    high = regression.target.max()
    columns = {name: features[:, index] for index, name in enumerate(regression.names)}
    return Table(
        (features - features.mean(axis=0)) / features.std(axis=0),
        columns,
        (regression.target - low) / (high - low),
        noise_std,
        description=regression.source,
    )
