"""The Pareto front of a campaign: the results that satisfy all constraints and that no other result
dominates.

A result dominates another one if it is at least as good in every objective and better in one. Of
equal results, the first one is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.hypervolume import hypervolume, is_as_good

_hypervolume = lru_cache(64)(hypervolume)  # every status requests the same one


@dataclass(frozen=True, slots=True)
class FrontMember:
    """A result on the front: `values` on the user's scale, and `rewards` to maximize."""

    trial: int
    values: tuple[float, ...]
    rewards: tuple[float, ...]
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Front:
    """The Pareto front of the results so far."""

    members: tuple[FrontMember, ...] = ()  # the results on the front, in the order in which they were found
    # the lowest reward of the feasible results in each objective; empty if there are none
    worst: tuple[float, ...] = ()
    results: int = 0  # the number of all results
    feasible: int = 0  # the number of results that satisfy every constraint

    def after(
        self,
        goals: CampaignGoals,
        trial: int,
        result: tuple[float, Mapping[str, float]],
        parameters: Mapping[str, object],
    ) -> "Front":
        """Return the front after another result (value, metrics) at these `parameters`."""
        values = goals.values(*result)
        if not goals.is_feasible(*result):
            return replace(self, results=self.results + 1)
        rewards = goals.order(*result)
        worst = tuple(map(min, self.worst, rewards)) if self.worst else rewards
        members = self.members
        if not any(is_as_good(member.rewards, rewards) for member in members):
            undominated = tuple(member for member in members if not is_as_good(rewards, member.rewards))
            members = (*undominated, FrontMember(trial, values, rewards, parameters))
        return Front(members, worst, self.results + 1, self.feasible + 1)

    @property
    def ordered(self) -> list[FrontMember]:
        """The members, sorted by the first objective, the best first."""
        return sorted(self.members, key=lambda member: member.rewards, reverse=True)

    def reference(self, goals: CampaignGoals) -> tuple[float, ...]:
        """Return the reference point of the hypervolume, as rewards: the `reference` of each
        objective, or its worst result if none is given. Empty if no result is feasible yet."""
        pairs = zip(goals.objectives, self.worst, strict=False)
        return tuple(
            worst if objective.reference is None else objective.reward(objective.reference)
            for objective, worst in pairs
        )

    def hypervolume(self, goals: CampaignGoals) -> float | None:
        """Return the front's hypervolume; None if no result is feasible yet."""
        if not self.members:
            return None
        return _hypervolume(tuple(member.rewards for member in self.members), self.reference(goals))
