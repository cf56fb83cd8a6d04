"""A strategy between ask and tell: its state, what is in flight, and the results that the state
does not contain yet.

A refit costs more than a pick, and one more result changes little when there are hundreds. So
results are collected, remain pending for the strategy, and are learned together at the next `ask`
at which their number makes a refit due.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from orchestrator.bandit.model.model import model_of, scores_among
from orchestrator.bandit.observations import arms_and_rewards
from orchestrator.bandit.strategy import (
    Choose,
    Observation,
    Posterior,
    Recommends,
    Record,
    S,
    Strategy,
    is_grown,
    refresh_growth,
)


class Learner(Generic[S]):
    """The `state` of a strategy; `learned` is called after each `tell` that it learned."""

    def __init__(self, strategy: Strategy[S], state: S, seed: int, learned: Callable[[], None] | None = None) -> None:
        self.strategy, self.state = strategy, state
        self.open: list[int] = []  # arms of pulls that `state` does not contain, in the order they were chosen
        self.unlearned: list[Observation] = []  # those of them whose results are known
        self._open_count: Counter[int] = Counter()  # by arm: how often it is in `open`
        self._result_count: Counter[int] = Counter()  # by arm: how often it is in `unlearned`
        self._sums: dict[int, tuple[float, ...]] = {}  # of the rewards of arms in `unlearned`, with those in `state`
        self._seed, self._learned = seed, learned
        self._growth = refresh_growth(strategy)
        self._has_failure = False  # whether one of `unlearned` has no reward
        self._view: S | None = None  # the state with `unlearned`, once it was computed

    @property
    def pending(self) -> list[int]:
        """Arms of pulls without a result, in order."""
        results = self._result_count.copy()
        waiting = []
        for arm in self.open:
            if results[arm]:
                results[arm] -= 1
            else:
                waiting.append(arm)
        return waiting

    def is_running(self, arm: int) -> bool:
        """Return whether a pull of `arm` has no result yet."""
        return self._open_count[arm] > self._result_count[arm]

    @property
    def is_due(self) -> bool:
        """Whether to learn before choosing more: results have grown, or an evaluation failed."""
        waiting = len(self.unlearned)
        if not waiting or self._has_failure:
            return bool(waiting)
        return is_grown(self._growth, waiting, self.state.pulls.total, len(self.open) - waiting)

    def ask(self, limit: int, skip: int = 0) -> list[int]:
        """Return at most `limit` arms to pull, which are open from now on; none if the strategy
        waits for pending ones.

        `skip`: so many arms are chosen before them and left to others.
        """
        if self.is_due:
            self.learn()
        arms = self._choose(skip + limit)
        if not arms and self.unlearned:
            self.learn()
            arms = self._choose(skip + limit)
        arms = arms[skip:]
        self.expect(arms)
        return arms

    def expect(self, arms: Sequence[int]) -> None:
        """Count these arms as pulled, without a result, from now on."""
        self.open.extend(arms)
        self._open_count.update(arms)

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take results, to be learned. Raises ValueError when a reward or sum is not finite."""
        self._sums |= self._sums_with(observations)
        for result in observations:
            self._result_count[result.arm] += 1
            if self._result_count[result.arm] > self._open_count[result.arm]:
                self.expect((result.arm,))  # `ask` did not give it: a result from elsewhere
                result = replace(result, is_existing=True)
            self.unlearned.append(result)
            self._has_failure |= result.reward is None
        self._view = None

    def learn(self) -> None:
        """Let the strategy learn all results."""
        self.take(self.view)
        if self._learned is not None:
            self._learned()

    def take(self, state: S) -> None:
        """Continue from `state`, which contains all results."""
        self.state, self.open, self.unlearned, self._view = state, self.pending, [], None
        self._open_count, self._result_count, self._sums = Counter(self.open), Counter(), {}
        self._has_failure = False

    def change(self, state: S) -> None:
        """Continue from `state`, which has other arms and no further results."""
        self.state, self._view = state, None

    def restore(self, record: Record) -> None:
        """Learn all results as `record` says, without drawing or fitting anything."""
        self.take(self.strategy.restore(self.before, tuple(self.unlearned), record))

    @property
    def before(self) -> S:
        """The state that the strategy's next `tell` continues."""
        return self.state

    @property
    def view(self) -> S:
        """The state with all results; reading it changes nothing."""
        if not self.unlearned:
            return self.state
        if self._view is None:
            rng = np.random.default_rng([self._seed, 1, self.state.round])
            self._view = self.strategy.tell(self.before, tuple(self.unlearned), rng)
        return self._view

    @property
    def posterior(self) -> Posterior:
        """Mean, variance and upper bound of all arms (n,), with all results learned."""
        return self.strategy.posterior(self.view)

    def scores(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `rewards` (n,) as the model uses them: as scores among the results under a
        calibrated model, else unchanged. Raises ValueError before any result."""
        if self.view.pulls.total == 0:
            raise ValueError("scores needs at least one result; call ask, evaluate, and call tell first")
        return scores_among(self.view.pulls, model_of(self.strategy), rewards)

    def best(self) -> tuple[int, float]:
        """Return the arm to recommend, of those with a final reward, and the mean of its rewards;
        there must be one.

        The one with the largest mean reward, unless the strategy recommends another because rewards
        are noisy.
        """
        pulls = self.view.pulls
        arms = pulls.finished_arms
        means = pulls.reward_sums[arms] / pulls.counts[arms]
        arm = self.strategy.recommend(self.view) if isinstance(self.strategy, Recommends) else None
        position = int(np.argmax(means)) if arm is None else int(np.searchsorted(arms, arm))
        return int(arms[position]), float(means[position])

    def _choose(self, limit: int) -> list[int]:
        decision = self.strategy.ask(self.state, tuple(self.open), limit)
        return [pick.arm for pick in decision.picks] if isinstance(decision, Choose) else []

    def _sums_with(self, observations: Sequence[Observation]) -> dict[int, tuple[float, ...]]:
        """Return the sums of the rewards of the arms in `observations`, these included, of every
        objective and constraint. Raises ValueError when one is not finite."""
        arms_and_rewards(observations)
        sums: dict[int, tuple[float, ...]] = {}
        for arm, reward, further in ((result.arm, result.reward, result.further) for result in observations):
            if reward is not None:
                before = sums.get(arm) or self._sums.get(arm) or self._learned_sums(arm)
                sums[arm] = tuple(sum(pair) for pair in zip(before, (reward, *further), strict=True))
                if not all(map(math.isfinite, sums[arm])):
                    raise RewardSumError(arm)
        return sums

    def _learned_sums(self, arm: int) -> tuple[float, ...]:
        return tuple(float(output.reward_sums[arm]) for output in self.state.pulls.outputs)


class RewardSumError(ValueError):
    """The rewards of an arm add up to more than a float can hold."""

    def __init__(self, arm: int) -> None:
        super().__init__(f"the rewards of arm {arm} add up to more than a float can hold; divide all by a constant")
        self.arm = arm
