"""A Gaussian process fitted to a campaign's results, for its pictures: importance, slices,
contours.

It is the model of `bandit.model.fitting` (Matérn 5/2, one lengthscale per parameter, noise and
constant mean), fitted to at most `MOST_RESULTS` results whatever strategy chose them, so campaigns
of every strategy have the same pictures. Values further than three robust standard deviations from
the median are drawn in to that distance before the fit.

Positions are the coordinates of the pictures' axes (`parallel.ParameterAxis`): logarithms for a
logarithmic range, step numbers for choices. The model sees them in the unit cube, choices one-hot
divided by √2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from objectives.parameters import Choice
from orchestrator.bandit.arms import Layout
from orchestrator.bandit.arrays import LARGEST_REWARD
from orchestrator.bandit.kernels import AnyKernel, Matern52
from orchestrator.bandit.model.fitting import FIRST_FIT, Evidence, Fitted, chosen_for_fit, fit, prior
from orchestrator.history.fold import History
from orchestrator.history.rows import TrialRow
from orchestrator.report.parallel import ParameterAxis, parameter_axis, sample_results

Floats = NDArray[np.float64]

MOST_RESULTS = 1500  # used; the fit itself takes at most `fitting.MOST_ARMS` of them
_LARGEST_CHOICE = 24  # a parameter of more categories is left out
_WINSOR = 3.0
_SOBOL_POINTS = 512


@dataclass(frozen=True, eq=False)
class Dimension:
    """One parameter that varies: its axis, and its features in the model."""

    axis: ParameterAxis
    is_choice: bool  # its steps have no order

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.axis.name

    def features(self, positions: Floats) -> Floats:
        """Return features (n, k) at `positions` (n,), those outside the axis as its ends."""
        low, high = self.axis.range
        if not self.is_choice:
            return np.clip((positions - low) / (high - low), 0.0, 1.0)[:, None]
        steps = np.clip(np.rint(positions), 0, len(self.levels) - 1).astype(np.intp)
        one_hot: Floats = np.eye(len(self.levels))[steps] / np.sqrt(2.0)
        return one_hot

    def grid(self, count: int) -> Floats:
        """Return positions (m,) that cover the axis: all steps, or `count` of a continuous one."""
        return np.array(self.levels) if self.axis.is_stepped else np.linspace(*self.axis.range, count)

    def at(self, shares: Floats) -> Floats:
        """Return positions at `shares` (n,) in [0, 1) of the axis."""
        if self.axis.is_stepped:
            return np.minimum(np.floor(shares * len(self.levels)), len(self.levels) - 1.0)
        low, high = self.axis.range
        positions: Floats = low + shares * (high - low)
        return positions

    @property
    def levels(self) -> list[float]:
        """The steps' positions, for a stepped axis."""
        return [float(step) for step in range(round(self.axis.range[1] + 0.5))]


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The fitted model. `positions` (n, p) and `values` (n,) are the results it was fitted to, on
    the user's scale."""

    dimensions: tuple[Dimension, ...]
    positions: Floats
    values: Floats
    is_feasible: NDArray[np.bool_]  # (n,) whether a result may satisfy all constraints
    best: Floats  # positions (p,) of the best feasible result; of the best one where none is
    absent: tuple[str, ...]  # conditional parameters that the best result does not have
    fitted: Fitted
    results: int
    left_out: int  # trials that were stopped early, which have no result
    _kernel: AnyKernel
    _features: Floats
    _factor: tuple[Floats, bool]
    _weights: Floats
    _mean: float
    _centre: float
    _spread: float

    def predict(self, positions: Floats) -> tuple[Floats, Floats]:
        """Return mean and deviation (m,) of the noise-free value at `positions` (m, p)."""
        mean, columns = self._predict_scores(positions)
        reduced = np.einsum("nm,nm->m", columns, cho_solve(self._factor, columns))
        deviation = np.sqrt(np.maximum(1.0 - reduced, 0.0))
        return self._centre + self._spread * mean, self._spread * deviation

    def _predict_scores(self, positions: Floats) -> tuple[Floats, Floats]:
        """Return the mean (m,) at `positions` (m, p) in spreads, and kernel columns (n, m)."""
        columns = self._kernel.cross(self._features, _encode_positions(self.dimensions, positions))
        mean: Floats = self._mean + columns.T @ self._weights
        return mean, columns

    def importance(self) -> Floats:
        """Return total Sobol index (p,) of each parameter for the model's mean over the whole
        space, by Jansen's estimator.

        The index is ½ E[(f(x) − f(x with the parameter drawn again))²] / Var f: the share of the
        variance that the parameter has a part in, alone or with others; the shares may sum to more
        than 1 (Saltelli et al. 2010, table 2).
        """
        count = len(self.dimensions)
        draws = _latin_hypercube(_SOBOL_POINTS, 2 * count)
        first, second = (self._locate(half) for half in (draws[:, :count], draws[:, count:]))
        values = self._predict_scores(first)[0]  # on the user's scale a square could overflow
        variance = float(values.var())
        if variance <= 1e-12:
            return np.zeros(count)
        shares = np.empty(count)
        for parameter in range(count):
            changed = first.copy()
            changed[:, parameter] = second[:, parameter]
            shares[parameter] = 0.5 * float(np.mean((values - self._predict_scores(changed)[0]) ** 2)) / variance
        return shares

    def _locate(self, shares: Floats) -> Floats:
        return np.stack([dimension.at(shares[:, place]) for place, dimension in enumerate(self.dimensions)], axis=1)


