"""Trainings in steps between ask and tell: their curves, which are stopped, and which may be
continued."""

from collections.abc import Callable, Sequence

from orchestrator.ask_tell.learner import Learner
from orchestrator.bandit.curves import TrialCurve
from orchestrator.bandit.strategy import LearnsCurves, Observation, S, Strategy
from orchestrator.campaign.trainings import curves as facts
from orchestrator.campaign.trainings.first import first_steps_without_budget
from orchestrator.campaign.trainings.model_rule import TrainingRule
from orchestrator.campaign.trainings.rule import EarlyStopping, StopCause
from orchestrator.campaign.trainings.rungs import Rungs, StoppingRule

STOPPED_FROM = 3  # the first step at which trials are paused or compared


class Trainings:
    """The trials that run or are paused, one for each arm, numbered in the order in which they
    began.

    `last_step` is the step at which a training ends; None: no trial is stopped by a rule. With
    `pauses` every trial is stopped at ½, ¼, … of it, else those that are worse than the median.
    """

    def __init__(self, last_step: int | None = None, first_trials: int = 0, pauses: bool = False) -> None:
        self.last_step = last_step
        self.curves: dict[int, TrialCurve] = {}  # of open trials, and of ended ones that are not learned yet
        self.paused: set[int] = set()
        self._trial_of: dict[int, int] = {}  # by arm, the trial that runs or is paused
        self._count = 0
        self._continued: set[int] = set()
        self._rungs = Rungs()
        if pauses:
            self._stopping = StoppingRule.pauses(STOPPED_FROM, last_step)
        else:
            self._stopping = StoppingRule.median(STOPPED_FROM)
        rule = TrainingRule(
            first_trials=first_trials,
            first_steps=first_steps_without_budget(last_step, pauses),
            last_step=last_step,
        )
        self._rules = EarlyStopping(self._stopping, rule)

    def begin(self, arm: int) -> None:
        """The arm is trained from now on: a new trial, or its paused one."""
        trial = self._trial_of.get(arm)
        if trial is None:
            self._trial_of[arm] = self._count
            self._count += 1
        elif trial in self.paused:
            self.paused.discard(trial)
            self._continued.add(trial)
            self._rungs = self._rungs.after_continuing([trial])

    def step(self, arm: int) -> int:
        """Return the latest step of the arm's open trial; 0 when there is none."""
        trial = self._trial_of.get(arm)
        return 0 if trial is None or trial not in self.curves else self.curves[trial].step

    def last_reward(self, arm: int) -> float | None:
        """Return the latest finite reward of the arm's open trial; None when there is none."""
        if not self.step(arm):
            return None
        return self.curves[self._trial_of[arm]].rewards[-1]

    def report(self, arm: int, step: int, reward: float) -> None:
        """The arm's trial has this reward at a step; not finite: it diverged."""
        self.begin(arm)
        trial = self._trial_of[arm]
        curve = self.curves.get(trial) or TrialCurve(trial, arm)
        self.curves[trial] = curve.after(step, reward)
        if self.last_step is not None:
            self._rungs = self._rungs.after(self._stopping, trial, step, reward)

    def cause_of_stop(self, arm: int, is_hopeless: Callable[[int], bool]) -> StopCause | None:
        """Return why the arm's trial is stopped after what it reported; None: it goes on.

        `is_hopeless` says of a trial whether even its optimistic forecast is worse than the best
        reward.
        """
        trial = self._trial_of[arm]
        if self.last_step is None or self.curves[trial].step >= self.last_step:
            return None
        known = facts.Trainings(curves=self.curves, continued=frozenset(self._continued), rungs=self._rungs)
        return self._rules.cause_of_stop(known, trial, is_hopeless)

    def pause(self, arm: int) -> None:
        """The arm's trial has stopped, and may be continued."""
        self.paused.add(self._trial_of[arm])

    def end(self, arm: int, reward: float | None = None) -> None:
        """The arm's trial has ended, with a final reward or without one."""
        trial = self._trial_of.pop(arm, None)
        if trial is None:
            return
        self.paused.discard(trial)
        self._rungs = self._rungs.without(trial)
        if reward is not None and trial in self.curves:
            self.curves[trial] = self.curves[trial].end(reward)

    def fail(self, arm: int) -> None:
        """The arm's trial could not be evaluated; its curve is not learned."""
        self.curves.pop(self._trial_of.get(arm, -1), None)
        self.end(arm)

    @property
    def paused_arms(self) -> list[int]:
        """The arms whose trials are paused, the longest trained first."""
        arms = [arm for arm, trial in self._trial_of.items() if trial in self.paused]
        return sorted(arms, key=lambda arm: -self.step(arm))

    def mark_learned(self) -> None:
        """Note that the strategy has learned all curves: those of ended trials are not needed any more."""
        open_trials = set(self._trial_of.values())
        self.curves = {trial: curve for trial, curve in self.curves.items() if trial in open_trials}


class CurveLearner(Learner[S]):
    """A learner that lets the strategy learn what pulls report before their end."""

    def __init__(
        self, strategy: Strategy[S], state: S, seed: int, learned: Callable[[], None], trainings: Trainings
    ) -> None:
        super().__init__(strategy, state, seed, learned)
        self.trainings = trainings

    def expect(self, arms: Sequence[int]) -> None:
        """These arms are pulled from now on; a paused trial of one of them is continued."""
        super().expect(arms)
        for arm in arms:
            self.trainings.begin(arm)

    def report(self, arm: int, step: int, reward: float) -> None:
        """The pull of `arm` has this reward at a step before its end."""
        if not self.is_running(arm):
            self.expect((arm,))  # `ask` did not give it
        self.trainings.report(arm, step, reward)
        self._view = None

    def stop(self, arm: int, continues: bool) -> None:
        """Note that the pull of `arm` was stopped early; `continues`: it may be continued."""
        reward = self.trainings.last_reward(arm)
        if self.is_running(arm):
            self.tell([Observation(arm, reward, is_stopped=True)])
        if continues and reward is not None:
            self.trainings.pause(arm)
        else:
            self.trainings.end(arm)
        self._view = None

    def tell(self, observations: Sequence[Observation]) -> None:
        """Tell the strategy results, as `Learner` does; ends the trainings of these arms."""
        super().tell(observations)
        for observation in observations:
            if observation.reward is None:
                self.trainings.fail(observation.arm)
            elif not observation.is_stopped:
                self.trainings.end(observation.arm, observation.reward)

    def take(self, state: S) -> None:
        """Continue from the strategy's `state`, as `Learner` does; it has learned all curves."""
        super().take(state)
        self.trainings.mark_learned()

    @property
    def before(self) -> S:
        """The state with the curves of all trials that run, are paused, or have ended."""
        trainings, strategy = self.trainings, self.strategy
        if not trainings.curves or not isinstance(strategy, LearnsCurves):
            return self.state
        curves = tuple(trainings.curves.values())
        state: S = strategy.with_curves(self.state, curves, sorted(trainings.paused), trainings.last_step)
        return state
