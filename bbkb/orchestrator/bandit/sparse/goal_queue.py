"""Picks arms for several objectives and constraints, with a common dictionary.

Variances depend only on the pulls, so all outputs share the counts, the dictionary, the
factorization and the kernel columns. Each output has its own sums of scores, and therefore its own
mean. An arm is picked by the score `scalarizing` of its upper bounds μ̃_j + width · σ̃.

The scalarization changes from pick to pick, so a queue sorted by a single score cannot be used. For
each pick, further arms are evaluated as long as their bounds reach the best evaluated score. The
picks are the same as if all arms were evaluated.
"""

import functools

import numpy as np

from bbkb.orchestrator.bandit.arms import LEVEL
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.bandit.model.fitting import LENGTHSCALES
from bbkb.orchestrator.bandit.model.outputs import Outputs, Scale, mean_rewards, scores_of
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.argmax_queue import NOTHING, BoundedSet, argmax
from bbkb.orchestrator.bandit.sparse.picking import Picking
from bbkb.orchestrator.bandit.sparse.scalarization import Scalarizing, bounds_of, direction
from bbkb.orchestrator.bandit.sparse.state import SparseState

# the distance of z below the worst point of the front, as a share of the front's range in an
# objective
REACH = 0.1
LEAST_RANGE = 0.1  # in standard deviations of the scores
ABOVE_ALL = 1.0  # in standard deviations of the scores
CENSORED = 0.25  # see `_limit`
# see `near_ends`
ENDS = 0.3
LATE = 30  # results in the fit; earlier, many effects are invisible, and results inside do not show them sooner
LEAST_INSIDE = 16
FIRST_SEEN = 32  # the number of arms that are evaluated first
FIRST_LOOK = 2  # the number of arms that are evaluated next; doubled each time


def floors_and_limits(pulls: Pulls, goals: Goals, outputs: Outputs) -> tuple[Floats, Floats]:
    """Return z (J,), slightly below the front of the results, and the score (C,) that corresponds
    to a margin of 0, for each constraint.

    The front consists of mean rewards that satisfy all constraints, or of all mean rewards if none
    does. If z were below the worst of all results, most directions would miss the front.
    """
    objectives = pulls.outputs[: goals.objectives]
    constraints = pulls.outputs[goals.objectives :]
    limits = np.array([_limit(output, outputs) for output in constraints])
    if len(objectives) == 1:
        return np.zeros(1), limits  # the scores already are upper bounds
    complete = functools.reduce(np.intersect1d, (output.arms for output in pulls.outputs))
    if not len(complete):
        least = [scores_of(mean_rewards(output), outputs).min(initial=0.0) for output in objectives]
        return np.array(least) - REACH, limits
    scores = np.array([_of(output, scores_of(mean_rewards(output), outputs), complete) for output in objectives])
    margins = [_of(output, mean_rewards(output), complete) for output in constraints]
    feasible = np.all([one >= 0.0 for one in margins], axis=0) if margins else np.array(True)
    front = front_of(scores[:, feasible] if feasible.any() and feasible.ndim else scores)
    worst = front.min(axis=1)
    best = front.max(axis=1)
    return worst - REACH * np.maximum(best - worst, LEAST_RANGE), limits


def _of(output: Pulls, numbers: Floats, arms: Indices) -> Floats:
    """Return those of `numbers`, of the arms of `output`, that belong to `arms`, all among them."""
    return numbers[np.searchsorted(output.arms, arms)]


def _limit(constraint: Pulls, outputs: Outputs) -> float:
    """Return the score that counts as a margin of 0; −∞ if no margin is known.

    If all margins are below 0 and do not determine a scale, it is `ABOVE_ALL` above the score of the
    largest one. If several margins are 0 and none is larger, they are violations, and 0 means "at most 0":
    the score of 0 is then the largest one, which few posterior means reach. The limit is therefore lower
    by a `CENSORED` share of the distance to the mean score of the violating arms.
    """
    if not len(constraint.arms):
        return -np.inf
    margins = mean_rewards(constraint)
    scale = Scale(margins, outputs)
    limit = float(scale.scores(np.zeros(1))[0])
    violated = margins < 0.0
    if violated.all():
        return limit + (ABOVE_ALL if scale.slope <= 0.0 else 0.0)
    if violated.any() and margins.max() == 0.0 and np.count_nonzero(margins == 0.0) > 1:
        return limit - CENSORED * (limit - float(scores_of(margins, outputs)[violated].mean()))
    return limit


