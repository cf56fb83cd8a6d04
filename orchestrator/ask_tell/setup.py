"""The arguments of a search over a space, in the form in which they are saved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from objectives.conditions import Scalar
from objectives.sampling import DEFAULT_SIZE, GROWING_SIZE, make_candidates
from objectives.space import LARGEST_WHOLE_SET, SearchSpace
from orchestrator.ask_tell.saving import Entry
from orchestrator.ask_tell.search import Search
from orchestrator.ask_tell.space_candidates import SpaceCandidates
from orchestrator.bandit.growing import Grows
from orchestrator.bandit.model.model import model_of
from orchestrator.bandit.strategy import AnyStrategy
from orchestrator.campaign.goals import CampaignGoals
from orchestrator.campaign.rules import Rules
from orchestrator.campaign.trainings.first import first_steps_without_budget
from orchestrator.campaign.trainings.model_rule import TrainingRule
from orchestrator.campaign.trainings.rungs import StoppingRule
from orchestrator.candidates.pool import Pool, arms_of
from orchestrator.settings.spaces import build_forbid, build_space, dump_forbid, dump_space
from orchestrator.settings.strategies import build_strategy, dump_strategy

STOPPED_FROM = 3  # the first step at which trials are paused or compared


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    """The arguments of a search. They never change."""

    space: SearchSpace
    goals: CampaignGoals
    strategy: AnyStrategy
    seed: int
    enqueue: Sequence[Mapping[str, Scalar]]  # the configurations that `ask` returns first
    candidate_limit: int  # the largest number of candidates
    steps: int | None = None  # the step at which a training ends; None: no training is stopped
    first_trials: int = 0  # the number of trainings that are stopped after a few steps at first
    checkpoints: bool = False  # whether a stopped training continues from its checkpoint, so that pauses cost nothing

    def dump(self) -> Entry:
        """Return the setup as plain values."""
        return {
            "space": dump_space(self.space.parameters),
            "forbid": dump_forbid(self.space.forbid),
            "direction": "maximize" if self.goals.objectives[0].is_maximized else "minimize",
            **({} if self.goals.is_single else {"goals": self.goals.plain()}),
            "strategy": dump_strategy(self.strategy),
            "seed": self.seed,
            "enqueue": [dict(configuration) for configuration in self.enqueue],
            "limit": self.candidate_limit,
            **({} if self.steps is None else self._dump_steps()),
        }

    def _dump_steps(self) -> Entry:
        return {"steps": self.steps, "first_trials": self.first_trials, "checkpoints": self.checkpoints}

    @classmethod
    def build(cls, dumped: Mapping[str, Any]) -> "SearchSetup":
        """Return the setup that `dump` wrote."""
        return cls(
            space=SearchSpace(build_space(dumped["space"]), build_forbid(dumped["forbid"])),
            goals=CampaignGoals.of({"objective": {"direction": dumped["direction"]}, **dumped.get("goals", {})}),
            strategy=build_strategy(dumped["strategy"]),
            seed=dumped["seed"],
            enqueue=dumped["enqueue"],
            candidate_limit=dumped["limit"],
            steps=dumped.get("steps"),
            first_trials=dumped.get("first_trials", 0),
            checkpoints=dumped.get("checkpoints", False),  # older versions paused no training
        )

    def search(self) -> Search:
        """Return the search before any event."""
        pool = self._pool()
        repeats = pool.candidates.repeats or model_of(self.strategy) is None
        arms = arms_of(pool.candidates, repeats).with_goals(self.goals.for_strategy)
        return Search.begin(self.strategy, self.seed, arms, self._rules(), SpaceCandidates(pool, self.space))

    def _pool(self) -> Pool:
        """Return the candidates at the beginning."""
        space = self.space
        grows = isinstance(self.strategy, Grows) and self.strategy.grows
        grows = grows and not (space.is_finite and space.count(LARGEST_WHOLE_SET) is not None)
        points = GROWING_SIZE if grows else DEFAULT_SIZE
        candidates = make_candidates(
            space, size=None, sampler="sobol", seed=self.seed, first=self.enqueue, points=points
        )
        return Pool(candidates, space if grows else None, self.candidate_limit)

    def _rules(self) -> Rules:
        """Return the goals, and the rules on trainings in steps."""
        rules = Rules(evaluations=0, goals=self.goals)
        if self.steps is None:
            return rules
        if self.checkpoints:
            stopping = StoppingRule.pauses(STOPPED_FROM, self.steps)
        else:
            stopping = StoppingRule.median(STOPPED_FROM)
        training = TrainingRule(
            first_trials=self.first_trials,
            first_steps=first_steps_without_budget(self.steps, self.checkpoints),
            continues=True,
            has_checkpoints=self.checkpoints,
            last_step=self.steps,
        )
        return replace(rules, stopping=stopping, training=training)