def _latin_hypercube(points: int, dimensions: int) -> Floats:
    """Return points (n, d) of the unit cube, one in each of the n strata of every coordinate
    (McKay, Beckman and Conover 1979). `scipy.stats` has the same, and takes a second to import."""
    rng = np.random.default_rng(0)
    strata = rng.permuted(np.tile(np.arange(points), (dimensions, 1)), axis=1)
    return np.asarray((strata + rng.random(strata.shape)).T / points)


def fit_surrogate(history: History) -> Surrogate | None:
    """Return the model of the results; None if too few (`fitting.FIRST_FIT`) or none varies."""
    rows = sample_results(history, MOST_RESULTS, 3)
    dimensions = _dimensions(history, rows)
    if len(rows) < FIRST_FIT or not dimensions:
        return None
    positions = np.array(
        [[np.nan if place is None else place for place in dimension.axis.positions] for dimension in dimensions],
        dtype=float,
    ).T
    values = np.array([row.value for row in rows], dtype=float)
    best = max(range(len(rows)), key=lambda place: history.worth(rows[place]))
    centre, spread, scores = _standardise(values)
    if spread <= 0.0:
        return None
    features, groups = np.unique(_encode_positions(dimensions, positions), axis=0, return_inverse=True)
    counts = np.bincount(groups.ravel())
    means = np.bincount(groups.ravel(), weights=scores) / counts
    sign = history.sign
    fitted_rows = chosen_for_fit(sign * means)
    features, means, counts = features[fitted_rows], means[fitted_rows], counts[fitted_rows]
    owners = np.concatenate(
        [[place] * dimension.features(np.zeros(1)).shape[1] for place, dimension in enumerate(dimensions)]
    )
    layout = Layout(parameters=owners.astype(np.intp), extents=np.ones(len(dimensions)))
    fitted = fit(Evidence(features, means, counts, len(rows)), layout, Matern52(), prior(layout, None), None)
    kernel = Matern52(lengthscale=tuple(np.asarray(fitted.lengthscales)[layout.parameters].tolist()))
    factor = cho_factor(kernel.cross(features, features) + np.diag(fitted.noise / counts + 1e-8), lower=True)
    ones = cho_solve(factor, np.ones(len(features)))
    mean = float(ones @ means) / (float(ones.sum()) + 1.0)
    return Surrogate(
        dimensions=dimensions,
        positions=positions,
        values=values,
        is_feasible=np.array([row.is_feasible is not False for row in rows]),
        best=positions[best],
        absent=tuple(
            dimension.name
            for dimension in dimensions
            if (parameter := history.settings.space.get(dimension.name)) is not None
            and parameter.when is not None
            and rows[best].parameters.get(dimension.name) is None
        ),
        fitted=fitted,
        results=len(rows),
        left_out=history.campaign.totals.stopped,
        _kernel=kernel,
        _features=features,
        _factor=factor,
        _weights=cho_solve(factor, means - mean),
        _mean=mean,
        _centre=centre,
        _spread=spread,
    )


def _dimensions(history: History, rows: Sequence[TrialRow]) -> tuple[Dimension, ...]:
    space = history.settings.space
    names = list(space) or list(dict.fromkeys(name for row in rows for name in row.parameters))
    dimensions = []
    for name in names:
        values: list[object] = [row.parameters.get(name) for row in rows]
        if len({str(value) for value in values}) < 2:
            continue
        axis = parameter_axis(name, values, space.get(name))
        is_choice = axis.is_stepped and isinstance(space.get(name), Choice | None)
        if not is_choice or (axis.range[1] + 0.5) <= _LARGEST_CHOICE or isinstance(space.get(name), Choice):
            dimensions.append(Dimension(axis, is_choice))
    return tuple(dimensions)


def _encode_positions(dimensions: Sequence[Dimension], positions: Floats) -> Floats:
    return np.hstack([dimension.features(positions[:, place]) for place, dimension in enumerate(dimensions)])


def _standardise(values: Floats) -> tuple[float, float, Floats]:
    """Centre, spread, and the values (n,) in these units, winsorised."""
    values = np.clip(values, -LARGEST_REWARD, LARGEST_REWARD)
    centre = float(np.median(values))
    unit = float(np.abs(values - centre).max()) or 1.0  # no square overflows
    spread = 1.4826 * float(np.median(np.abs(values - centre))) or unit * float(((values - centre) / unit).std())
    if spread <= 0.0 or not np.isfinite(spread):
        return centre, 0.0, np.zeros(len(values))
    scores = np.clip((values - centre) / spread, -_WINSOR, _WINSOR)
    deviation = float(scores.std()) or 1.0
    shift = float(scores.mean())
    return centre + spread * shift, spread * deviation, (scores - shift) / deviation
