"""The start of a strategy: the arms pulled before its first batch, or known results (BBKB §5).

Arms to pull are drawn once, before any reward is known. Known results are earlier pulls with their
rewards. They are read and matched to arms outside the bandit core; `begin_sparse` builds a state
from them.

BLESS: bottom-up leverage score sampling (Rudi, Calandriello, Carratino, Rosasco 2018, Algorithm
1).

Draws a dictionary by the ridge leverage scores ℓ_λ(x) = (k(x, x) − k_n(x)ᵀ (K_n + λI)⁻¹ k_n(x)) / λ
over n pulls, without the n × n matrix: coarse scores (large λ) need few atoms, and the atoms of one
level are accurate enough to estimate the scores of the next, finer one. All values are on the
unnormalized scale of `posterior`, on which the last λ is the ridge parameter itself, and ℓ_λ is the
variance σ².

A level needs about n · |J| kernel entries, and there are log_q(κ²n/λ) levels. n pulls of one arm
are one row with a count, and c draws of one row are one atom with 1/c of the weight, so duplicates
are free.

Creates a strategy's initial state: its model, published or calibrated, and its warm start.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import scipy
from annotated_types import Ge
from typing_extensions import Doc

from bbkb.orchestrator.annotations import Tagged
from bbkb.orchestrator.bandit.arms import Arms, Layout, as_arms
from bbkb.orchestrator.bandit.arrays import ROUNDING, Floats, Indices, read_only
from bbkb.orchestrator.bandit.kernels import AnyKernel, Kernel
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.model.outputs import mean_rewards
from bbkb.orchestrator.bandit.options import Options
from bbkb.orchestrator.bandit.sparse.argmax_queue import LazyQueue, RemainingInArray, most_arms
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import SparseState, begin_model, initial_state
from bbkb.orchestrator.bandit.sparse.strategy import refit
from bbkb.orchestrator.bandit.strategy import AnyStrategy, Observation

_BLOCK = 2048  # the number of rows in a matrix product


@dataclass(frozen=True, eq=False)
class WeightedDictionary:
    """`members` (m,): distinct positions of rows, ascending; `weights` (m,) > 0: diag W."""

    members: Indices
    weights: Floats


def bless(
    kernel: Kernel,
    rows: Floats,
    counts: Indices,
    regularization: float,
    rng: np.random.Generator,
    q: float = 2.0,
    q1: float = 4.0,
    q2: float = 8.0,
) -> WeightedDictionary:
    """Return a dictionary of the distinct `rows` (p, d), each pulled `counts` (p,) ≥ 1 times, for λ
    = `regularization` > 0.

    `q` > 1 is the ratio of the path λ_0 = κ²n > … > λ_H = λ; `q1` > 0 is the oversampling of the
    candidates, and `q2` > 0 that of the atoms. Raises ValueError for other constants, if there are
    no rows, or for a count below 1.
    """
    if not (q > 1 and q1 > 0 and q2 > 0):
        raise ValueError(f"bless needs q > 1, q1 > 0 and q2 > 0, got {q}, {q1} and {q2}")
    if len(rows) == 0 or len(counts) != len(rows) or counts.min() < 1:
        raise ValueError(f"bless needs a count >= 1 for each of its rows, got {len(counts)} counts of {len(rows)} rows")
    largest = float(kernel.diagonal(rows).max())
    total = int(counts.sum())
    dictionary = WeightedDictionary(read_only((), np.intp), read_only((), np.float64))
    for level in _path(largest * total, regularization, q):
        # R_h of the n pulls, as a count for each row
        size = min(max(1, math.ceil(q1 * largest * total / level)), total)
        candidates = counts if size == total else rng.multivariate_hypergeometric(counts, size, method="marginals")
        dictionary = _draw(kernel, rows, candidates, total, dictionary, level=level, q2=q2, rng=rng)
    return dictionary


def _path(start: float, end: float, q: float) -> list[float]:
    """Return λ_1 > … > λ_H = `end`, from `start` / q down by factors of q; at least one level."""
    steps = max(1, math.ceil(math.log(max(start / end, 1.0), q)))
    return [*(start * q**-step for step in range(1, steps)), end]


def _draw(
    kernel: Kernel,
    rows: Floats,
    candidates: Indices,
    total: int,
    before: WeightedDictionary,
    level: float,
    q2: float,
    rng: np.random.Generator,
) -> WeightedDictionary:
    """Return the dictionary of one level. `candidates` (p,): the count of each row in R_h."""
    present = np.flatnonzero(candidates)
    size = int(candidates.sum())
    scores = leverage_scores(kernel, rows[present], rows[before.members], before.weights, level)
    # the scores are never all 0, although κ² can be
    mass = candidates[present] * np.maximum(scores, np.finfo(np.float64).tiny)
    dimension = total / size * float(mass.sum())  # d_h = (n/R_h) Σ ℓ̃
    atoms = max(1, math.ceil(q2 * dimension))  # M_h
    draws = rng.multinomial(atoms, mass / mass.sum())
    positions = np.flatnonzero(draws)
    # W = diag(R_h M_h p_j / n), with p_j of a single pull; c equal atoms of weight w are one atom
    # of weight w/c
    single = np.maximum(scores, np.finfo(np.float64).tiny)[positions] / mass.sum()
    weights = size * atoms * single / total / draws[positions]
    return WeightedDictionary(read_only(present[positions], np.intp), read_only(weights, np.float64))


def leverage_scores(kernel: Kernel, rows: Floats, atoms: Floats, weights: Floats, level: float) -> Floats:
    """Return ℓ̃ (n,) ≥ 0 of `rows` (n, d) at λ = `level`: (k(x, x) − k_J(x)ᵀ (K_J + λW)⁻¹ k_J(x)) /
    λ, with `atoms` (m, d) and `weights` (m,)."""
    diagonal = kernel.diagonal(rows)
    if not len(atoms):
        return np.asarray(diagonal / level)
    roots = np.sqrt(weights)
    # (K_J + λW)⁻¹ = W^{−1/2} (W^{−1/2} K_J W^{−1/2} + λI)⁻¹ W^{−1/2}: near-duplicates make K_J
    # singular, and λI must exceed rounding errors, or the factorization fails
    gram = kernel.cross(atoms, atoms) / np.multiply.outer(roots, roots)
    ridge = level + len(atoms) * np.finfo(np.float64).eps * float(np.trace(gram))
    factor = scipy.linalg.cholesky(gram + ridge * np.eye(len(atoms)), lower=True)
    explained = np.empty(len(rows))
    for low in range(0, len(rows), _BLOCK):
        block = slice(low, low + _BLOCK)
        solved = scipy.linalg.solve_triangular(factor, kernel.cross(atoms, rows[block]) / roots[:, None], lower=True)
        explained[block] = np.einsum("mn,mn->n", solved, solved)
    return np.asarray(np.maximum(diagonal - explained, 0.0) / level)


S = TypeVar("S", bound=SparseState)

# the number of pulls of a spread start if its length depends on the space
SHORTEST = 8
LONGEST = 10
IF_ARMS_REPEAT = 16
RESTART = 64  # the largest number of random arms added at once to a failed warm start

PullsOption = Annotated[int, Ge(1), Doc("The number of arms to pull first, ≥ 1.")]


class _StartOptions(Options):
    SECTION: ClassVar[str] = "strategy.warm_start"


@dataclass(frozen=True)
class RandomStart(_StartOptions):
    """`pulls` uniformly drawn arms, which are distinct as long as there are enough arms."""

    pulls: PullsOption = 1
    name: Literal["random"] = "random"

    def draw(self, model: SparseModel, rng: np.random.Generator, layout: Layout | None = None) -> tuple[int, ...]:
        """Return the arms in the order in which they should be pulled."""
        count = len(model.arms)
        return tuple(rng.choice(count, size=self.pulls, replace=self.pulls > count).tolist())


@dataclass(frozen=True)
class UncertaintyStart(_StartOptions):
    """Uncertainty sampling (BBKB Algorithm 3): repeatedly the arm with the largest exact σ², until
    max σ² ≤ 1/`workers`.

    Afterwards, every batch has at least workers · (C̃ − 1)/3 arms. The start ends after `max_pulls`
    at the latest. Without `workers`, it always has `max_pulls` (a campaign fills in its number of
    workers). An arm may be pulled twice.
    """

    workers: Annotated[
        Annotated[int, Ge(1)] | None,
        Doc("Pulls continue until max σ² ≤ 1/`workers`, ≥ 1; None: a campaign takes its number of workers."),
    ] = None
    max_pulls: Annotated[int, Ge(1), Doc("Pulls at most, ≥ 1.")] = 64
    name: Literal["uncertainty"] = "uncertainty"

    def draw(self, model: SparseModel, rng: np.random.Generator, layout: Layout | None = None) -> tuple[int, ...]:
        """Return at least one arm, in the order of the pulls. Draws nothing from `rng`."""
        return self.draw_after((), model)

    def draw_after(self, known: Sequence[int], model: SparseModel) -> tuple[int, ...]:
        """Return the arms to pull after the pulls of `known` arms, whose rewards are known: none if
        these are enough, and at least one if `known` is empty."""
        target = 0.0 if self.workers is None else 1.0 / self.workers
        exact = _NoisyCholesky(model)
        exact.condition(known)
        queue = LazyQueue(RemainingInArray(model.diagonal / model.regularization), exact)
        while len(exact.picks) - len(known) < self.max_pulls:
            arm = queue.top()
            if exact.picks and exact.variance(arm) <= target:  # σ², not σ
                break
            exact.append(arm)
        return tuple(exact.picks[len(known) :])


@dataclass(frozen=True)
class SpreadStart(_StartOptions):
    """`pulls` different arms that cover the space: the first ones if the arms follow a
    low-discrepancy sequence, otherwise uniformly drawn ones. Uncertainty sampling would choose the
    corners, which are rarely good.
    """

    pulls: Annotated[
        Annotated[int, Ge(1)] | None,
        Doc(
            "Number of arms that are pulled first, ≥ 1; None: if no arm is pulled twice, the number "
            "of parameters plus two, at least 8 and at most 10; otherwise 16."
        ),
    ] = 16
    name: Literal["spread"] = "spread"

    def draw(self, model: SparseModel, rng: np.random.Generator, layout: Layout | None = None) -> tuple[int, ...]:
        """Return the arms in the order in which they should be pulled."""
        count = len(model.arms)
        pulls = min(self._pulls(layout), count)
        if layout is not None and layout.is_sequence:
            return tuple(range(pulls))
        return tuple(rng.choice(count, size=pulls, replace=False).tolist())

    def _pulls(self, layout: Layout | None) -> int:
        if self.pulls is not None:
            return self.pulls
        if layout is None or layout.repeats:
            return IF_ARMS_REPEAT
        return min(max(SHORTEST, layout.parameter_count + 2), LONGEST)


def next_start(state: SparseState, pending: Sequence[int], limit: int, never_waits: bool) -> list[int]:
    """Return at most `limit` arms of the warm start that are neither pulled nor `pending`.

    `never_waits`: whether to add further arms up to `limit` if the warm start ends before the first
    reward, so that no worker waits.
    """
    start = state.remaining_start(pending)[:limit]
    if never_waits and not state.pulls.total:
        start += unused_arms(state, (*pending, *start))[: limit - len(start)].tolist()
    return start


def extend_failed_start(state: S, rng: np.random.Generator) -> S:
    """Return the state after a `tell`. If the whole warm start failed, or all its results violate a
    constraint to the same extent, it is extended by as many uniformly drawn arms as it has, at most
    `RESTART`, so that every worker has a trial. Other states are returned unchanged, without a
    draw."""
    is_uninformed = not state.pulls.total or _has_equal_violations(state)
    if not is_uninformed or state.remaining_start() or not len(state.available):
        return state
    count = min(len(state.initial) or 1, RESTART, len(state.available))
    further: list[int] = rng.choice(state.available, size=count, replace=False).tolist()
    return replace(state, initial=(*state.initial, *further))


def _has_equal_violations(state: SparseState) -> bool:
    """Return whether a constraint is violated by all results, with equal margins. The model cannot
    learn from them where the constraint is satisfied."""
    margins = [mean_rewards(output) for output in state.pulls.outputs[state.goals.objectives :]]
    return any(len(one) > 0 and one.max() < 0.0 and one.min() == one.max() for one in margins)


def unused_arms(state: SparseState, pending: Sequence[int]) -> Indices:
    """Return the arms that may be chosen and are neither pulled nor `pending`, so that the first
    ones cover the space: in the order of the sequence, or in an order determined by the warm
    start's arms."""
    count = len(state.model.arms)
    if state.layout is not None and state.layout.is_sequence:
        order = np.arange(count)
    else:
        order = np.random.default_rng([len(state.initial), *state.initial]).permutation(count)
    used = np.concatenate((state.blocked_arms(pending), state.pulls.arms, np.array(pending, np.intp)))
    unused: Indices = order[~np.isin(order, used)]
    return unused


