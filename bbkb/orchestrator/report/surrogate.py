"""A Gaussian process fitted to a campaign's results, for the figures of importance, slices and
contours.

It is the model of `bandit.model.fitting` (Matérn 5/2, one lengthscale per parameter, noise and
constant mean), fitted to at most `MOST_RESULTS` results. It does not depend on the strategy, so
all campaigns have the same figures. Values are clipped at three robust standard deviations from the
median before the fit. The deviation is at least that of the earliest results, because later results
concentrate near the optimum.

Positions are the coordinates of the axes (`parallel.ParameterAxis`): logarithms for a logarithmic
range, and indices of steps for choices. The features of the model are in the unit cube; choices are
one-hot vectors divided by √2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from bbkb.objectives.coding import draw
from bbkb.objectives.coding import values as values_of
from bbkb.objectives.constraints import is_conditional, order_parameters, without_inactive
from bbkb.objectives.parameters import Choice, Space
from bbkb.orchestrator.bandit.arms import Layout
from bbkb.orchestrator.bandit.kernels import AnyKernel, Matern52
from bbkb.orchestrator.bandit.model.fitting import FIRST_FIT, Evidence, chosen_for_fit, fit, prior
from bbkb.orchestrator.bandit.results import LARGEST_REWARD
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.report.parallel import ParameterAxis, parameter_axis, sample_results

Floats = NDArray[np.float64]

MOST_RESULTS = 1500  # the fit uses at most `fitting.MOST_ARMS` of them
_LARGEST_CHOICE = 24  # parameters from a table with more categories are ignored
_WINSOR = 3.0
EARLIEST = 32  # results that are spread over the space
_SOBOL_POINTS = 1024


@dataclass(frozen=True, eq=False)
class Dimension:
    """A parameter that varies: its axis and its features in the model."""

    axis: ParameterAxis
    is_choice: bool  # whether its steps have no order

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.axis.name

    def features(self, positions: Floats) -> Floats:
        """Return the features (n, k) of `positions` (n,), clipped to the axis."""
        low, high = self.axis.range
        if not self.is_choice:
            return np.clip((positions - low) / (high - low), 0.0, 1.0)[:, None]
        steps = np.clip(np.rint(positions), 0, len(self.levels) - 1).astype(np.intp)
        return np.asarray(np.eye(len(self.levels))[steps] / np.sqrt(2.0))

    def grid(self, count: int) -> Floats:
        """Return positions (m,) that cover the axis: all steps, or `count` evenly spaced ones."""
        return np.array(self.levels) if self.axis.is_stepped else np.linspace(*self.axis.range, count)

    def at(self, shares: Floats) -> Floats:
        """Return the positions at `shares` (n,) of the axis, in [0, 1)."""
        if self.axis.is_stepped:
            return np.minimum(np.floor(shares * len(self.levels)), len(self.levels) - 1.0)
        low, high = self.axis.range
        return np.asarray(low + shares * (high - low))

    @property
    def levels(self) -> list[float]:
        """The positions of the steps of a stepped axis."""
        return [float(step) for step in range(round(self.axis.range[1] + 0.5))]


@dataclass(frozen=True, eq=False)
class _Process:
    """The posterior of a Gaussian process over features in the unit cube."""

    kernel: AnyKernel
    features: Floats  # (n, k), the features of the distinct configurations
    factor: tuple[Floats, bool]  # the Cholesky factor of the covariance of their mean scores
    weights: Floats  # (n,), the weights of the kernel columns in the posterior mean
    mean: float

    @classmethod
    def of(cls, kernel: AnyKernel, features: Floats, scores: Floats, noise: Floats) -> "_Process":
        """Condition on the mean `scores` (n,) at `features` (n, k) with variances `noise` (n,)."""
        factor = cho_factor(kernel.cross(features, features) + np.diag(noise + 1e-8), lower=True)
        ones = cho_solve(factor, np.ones(len(features)))
        mean = float(ones @ scores) / (float(ones.sum()) + 1.0)
        return cls(kernel, features, factor, cho_solve(factor, scores - mean), mean)

    def means(self, features: Floats) -> Floats:
        """Return the posterior mean (m,) at `features` (m, k)."""
        return np.asarray(self.mean + self.kernel.cross(self.features, features).T @ self.weights)

    def deviations(self, features: Floats) -> Floats:
        """Return the posterior standard deviation (m,) at `features` (m, k)."""
        columns = self.kernel.cross(self.features, features)
        reduced = np.einsum("nm,nm->m", columns, cho_solve(self.factor, columns))
        return np.asarray(np.sqrt(np.maximum(1.0 - reduced, 0.0)))


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A model of the value as a function of the parameters."""

    dimensions: tuple[Dimension, ...]
    positions: Floats  # (n, p), the positions of the fitted results
    values: Floats  # (n,), the values of these results, on the user's scale
    is_feasible: NDArray[np.bool_]  # (n,), False for a result that violates a constraint
    best: Floats  # (p,), the best feasible result, or the best one if none is feasible
    absent: tuple[str, ...]  # conditional parameters that are inactive in the best result
    space: Space  # empty for candidates from a table
    left_out: int  # the number of early-stopped trials, which have no result
    _process: _Process
    _center: float  # the mean of the values
    _spread: float  # the unit of the process's scores, on the user's scale

    def predict(self, positions: Floats) -> tuple[Floats, Floats]:
        """Return mean and deviation (m,) of the noise-free value at `positions` (m, p)."""
        features = _encode_positions(self.dimensions, positions)
        means = self._center + self._spread * self._process.means(features)
        return means, self._spread * self._process.deviations(features)

    def importance(self) -> tuple[Floats, Floats]:
        """Return the first-order and the total Sobol index (p,) of each parameter, for the model's
        mean over the whole space (Saltelli et al. 2010, table 2, estimators b and f).

        They are the shares of the variance to which the parameter contributes alone, and alone or
        together with others. The total indices may sum to more than 1.
        """
        count = len(self.dimensions)
        draws = _latin_hypercube(_SOBOL_POINTS, 2 * count)
        first = draws[:, :count]
        second = draws[:, count:]
        values = self._scores_at(first)  # a square could overflow on the user's scale
        variance = float(values.var())
        alone, total = np.zeros((2, count))
        if variance <= 1e-12:
            return alone, total
        others = self._scores_at(second)
        for parameter in range(count):
            changed = first.copy()
            changed[:, parameter] = second[:, parameter]
            changes = self._scores_at(changed) - values
            alone[parameter] = float(np.mean((others - others.mean()) * changes)) / variance
            total[parameter] = 0.5 * float(np.mean(changes**2)) / variance
        return np.clip(alone, 0.0, total), total

    def _scores_at(self, shares: Floats) -> Floats:
        """Return the mean scores (n,) at `shares` (n, p), in [0, 1), of the parameters' axes."""
        drawn = {axis.name: column for axis, column in zip(self.dimensions, shares.T, strict=True)}
        if any(map(is_conditional, self.space.values())):
            positions = self._existing(drawn)
        else:
            positions = [dimension.at(drawn[dimension.name]) for dimension in self.dimensions]
        return self._process.means(_encode_positions(self.dimensions, np.stack(positions, axis=1)))

    def _existing(self, drawn: Mapping[str, Floats]) -> list[Floats]:
        """Return the positions (n,) of each parameter in configurations of the space, in which a
        parameter exists only if its condition holds."""
        zeros = np.zeros_like(next(iter(drawn.values())))  # for parameters that do not vary
        codes = [draw(self.space[name], drawn.get(name, zeros)) for name in self.space]
        order = order_parameters(self.space)
        existing = without_inactive(self.space, order, np.stack(codes, axis=1))
        columns = dict(zip(self.space, existing.T, strict=True))
        return [
            np.array(parameter_axis(name, values_of(parameter, columns[name]).tolist(), parameter).positions)
            for name, parameter in ((d.name, self.space[d.name]) for d in self.dimensions)
        ]


