"""The results of a search as `TrialResult`, on the user's scale."""

from collections.abc import Mapping

from objectives.conditions import Scalar
from orchestrator.ask_tell.memory import ArmResult
from orchestrator.ask_tell.older import Front, SearchResult
from orchestrator.ask_tell.search import Search
from orchestrator.campaign.trial_result import TrialResult, Trials


class Results:
    """The trials of a search. The best trial and the front are determined with the model.

    Args:
        search: the search.
        noun: the word for a value in messages.
    """

    def __init__(self, search: Search, noun: str = "value") -> None:
        self._search = search
        self._goals = search.campaign.rules.goals
        self._noun = noun

    @property
    def is_any(self) -> bool:
        """Whether there is a value to recommend."""
        return bool(len(self._search.learner.view.pulls.finished_arms))

    @property
    def trials(self) -> Trials:
        """All results, in the order of their arrival."""
        return Trials(self._trial(result) for result in self._search.campaign.results)

    @property
    def best(self) -> TrialResult:
        """The recommended trial. Raises ValueError if there is none."""
        if not self.is_any:
            raise ValueError(f"best needs at least one {self._noun}; call ask, evaluate, and call tell first")
        if not self._goals.is_single:
            if front := self.front:
                return front[0]
            raise ValueError("no configuration with a result satisfies all constraints")
        learner, sign = self._search.learner, self._goals.objectives[0].sign
        arm, reward = learner.best()
        mean, deviation = (learner.estimate(arm) or (None, None)) if arm == learner.recommended else (None, None)
        return self._mean(arm, sign * reward, {}, None if mean is None else sign * mean, deviation)

    @property
    def front(self) -> Front:
        """The trials that satisfy all constraints and that no other trial dominates, with mean
        values, starting with the best first objective."""
        objectives = self._goals.objectives
        members = []
        for arm, rewards in self._search.learner.front(len(objectives)):
            values = [objective.sign * reward for objective, reward in zip(objectives, rewards, strict=True)]
            metrics = {objective.metric: value for objective, value in zip(objectives, values, strict=True)}
            members.append(self._mean(arm, values[0], {} if self._goals.is_single else metrics))
        return Front(members)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The number of results and the best result, for a table."""
        facts = [(f"{self._noun}s", str(len(self.trials))), ("pending", str(len(self._search.campaign.pending)))]
        if self.is_any and self.front:
            best = self.best
            listed = ", ".join(f"{name}={setting!r}" for name, setting in best.parameters.items())
            facts += [(f"best {self._noun}", f"{best.value:.6g}"), ("best parameters", listed)]
        return facts

    def _trial(self, result: ArmResult) -> TrialResult:
        is_feasible = None
        if result.value is not None and self._goals.constraints:
            is_feasible = self._goals.is_feasible(result.value, result.metrics)
        return SearchResult(
            trial=result.trial,
            parameters=self._parameters(result.arm),
            value=result.value,
            status="failed" if result.value is None else "succeeded",
            metrics=self._metrics(result),
            is_feasible=is_feasible,
        )

    def _metrics(self, result: ArmResult) -> Mapping[str, float]:
        if self._goals.is_single or result.value is None:
            return {}
        return {self._goals.objectives[0].metric: result.value, **result.metrics}

    def _mean(
        self,
        arm: int,
        value: float,
        metrics: Mapping[str, float],
        estimate: float | None = None,
        deviation: float | None = None,
    ) -> TrialResult:
        """Return an arm with the mean of its values."""
        trials = [each.trial for each in self._search.campaign.results if each.arm == arm and each.value is not None]
        return SearchResult(
            trial=trials[0] if trials else None,
            parameters=self._parameters(arm),
            value=value,
            status="succeeded" if trials else "existing",
            metrics=metrics,
            is_feasible=True if self._goals.constraints else None,
            estimate=estimate,
            deviation=deviation,
            evaluations=int(self._search.learner.view.pulls.finished.counts[arm]),
        )

    def _parameters(self, arm: int) -> Mapping[str, Scalar]:
        candidates = self._search.candidates
        return {"candidate": arm} if candidates is None else candidates.pool.candidates.parameters(arm)