@dataclass(frozen=True)
class DataStart(_StartOptions):
    """No pulls: the strategy begins with the results known before the campaign."""

    name: Literal["data"] = "data"

    def draw(self, model: SparseModel, rng: np.random.Generator, layout: Layout | None = None) -> tuple[int, ...]:
        """Return no arm: the strategy learns the known results before it chooses any."""
        return ()


AnyWarmStart = RandomStart | UncertaintyStart | SpreadStart | DataStart
WARM_STARTS: Mapping[str, type[AnyWarmStart]] = {
    "random": RandomStart,
    "uncertainty": UncertaintyStart,
    "spread": SpreadStart,
    "data": DataStart,
}
WarmStartOption = Annotated[
    AnyWarmStart,
    Tagged("name", tuple(WARM_STARTS.items())),
    Doc("The first pulls: random, uncertainty or spread; or data: none, because results are known."),
]

ONE_PULL = RandomStart()  # the start of the published strategies


def warm_start_of(strategy: object) -> AnyWarmStart | None:
    """Return the strategy's warm start, or None."""
    return getattr(strategy, "warm_start", None)


def begins_at_center(strategy: object) -> bool:
    """Return whether the strategy begins with arms that cover the space, the first of which should be the
    center of a search space."""
    return isinstance(warm_start_of(strategy), SpreadStart)


