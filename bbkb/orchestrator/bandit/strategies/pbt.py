"""Population-based training (Jaderberg, Dalibard, Osindero, Czarnecki, Donahue, Razavi, Vinyals,
Green, Dunning, Simonyan, Fernando, Kavukcuoglu 2017, "Population based training of neural
networks"), with truncation selection.

All members pause at every multiple of `interval` steps. A member among the worst `quantile` at a
pause is replaced: a new trial with a perturbed configuration continues from the checkpoint of a
random member of the best `quantile`. No member waits for others: it is compared with their values
at the same step, or at their newest earlier step.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.options import Options
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import CurveUpdate, TrialCurve
from bbkb.orchestrator.bandit.strategies.uniform import ModelFree, ModelFreeState
from bbkb.orchestrator.bandit.strategy import (
    Choose,
    Decision,
    Observation,
    Perturbation,
    Pick,
    TrialForecast,
    Wait,
    check_arms,
    refusal,
    require,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A trial that has paused, with the decision about its replacement."""

    arm: int
    # the step of each pause, ascending → the reward there; −∞ if the trial has diverged
    rewards: Mapping[int, float] = field(default_factory=dict)
    parent: int | None = None  # the trial whose checkpoint is copied; None: it is not replaced
    copy: int | None = None  # the perturbed arm that replaces it; None until it has been appended

    @property
    def step(self) -> int:
        """The step of its newest pause."""
        return max(self.rewards)

    @property
    def reward(self) -> float:
        """The reward at its newest pause."""
        return self.rewards[self.step]

    def reward_at(self, step: float) -> float:
        """Return the newest reward at `step` or before; −∞ if there is none."""
        last = max((at for at in self.rewards if at <= step), default=None)
        return -math.inf if last is None else self.rewards[last]

    def after(self, curve: TrialCurve) -> "Member":
        """Return the member after its next pause."""
        reward = -math.inf if curve.has_diverged or not curve.rewards else curve.rewards[-1]
        before = self.rewards or zip(curve.steps, curve.rewards, strict=True)
        return replace(self, rewards={**dict(before), curve.step: reward})


@dataclass(frozen=True, eq=False, kw_only=True)
class PopulationState(ModelFreeState):
    """The members by trial."""

    first: int  # the number of arms before any perturbed configuration
    is_sequence: bool = False  # whether the first ones cover the space
    members: Mapping[int, Member] = field(default_factory=dict)
    paused: tuple[int, ...] = ()  # the members that can be continued or replaced, ascending