def _latin_hypercube(points: int, dimensions: int) -> Floats:
    """Return points (n, d) of the unit cube with one in each of the n strata of every coordinate
    (McKay, Beckman and Conover 1979). Importing `scipy.stats` for this would take a second."""
    rng = np.random.default_rng(0)
    strata = rng.permuted(np.tile(np.arange(points), (dimensions, 1)), axis=1)
    return np.asarray((strata + rng.random(strata.shape)).T / points)


def fit_surrogate(history: History) -> Surrogate | None:
    """Return the model of the results.

    None if there are fewer than `fitting.FIRST_FIT` results, or if no parameter or no value varies.
    """
    rows = sample_results(history, MOST_RESULTS, 3)
    dimensions = _dimensions(history, rows)
    if len(rows) < FIRST_FIT or not dimensions:
        return None
    values = np.array([row.value for row in rows], dtype=float)
    center, spread, scores = _standardize(values)
    if spread <= 0.0:
        return None
    columns = [np.array(dimension.axis.positions, dtype=float) for dimension in dimensions]
    positions = np.column_stack(columns)
    process = _fit_process(dimensions, positions, history.sign, scores)
    best = max(range(len(rows)), key=lambda index: history.worth(rows[index]))
    return Surrogate(
        dimensions=dimensions,
        positions=positions,
        values=values,
        is_feasible=np.array([row.is_feasible is not False for row in rows]),
        best=positions[best],
        absent=_absent_parameters(history, dimensions, rows[best]),
        space=history.settings.space,
        left_out=history.campaign.totals.stopped,
        _process=process,
        _center=center,
        _spread=spread,
    )