def with_warm_start(strategy: AnyStrategy, start: AnyWarmStart) -> AnyStrategy:
    """Return the strategy, a dataclass, with a different warm start."""
    options: Any = strategy
    changed: AnyStrategy = replace(options, warm_start=start)
    return changed


def with_known_results(strategy: AnyStrategy) -> AnyStrategy:
    """Return the strategy for a search with known results, which replace its warm start. Uncertainty
    sampling stays: it continues after them."""
    return strategy if isinstance(warm_start_of(strategy), UncertaintyStart) else with_warm_start(strategy, DataStart())


def begin_sparse(
    state: SparseState, existing: Sequence[Observation], rng: np.random.Generator, calibrated: Model | None = None
) -> SparseState:
    """Return the state that begins with `existing` pulls: it has their counts and sums, and BLESS
    draws the dictionary from their arms.

    The information gain is computed for all existing pulls together, because the variances between
    them are unknown: G = log det(I + K̃/λ) + Tr(K − K̃)/λ over the multiset of pulls, with the
    Nyström approximation K̃ = (zᵀz'). For any dictionary, G is at least log det(I + K/λ), which
    suffices for Theorem 2, because log det(A + B) is at most log det A + Tr(A⁻¹B). It exceeds this
    value by at most about d_eff. With the prior variance for each pull, as in a `tell`, G would be
    n log(1 + κ²/λ).
    """
    after = state.observe(existing)
    after = after if calibrated is None else refit(after, calibrated)
    pulls = after.pulls
    model = after.model
    rows = model.points(pulls.arms).features
    counts = pulls.counts[pulls.arms]
    weighted = bless(model.kernel, rows, counts, model.regularization, rng)
    dictionary: Indices = read_only(pulls.arms[weighted.members], np.intp)
    # the eigenvalues of Σ n_p z zᵀ, which are those of K̃ except for zeros; their sum is Tr K̃
    spectrum = model.fit(pulls, dictionary).fit.spectrum
    left_out = max(0.0, float(counts @ model.kernel.diagonal(rows)) - float(spectrum.sum()))
    gain = float(np.log1p(spectrum / model.regularization).sum()) + left_out / model.regularization
    return replace(after, dictionary=dictionary, information_gain=gain)