@dataclass(frozen=True)
class PBT(Options, ModelFree[PopulationState]):
    """Population-based training: finds schedules of parameters instead of constant values.

    Requires trainings that report values and save checkpoints. The defaults of `quantile`,
    `resample_probability` and `perturbation_factors` are the paper's. All decisions are functions
    of the seed and the log. Raises ValueError, with the field's name, if a value is out of range.
    """

    grows: ClassVar[Literal[True]] = True  # perturbed configurations are new arms

    population: Annotated[int, Ge(2), Doc("The number of members that train, ≥ 2.")] = 20
    interval: Annotated[
        int, Ge(1), Doc("The steps between two pauses, at which members are compared and replaced, ≥ 1.")
    ] = 10
    quantile: Annotated[
        float, Gt(0), Le(0.5), Doc("The share of worst members that copy the same share of best ones, in (0, 0.5].")
    ] = 0.2
    resample_probability: Annotated[
        float, Ge(0), Le(1), Doc("The probability that a parameter is drawn again instead of perturbed, in [0, 1].")
    ] = 0.25
    perturbation_factors: Annotated[
        tuple[float, float], Doc("A copied number is multiplied by one of these, the first in (0, 1), the second > 1.")
    ] = (0.8, 1.2)
    last_step: Annotated[
        Annotated[int, Ge(2)] | None,
        Doc("The step at which a training ends; None: that of the objective, or the largest of a finished trial."),
    ] = None
    mode: Annotated[Literal["async"], Doc("Always `async`: no member waits for the others.")] = "async"
    refresh_growth: Annotated[
        float, Gt(0), Doc("The share of new results that starts a refresh; default: one result.")
    ] = 1e-9

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.perturbation_factors
        require(self, "perturbation_factors", "two numbers, in (0, 1) and > 1", 0.0 < low < 1.0 < high < math.inf)

    def init(self, arms: Arms | Floats, rng: np.random.Generator) -> PopulationState:
        """Return the state before any pull of `arms` (A, d); draws the seed."""
        first = len(check_arms(arms))
        return PopulationState(
            seed=int(rng.integers(2**32)),
            pulls=Pulls.none(first),
            first=first,
            is_sequence=isinstance(arms, Arms) and arms.layout.is_sequence,
        )

    def with_curves(self, state: PopulationState, update: CurveUpdate) -> PopulationState:
        """Return the state with the newest pauses and without replaced members."""
        paused = update.paused
        members = {
            trial: member
            for trial, member in state.members.items()
            if trial in paused or member.parent is None
        }  # fmt: skip
        for curve in update.curves:
            if curve.trial in paused:
                members[curve.trial] = members.get(curve.trial, Member(curve.arm)).after(curve)
        waiting = tuple(trial for trial in paused if trial in members)
        return replace(state, members=members, paused=waiting)

    def predict_trials(self, state: PopulationState, trials: Sequence[int]) -> tuple[TrialForecast, ...]:
        """Return nothing: there is no model."""
        return ()

    def tell(
        self, state: PopulationState, observations: Sequence[Observation], rng: np.random.Generator
    ) -> PopulationState:
        """Return the state after these ended pulls, with a decision about each new pause."""
        after = state.observe(observations)
        members = dict(after.members)
        stopped = {observation.arm for observation in observations if observation.is_stopped}
        new = (trial for trial in after.paused if members[trial].arm in stopped)
        enough = self._size(after) - self._share(after)  # better members to replace one
        replaced = {
            trial for trial in new if members[trial].reward == -math.inf or len(_better(after, trial)) >= enough
        }
        replaced |= {trial for trial in after.paused if members[trial].parent is not None}
        for trial in replaced:
            if members[trial].parent in replaced | {None}:
                parents = _better(after, trial, replaced)[: self._share(after)]
                rng = np.random.default_rng([after.seed, after.round, trial])
                parent = parents[int(rng.integers(len(parents)))] if parents else None
                members[trial] = replace(members[trial], parent=parent, copy=None)
        return replace(after, members=members)

    def ask(self, state: PopulationState, pending: Sequence[int], limit: int) -> Decision:
        """Return the members that have not begun, then the paused ones, least trained first."""
        refused = refusal(state, limit)
        if refused is not None:
            return refused
        picks: list[tuple[Pick, int | None]] = [(pick, None) for pick in self._beginners(state, pending)]
        picks += _ready(state, {*pending, *state.set_aside.tolist()})
        if picks:
            reason = "limit" if len(picks) >= limit else "the other members train"
            gives_up = tuple(trial for _, trial in picks[:limit] if trial is not None)
            return Choose(tuple(pick for pick, _ in picks[:limit]), reason, gives_up=gives_up)
        return Wait("the other members train" if pending else "every member has finished its training")

    def growth(self, state: PopulationState) -> Perturbation | None:
        """Return the parents whose configurations should be perturbed; None if there are none."""
        arms = tuple(state.members[parent].arm for parent in _parents(state).values())
        return Perturbation(arms, self.perturbation_factors, self.resample_probability) if arms else None

    def extend(
        self,
        state: PopulationState,
        features: Floats,
        retired: Sequence[int],
        log_prior: Floats | None = None,
    ) -> PopulationState:
        """Return the state with the perturbed configurations that `growth` requested."""
        new = zip(_parents(state), count(len(state.pulls.counts)), strict=False)
        copies = {trial: replace(state.members[trial], copy=arm) for trial, arm in new}
        pulls = state.pulls.extend(len(features))
        return replace(state, pulls=pulls, members={**state.members, **copies})

    def arms_to_retire(self, state: PopulationState, pending: Sequence[int], most: int) -> tuple[int, ...]:
        """Return nothing: unused arms cost nothing."""
        return ()

    def _size(self, state: PopulationState) -> int:
        return min(self.population, state.first)

    def _share(self, state: PopulationState) -> int:
        """Return the number of members that count as the worst, and also as the best."""
        return max(1, int(self.quantile * self._size(state)))

    def _beginners(self, state: PopulationState, pending: Sequence[int]) -> list[Pick]:
        """Return the members that have not begun. A new one replaces each one that failed.

        They are the first points of a sequence that covers the space, or random arms.
        """
        begun = {int(arm) for arm in (*pending, *state.pulls.arms, *state.set_aside) if arm < state.first}
        missing = self._size(state) + len(state.set_aside) - len(begun)
        order = np.arange(state.first)
        if not state.is_sequence:
            order = np.random.default_rng(state.seed).permutation(state.first)
        return [Pick(int(arm)) for arm in order if arm not in begun][: max(0, missing)]


def _better(state: PopulationState, trial: int, replaced: AbstractSet[int] = frozenset()) -> list[int]:
    """Return the members that were better than `trial` at its step, the best first, without those
    that are `replaced` themselves. A member that has diverged is compared with their newest values.
    """
    member = state.members[trial]
    step = math.inf if member.reward == -math.inf else member.step
    rewards = {other: state.members[other].reward_at(step) for other in state.members.keys() - replaced}
    better = (other for other, reward in rewards.items() if reward > member.reward)
    return sorted(better, key=lambda other: (-rewards[other], other))


def _parents(state: PopulationState) -> Mapping[int, int]:
    """Return the parents of the replacements that have not been appended, by replaced trial."""
    waiting = {trial: state.members[trial].parent for trial in state.paused if state.members[trial].copy is None}
    return {trial: parent for trial, parent in waiting.items() if parent is not None}


def _ready(state: PopulationState, taken: AbstractSet[int]) -> list[tuple[Pick, int | None]]:
    """Return the paused members, or the trials that replace them with the replaced members, except
    those whose arms are `taken`: they are running, or have failed since the last pause of a member."""
    picks: list[tuple[Pick, int | None]] = []
    for trial in sorted(state.paused, key=lambda trial: (state.members[trial].step, trial)):
        member = state.members[trial]
        if member.parent is None:
            picks.append((Pick(member.arm, trial=trial), None))
        elif member.copy is not None:
            picks.append((Pick(member.copy, starts_from=member.parent), trial))
    return [(pick, replaced) for pick, replaced in picks if pick.arm not in taken]