def _fit_process(
    dimensions: Sequence[Dimension], positions: Floats, sign: float, scores: Floats
) -> _Process:  # fmt: skip
    """Fit a process to the mean scores of the distinct configurations."""
    encoded = _encode_positions(dimensions, positions)
    features, groups = np.unique(encoded, axis=0, return_inverse=True)
    counts = np.bincount(groups.ravel())
    means = np.bincount(groups.ravel(), weights=scores) / counts
    chosen = chosen_for_fit(sign * means)
    features = features[chosen]
    means = means[chosen]
    counts = counts[chosen]
    widths = [dimension.features(np.zeros(1)).shape[1] for dimension in dimensions]
    owners = np.repeat(np.arange(len(dimensions)), widths).astype(np.intp)
    layout = Layout(parameters=owners, extents=np.ones(len(dimensions)))
    evidence = Evidence(features, means, counts, len(scores))
    fitted = fit(evidence, layout, Matern52(), [prior(layout, None)], None)
    lengthscales = np.asarray(fitted.lengthscales)[layout.parameters]
    kernel = Matern52(lengthscale=tuple(lengthscales.tolist()))
    return _Process.of(kernel, features, means, fitted.noise / counts)


def _absent_parameters(history: History, dimensions: Sequence[Dimension], best: TrialRow) -> tuple[str, ...]:
    """Return the conditional parameters that are inactive in the best result."""
    space = history.settings.space
    names = [dimension.name for dimension in dimensions if best.parameters.get(dimension.name) is None]
    return tuple(name for name in names if (parameter := space.get(name)) and parameter.when is not None)


def _dimensions(history: History, rows: Sequence[TrialRow]) -> tuple[Dimension, ...]:
    space = history.settings.space
    names = list(space) or list(dict.fromkeys(name for row in rows for name in row.parameters))
    dimensions = []
    for name in names:
        values: list[object] = [row.parameters.get(name) for row in rows]
        if len({str(value) for value in values}) < 2:
            continue
        axis = parameter_axis(name, values, space.get(name))
        parameter = space.get(name)
        is_choice = axis.is_stepped and isinstance(parameter, Choice | None)
        if not is_choice or axis.range[1] + 0.5 <= _LARGEST_CHOICE or isinstance(parameter, Choice):
            dimensions.append(Dimension(axis, is_choice))
    return tuple(dimensions)


def _encode_positions(dimensions: Sequence[Dimension], positions: Floats) -> Floats:
    columns = zip(dimensions, positions.T, strict=True)
    return np.hstack([dimension.features(column) for dimension, column in columns])


def _standardize(values: Floats) -> tuple[float, float, Floats]:
    """Return center, spread, and the clipped values (n,) in these units."""
    values = np.clip(values, -LARGEST_REWARD, LARGEST_REWARD)
    center = float(np.median(values))
    distances = np.abs(values - center)
    unit = float(distances.max()) or 1.0  # so that no square overflows
    deviation = unit * float(((values - center) / unit).std())
    robust = 1.4826 * max(float(np.median(distances)), float(np.median(distances[:EARLIEST])))
    spread = robust or deviation
    if spread <= 0.0 or not np.isfinite(spread):
        return center, 0.0, np.zeros(len(values))
    scores = np.clip((values - center) / spread, -_WINSOR, _WINSOR)
    scale = float(scores.std()) or 1.0
    shift = float(scores.mean())
    return center + spread * shift, spread * scale, (scores - shift) / scale
