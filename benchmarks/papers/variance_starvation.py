"""Calandriello et al. 2019 (BKB), figure 1: BKB's variance far from the data, where other
approximations are too small.

A draw f of a Gaussian process on [0, 1] is evaluated at t uniform points in [0, 0.5], and BKB
(Algorithm 1) draws its dictionary after each. Its variance (DTC) is compared with the exact one and
with that of the subset of regressors: DTC without the residual k(x, x) − ‖z(x)‖², with the same
dictionary.

This module chooses values that the paper does not give: the kernel's formula exp(−100 (x − x')²)
for "bandwidth 100"; the variance of the noise, 0.01, with λ = ξ²; and q̄ = 2. Bands are ±3 standard
deviations on the Bayesian scale, √λ times BKB's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.strategies.bkb import BKB
from bbkb.orchestrator.bandit.strategy import Observation
from benchmarks.papers.campaigns import Experiment, Request, Result
from benchmarks.tables import Cell, Floats, Interval, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = (6, 63, 215)  # numbers of evaluations t in the paper's panels
ARMS = np.linspace(0.0, 1.0, 1001)[:, None]
EVALUATED = ARMS[:, 0] <= 0.5
FAR = ARMS[:, 0] >= 0.6  # more than one lengthscale away from all data

KERNEL = RBF(1.0 / math.sqrt(200.0))  # exp(−100 r²)
REGULARIZATION = 0.01  # λ = ξ²
BKB_2019 = BKB(kernel=KERNEL, regularization=REGULARIZATION, noise_variance=REGULARIZATION, oversampling=2.0)
LABELS: Mapping[str, str] = {"exact": "exact", "bkb": "BKB (DTC)", "subset_of_regressors": "subset of regressors"}
METHODS = ("bkb", "subset_of_regressors")


@dataclass(frozen=True)
class Belief:
    """Mean (A,) and variance (A,), on the 1/λ scale, of one method."""

    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class Snapshot:
    """The posteriors after `evaluations` of f, by method, and the size of the dictionary."""

    evaluations: int
    function: Floats
    dictionary: Indices
    beliefs: Mapping[str, Belief]

    def ratio(self, name: str) -> Floats:
        """The variance of the method `name`, divided by the exact one, (A,)."""
        ratio: Floats = self.beliefs[name].variance / self.beliefs["exact"].variance
        return ratio

    def coverage(self, name: str) -> float:
        """The share of the arms far from the data at which f is within μ ± 3σ."""
        belief = self.beliefs[name]
        band = 3.0 * np.sqrt(REGULARIZATION * belief.variance)
        return float((np.abs(self.function - belief.mean) <= band)[FAR].mean())


def simulate(seed: int, sizes: Sequence[int]) -> list[Snapshot]:
    """One draw of f, evaluated at the last of `sizes` points, with a snapshot at each of them."""
    rng = np.random.default_rng(seed)
    function = draw_function(rng)
    points = rng.choice(np.flatnonzero(EVALUATED), sizes[-1])
    rewards = function[points] + math.sqrt(REGULARIZATION) * rng.standard_normal(len(points))
    state, snapshots = BKB_2019.init(ARMS, rng), []
    for start, end in pairwise((0, *sizes)):
        for arm, reward in zip(points[start:end].tolist(), rewards[start:end].tolist(), strict=True):
            state = BKB_2019.tell(state, [Observation(arm, reward)], rng)
        posterior = state.posterior
        rows = posterior.moments(np.arange(len(ARMS)))[2]
        beliefs = {
            "exact": Belief(*exact_posterior(KERNEL, ARMS, state.pulls, REGULARIZATION)),
            "bkb": Belief(posterior.mean, posterior.variance),
            "subset_of_regressors": Belief(posterior.mean, np.square(rows).sum(axis=1)),  # zᵀV⁻¹z, without the residual
        }
        snapshots.append(Snapshot(end, function, state.dictionary, beliefs))
    return snapshots


def draw_function(rng: np.random.Generator) -> Floats:
    """A draw (A,) of the prior at the arms."""
    spectrum, vectors = np.linalg.eigh(KERNEL.cross(ARMS, ARMS))
    values: Floats = vectors @ (np.sqrt(np.maximum(spectrum, 0.0)) * rng.standard_normal(len(ARMS)))
    return values


def run(request: Request) -> list[Result]:
    """Compute the numbers of figure 1 over all seeds; the figure has the first seed."""
    sizes = [*(size for size in SIZES if size < request.evaluations), request.evaluations]
    simulations = [simulate(seed, sizes) for seed in range(request.seeds)]
    by_size = list(zip(*simulations, strict=True))
    rows = [_row(name, snapshots) for snapshots in by_size for name in request.methods]
    columns = (
        *("method", "t", "dictionary", "ratio, x ≥ 0.6", "least", "largest"),
        *("least, all x", "largest, all x", "f within ±3σ", "exact's"),
    )
    title = "Variance over the exact variance: mean over x ≥ 0.6; extremes over x and seeds"
    bands = [
        (label, snapshot.evaluations, float(x), float(mean), float(3.0 * math.sqrt(REGULARIZATION * variance)))
        for snapshot in simulations[0]
        for name, label in LABELS.items()
        for x, mean, variance in zip(ARMS[:, 0], *vars(snapshot.beliefs[name]).values(), strict=True)
    ]
    curves = Table("variance-starvation-curves", title, ("method", "t", "x", "mean", "3 deviations"), bands)
    return [Result(Table("variance-starvation", title, columns, rows), curves, partial(_draw, simulations[0]))]


def _draw(snapshots: Sequence[Snapshot], figure: "Figure") -> None:
    """Draw f and μ ± 3σ of BKB and of the subset of regressors over the exact belief (figure 1)."""
    for panel, snapshot in zip(figure.subplots(1, len(snapshots), sharey=True).ravel(), snapshots, strict=True):
        panel.plot(ARMS[:, 0], snapshot.function, "k:", linewidth=1, label="f")
        for name, color in zip(LABELS, ("0.6", "C0", "C3"), strict=True):
            belief = snapshot.beliefs[name]
            band = 3.0 * np.sqrt(REGULARIZATION * belief.variance)
            if name == "exact":
                panel.fill_between(ARMS[:, 0], belief.mean - band, belief.mean + band, color=color, alpha=0.3)
            panel.plot(ARMS[:, 0], belief.mean + band, color=color, linewidth=1, label=LABELS[name])
            panel.plot(ARMS[:, 0], belief.mean - band, color=color, linewidth=1)
        panel.set_title(f"t = {snapshot.evaluations}", fontsize=10)
    figure.axes[0].legend(fontsize=8)


def _row(name: str, snapshots: Sequence[Snapshot]) -> tuple[Cell, ...]:
    ratios = np.stack([snapshot.ratio(name) for snapshot in snapshots])
    return (
        LABELS[name],
        snapshots[0].evaluations,
        Interval.of([len(snapshot.dictionary) for snapshot in snapshots]),
        Interval.of(ratios[:, FAR].mean(axis=1).round(4)),  # further digits would not differ from a ratio of 1
        float(ratios[:, FAR].min()),
        float(ratios[:, FAR].max()),
        float(ratios.min()),
        float(ratios.max()),
        Interval.of([snapshot.coverage(name) for snapshot in snapshots]),
        Interval.of([snapshot.coverage("exact") for snapshot in snapshots]),
    )


VARIANCE_STARVATION = Experiment(
    "BKB, section 3.2, figure 1",
    "BKB's variance far from the data beside the exact one and the subset of regressors'",
    METHODS,
    SIZES[-1],
    run,
)
