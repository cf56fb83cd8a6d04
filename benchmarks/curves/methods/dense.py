"""The dense model of `benchmarks.curves.dense_model` as a search: short first trainings, stopping,
continuing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.curves.dense_model import Dense, Observations, Posterior
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.scores import Scores, score_curves
from benchmarks.curves.simulate import Continue, Start, Suggestion
from objectives.growth import grow, join
from objectives.sampling import make_candidates
from objectives.space import SearchSpace
from orchestrator.campaign.early_stopping import Rungs, StoppingRule

LEARNED = 7  # steps of a curve that are learned besides the latest one, geometric
LEAST_FOR_FIT = 8  # trials
LEAST_FIRST = 8  # short first trainings


@dataclass(frozen=True, kw_only=True)
class DenseOptions:
    """How the dense model searches."""

    # configurations that are trained before the model is used; 0: as many as cost `first_share`
    first: int = 0
    first_steps: int = 6  # steps of each of them, then it is paused: the recorded step nearest to it
    first_share: float = 0.12  # the share of the budget for them where their number is not given
    # `median`, `bounds` (μ + bound_width σ at the end below the best mean) or `none`
    stop: Literal["median", "bounds", "none"] = "median"
    continues: bool = True  # whether paused trials compete with new configurations
    scores: Scores = Scores.REFERENCE  # how values become scores
    terms: str = "ghmr"  # the terms of the kernel
    growth: float = 1.2  # a fit is made when the trials have grown by this factor
    width: float = 2.0  # of the upper bound, in standard deviations
    bound_width: float = 1.0  # of the bound that stops
    finish: int = 0  # this many trials are completed with the last part of the budget


class DenseSearch:
    """A search with the dense model. Trials are arms of a growing list of candidates; each is
    started once."""

    watches = True

    def __init__(self, problem: CurveProblem, seed: int, trainings: int, options: DenseOptions) -> None:
        self._problem, self._options, self._seed = problem, options, seed
        self._space = SearchSpace(problem.space)
        self._pool = problem.arms or make_candidates(dict(problem.space), 512, "sobol", seed)
        self._first_steps = _nearest(problem.steps, options.first_steps)
        each = sum(problem.costs[: problem.steps.index(self._first_steps) + 1])
        share = round(options.first_share * trainings * problem.whole_cost / each)
        self._first_count = options.first or max(LEAST_FIRST, share)
        order = np.random.default_rng([seed, 41]).permutation(len(self._pool))
        self._first = iter((order if problem.arms else np.arange(len(self._pool)))[: self._first_count])
        self._arms: list[int] = []
        self._curves: list[dict[int, float]] = []
        self._running: set[int] = set()
        self._to_finish: set[int] = set()
        self._model = Dense.prior(self._pool.parameter_of)
        self._model = Dense(self._model.log_scales, self._model.log_other, self._pool.parameter_of, options.terms)
        self._fitted_at, self.fits = 0, 0
        self._rule = StoppingRule.median(3)
        self._rungs = Rungs()
        self._left = float(trainings * problem.whole_cost)
        steps = np.unique(np.rint(np.geomspace(1, problem.last_step, LEARNED)).astype(int))
        self._learned = {_nearest(problem.steps, at) for at in steps.tolist()}
        self._checked = {step for step in problem.steps if step in (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36)}

    def suggest(self) -> Suggestion | None:
        arm = next(self._first, None)
        if arm is not None:
            return self._start(int(arm))
        self._refit()
        observed = self._seen()
        if self._options.finish and not self._to_finish:
            self._choose_to_finish(Posterior(self._model, observed))
        for trial in self._to_finish:
            if trial not in self._running and not self._is_finished(trial):
                return self._continue(trial)
        if self._to_finish & self._running:
            return None
        posterior = Posterior(self._model, observed, sorted(self._running))
        started = set(self._arms)
        fresh = np.array([candidate for candidate in range(len(self._pool)) if candidate not in started], np.intp)
        best, bound = -1, -np.inf
        if len(fresh):
            mean, deviation = posterior.of_features(self._pool.features[fresh])
            bounds = mean + self._options.width * deviation
            best, bound = int(fresh[np.argmax(bounds)]), float(bounds.max())
        paused = [
            candidate
            for candidate in range(len(self._arms))
            if candidate not in self._running and not self._is_finished(candidate)
        ]
        if self._options.continues and paused:
            means, deviations = posterior.of_trials(np.array(paused, np.intp))
            upper = means + self._options.width * deviations
            if upper.max() > bound:
                return self._continue(paused[int(np.argmax(upper))])
        return None if best < 0 else self._start(best)

    def report(self, trial: int, step: int, value: float) -> bool:
        self._learn(trial, step, value)
        goes_on = self._goes_on(trial, step)
        if not goes_on:
            self._running.discard(trial)
        return goes_on

    def end(self, trial: int, value: float) -> None:
        self._learn(trial, self._problem.last_step, value)
        self._running.discard(trial)
        self._rungs = self._rungs.without(trial)

    def recommend(self) -> int | None:
        return None

    def _start(self, arm: int) -> Start:
        self._running.add(len(self._arms))
        self._arms.append(arm)
        self._curves.append({})
        return Start(self._pool.parameters(arm))

    def _continue(self, trial: int) -> Continue:
        self._running.add(trial)
        return Continue(trial)

    def _is_finished(self, trial: int) -> bool:
        return self._problem.last_step in self._curves[trial]

    def _learn(self, trial: int, step: int, value: float) -> None:
        self._left -= self._problem.costs[self._problem.steps.index(step)]
        self._curves[trial][step] = value
        self._rungs = self._rungs.after(self._rule, trial, step, value)

    def _goes_on(self, trial: int, step: int) -> bool:
        options = self._options
        if self._to_finish:
            return trial in self._to_finish
        if trial < self._first_count and step <= self._first_steps:
            return step < self._first_steps
        if options.stop == "median":
            return not self._rungs.stops(self._rule, trial)
        if options.stop == "none" or step not in self._checked or not self.fits:
            return True
        posterior = Posterior(self._model, self._seen())
        begun = np.array([begun_trial for begun_trial, values in enumerate(self._curves) if values], np.intp)
        means, deviations = posterior.of_trials(begun)
        place = int(np.flatnonzero(begun == trial)[0])
        return bool(means[place] + options.bound_width * deviations[place] >= means.max())

    def _choose_to_finish(self, posterior: Posterior) -> None:
        """Name the best unfinished trials, once the budget that is left is needed to complete
        them."""
        open_ = [trial for trial, values in enumerate(self._curves) if values and not self._is_finished(trial)]
        if not open_:
            return
        means, _ = posterior.of_trials(np.array(open_, np.intp))
        best = [open_[int(place)] for place in np.argsort(-means)[: self._options.finish]]
        if self._left <= sum(map(self._rest, best)) + len(self._running):
            self._to_finish = set(best)

    def _rest(self, trial: int) -> float:
        latest = max(self._curves[trial], default=0)
        return float(sum(c for s, c in zip(self._problem.steps, self._problem.costs, strict=True) if s > latest))

    def _seen(self, most: int | None = None) -> Observations:
        """What is learned: of every trial the values at geometric steps and the latest one."""
        shown = [{s: v for s, v in values.items() if s in self._learned or s == max(values)} for values in self._curves]
        scored = score_curves(shown, self._options.scores)
        rows = [(trial, step, score) for trial, by_step in enumerate(scored) for step, score in sorted(by_step.items())]
        trial, step, score = (np.array(column) for column in zip(*rows, strict=True))
        time = np.log(step) / np.log(self._problem.last_step)
        return Observations(self._pool.features[self._arms], trial.astype(np.intp), time, score)

    def _refit(self) -> None:
        begun = sum(bool(values) for values in self._curves)
        if begun < max(LEAST_FOR_FIT, self._options.growth * self._fitted_at):
            return
        observed = self._seen()
        self._model = self._model.fit(observed)
        self._fitted_at, self.fits = begun, self.fits + 1
        if self._problem.arms is None:
            self._grow(Posterior(self._model, observed))

    def _grow(self, posterior: Posterior) -> None:
        """Candidates around the best trials and the best candidates, as the product appends
        them."""
        mean, deviation = posterior.of_features(self._pool.features)
        around = np.argsort(-(mean + deviation))[:8].tolist()
        rng = np.random.default_rng([self._seed, 42, self.fits])
        scales = np.exp(self._model.log_scales).tolist()
        grown = grow(self._space, self._pool, around, scales, 128, rng)
        if grown is not None:
            self._pool = join(self._space, self._pool, grown)


def _nearest(steps: Sequence[int], step: int) -> int:
    """The one of `steps` that is nearest to `step`."""
    return min(steps, key=lambda candidate: abs(candidate - step))
