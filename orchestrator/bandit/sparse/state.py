"""The state of a strategy with a sparse posterior; the posterior is derived from it once, when it
is needed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from orchestrator.bandit.arms import Layout
from orchestrator.bandit.arrays import Floats, Indices, read_only, same
from orchestrator.bandit.curves import Curves, CurveValues, TrialCurve
from orchestrator.bandit.goals import SINGLE, Goals
from orchestrator.bandit.model.outputs import Scale, mean_rewards
from orchestrator.bandit.observations import arms_and_rewards, check_arms, further_rewards, with_set_aside
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.sparse.all_arms import PlacedArms
from orchestrator.bandit.sparse.calibrated import Belief, Calibration, is_noisy
from orchestrator.bandit.sparse.curve_fit import CurveEvidence, TrialPredictions, fit_evidence, predict
from orchestrator.bandit.sparse.posterior import SparseModel, SparsePosterior
from orchestrator.bandit.strategy import Observation, Prospect, Wait

# the largest number of values of learning curves in a fit, besides the latest value of each trial
MOST_CURVE_VALUES = 6000
# the smallest rise of the best mean reward that counts, as a share of (best − median)
LEAST_RISE = 0.02
# up to this number of results the log density of the user's prior is added to scores unchanged;
# later it decays
PRIOR_RESULTS = 10.0
# a lower bound on the log density, however far an arm is from the expected values
LEAST_PRIOR = -2.0
# the number of a failed arm's neighbors; the failure counts if most of them failed, too
NEIGHBOURS = 5


@dataclass(frozen=True)
class Peak:
    """The last rise of the best mean reward."""

    reward: float = -np.inf  # the best mean reward at the rise
    results: int = 0  # the number of results at the rise
    # the largest (best − median) of the mean rewards so far, because the present one falls while a
    # search converges
    spread: float = 0.0

    def after(self, pulls: Pulls) -> "Peak":
        """Return the peak after all `pulls`; a rise below `LEAST_RISE` spreads does not count."""
        if not len(pulls.arms):
            return self
        means = mean_rewards(pulls)
        best = float(means.max())
        spread = max(self.spread, best - float(np.median(means)))
        if best > self.reward + LEAST_RISE * spread:
            return Peak(best, pulls.total, spread)
        return replace(self, spread=spread)


@dataclass(frozen=True, eq=False)
class SparseState:
    """The state of BBKB and similar strategies. All arrays are read-only."""

    model: SparseModel  # kernel, candidates and λ
    pulls: Pulls  # the pulls with a reward
    dictionary: Indices  # (m,), the inducing arms, ascending
    information_gain: float  # G of the confidence width
    round: int  # the number of `tell`s
    initial: tuple[int, ...]  # the warm start's arms, in order
    set_aside: Indices  # arms that could not be evaluated, and those that were retired, ascending
    # the relation between features and parameters; None if it is unknown
    layout: Layout | None = None
    # the calibration of the model; None if the model is not calibrated
    calibration: Calibration | None = None
    grown_at: int = 0  # the number of pulls when arms were last appended
    goals: Goals = SINGLE  # the objectives and constraints of a pull's rewards
    # arms that could not be evaluated, ascending, if the strategy learns from them
    failed: Indices = field(default_factory=lambda: read_only((), np.intp))
    curves: Curves = field(default_factory=Curves)  # the learning curves of all trials that reported
    # trials that were stopped and can be continued, ascending
    paused: Indices = field(default_factory=lambda: read_only((), np.intp))
    paused_compete: bool = True  # whether the strategy chooses when they are continued
    told: Curves | None = None  # the curves that the next `tell` learns; None if they are `curves`
    peak: Peak = field(default_factory=Peak)  # when the best mean reward rose last
    # (A,), the user's expectation of each arm's quality, relative to the best; None if there is no
    # expectation
    log_prior: Floats | None = None

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @property
    def arms(self) -> Floats | PlacedArms:
        """The candidates, as an array (A, d) or `PlacedArms`."""
        return self.model.arms

    @cached_property
    def posterior(self) -> SparsePosterior:
        """The fit to `evidence` and `dictionary`, shared by `ask`, `tell` and `posterior`."""
        evidence = self.curve_evidence
        if evidence is not None:
            return fit_evidence(self.model, evidence, self.dictionary)
        return self.model.fit(self.evidence, self.dictionary)

    @cached_property
    def learns_curves(self) -> bool:
        """Whether there is a value before the last step that the model can learn. This requires the
        fitted calibrated model, and one objective without constraints."""
        return self.calibration is not None and self.goals.is_single and self.curves.is_informative

    @cached_property
    def curve_evidence(self) -> CurveEvidence | None:
        """The values to which the model over steps is fitted; None if the model has no steps.

        Results without a curve count as values at the last step. They are existing data, and arms
        that failed like their neighbors, which count with the worst value.
        """
        if self.calibration is None or self.calibration.fitted.curve is None:
            return None
        return self.make_curve_evidence()

    def make_curve_evidence(self) -> CurveEvidence:
        """See `curve_evidence`."""
        failed = self._failed_with_neighbours()
        with_curve = np.array([curve.arm for curve in self.curves.trials], np.intp)
        arms = np.setdiff1d(self.pulls.arms, with_curve)
        means = self.pulls.reward_sums[arms] / self.pulls.counts[arms]
        latest = np.concatenate(([curve.rewards[-1] for curve in self.curves.trials], means))
        worst = np.full(len(failed), latest.min(initial=np.inf))
        weights = np.concatenate((self.pulls.counts[arms].astype(np.float64), np.ones(len(failed))))
        arms = np.concatenate((arms, failed))
        rewards = np.concatenate((means, worst))
        values = CurveValues.of(self.curves.within(MOST_CURVE_VALUES), arms, rewards, weights)
        return CurveEvidence(values, self.model.all_arms.look_up(values.arms), Scale(latest, self.model.outputs))

    def with_curves(
        self, curves: Sequence[TrialCurve], paused: Sequence[int], last_step: int | None = None, *, compete: bool = True
    ) -> Self:
        """Return the state with these curves in place of the present ones, with the paused trials,
        and with whether paused trials compete with new ones.

        The next `tell` learns the curves. Until then the posterior does not change.
        """
        told = (self.told or self.curves).updated(curves, last_step)
        after = replace(self, told=told, paused=read_only(sorted(paused), np.intp), paused_compete=compete)
        for name in ("posterior", "curve_evidence"):
            if name in self.__dict__:
                after.__dict__[name] = self.__dict__[name]
        return after

    def predictions(self, trials: Sequence[int]) -> TrialPredictions | None:
        """Return the predicted final values of the given trials that have reported; None if the
        model has no steps."""
        evidence = self.curve_evidence
        if evidence is None:
            return None
        numbers = evidence.values.trials
        at = np.flatnonzero(np.isin(numbers, np.array(trials, np.intp)) & (numbers >= 0))
        return predict(self.posterior, evidence, at)

    @cached_property
    def paused_predictions(self) -> TrialPredictions | None:
        """`predictions` of all paused trials; None if there are none."""
        return self.predictions(self.paused.tolist()) if len(self.paused) else None

    @cached_property
    def evidence(self) -> Pulls:
        """The pulls to which the model is fitted: `pulls`, and one pull with the worst mean rewards
        so far for each arm that failed like its neighbors, so that the search leaves a region of
        failures. A single failed arm has no effect on others."""
        arms = self._failed_with_neighbours()
        if not len(arms):
            return self.pulls
        worst, *further = (float(mean_rewards(output).min()) for output in self.pulls.outputs)
        return self.pulls.add(arms, np.full(len(arms), worst), np.tile(further, (len(arms), 1)))

    def _failed_with_neighbours(self) -> Indices:
        """Return the arms that always failed, as did most of their `NEIGHBOURS` nearest evaluated
        arms."""
        arms = np.setdiff1d(self.failed, self.pulls.arms, assume_unique=True)
        if not len(arms) or not self.pulls.total:
            return arms[:0]
        evaluated = np.concatenate((arms, self.pulls.arms))
        look_up = self.model.all_arms.look_up
        kernel = self.model.kernel
        likeness = kernel.cross(look_up(arms), look_up(evaluated))
        likeness[np.arange(len(arms)), np.arange(len(arms))] = -np.inf
        nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :NEIGHBOURS]
        failed_near = np.count_nonzero(nearest < len(arms), axis=1)
        among_failed: Indices = arms[failed_near > NEIGHBOURS // 2]
        return among_failed

    @cached_property
    def repeats(self) -> bool:
        """Whether an arm may be pulled more than once.

        With the calibrated model, arms do not repeat if repeated pulls always gave the same reward,
        as long as other arms are left.
        """
        if self.layout is None or not self.layout.repeats:
            return self.layout is None
        teaches_nothing = self.calibration is not None and self.goals.is_single and self.pulls.looks_deterministic
        return not teaches_nothing or len(np.union1d(self.set_aside, self.pulls.arms)) == len(self.model.arms)

    def blocked_arms(self, pending: Sequence[int] = ()) -> Indices:
        """Return arms that may not be chosen, ascending: the arms set aside and, if arms do not
        repeat, also the pulled and `pending` arms."""
        if self.repeats and not len(self.paused):
            return self.set_aside
        if self.repeats:  # a stopped trial is continued instead of starting its configuration again
            arms = [self.curves.by_trial[trial].arm for trial in self.paused.tolist() if trial in self.curves.by_trial]
            return np.union1d(self.set_aside, np.array(arms, np.intp))
        return np.union1d(np.union1d(self.set_aside, self.pulls.arms), np.array(pending, np.intp))

    def picks_left(self, pending: Sequence[int], limit: int) -> int:
        """Return the largest number of picks: `limit`, or the remaining arms if none repeats."""
        return limit if self.repeats else min(limit, len(self.model.arms) - len(self.blocked_arms(pending)))

    @cached_property
    def available(self) -> Indices:
        """Arms that may be chosen with no pull pending, ascending."""
        return np.setdiff1d(np.arange(len(self.model.arms)), self.blocked_arms(), assume_unique=True)

    def remaining_start(self, pending: Sequence[int] = ()) -> list[int]:
        """Return the warm start's arms that are neither learned, pending nor set aside, in
        order."""
        return self._start_without(pending) if self._is_start_left else []

    @cached_property
    def _is_start_left(self) -> bool:
        """Whether the warm start has an arm left if no arm is pending; an upper bound if arms are
        pending."""
        return bool(self._start_without(()))

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
        """Return the state with n ≥ 0 appended arms, which have `features` (n, d) and `log_prior`
        (n,) and no pulls, and with the `retired` arms set aside.

        Raises ValueError if features are not finite, or if d differs from that of the present arms.
        """
        set_aside = read_only(np.union1d(self.set_aside, np.array(retired, np.intp)), np.intp)
        after = replace(self, set_aside=set_aside, grown_at=self.pulls.total)
        if not len(features):
            return after
        if self.log_prior is not None and log_prior is not None:
            after = replace(after, log_prior=read_only(np.concatenate((self.log_prior, log_prior)), np.float64))
        return replace(after, model=self.model.extend(check_arms(features)), pulls=self.pulls.extend(len(features)))

    @cached_property
    def prior_bonus(self) -> Floats | None:
        """The user's expectation as an addend to each score (A,), at most 0. It decays with the
        number of results."""
        if self.log_prior is None or not self.goals.is_single:
            return None
        return PRIOR_RESULTS / max(self.pulls.total, 1) * np.maximum(self.log_prior, LEAST_PRIOR)

    @property
    def has_prospect(self) -> bool:
        """Whether `prospect` is known. It is unknown before the first fit of the model, with
        several objectives, and with learning curves."""
        is_fitted = self.calibration is not None and self.calibration.fitted.results > 0
        return is_fitted and self.goals.is_single and self.curve_evidence is None

    def prospect(self, bound: float) -> Prospect:
        """Return the promise of further evaluations, given the largest upper bound on a score.
        Needs `has_prospect`."""
        best = self.best_score
        rewards = self.scale.rewards(np.array([best, max(best, bound), best + np.sqrt(self.model.regularization)]))
        return Prospect(gain=float(rewards[1] - rewards[0]), noise=float(rewards[2] - rewards[0]))

    @cached_property
    def scale(self) -> Scale:
        """The map from mean rewards to scores."""
        return Scale(mean_rewards(self.evidence), self.model.outputs)

    @cached_property
    def best_score(self) -> float:
        """The score of the best mean reward; if rewards are noisy, the best posterior mean of a
        pulled arm."""
        if self.calibration is not None and is_noisy(self.calibration.fitted):
            return float(self.posterior.moments(self.pulls.arms)[0].max()) + self.posterior.fit.offset
        return float(self.scale.scores(mean_rewards(self.pulls)).max())

    def observe(self, observations: Sequence[Observation]) -> Self:
        """Return the next round's state with these pulls and set-aside arms. Drawn parts do not
        change."""
        pulled = [observation for observation in observations if observation.reward is not None]
        further = further_rewards(observations, self.goals.further)
        existing = [observation.is_existing for observation in pulled]
        stopped = [observation.is_stopped for observation in pulled]
        pulls = self.pulls.add(*arms_and_rewards(observations), further, existing, stopped)
        return replace(
            self,
            pulls=pulls,
            round=self.round + 1,
            set_aside=with_set_aside(self.set_aside, observations),
            curves=self.curves if self.told is None else self.told,
            told=None,
            peak=self.peak.after(pulls),
        )


def initial_state(
    model: SparseModel,
    initial: tuple[int, ...],
    layout: Layout | None = None,
    calibration: Calibration | None = None,
    goals: Goals = SINGLE,
    log_prior: Floats | None = None,
) -> SparseState:
    """Return the state before any pull."""
    nothing = read_only((), np.intp)
    pulls = Pulls.none(len(model.arms), goals.further)
    return SparseState(
        model,
        pulls,
        dictionary=nothing,
        information_gain=0.0,
        round=0,
        initial=initial,
        set_aside=nothing,
        layout=layout,
        calibration=calibration,
        goals=goals,
        log_prior=log_prior,
    )


def no_arm_left(state: SparseState, pending: Sequence[int]) -> Wait | None:
    """Return the answer of `ask` if no arm is left because arms do not repeat; otherwise None."""
    if state.repeats or state.picks_left(pending, 1):
        return None
    return Wait("every arm was chosen once, and none may be evaluated twice")


def sparse_belief(state: SparseState) -> Belief:
    """Return the belief of the sparse posterior."""

    def moments(arms: Indices) -> tuple[Floats, Floats]:
        mean, variance, _ = state.posterior.moments(arms)
        return mean + state.posterior.fit.offset, variance

    return moments
