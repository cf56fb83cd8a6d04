"""The queues that find the next arm, for one goal and for several, pick like eager ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.model.outputs import Outputs, Scale, mean_rewards, scores_of
from bbkb.orchestrator.bandit.sparse import argmax_queue
from bbkb.orchestrator.bandit.sparse.argmax_queue import LazyQueue, RemainingInArray
from bbkb.orchestrator.bandit.sparse.goal_queue import (
    ENDS,
    GoalQueue,
    floors_and_limits,
    leaders,
    near_ends,
    potentials,
)
from bbkb.orchestrator.bandit.sparse.picking import Picking
from bbkb.orchestrator.bandit.sparse.scalarization import INFEASIBLE, Scalarizing, direction
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Observation
from tests.examples import examples
from tests.orchestrator.bandit.eager import EagerQueue, eager
from tests.orchestrator.bandit.sequential_runs import arms_of, choice

NONE = np.empty(0, np.intp)


class Falling:
    """Evaluated arms, with the scores of `every` arm; tightened bounds are too large by `slack`.

    An arm enters with the score that it had at first, which is outdated after `every` has fallen."""

    tie = 0.0

    def __init__(
        self, every: np.ndarray, slack: np.ndarray | float = 0.0, most: int = 10**6, watches: bool = True
    ) -> None:
        self.every, self.slack, self.most = every, np.broadcast_to(slack, every.shape), most
        self.first, self.known, self.watches = every.copy(), every.copy(), watches
        self.arms, self.watched, self.tightened, self.posterior = NONE, NONE, 0, self

    def scores(self, positions: Any = slice(None)) -> np.ndarray:
        self.known[self.watched] = self.every[self.watched]
        known: np.ndarray = self.known[self.arms[positions]]
        return known

    @property
    def stale(self) -> np.ndarray:
        return np.flatnonzero(self.scores() != self.every[self.arms])

    def has_stale(self, positions: np.ndarray) -> bool:
        return bool(np.isin(positions, self.stale).any())

    def watch(self, positions: np.ndarray) -> bool:
        self.watched = self.arms[positions] if self.watches else NONE
        return self.watches

    def refresh(self, positions: np.ndarray) -> None:
        self.known[self.arms[positions]] = self.every[self.arms[positions]]

    def enter(self, arms: np.ndarray) -> None:
        self.known[arms] = self.first[arms]
        self.arms = np.sort(np.concatenate((self.arms, arms)))
        assert len(np.unique(self.arms)) == len(self.arms)  # distinct, and not evaluated before

    def leave(self, positions: np.ndarray) -> np.ndarray:
        self.arms = np.delete(self.arms, positions)
        return positions

    def tighten(self, arms: np.ndarray) -> np.ndarray:
        assert not np.isin(arms, self.arms).any()
        self.tightened += len(arms)
        result: np.ndarray = self.every[arms] + self.slack[arms]
        return result


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 60),
    near=st.integers(1, 12),
    look=st.integers(1, 8),
    most=st.sampled_from([1, 5, 20, 100]),
    watches=st.booleans(),
)  # groups so small that arms come from all three, and go back
def test_queues_return_the_lowest_index_of_the_largest_present_score(
    seed: int, count: int, near: int, look: int, most: int, watches: bool
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, size=count).astype(float)  # many ties
    bounds = scores + rng.integers(0, 4, size=count)
    blocked = np.flatnonzero(rng.random(count) < 0.2)[: count - 1]
    bounds[blocked] = -np.inf
    pending = rng.permutation(count)[: rng.integers(0, 4)]  # evaluated before, blocked or not
    slack = rng.integers(0, 3, size=count).astype(float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argmax_queue, "FIRST_NEAR", near)
        patch.setattr(argmax_queue, "FIRST_LOOK", look)
        patch.setattr(argmax_queue, "FRONT", look)
        queues = []
        for kind in (LazyQueue, EagerQueue):
            scored = Falling(scores, slack, most, watches)
            scored.enter(pending)
            queues.append(kind(RemainingInArray(bounds.astype(np.float64)), scored, blocked))
        for _ in range(30):
            present = scores.copy()
            present[blocked] = -np.inf
            expected = int(np.argmax(present))
            assert [queue.top() for queue in queues] == [expected, expected]
            scores -= rng.integers(0, 2, size=count) * (rng.random(count) < 0.1)
            scores[expected] -= 1


@pytest.mark.parametrize("queue", [LazyQueue, EagerQueue])
@pytest.mark.parametrize("is_looked_at", [False, True])
def test_arm_with_bound_minus_infinity_is_never_returned(
    queue: type[LazyQueue | EagerQueue], is_looked_at: bool
) -> None:
    scored = Falling(np.array([1.0, 99.0, 0.5]))  # its score does not matter
    if is_looked_at:
        scored.enter(np.array([1]))
    line = queue(RemainingInArray(np.array([1.0, -np.inf, 0.5])), scored, np.array([1]))
    for _ in range(5):
        arm = line.top()
        assert arm != 1
        scored.every[arm] -= 1.0


@pytest.mark.parametrize("tight", [False, True])
def test_lazy_queue_evaluates_few_arms(tight: bool) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    # bounds without information, tightened on request; or tight ones
    bounds = np.full(20_000, 9.0) if tight else scores.copy()
    scored = Falling(scores)
    queue = LazyQueue(RemainingInArray(bounds), scored)
    for _ in range(100):
        arm = queue.top()
        assert scores[arm] == scores.max()
        scores[arm] -= 0.5
    assert len(scored.arms) < 1000
    assert (scored.tightened == 20_000) == tight  # each once, and only those that reach the top


def test_queue_evaluates_no_more_arms_than_wanted_except_ties() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(3000)
    scored = Falling(scores, most=64)
    queue, scored_arms, many = LazyQueue(RemainingInArray(scores.copy()), scored), set[int](), 0
    for _ in range(1500):
        arm = queue.top()
        assert scores[arm] == scores.max()
        scores[arm] -= 1.0
        scored_arms |= set(scored.arms.tolist())
        many = max(many, len(scored.arms))
    assert many <= 64 < len(scored_arms)
    scores[:] = 0.0
    equal = Falling(scores, most=64)
    assert LazyQueue(RemainingInArray(scores.copy()), equal).top() == 0
    assert len(equal.arms) == 3000  # the lowest index must be among them


@given(seed=st.integers(0, 10**6), least=st.integers(1, 30))
def test_queue_takes_each_arm_once_and_all_that_reach_the_best(seed: int, least: int) -> None:
    rng = np.random.default_rng(seed)
    bounds = rng.integers(0, 9, size=rng.integers(1, 60)).astype(float)
    bounds[rng.random(len(bounds)) < 0.2] = -np.inf
    remaining, untaken = RemainingInArray(bounds.astype(np.float64)), bounds.copy()
    while remaining.top > -np.inf:
        best = float(rng.choice([remaining.top, remaining.top - 2, -np.inf]))
        arms, values = remaining.take(best, least)
        top = remaining.top
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values, untaken[arms])  # none of them was taken before
        untaken[arms] = -np.inf
        assert top == untaken.max()
        assert top < best or best == -np.inf
        assert len(arms) >= 1
        assert values.min() >= top


POINTS = np.random.default_rng(3).random((160, 2))


def strategy(**options: Any) -> BBKB:
    return BBKB(**with_preset(BBKB, options))


def outputs(arm: int, goals: Goals) -> tuple[float, ...]:
    """Two objectives in conflict, a third, and a constraint that half of the square satisfies."""
    x, y = POINTS[arm]
    objectives = (np.sin(3 * x) - y, -np.sin(3 * x) + 0.5 * y - (x - 0.5) ** 2, np.cos(4 * x * y))
    return tuple(map(float, (*objectives[: goals.objectives], *([0.6 - x] * goals.constraints))))


def observation(arm: int, goals: Goals) -> Observation:
    first, *further = outputs(arm, goals)
    return Observation(arm, first, tuple(further))


def play(
    bbkb: BBKB, goals: Goals, rounds: int, batch: int, repeats: bool = True, seed: int = 0
) -> Iterator[tuple[Any, tuple[int, ...], list[int]]]:
    """States and picks of a search in which `tell` gets half of the pending pulls each round."""
    state = bbkb.init(Arms.of(POINTS, repeats=repeats).with_goals(goals), np.random.default_rng(seed))
    pending: list[int] = []
    for number in range(rounds):
        picks = arms_of(bbkb.ask(state, pending, batch))
        yield state, tuple(pending), picks
        pending += picks
        finished, pending = pending[: (len(pending) + 1) // 2], pending[(len(pending) + 1) // 2 :]
        rng = np.random.default_rng([seed, number])
        state = bbkb.tell(state, [observation(arm, goals) for arm in finished], rng)


def slow_scores(state: Any, pulls: list[int], number: int, width: float) -> np.ndarray:
    """Scores of all arms after `pulls` without rewards: dense matrices, no laziness, no shared
    factor."""
    model, dictionary, counts = state.model, state.dictionary, state.pulls.counts
    kernel, noise = model.kernel.cross(POINTS, POINTS), model.regularization
    to_dictionary, gram = kernel[:, dictionary], kernel[np.ix_(dictionary, dictionary)]
    inner = to_dictionary.T @ (counts[:, None] * to_dictionary) + noise * gram
    nystrom = to_dictionary @ np.linalg.pinv(gram, hermitian=True, rcond=1e-13) @ to_dictionary.T
    posterior = (kernel - nystrom) / noise + to_dictionary @ np.linalg.pinv(inner, hermitian=True) @ to_dictionary.T
    means, observed, limits = [], [], []
    feasible = np.ones(len(state.pulls.arms), bool)
    for output, pulls_of_output in enumerate(state.pulls.outputs):
        scale = Scale(mean_rewards(pulls_of_output), model.outputs)
        scores = np.zeros(len(POINTS))
        scores[pulls_of_output.arms] = scale.scores(
            pulls_of_output.reward_sums[pulls_of_output.arms] / pulls_of_output.counts[pulls_of_output.arms]
        )
        shared = np.linalg.pinv(
            nystrom[np.ix_(pulls_of_output.arms, pulls_of_output.arms)]
            + noise * np.diag(1 / pulls_of_output.counts[pulls_of_output.arms])
        )
        offset = (shared @ scores[pulls_of_output.arms]).sum() / (shared.sum() + 1.0)
        weights = np.linalg.pinv(inner, hermitian=True) @ to_dictionary.T @ (counts * (scores - offset))
        means.append(to_dictionary @ weights + offset)
        if output < state.goals.objectives:
            observed.append(scores[pulls_of_output.arms])
        else:
            feasible &= pulls_of_output.reward_sums[pulls_of_output.arms] >= 0
            limits.append(scale.scores(np.zeros(1))[0])
    if pulls:
        cross = posterior[:, pulls]
        posterior = posterior - cross @ np.linalg.solve(cross[pulls] + np.eye(len(pulls)), cross.T)
    deviations, count = np.sqrt(np.maximum(np.diag(posterior), 0.0)), state.goals.objectives
    hopes, cautious = (np.array(means) + share * width * deviations for share in (1.0, 0.25))
    upper = np.vstack((hopes[:count], cautious[count:], hopes[count:]))
    theta, floors = direction(number, state.goals.objectives), np.zeros(1)
    if state.goals.objectives > 1:
        points = np.array(observed).T[feasible if feasible.any() else slice(None)]
        front = np.array(
            [point for point in points if not any((other >= point).all() and (other > point).any() for other in points)]
        )
        floors = front.min(axis=0) - 0.1 * np.maximum(np.ptp(front, axis=0), 0.1)
    return Scalarizing(floors, theta, np.array(limits)).scores(upper)


@settings(max_examples=examples(12))
@given(
    seed=st.integers(0, 10**6),
    goals=st.sampled_from([Goals(2), Goals(3), Goals(1, 1), Goals(2, 1), Goals(2, 2)]),
    repeats=st.booleans(),
)
def test_lazy_goal_queue_picks_like_the_eager_one(seed: int, goals: Goals, repeats: bool) -> None:
    oracle = eager(strategy())
    for state, pending, picks in play(strategy(), goals, 7, 9, repeats, seed):
        assert arms_of(oracle.ask(state, pending, 9)) == picks


@pytest.mark.parametrize("goals", [Goals(2), Goals(1, 1), Goals(2, 1), Goals(3, 1)])
def test_picks_are_those_of_dense_matrices(goals: Goals) -> None:
    bbkb = strategy(model=Model(noise=0.05))
    for state, pending, picks in play(bbkb, goals, 8, 6):
        if state.pulls.total < 16:
            continue
        for place, arm in enumerate(picks):
            pulls = [*pending, *picks[:place]]
            chosen = {*pulls, *state.pulls.arms.tolist()}
            assert arm not in chosen
            scores = slow_scores(state, pulls, state.pulls.total + len(pulls), bbkb.width_at(state))
            best = np.delete(scores, list(chosen)).max()
            assert scores[arm] >= best - 1e-6 * abs(best)


def test_choosing_one_by_one_equals_choosing_a_batch() -> None:
    goals = Goals(2, 1)
    for state, pending, picks in play(strategy(), goals, 5, 8):
        one_by_one: list[int] = []
        for _ in picks:
            decision = choice(strategy().ask(state, (*pending, *one_by_one), 1))
            one_by_one.append(decision.picks[0].arm)
        assert one_by_one == picks


def test_state_is_restored_from_its_record() -> None:
    goals, bbkb = Goals(2, 1), strategy()
    before = bbkb.init(Arms.of(POINTS).with_goals(goals), np.random.default_rng(0))
    finished = [observation(arm, goals) for arm in before.initial]
    after = bbkb.tell(before, finished, np.random.default_rng(1))
    assert bbkb.restore(before, finished, bbkb.recorded(after)) == after


def test_scale_of_an_objective_does_not_matter() -> None:
    def picks(factor: float, shift: float) -> list[list[int]]:
        bbkb, batches = strategy(), []
        state = bbkb.init(Arms.of(POINTS).with_goals(Goals(2)), np.random.default_rng(0))
        for number in range(4):
            arms = arms_of(bbkb.ask(state, (), 8))
            batches.append(arms)
            finished = []
            for arm in arms:
                first, second = outputs(arm, Goals(2))
                finished.append(Observation(arm, first, (factor * second + shift,)))
            state = bbkb.tell(state, finished, np.random.default_rng(number))
        return batches

    assert picks(1.0, 0.0) == picks(1000.0, -5e5)


def test_pulls_concentrate_where_the_constraint_holds() -> None:
    goals = Goals(1, 1)
    pulled = [arm for _, _, picks in play(strategy(), goals, 14, 6) for arm in picks]
    late = [outputs(arm, goals)[1] >= 0 for arm in pulled[40:]]
    assert np.mean(late) > 0.8
    best = max(outputs(arm, goals)[0] for arm in range(160) if outputs(arm, goals)[1] >= 0)
    assert max(outputs(arm, goals)[0] for arm in pulled if outputs(arm, goals)[1] >= 0) == best


@pytest.mark.parametrize("seed", range(2))
def test_search_satisfies_a_constraint_that_all_first_results_violate_equally(seed: int) -> None:
    points = np.random.default_rng(seed).random((600, 2))
    is_feasible = np.sum((points - [0.6, 0.4]) ** 2, axis=1) < 0.02
    bbkb = strategy()
    state = bbkb.init(Arms.of(points, repeats=False).with_goals(Goals(1, 1)), np.random.default_rng(seed))
    for number in range(80):
        (arm,) = arms_of(bbkb.ask(state, [], 1))
        told = Observation(arm, -float(points[arm, 0]), (float(is_feasible[arm]) - 1.0,))
        state = bbkb.tell(state, [told], np.random.default_rng([seed, number]))
    assert is_feasible[state.pulls.arms].any()


@pytest.mark.parametrize(("last", "is_spread"), [(-1.0, True), (-2.0, False), (0.0, False)])
def test_picks_cover_the_space_as_long_as_all_results_violate_a_constraint_equally(
    last: float, is_spread: bool
) -> None:
    state = strategy().init(Arms.of(POINTS, repeats=False).with_goals(Goals(1, 1)), np.random.default_rng(0))
    told = [Observation(arm, float(POINTS[arm, 0]), (-1.0,)) for arm in state.initial[:-1]]
    told.append(Observation(state.initial[-1], 0.0, (last,)))
    state = strategy().tell(state, told, np.random.default_rng(0))
    picks = choice(strategy().ask(state, [], 6)).picks
    assert all((pick.reason == "spread") == is_spread for pick in picks)


def test_constraint_is_not_considered_satisfied_if_two_violations_are_known() -> None:
    goals = Goals(1, 1)
    state = strategy().init(Arms.of(POINTS).with_goals(goals), np.random.default_rng(0))
    told = [Observation(arm, float(arm), (-1.0 - arm % 2,)) for arm in range(20)]
    pulls = strategy().tell(state, told, np.random.default_rng(0)).pulls
    _, (limit,) = floors_and_limits(pulls, goals, Outputs.HALF_RANK)
    assert limit > scores_of(mean_rewards(pulls.outputs[1]), Outputs.HALF_RANK).max()


@settings(max_examples=examples(40))
@given(st.lists(st.sampled_from([-3.0, -1.0, -0.25, 0.0, 0.0, 0.5]), min_size=4, max_size=30), st.floats(0.01, 100.0))
def test_limit_of_violations_lies_between_those_that_are_0_and_the_others(margins: list[float], unit: float) -> None:
    def limit_of(margins: list[float]) -> tuple[float, np.ndarray]:
        goals = Goals(1, 1)
        state = strategy().init(Arms.of(POINTS).with_goals(goals), np.random.default_rng(0))
        told = [Observation(arm, float(arm), (margin,)) for arm, margin in enumerate(margins)]
        pulls = strategy().tell(state, told, np.random.default_rng(0)).pulls
        _, (limit,) = floors_and_limits(pulls, goals, Outputs.HALF_RANK)
        return limit, scores_of(mean_rewards(pulls.outputs[1]), Outputs.HALF_RANK)

    limit, scores = limit_of(margins)
    assert limit_of([unit * margin for margin in margins])[0] == pytest.approx(limit, abs=1e-4)
    values = np.array(margins)
    if not (values == 0.0).any():
        return
    if values.max() > 0.0 or values.min() == 0.0 or margins.count(0.0) == 1:
        assert limit == pytest.approx(scores[values == 0.0][0], abs=1e-4)
    else:
        assert scores[values < 0.0].mean() < limit < scores[values == 0.0].min()


def test_leaders_are_pulled_arms_along_the_front_and_worth_counts_every_objective() -> None:
    goals = Goals(2)
    *_, (state, _, _) = play(strategy(), goals, 10, 8)
    led = leaders(state, 5)
    assert len(set(led)) == len(led) == 5
    assert all(state.pulls.counts[arm] for arm in led)
    firsts = [outputs(arm, goals)[0] for arm in led]
    assert max(firsts) - min(firsts) > 0.5  # not all at one end
    assert potentials(state, 1.0).shape == (160,)


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(0, 2))
def test_scores_rise_with_every_bound(seed: int, objectives: int, constraints: int) -> None:
    rng = np.random.default_rng(seed)
    lower = rng.normal(size=(objectives + 2 * constraints, 20))
    upper = lower + rng.exponential(size=lower.shape) * (rng.random(lower.shape) < 0.5)
    scalarizing = Scalarizing(rng.normal(size=objectives), direction(seed, objectives), rng.normal(size=constraints))
    assert (scalarizing.scores(lower.copy()) <= scalarizing.scores(upper)).all()


def test_arm_that_satisfies_the_constraints_precedes_one_that_does_not() -> None:
    scalarizing = Scalarizing(np.zeros(1), np.ones(1), np.array([1.0]))
    means, hopes = [1.0, 0.9, 0.9, 0.9], [1.0, 7.0, 2.0, 0.9]
    scores = scalarizing.scores(np.array([[-50.0, 0.0, 9.0, 9.0], means, hopes]))
    assert scores[0] == -50.0
    assert -50.0 > scores[1] > scores[2] > scores[3] == 1.1 * INFEASIBLE


def test_directions_cover_the_positive_part_of_the_sphere_evenly() -> None:
    for objectives in (2, 3):
        directions = np.array([direction(number, objectives) for number in range(400)])
        assert (directions > 0).all()
        assert np.allclose(np.linalg.norm(directions, axis=1), 1.0)
        assert np.allclose(directions.mean(axis=0), directions.mean(), atol=0.02)
    angles = np.sort(np.arctan2(*np.array([direction(number, 2) for number in range(200)]).T)) / (np.pi / 2)
    assert np.abs(angles - (np.arange(200) + 0.5) / 200).max() < 0.04
    assert direction(7, 1).tolist() == [1.0]


def test_goals_need_the_calibrated_model_and_as_many_rewards() -> None:
    arms = Arms.of(POINTS).with_goals(Goals(2))
    with pytest.raises(ValueError, match="need the calibrated model"):
        BBKB().init(arms, np.random.default_rng(0))
    assert strategy().takes_goals
    assert not BBKB().takes_goals
    state = strategy().init(arms, np.random.default_rng(0))
    with pytest.raises(ValueError, match="arm 3 must have 1 finite further rewards"):
        strategy().tell(state, [Observation(3, 1.0)], np.random.default_rng(0))
    with pytest.raises(ValueError, match="at least 1 objective"):
        Goals(0)


def test_ends_of_a_number_without_a_visible_effect_come_last_with_several_objectives() -> None:
    points = np.random.default_rng(4).random((120, 2))
    arms = Arms.of(points, repeats=False).with_goals(Goals(2))
    bbkb, rng = strategy(), np.random.default_rng(0)
    state = bbkb.init(arms, np.random.default_rng(1))
    seen = [
        Observation(arm, float(x), further=(float(-x * x),))  # the second number has no effect
        for arm, x in enumerate(points[:40, 0])
    ]
    state = bbkb.tell(state, seen, rng)
    state = replace(state, initial=())
    ends = near_ends(state)
    values = points[:, 1] - points[:, 1].min()
    outer = np.abs(values / values.max() - 0.5) >= 0.5 - ENDS
    assert ends.tolist() == np.flatnonzero(outer).tolist()
    picked = arms_of(bbkb.ask(state, (), 80))
    inside = len(points) - 40 - np.count_nonzero(outer[40:])
    assert sorted(picked) == list(range(40, 120))
    assert not outer[picked[:inside]].any()
    assert not len(near_ends(replace(state, goals=Goals(1, 1))))
    assert state.layout is not None
    assert not len(near_ends(replace(state, layout=replace(state.layout, repeats=True))))


def test_goal_queue_rejects_to_continue_after_evaluated_arms_were_removed() -> None:
    *_, (state, _, _) = play(strategy(), Goals(2, 1), rounds=4, batch=4)
    nothing = np.empty(0, np.intp)
    picking = Picking.begin(state, 1.0, nothing, is_conditioned=True)
    queue = GoalQueue(state, picking, nothing, 0)
    queue.top()
    queue.top()  # further arms may be appended
    picking.posterior.leave(np.array([0]))
    with pytest.raises(AssertionError, match="evaluated arms were removed"):
        queue.top()
