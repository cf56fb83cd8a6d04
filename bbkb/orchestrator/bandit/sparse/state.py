"""The state of a strategy with a sparse posterior, which is derived from the state once, when it is needed:
the data to which it is fitted (`Knowledge`), and the calibrated model with its record.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from bbkb.orchestrator.bandit.arms import Layout
from bbkb.orchestrator.bandit.arrays import Floats, Indices, Recent, freeze, read_only, same
from bbkb.orchestrator.bandit.curves import Curves, CurveValues
from bbkb.orchestrator.bandit.goals import SINGLE, Goals
from bbkb.orchestrator.bandit.model.curve_kernel import CurveNumbers
from bbkb.orchestrator.bandit.model.fitting import Fitted
from bbkb.orchestrator.bandit.model.outputs import Scale, mean_rewards
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import CurveUpdate, Turn
from bbkb.orchestrator.bandit.sparse.curve_fit import (
    CurveEvidence,
    TrialPredictions,
    fit_evidence,
    predict,
    predict_unlearned,
)
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel, SparsePosterior
from bbkb.orchestrator.bandit.strategy import (
    ALL_CHOSEN,
    Observation,
    Prospect,
    Record,
    Wait,
    arms_and_rewards,
    check_arms,
    further_rewards,
    with_set_aside,
)

CHECKED_FROM = 16  # the number of results before the first prediction
CHECKED_WIDTH = 2.0  # standard deviations
# the prior median of the noise variance of a score, whose prior variance is 1
NEGLIGIBLE_NOISE = 0.05

# returns mean and variance of arms on the 1/λ scale
Belief = Callable[[Indices], tuple[Floats, Floats]]


@dataclass(frozen=True)
class Calibration:
    """The calibrated model of a state."""

    fitted: Fitted  # the fitted numbers
    inside: int = 0  # the number of predicted results within μ ± 2σ, including noise
    predicted: int = 0  # the number predicted before the model learned them

    def recorded(self) -> Record:
        """Return the calibration as plain values for JSON."""
        curve = self.fitted.curve
        return {
            "lengthscales": list(self.fitted.lengthscales),
            "noise": self.fitted.noise,
            "results": self.fitted.results,
            "inside": self.inside,
            "predicted": self.predicted,
            **({} if curve is None else {"curve": curve.recorded(), "curve_trials": self.fitted.curve_trials}),
        }

    @staticmethod
    def from_record(record: Record) -> "Calibration":
        """Return the calibration that `recorded` wrote."""
        lengthscales = tuple(float(scale) for scale in record["lengthscales"])
        curve = CurveNumbers.from_record(record["curve"]) if "curve" in record else None
        trials = int(record.get("curve_trials", 0))
        fitted = Fitted(lengthscales, float(record["noise"]), int(record["results"]), curve, trials)
        return Calibration(fitted, int(record["inside"]), int(record["predicted"]))


def is_noisy(fitted: Fitted) -> bool:
    """Return whether the noise is so large that it may explain the best mean reward."""
    return fitted.results > 0 and fitted.noise > NEGLIGIBLE_NOISE


def has_known_noise(pulls: Pulls) -> bool:
    """Return whether some result has a known deviation above 0."""
    return pulls.noise is not None and pulls.noise.count > 0


# the largest number of learning-curve values in a fit, besides the latest value of each trial
MOST_CURVE_VALUES = 6000
# the number of neighbors that decide whether a failed or absurd arm counts
NEIGHBORS = 5
# a mean reward is absurd if it is this many times as far below the median as the best one is above it and the
# lower quartile is below it
ABSURD = 30.0
ALIKE = 0.5  # the least likeness of neighbors that show that an absurd arm is an exception


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """A model, the results to which it is fitted, and its dictionary. See `SparseState`."""

    model: SparseModel
    pulls: Pulls
    dictionary: Indices
    calibration: Calibration | None
    goals: Goals
    failed: Indices
    curves: Curves
    outside: Indices

    @cached_property
    def posterior(self) -> SparsePosterior:
        """The posterior, fitted to `curve_evidence`, or to `evidence` if the model has no steps."""
        if self.curve_evidence is not None:
            return fit_evidence(self.model, self.curve_evidence, self.dictionary)
        return self.model.fit(self.evidence, self.dictionary)

    @cached_property
    def evidence(self) -> Pulls:
        """The pulls to which the model is fitted: `pulls`, without absurd ones amid good arms, and, for
        each arm that failed like its neighbors, one pull with the worst mean rewards so far. The search
        then leaves a region of failures. A single failed arm has no effect on others."""
        absurd = self._absurd_amid_good_ones()
        pulls = self.pulls.without(absurd) if len(absurd) else self.pulls
        arms = self._failed_with_neighbors()
        if not len(arms):
            return pulls
        worst, *further = (mean_rewards(output).min(initial=np.inf) for output in pulls.outputs)
        if not np.isfinite(further).all():  # an output without a value so far
            return pulls
        return pulls.add(arms, np.full(len(arms), worst), np.tile(further, (len(arms), 1)))

    @cached_property
    def curve_evidence(self) -> CurveEvidence | None:
        """The values to which the model over steps is fitted; None if the model has no steps."""
        if self.calibration is None or self.calibration.fitted.curve is None:
            return None
        return self.make_curve_evidence()

    def make_curve_evidence(self) -> CurveEvidence:
        """Return the values for a model over steps.

        Results without a curve count as values at the last step. These are existing data, and arms
        that failed like their neighbors, which have the worst value.
        """
        failed = self._failed_with_neighbors()
        with_curve = np.array([curve.arm for curve in self.curves.trials], np.intp)
        arms = np.setdiff1d(self.pulls.arms, with_curve)
        means = self.pulls.reward_sums[arms] / self.pulls.counts[arms]
        learned = self.curves.learned
        latest = np.concatenate(([curve.rewards[-1] for curve in learned.trials], means))
        worst = np.full(len(failed), latest.min(initial=np.inf))
        weights = np.concatenate((self.pulls.counts[arms].astype(np.float64), np.ones(len(failed))))
        arms = np.concatenate((arms, failed))
        rewards = np.concatenate((means, worst))
        values = CurveValues.of(learned.within(MOST_CURVE_VALUES), arms, rewards, weights)
        scale = Scale(latest, self.model.outputs)
        return CurveEvidence(values, self.model.arms[values.arms], scale)

    @cached_property
    def learns_curves(self) -> bool:
        """Whether there is a value before the last step that the model can learn. This requires the
        fitted calibrated model, a single objective without constraints, and no known deviations."""
        is_calibrated = self.calibration is not None and self.pulls.noise is None
        return is_calibrated and self.goals.is_single and self.curves.is_informative

    def predictions(self, trials: Sequence[int]) -> TrialPredictions | None:
        """Return the predicted final values of those of the given trials that have reported; None
        if the model has no steps."""
        evidence = self.curve_evidence
        if evidence is None:
            return None
        numbers = evidence.values.trials
        at = np.flatnonzero(np.isin(numbers, np.array(trials, np.intp)) & (numbers >= 0))
        predictions = predict(self.posterior, evidence, at)
        by_trial = self.curves.by_trial
        unlearned = (by_trial.keys() - self.curves.learned.by_trial.keys()).intersection(trials)
        if not unlearned:
            return predictions
        curves = [by_trial[trial] for trial in unlearned]
        return predictions.merged(predict_unlearned(self.posterior, evidence, curves))

    @cached_property
    def scale(self) -> Scale:
        """The map from mean rewards to scores."""
        return Scale(mean_rewards(self.evidence), self.model.outputs)

    @cached_property
    def best_score(self) -> float:
        """The score of the best mean reward; if rewards are noisy, the best posterior mean of a
        pulled arm. Arms `outside` count only if there are no others."""
        arms = self.pulls.arms
        counted = ~np.isin(arms, self.outside) if len(self.outside) else np.ones(len(arms), np.bool_)
        counted |= not counted.any()
        if self.calibration is not None and (is_noisy(self.calibration.fitted) or has_known_noise(self.pulls)):
            return float(self.posterior.moments(arms[counted])[0].max()) + self.posterior.fit.offset
        return float(self.scale.scores(mean_rewards(self.pulls))[counted].max())

    @property
    def has_fit(self) -> bool:
        """Whether the calibrated model was fitted to results."""
        return self.calibration is not None and self.calibration.fitted.results > 0

    @property
    def has_prospect(self) -> bool:
        """Whether `prospect` can be computed, which is not the case before the first fit of the
        model, with several objectives or with learning curves."""
        return self.has_fit and self.goals.is_single and self.curve_evidence is None

    def prospect(self, bound: float) -> Prospect:
        """Return the expected benefit of further evaluations, given the largest upper bound on a
        score. Requires `has_prospect`."""
        best = self.best_score
        scores = np.array([best, max(best, bound), best + np.sqrt(self.model.regularization)])
        rewards = self.scale.rewards(scores)
        return Prospect(gain=float(rewards[1] - rewards[0]), noise=float(rewards[2] - rewards[0]))

    def _absurd_amid_good_ones(self) -> Indices:
        """Return the arms whose mean rewards are absurdly low, although most of their nearest evaluated
        arms are like them and at least as good as the median. A diverged training or a faulty measurement
        then does not hide the good configurations around it, and a region of such values is learned as
        soon as several are neighbors. Only the fitted model with a single objective has exceptions."""
        arms = self.pulls.arms
        if not self.has_fit or not self.goals.is_single or not len(arms):
            return arms[:0]
        means = mean_rewards(self.pulls)
        median = np.median(means)
        shortfalls = median - means
        usual = -shortfalls.min()
        if shortfalls.max() / ABSURD <= usual:  # almost always; the quantile takes as long as all the rest
            return arms[:0]
        usual = max(usual, np.quantile(shortfalls, 0.75))
        absurd: Indices = arms[shortfalls / ABSURD > usual]
        if not len(absurd):
            return absurd
        nearest, likeness = self._nearest(absurd, arms)
        is_good = (likeness >= ALIKE) & (means[nearest] >= median)
        exceptions: Indices = absurd[np.count_nonzero(is_good, axis=1) > NEIGHBORS // 2]
        return exceptions

    def _failed_with_neighbors(self) -> Indices:
        """Return the arms that always failed, like most of their nearest evaluated arms."""
        arms = np.setdiff1d(self.failed, self.pulls.arms, assume_unique=True)
        if not len(arms) or not self.pulls.total:
            return arms[:0]
        nearest, _ = self._nearest(arms, np.concatenate((arms, self.pulls.arms)))
        among_failed: Indices = arms[np.count_nonzero(nearest < len(arms), axis=1) > NEIGHBORS // 2]
        return among_failed

    def _nearest(self, arms: Indices, evaluated: Indices) -> tuple[Indices, Floats]:
        """Return the positions in `evaluated` of the nearest other arms of each of `arms` (n,), the nearest
        first, and their covariance with it: (n, k) with k ≤ `NEIGHBORS`."""
        features = self.model.arms
        likeness = self.model.kernel.cross(features[arms], features[evaluated])
        likeness[arms[:, None] == evaluated] = -np.inf
        nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :NEIGHBORS]
        return nearest, np.take_along_axis(likeness, nearest, axis=1)


# the number of picks after a rise of the best mean reward that all explore
PATIENCE = 150
# the smallest significant rise of the best mean reward, as a share of (best − median)
LEAST_RISE = 0.02
# the log density of the user's prior is added to scores with this number as its weight after the first result, which
# is divided by the number of results
PRIOR_RESULTS = 10.0
# the preference of the center is added unchanged up to the first number of results, and not at all from the second on
CENTRAL_RESULTS = 10
LAST_CENTRAL = 100
# a lower bound on the log density, no matter how far an arm is from the expected values
LEAST_PRIOR = -2.0


def _no_numbers() -> Indices:
    return read_only((), np.intp)


@dataclass(frozen=True)
class Peak:
    """The last rise of the best mean reward."""

    reward: float = -np.inf  # the best mean reward at the rise
    results: int = 0  # the number of results at the rise
    # the largest (best − median) of the mean rewards so far, because the present one decreases
    # while a search converges
    spread: float = 0.0

    def after(self, pulls: Pulls) -> "Peak":
        """Return the peak after all `pulls`. Rises below `LEAST_RISE` spreads are ignored."""
        if not len(pulls.arms):
            return self
        means = mean_rewards(pulls)
        best = float(means.max())
        spread = max(self.spread, best - float(np.median(means)))
        if best > self.reward + LEAST_RISE * spread:
            return Peak(best, pulls.total, spread)
        return replace(self, spread=spread)

    def explorations(self, picks: int) -> int:
        """Return how many of the first `picks` picks explore: all of them until `PATIENCE` = N picks
        after the rise, and N (1 + log(k/N)) of k picks after it."""
        after = picks - self.results
        return picks if after <= PATIENCE else self.results + int(PATIENCE * (1.0 + math.log(after / PATIENCE)))


@dataclass(frozen=True, eq=False)
class CurveState:
    """The learning curves of the trials, and the paused trials."""

    known: Curves = field(default_factory=Curves)  # the curves that the posterior has learned
    # the curves that the next `tell` learns; None if they are the known ones
    unlearned: Curves | None = None
    # trials that were stopped and can be continued, ascending
    paused: Indices = field(default_factory=_no_numbers)
    compete: Turn = Turn.BY_BOUND

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    def learn(self) -> "CurveState":
        """Return the state after a `tell` has learned the pending curves."""
        return self if self.unlearned is None else replace(self, known=self.unlearned, unlearned=None)


@dataclass(frozen=True, eq=False)
class SparseState:
    """The state of BBKB and similar strategies. All arrays are read-only."""

    model: SparseModel  # kernel, candidates and λ
    pulls: Pulls  # the pulls with a reward
    # (m,), the inducing arms, ascending
    dictionary: Indices = field(default_factory=_no_numbers)
    information_gain: float = 0.0  # G of the confidence width
    round: int = 0  # the number of `tell`s
    initial: tuple[int, ...] = ()  # the warm start's arms, in order
    # arms that could not be evaluated, and those that were retired, ascending
    set_aside: Indices = field(default_factory=_no_numbers)
    # arms set aside from the start, because the search may not choose them: only their results count, ascending
    outside: Indices = field(default_factory=_no_numbers)
    # the relation between features and parameters; None if it is unknown
    layout: Layout | None = None
    # the calibration of the model; None if the model is not calibrated
    calibration: Calibration | None = None
    goals: Goals = SINGLE  # the objectives and constraints of a pull's rewards
    # arms that could not be evaluated, ascending; empty if the strategy does not learn from them
    failed: Indices = field(default_factory=_no_numbers)
    curve_state: CurveState = field(default_factory=CurveState)
    grown_at: int = 0  # the number of pulls when arms were last appended
    peak: Peak = field(default_factory=Peak)
    # (A,), the expected quality of each arm, or the preference of the center, see `Arms` and `Layout`; or None
    log_prior: Floats | None = None
    # the `knowledge` of another state that differs only in irrelevant values
    shared: InitVar[Knowledge | None] = None

    def __post_init__(self, shared: Knowledge | None) -> None:
        if shared is not None:
            object.__setattr__(self, "knowledge", shared)

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @classmethod
    def of(cls, base: "SparseState", **further: Any) -> Self:
        """Return the state of a subclass with the fields of `base` and its `further` fields."""
        return cls(**{one.name: getattr(base, one.name) for one in fields(base)}, **further)

    @cached_property
    def knowledge(self) -> Knowledge:
        """The part of the state that determines the posterior."""
        return Knowledge(
            model=self.model,
            pulls=self.pulls,
            dictionary=self.dictionary,
            calibration=self.calibration,
            goals=self.goals,
            failed=self.failed,
            curves=self.curve_state.known,
            outside=self.outside,
        )

    @property
    def posterior(self) -> SparsePosterior:
        """The fit to the evidence and `dictionary`, shared by `ask`, `tell` and `posterior`."""
        return self.knowledge.posterior

    @property
    def evidence(self) -> Pulls:
        """See `Knowledge.evidence`."""
        return self.knowledge.evidence

    @property
    def curve_evidence(self) -> CurveEvidence | None:
        """See `Knowledge.curve_evidence`."""
        return self.knowledge.curve_evidence

    @cached_property
    def paused_predictions(self) -> TrialPredictions | None:
        """The predicted final values of all paused trials; None if there are none."""
        paused = self.curve_state.paused
        return self.knowledge.predictions(paused.tolist()) if len(paused) else None

    def with_curves(self, update: CurveUpdate) -> Self:
        """Return the state with these curves in place of the known ones of the same trials, and
        with these paused trials.

        The next `tell` learns the curves. Until then, the posterior remains unchanged.
        """
        before = self.curve_state.unlearned or self.curve_state.known
        curve_state = replace(
            self.curve_state,
            unlearned=before.updated(update.curves, update.last_step, update.learned_from),
            paused=read_only(sorted(update.paused), np.intp),
            compete=update.compete,
        )
        return replace(self, curve_state=curve_state, shared=self.knowledge)

    @cached_property
    def repeats(self) -> bool:
        """Whether an arm may be pulled again for a better estimate; the calibrated model repeats none if rewards
        are deterministic."""
        if self.layout is None or not self.layout.repeats:
            return self.layout is None
        return self.calibration is None or not self.is_deterministic

    @cached_property
    def is_deterministic(self) -> bool:
        """Whether equal arms have equal rewards: as declared, or as repeated pulls have shown."""
        declared = None if self.layout is None else self.layout.is_deterministic
        return self.pulls.looks_deterministic if declared is None else declared

    def blocked_arms(self, pending: Sequence[int] = ()) -> Indices:
        """Return the arms that may not be chosen, ascending: those set aside and, if arms do not
        repeat, those that were pulled or are `pending`."""
        if self.repeats and not len(self.curve_state.paused):
            return self.set_aside
        if self.repeats:  # a stopped trial is continued; its configuration is not restarted
            curves = self.curve_state.known.by_trial
            paused = [curves[trial].arm for trial in self.curve_state.paused.tolist() if trial in curves]
            return np.union1d(self.set_aside, np.array(paused, np.intp))
        return self._chosen.get(tuple(pending), lambda: self._chosen_with(pending))

    def _chosen_with(self, pending: Sequence[int]) -> Indices:
        is_chosen = np.zeros(len(self.model.arms), np.bool_)
        for arms in (self.set_aside, self.pulls.arms, np.array(pending, np.intp)):
            is_chosen[arms] = True
        return freeze(np.flatnonzero(is_chosen))

    @cached_property
    def _chosen(self) -> Recent[tuple[int, ...], Indices]:
        """The arms set aside, pulled or pending, for the last pending pulls and for none: each `ask` needs both
        several times."""
        return Recent(2)

    def picks_left(self, pending: Sequence[int], limit: int) -> int:
        """Return the largest number of picks: `limit`, or all remaining arms if none repeats."""
        return limit if self.repeats else min(limit, len(self.model.arms) - len(self.blocked_arms(pending)))

    @cached_property
    def available(self) -> Indices:
        """The arms that may be chosen if no pull is pending, ascending."""
        return np.setdiff1d(np.arange(len(self.model.arms)), self.blocked_arms(), assume_unique=True)

    def picks_before(self, open_pulls: int) -> int:
        """Return the number of picks before the next one: results, failures and open pulls."""
        return self.pulls.total + len(self.failed) + open_pulls

    @cached_property
    def _start_left(self) -> list[int]:
        return self._start_without(())

    def remaining_start(self, pending: Sequence[int] = ()) -> list[int]:
        """Return the warm start's arms not learned, pending or set aside, in order."""
        return self._start_without(pending) if self._start_left else []

    def _start_without(self, pending: Sequence[int]) -> list[int]:
        pulls = Counter({arm: int(self.pulls.counts[arm]) for arm in self.initial}) + Counter(pending)
        pulls.update({arm: len(self.initial) for arm in self.set_aside.tolist()})
        remaining = []
        for arm in self.initial:
            if pulls[arm]:
                pulls[arm] -= 1
            else:
                remaining.append(arm)
        return remaining

    def extend(self, features: Floats, retired: Sequence[int] = (), log_prior: Floats | None = None) -> Self:
        """Return the state with n ≥ 0 new arms appended, and with the `retired` arms set aside. New arms among
        them are `outside`.

        `features` (n, d) and `log_prior` (n,) belong to the new arms. Raises ValueError if features
        are not finite, or d differs from that of the existing arms.
        """
        aside = np.array(retired, np.intp)
        set_aside = read_only(np.union1d(self.set_aside, aside), np.intp)
        outside = read_only(np.union1d(self.outside, aside[aside >= len(self.model.arms)]), np.intp)
        after = replace(self, set_aside=set_aside, outside=outside, grown_at=self.pulls.total)
        if not len(features):
            return after
        if self.log_prior is not None and log_prior is not None:
            after = replace(after, log_prior=read_only(np.concatenate((self.log_prior, log_prior)), np.float64))
        checked = check_arms(features)
        return replace(after, model=self.model.extend(checked), pulls=self.pulls.extend(len(features)))

    @property
    def prefers_center(self) -> bool:
        """See `Layout`."""
        return self.layout is not None and self.layout.prefers_center

    @cached_property
    def prior_bonus(self) -> Floats | None:
        """The user's expectation as an addend to each score (A,), at most 0. It decays with the
        number of results. Without an expectation, the center of a space is preferred at first."""
        if self.log_prior is None or not self.goals.is_single:
            return None
        if self.prefers_center:
            results = max(self.pulls.total, CENTRAL_RESULTS)
            return CENTRAL_RESULTS / results * self.log_prior if results < LAST_CENTRAL else None
        return PRIOR_RESULTS / max(self.pulls.total, 1) * np.maximum(self.log_prior, LEAST_PRIOR)

    def observe(self, observations: Sequence[Observation]) -> Self:
        """Return the state of the next round with these pulls and set-aside arms; no draws."""
        pulled = [observation for observation in observations if observation.reward is not None]
        further = further_rewards(observations, self.goals.further)
        existing = [observation.is_existing for observation in pulled]
        stopped = [observation.is_stopped for observation in pulled]
        deviations = [observation.deviation for observation in pulled]
        pulls = self.pulls.add(*arms_and_rewards(observations), further, existing, stopped, deviations)
        return replace(
            self,
            pulls=pulls,
            round=self.round + 1,
            set_aside=with_set_aside(self.set_aside, observations),
            curve_state=self.curve_state.learn(),
            peak=self.peak.after(pulls),
        )