class _NoisyCholesky:
    """The exact variances of the evaluated arms after `picks`, by a Cholesky factorization."""

    tie: ClassVar[float] = ROUNDING
    stale: ClassVar[Indices] = np.empty(0, np.intp)

    def __init__(self, model: SparseModel) -> None:
        self._model = model
        self.picks: list[int] = []
        self.arms: Indices = np.empty(0, np.intp)
        # L⁻¹ k(picks, x) of the evaluated arms: (picks, n), with L Lᵀ = K + λI over the picks
        self._solved = np.empty((0, 0))
        # the solved column and the pivot of each pick
        self._rows: list[tuple[Floats, float]] = []
        self._explained = np.empty(0)

    def scores(self) -> Floats:
        """Return the exact σ² (n,) of the evaluated arms, on the 1/λ scale."""
        unexplained = np.maximum(self._model.diagonal[self.arms] - self._explained, 0.0)
        variance: Floats = unexplained / self._model.regularization
        return variance

    def refresh(self, positions: Indices) -> None:
        """Do nothing, because scores are always up to date."""

    def variance(self, arm: int) -> float:
        """Return the exact σ² of `arm`, which must be evaluated."""
        return float(self.scores()[self.arms == arm][0])

    def tighten(self, arms: Indices) -> Floats:
        """Return infinite bounds, because scores are already exact."""
        return np.full(len(arms), np.inf)

    @property
    def most(self) -> int:
        """See `argmax_queue.ScoredArms`."""
        return most_arms(len(self.picks) + 2)

    def leave(self, positions: Indices) -> Indices:
        """See `argmax_queue.ScoredArms`."""
        staying = np.ones(len(self.arms), bool)
        staying[positions] = False
        self.arms, self._solved = self.arms[staying], self._solved[:, staying]
        self._explained = self._explained[staying]
        return positions

    def enter(self, arms: Indices) -> None:
        """Evaluate `arms` (n,)."""
        solved = np.empty((len(self.picks), len(arms)))
        explained = np.zeros(len(arms))
        for number, (pick, (column, pivot)) in enumerate(zip(self.picks, self._rows, strict=True)):
            solved[number] = self._row(pick, column, pivot, arms, solved[:number])
            explained += solved[number] ** 2
        joined = np.append(self.arms, arms)
        order = np.argsort(joined)
        self.arms, self._solved = joined[order], np.hstack((self._solved, solved))[:, order]
        self._explained = np.append(self._explained, explained)[order]

    def condition(self, pulls: Sequence[int]) -> None:
        """Add these pulls before any arm is evaluated."""
        self.enter(np.unique(np.array(pulls, np.intp)))
        for arm in pulls:
            self.append(arm)
        self.leave(np.arange(len(self.arms)))

    def append(self, arm: int) -> None:
        """Add a pull of `arm`, which must be evaluated."""
        column = self._solved[:, self.arms == arm][:, 0]
        pivot = self._model.diagonal[arm] + self._model.regularization - column @ column
        # λ is a lower bound on the pivot, except for rounding
        pivot = max(float(pivot), self._model.regularization)
        row = self._row(arm, column, pivot, self.arms, self._solved)
        self._solved, self._explained = np.vstack((self._solved, row)), self._explained + row**2
        self.picks.append(arm)
        self._rows.append((column, pivot))

    def _row(self, pick: int, column: Floats, pivot: float, arms: Indices, solved: Floats) -> Floats:
        """Return the row that `pick` adds to `solved`: L⁻¹ k(picks, x) of `arms` (n,)."""
        cross = self._model.columns.rows(arms, self._model.points(np.array([pick])))[:, 0].copy()
        # instead of @, so that an arm's row does not depend on the other arms in the call
        for value, earlier in zip(column, solved, strict=True):
            cross -= value * earlier
        row: Floats = cross / np.sqrt(pivot)
        return row


AnyArms = Arms | Floats


def begin_state(
    arms: AnyArms,
    published: tuple[AnyKernel, float],
    model: Model | None,
    warm_start: AnyWarmStart | None,
    rng: np.random.Generator,
) -> SparseState:
    """Return the state before any pull of `arms`, with a drawn warm start.

    `published`: the kernel and λ without a `model`. Raises ValueError for invalid arms.
    """
    checked = as_arms(arms)
    layout = checked.layout
    if model is None:
        sparse = SparseModel(published[0], checked.features, published[1])
        calibration = None
    else:
        sparse, calibration = begin_model(model, checked.features, layout)
    initial = () if warm_start is None else warm_start.draw(sparse, rng, layout)
    if not checked.goals.is_single and model is None:
        raise ValueError("several objectives or constraints need the calibrated model: leave strategy.preset out")
    return initial_state(sparse, initial, layout, calibration, checked.goals, log_prior=checked.log_prior)