def front_of(points: Floats) -> Floats:
    """Return those columns of `points` (J, n), n >= 1, that no other column dominates: (J, f)."""
    candidates = points[:, np.argsort(-points.sum(axis=0), kind="stable")]
    front = []
    while candidates.shape[1]:
        front.append(candidates[:, 0])  # the arm with the largest sum, which no arm dominates
        candidates = candidates[:, (candidates > candidates[:, :1]).any(axis=0)]
    return np.array(front).T


def near_ends(state: SparseState) -> Indices:
    """Return the arms that several objectives should not choose yet, ascending: those with a value in the
    outer `ENDS` of the range, at either end, of a number whose effect is not visible after `LATE` results.

    Uncertainty is largest at the ends, and an effect that is equal at both, as around an optimum inside,
    stays invisible there. No arm is returned if arms repeat, or if fewer than `LEAST_INSIDE` others would be left.
    """
    calibration = state.calibration
    layout = state.layout
    if calibration is None or calibration.fitted.results < LATE or state.goals.objectives == 1:
        return NOTHING
    if layout is None or layout.repeats:
        return NOTHING
    arms = state.model.arms
    near = np.zeros(len(arms), np.bool_)
    longest = 0.999 * LENGTHSCALES[1] * layout.extents  # lengthscales are rounded
    is_invisible = np.array(calibration.fitted.lengthscales) >= longest
    is_single = np.bincount(layout.parameters) == 1  # not one-hot
    for column in np.flatnonzero((is_invisible & is_single)[layout.parameters] & (arms[0] > LEVEL)).tolist():
        values = arms[:, column]
        low = float(values.min())
        width = float(values.max()) - low
        is_inside = np.abs(values - (low + 0.5 * width)) < (0.5 - ENDS) * width
        if is_inside.any() and np.ptp(values[is_inside]) > 0.0:  # else its effect would never be visible
            near |= ~is_inside
    is_enough = len(near) - np.count_nonzero(near) >= LEAST_INSIDE
    return np.flatnonzero(near) if is_enough else NOTHING


