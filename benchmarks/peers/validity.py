"""The validity of a model: the share of arms whose noise-free score is within μ ± 2σ, of all arms
and of the best.

The best arms are selected because their scores are high, so even a correct model contains fewer
than 95 % of them within μ ± 2σ: without any result, 54 % of the best 5 %. The tables therefore also
give the share that would be within μ ± 2σ if the scores were drawn from the model's posterior.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.findings import Cell, Table
from benchmarks.peers.measures import SHARES
from benchmarks.peers.methods.ours import Belief, Ours, OursInSpace
from benchmarks.peers.problems import Group, Problem
from benchmarks.peers.search import search
from benchmarks.peers.settings import Setting
from benchmarks.peers.summary import group_of

Floats = NDArray[np.float64]

ARMS = 2000  # the largest number of arms, drawn from all candidates
WIDTH = 2.0  # standard deviations
BEST = 0.05  # of the arms
_WORLDS = 100  # samples of all scores from the posterior
_STREAM = 21


@dataclass(frozen=True, kw_only=True)
class Validity:
    """The validity of the model in one search, after each of SHARES of its evaluations.

    `held`, four numbers: the share of all arms within μ ± 2σ; the same for the best arms; the same
    for the best arms if the model were correct; 1 when the best arm is above μ + 2σ, else 0.
    """

    problem: str
    method: str
    workers: int
    evaluations: int
    seed: int
    held: Sequence[Sequence[float]]

    @property
    def key(self) -> tuple[str | int, ...]:
        """Problem, workers, evaluations and seed."""
        return (self.problem, self.workers, self.evaluations, self.seed)


def validity(
    problem: Problem, method: Ours | OursInSpace, setting: Setting, seed: int, names: tuple[str, str]
) -> Validity:
    """Run one search, and compare the model with the true scores during the run.

    Args:
        problem: what is searched.
        method: a strategy of this project with a model.
        setting: the numbers of workers and evaluations.
        seed: of the search.
        names: those of problem and method in the record.

    """
    marks = [round(share * setting.evaluations) for share in SHARES]
    shares_inside: list[list[float]] = []

    def watch(done: int) -> None:
        if done in marks:
            shares_inside.append(shares_held(method.belief(), problem, np.random.default_rng([seed, _STREAM, done])))

    search(problem, method, setting.workers, setting.evaluations, seed, names, watch)
    return Validity(
        problem=names[0],
        method=names[1],
        workers=setting.workers,
        evaluations=setting.evaluations,
        seed=seed,
        held=shares_inside,
    )


def shares_held(belief: Belief, problem: Problem, rng: np.random.Generator) -> list[float]:
    """`Validity.held` for the current model."""
    count = len(belief.candidates)
    arms = rng.choice(count, size=min(ARMS, count), replace=False)
    expected = [problem.evaluate(belief.candidates.parameters(arm), rng).expected for arm in arms.tolist()]
    mean = belief.posterior.mean[arms]
    deviation = np.sqrt(belief.posterior.unit * belief.posterior.variance[arms])
    return held_of(mean, deviation, belief.scores(np.array(expected)), rng)


def held_of(mean: Floats, deviation: Floats, truth: Floats, rng: np.random.Generator) -> list[float]:
    """The four numbers of `Validity.held` for arms with true scores `truth` (n,) and posterior
    N(mean, deviation²)."""
    errors = (truth - mean) / np.maximum(deviation, 1e-9)
    best = _best(truth)
    worlds = rng.standard_normal((_WORLDS, len(mean)))
    right = np.mean([np.abs(errors_[_best(mean + deviation * errors_)]) <= WIDTH for errors_ in worlds])
    inside = np.abs(errors) <= WIDTH
    above = errors[np.argmax(truth)] > WIDTH
    return [float(inside.mean()), float(inside[best].mean()), float(right), float(above)]


def _best(scores: Floats) -> NDArray[np.intp]:
    """The indices of the best arms."""
    count = max(1, round(BEST * len(scores)))
    return np.argpartition(-scores, count - 1)[:count]


def validity_tables(
    setting: Setting, validities: Mapping[str, Sequence[Validity]], group_name: Callable[[str], Group] = group_of
) -> list[Table]:
    """A table for each group of problems."""
    tables = []
    counts = [round(share * setting.evaluations) for share in SHARES]
    columns = [f"{what}, {count}" for what in ("all", "best 5 %", "if right", "best above") for count in counts]
    for group in Group:
        rows: list[tuple[Cell, ...]] = []
        for method, records in validities.items():
            those = [record.held for record in records if group_name(record.problem) == group]
            if those:
                rows.append((method, len(those), *np.mean(those, axis=0).T.ravel().tolist()))
        if rows:
            title = f"{setting}, {group}: share of arms whose noise-free score is within μ ± {WIDTH:g}σ"
            name = f"validity-{group.replace(' ', '-')}-{setting.name}"
            tables.append(Table(name, title, ("method", "searches", *columns), rows))
    return tables
