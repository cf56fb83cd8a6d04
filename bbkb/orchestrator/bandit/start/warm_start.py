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

from bbkb.orchestrator.bandit.arms import Arms, Layout, as_arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only
from bbkb.orchestrator.bandit.kernels import AnyKernel, Kernel
from bbkb.orchestrator.bandit.model.fitting import prior
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.options import Options, Tagged
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.argmax_queue import NOTHING
from bbkb.orchestrator.bandit.sparse.picking import ConditionedPosterior, Picking
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import Calibration, SparseState
from bbkb.orchestrator.bandit.sparse.strategy import refit
from bbkb.orchestrator.bandit.sparse.upper_bounds import Screen
from bbkb.orchestrator.bandit.strategy import AnyStrategy, Observation

_BLOCK = 2048  # the number of rows in a matrix product
PATH_RATIO = 2.0  # q, the ratio of the path λ_0 = κ²n > … > λ_H = λ
CANDIDATES = 4.0  # q₁, the oversampling of the candidates of a level
ATOMS = 8.0  # q₂, the oversampling of the atoms


@dataclass(frozen=True, eq=False)
class WeightedDictionary:
    """`members` (m,): distinct positions of rows, ascending; `weights` (m,) > 0: diag W."""

    members: Indices
    weights: Floats


def bless(
    kernel: Kernel, rows: Floats, counts: Indices, regularization: float, rng: np.random.Generator
) -> WeightedDictionary:  # fmt: skip
    """Return a dictionary of the distinct `rows` (p, d), each pulled `counts` (p,) ≥ 1 times, for λ
    = `regularization` > 0. Raises ValueError if there are no rows, or for a count below 1.
    """
    if len(rows) == 0 or len(counts) != len(rows) or counts.min() < 1:
        raise ValueError(f"bless needs a count >= 1 for each of its rows, got {len(counts)} counts of {len(rows)} rows")
    largest = float(kernel.diagonal(rows).max())  # κ²
    total = int(counts.sum())  # n
    levels = max(1, math.ceil(math.log(max(largest * total / regularization, 1.0), PATH_RATIO)))
    members: Indices = np.empty(0, np.intp)
    weights = np.empty(0)
    for step in range(1, levels + 1):
        level = largest * total * PATH_RATIO**-step if step < levels else regularization  # λ_h
        # R_h of the n pulls, as a count for each row
        size = min(max(1, math.ceil(CANDIDATES * largest * total / level)), total)
        candidates = counts if size == total else rng.multivariate_hypergeometric(counts, size, method="marginals")
        present = np.flatnonzero(candidates)
        scores = leverage_scores(kernel, rows[present], rows[members], weights, level)
        scores = np.maximum(scores, np.finfo(np.float64).tiny)  # never all 0, although κ² can be
        mass = candidates[present] * scores
        dimension = total / size * float(mass.sum())  # d_h = (n/R_h) Σ ℓ̃
        atoms = max(1, math.ceil(ATOMS * dimension))  # M_h
        draws = rng.multinomial(atoms, mass / mass.sum())
        positions = np.flatnonzero(draws)
        # W = diag(R_h M_h p_j / n), with p_j of a single pull; c equal atoms of weight w are one atom
        # of weight w/c
        weights = size * atoms * (scores[positions] / mass.sum()) / total / draws[positions]
        members = present[positions]
    return WeightedDictionary(members, weights)


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
        unknown = model.fit(Pulls.none(len(model.arms)), NOTHING)  # the prior, whose mean is 0: u is σ
        screen = Screen(model.kernel, model.all_arms.largest_prior)
        bounds = screen.upper(model.all_arms, unknown.fit, [(0, 1.0)], NOTHING)
        conditioned = ConditionedPosterior(unknown)
        conditioned.extend(known)
        picking = Picking(conditioned, bounds, width=1.0)
        queue = picking.queue(NOTHING)
        picks: list[int] = []
        while len(picks) < self.max_pulls:
            arm = queue.top()
            if (known or picks) and picking.pick(arm).variance <= target:  # σ², not σ
                break
            conditioned.append(arm)
            picks.append(arm)
        return tuple(picks)


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
        pulls = self.pulls
        if pulls is None and layout is not None and not layout.repeats:
            pulls = min(max(SHORTEST, layout.parameter_count + 2), LONGEST)
        pulls = min(IF_ARMS_REPEAT if pulls is None else pulls, count)
        if layout is not None and layout.is_sequence:
            return tuple(range(pulls))
        return tuple(rng.choice(count, size=pulls, replace=False).tolist())


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
    """Return the state after a `tell`. If the whole warm start failed, it is extended by as many
    uniformly drawn arms as it has, at most `RESTART`, so that every worker has a trial. Other states
    are returned unchanged, without a draw."""
    if state.pulls.total or state.remaining_start() or not len(state.available):
        return state
    count = min(len(state.initial) or 1, RESTART, len(state.available))
    further: list[int] = rng.choice(state.available, size=count, replace=False).tolist()
    return replace(state, initial=(*state.initial, *further))


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
    posterior = model.fit(pulls, dictionary)
    # the eigenvalues of Σ n_p z zᵀ, which are those of K̃ except for zeros
    spectrum = posterior.fit.spectrum
    gain = float(np.log1p(spectrum / model.regularization).sum()) + posterior.left_out(pulls) / model.regularization
    return replace(after, dictionary=dictionary, information_gain=gain)


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
        if not checked.goals.is_single:
            raise ValueError("several objectives or constraints need the calibrated model: leave strategy.preset out")
    else:
        fitted = prior(layout, model.noise)
        kernel = model.kernel_of(fitted, layout)
        sparse = SparseModel(kernel, checked.features, fitted.noise, model.outputs, model.mean)
        calibration = Calibration(fitted)
    return SparseState(
        sparse,
        Pulls.none(len(checked), checked.goals.further),
        initial=() if warm_start is None else warm_start.draw(sparse, rng, layout),
        layout=layout,
        calibration=calibration,
        goals=checked.goals,
        log_prior=checked.log_prior,
    )