class GoalQueue:
    """A queue like `LazyQueue` whose score changes with each arm that it returns.

    `number`: the number of pulls before the first pick, which is the index of its direction.
    """

    def __init__(self, state: SparseState, picking: Picking, blocked: Indices, number: int) -> None:
        self._goals = state.goals
        self._picking = picking
        # arms that are excluded as long as others are left
        self._ends = np.setdiff1d(near_ends(state), blocked, assume_unique=True)
        self._blocked = np.union1d(blocked, self._ends)
        self._number = number
        fit = state.posterior.fit
        # the constant means, which the posterior's means exclude
        offsets = fit.offsets
        floors, limits = floors_and_limits(state.evidence, state.goals, state.model.outputs)
        self._floors = floors - offsets[: len(floors)] if len(floors) > 1 else floors
        self._limits = limits - offsets[len(floors) :]
        self._loadings = fit.loadings[1:]
        self._seen: Indices = np.empty(0, np.intp)  # the evaluated arms of `_means` (n,)
        self._means = np.empty((len(self._loadings), 0))  # further outputs of these arms (K, n)

    def top(self) -> int:
        """Return the arm with the largest score of the next scalarization, the lowest index among
        equals; −1 if no arm is left."""
        theta = direction(self._number, self._goals.objectives)
        self._number += 1
        scalarizing = Scalarizing(self._floors, theta, self._limits)
        arm, best = self._best(scalarizing)
        if best == -np.inf:
            self._picking.posterior.enter(self._outside(scalarizing, -np.inf, FIRST_SEEN).arms)
            arm, best = self._best(scalarizing)
        if best == -np.inf and len(self._ends):
            self._blocked = np.setdiff1d(self._blocked, self._ends, assume_unique=True)
            self._ends = self._ends[:0]
            self._number -= 1
            return self.top()
        if best == -np.inf:
            return arm
        bounds = self._picking.bounds
        near = self._outside(scalarizing, best, 0)
        near = near.tighten(best, lambda arms: scalarizing.scores(bounds.tighten(arms)))
        look = FIRST_LOOK
        while near.top >= best:  # an arm with an equal score may have a lower index
            arms, near = near.where(near.bounds >= best).split(look)
            self._picking.posterior.enter(np.sort(arms))
            arm, best = self._best(scalarizing)
            look *= 2
        return arm

    def block(self, arm: int) -> None:
        """Exclude `arm` from further results."""
        self._blocked = np.union1d(self._blocked, [arm])

    def _outside(self, scalarizing: Scalarizing, best: float, most: int) -> BoundedSet:
        """Return unevaluated arms whose bounds are at least `best`; if `best` is −∞, the `most`
        arms with the largest bounds."""
        arms, bounds = self._picking.bounds.arms_reaching(self._blocked, scalarizing, best, most)
        is_new = np.isin(arms, self._picking.posterior.arms, assume_unique=True, invert=True)
        return BoundedSet().join(arms[is_new], bounds[is_new], is_tight=False)

    def _best(self, scalarizing: Scalarizing) -> tuple[int, float]:
        """Return the `argmax` of the evaluated arms that are not excluded."""
        posterior = self._picking.posterior
        if not len(posterior.arms):
            return -1, -np.inf
        # a calibrated model appends evaluated arms, and only `LazyQueue` removes some
        seen = len(self._seen)
        assert np.array_equal(posterior.arms[:seen], self._seen), "evaluated arms were removed or sorted"
        self._seen = posterior.arms
        # vecdot instead of @, so that the rounding of an arm's mean does not depend on other arms
        new = np.vecdot(posterior.rows[seen:], self._loadings[:, None, :])
        self._means = np.hstack((self._means, new))
        posterior.refresh(posterior.stale)
        outputs, widths = zip(*bounds_of(self._goals, self._picking.width), strict=True)
        upper = np.vstack((posterior.mean, self._means))[list(outputs)]
        upper += np.array(widths)[:, None] * np.sqrt(posterior.variance)
        scores = scalarizing.scores(upper)
        scores[np.isin(posterior.arms, self._blocked, assume_unique=True)] = -np.inf
        return argmax(posterior.arms, scores, posterior.tie)


def leaders(state: SparseState, count: int) -> tuple[int, ...]:
    """Return at most `count` pulled arms that are spread along the front of their posterior means,
    in the order of the sequence of directions."""
    fit = state.posterior.fit
    pulled = state.pulls.arms
    _, _, rows = state.posterior.moments(pulled)
    means = np.vecdot(rows, fit.loadings[:, None, :]) + fit.offsets[:, None]
    floors, limits = floors_and_limits(state.evidence, state.goals, state.model.outputs)
    led: list[int] = []
    for number in range(count):
        theta = direction(number, state.goals.objectives)
        scores = Scalarizing(floors, theta, limits).scores(np.vstack((means, means[len(floors) :])))
        scores[np.searchsorted(pulled, led)] = -np.inf
        if scores.max() > -np.inf:
            led.append(int(pulled[np.argmax(scores)]))
    return tuple(led)


def potentials(state: SparseState, width: float) -> Floats:
    """Return the potential of every arm (A,): the volume between z and the arm's upper bounds.

    Up to a constant factor, it is the mean of s_θ to the power J over all directions (Golovin and
    Zhang 2020, Lemma 5). With one objective, it is the bound itself. Arms that cannot satisfy the
    constraints come after all others.
    """
    upper = state.posterior.means + width * np.sqrt(state.posterior.variance)
    floors, limits = floors_and_limits(state.evidence, state.goals, state.model.outputs)
    above = upper[: len(floors)] - floors[:, None]
    volumes = above if len(floors) == 1 else np.prod(np.maximum(above, 0.0), axis=0, keepdims=True)
    scalarizing = Scalarizing(np.zeros(1), np.ones(1), limits)
    hopes = upper[len(floors) :]
    return scalarizing.scores(np.vstack((volumes, hopes, hopes)))