def recorded_start(initial: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the recorded arms of the warm start. Raises ValueError if one is not below `count`."""
    arms = tuple(int(arm) for arm in initial)
    if arms and not 0 <= min(arms) <= max(arms) < count:
        raise ValueError(f"a warm start must have arms from 0 to {count - 1}, got {min(arms)} to {max(arms)}")
    return arms


def initial_state(model: SparseModel, initial: tuple[int, ...] = ()) -> SparseState:
    """Return the state before any pull."""
    return SparseState(model, Pulls.none(len(model.arms)), initial=initial)


def no_arm_left(state: SparseState, pending: Sequence[int]) -> Wait | None:
    """Return the result of `ask` if arms do not repeat and no arm is left; otherwise None."""
    if state.repeats or state.picks_left(pending, 1):
        return None
    return Wait(ALL_CHOSEN)


def has_plateau(state: SparseState) -> bool:
    """Return whether the calibrated model cannot learn where rewards are better: at least half of the pulled
    arms have the best mean reward, and not because of noise; or, with several rewards, all pulled arms violate
    a constraint equally."""
    calibration = state.calibration
    if calibration is None or not state.pulls.total:
        return False
    if not state.goals.is_single:
        margins = [mean_rewards(output) for output in state.pulls.outputs[state.goals.objectives :]]
        return any(len(one) > 1 and one.min() == one.max() < 0.0 for one in margins)
    has_noise = not state.is_deterministic and (state.pulls.varies or is_noisy(calibration.fitted))
    means = mean_rewards(state.pulls)
    return not has_noise and bool(np.median(means) == means.max())


def sparse_belief(state: SparseState) -> Belief:
    """Return the belief of the sparse posterior."""

    def moments(arms: Indices) -> tuple[Floats, Floats]:
        mean, variance, _ = state.posterior.moments(arms)
        return mean + state.posterior.fit.offset, variance

    return moments
