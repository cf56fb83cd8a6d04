"""Results and failed attempts: the Pareto front, `budget.stop_when`; retries by kind, pauses, causes."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.events import Event, SessionOpened, SessionOutcome, StopReason, StopRequested
from bbkb.orchestrator.campaign.failures import (
    LONGEST_PAUSE_SECONDS,
    MOST_CAUSES,
    NODES_A_TRIAL_MAY_COST,
    WORKERS_AN_ARM_MAY_COST,
    AttemptFailures,
    Causes,
    FailureCause,
    allows_retry,
    with_failure,
)
from bbkb.orchestrator.campaign.goals import CampaignGoals, Constraint, Objective
from bbkb.orchestrator.campaign.policy import Ask, Close, Dispatch, Pause, Stop, decide
from bbkb.orchestrator.campaign.results import LEAST_ROUND, PATIENCE, Front, Gains, hypervolume, is_as_good, with_point
from bbkb.orchestrator.campaign.settings import StopWhen, Workers
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.history.facts import Fact, facts
from bbkb.workers.messages import FailureKind, Trial
from tests.orchestrator.events import (
    batch,
    dispatch,
    ends_trial,
    existing_data,
    fail,
    failure,
    fold,
    opening,
    session,
    settings_of,
    success,
)

PAIR = CampaignGoals((Objective("value"), Objective("cost", "minimize")))
LIMITED = CampaignGoals(PAIR.objectives, (Constraint("cost", at_most=3.0),))


def front_of(goals: CampaignGoals, *results: tuple[float, float]) -> Front:
    front = Front()
    for trial, (value, cost) in enumerate(results):
        front = front.after(goals, trial, (value, {"cost": cost}), {"x": trial})
    return front


def test_front_has_the_results_that_no_other_dominates() -> None:
    front = front_of(PAIR, (1.0, 5.0), (2.0, 5.0), (1.0, 1.0), (0.5, 2.0), (2.0, 5.0))
    assert [member.trial for member in front.members] == [1, 2]  # of equals the first
    assert [member.values for member in front.members] == [(2.0, 5.0), (1.0, 1.0)]
    assert front.members[0].parameters == {"x": 1}
    assert (front.results, front.feasible, front.worst) == (5, 5, (0.5, -5.0))


def test_hypervolume_is_measured_from_the_worst_result_or_the_reference() -> None:
    front = front_of(PAIR, (0.0, 4.0), (2.0, 3.0), (1.0, 1.0))
    assert front.hypervolume(PAIR) == pytest.approx(2 * 1 + 1 * 2)
    objectives = (PAIR.objectives[0], Objective("cost", "minimize", reference=6.0))
    goals = CampaignGoals(objectives)
    assert front.reference(goals) == (0.0, -6.0)
    assert front.hypervolume(goals) == pytest.approx(2 * 3 + 1 * 2)


def test_front_excludes_but_counts_infeasible_results() -> None:
    front = front_of(LIMITED, (9.0, 5.0), (1.0, 2.0), (8.0, 3.5))
    assert [member.trial for member in front.members] == [1]
    assert (front.results, front.feasible) == (3, 1)
    nothing = front_of(LIMITED, (9.0, 5.0))
    assert nothing.hypervolume(LIMITED) is None
    assert nothing.reference(LIMITED) == ()


small = st.integers(-1, 5).map(float)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_hypervolume_equals_the_dominated_share_of_random_points(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    points = rng.random((12, objectives))
    random_points = rng.random((40_000, objectives))
    is_below: np.ndarray = np.all(random_points[:, None, :] < points[None], axis=2)
    covered = is_below.any(axis=1).mean()
    assert hypervolume(points.tolist(), [0.0] * objectives) == pytest.approx(covered, abs=0.01)


@given(st.integers(1, 4).flatmap(lambda size: st.lists(st.tuples(*[small] * size), max_size=5)))
def test_hypervolume_of_whole_points_is_the_number_of_unit_cells_below_them(points: list[tuple[float, ...]]) -> None:
    size = len(points[0]) if points else 2
    cells = itertools.product(range(5), repeat=size)
    below = sum(
        any(all(cell < value for cell, value in zip(corner, point, strict=True)) for point in points)
        for corner in cells
    )
    assert hypervolume(points, [0.0] * size) == pytest.approx(below)


def test_hypervolume_of_many_objectives_is_estimated_and_always_equal() -> None:
    boxes = np.where(np.eye(6) > 0, 1.0, 0.9)  # each is longer along another axis
    exact = 0.9**6 + 6 * 0.1 * 0.9**5
    estimates = {hypervolume(boxes.tolist(), [0.0] * 6) for _ in range(3)}
    assert len(estimates) == 1
    assert estimates.pop() == pytest.approx(exact, rel=0.02)


def test_hypervolume_shifts_with_the_reference() -> None:
    assert hypervolume([(3.0, 2.0), (2.0, 4.0)], (1.0, 1.0)) == pytest.approx(2 * 1 + 1 * 2)
    assert hypervolume([(3.0, 1.0)], (1.0, 1.0)) == 0.0
    assert hypervolume([], (0.0, 0.0)) == 0.0


@given(st.lists(st.tuples(small, small, small), max_size=12))
def test_front_has_the_points_that_no_other_dominates(points: list[tuple[float, ...]]) -> None:
    front: list[tuple[float, ...]] = []
    for point in points:
        front = with_point(front, point)
    best = {point for point in points if not any(is_as_good(other, point) and other != point for other in points)}
    assert set(front) == best
    assert len(front) == len(best)


def opened_with(stop_when: dict[str, Any], direction: str = "maximize") -> SessionOpened:
    settings = settings_of(evaluations=100, direction=direction)
    settings["budget"]["stop_when"] = stop_when
    return opening(settings, slots=1)


def after(values: list[float], stop_when: dict[str, Any], direction: str = "maximize") -> CampaignState:
    """The state of a campaign with one worker after these values."""
    events: list[Event] = [opened_with(stop_when, direction), batch(0, list(range(len(values))))]
    for trial, value in enumerate(values):
        events += [dispatch((trial, 1)), success(trial, value)]
    return fold(*events)


def test_campaign_without_a_gain_stops_and_is_finished() -> None:
    rule = {"no_gain_of": 0.1, "within": 3}
    assert decide(after([1.0, 1.0, 1.05], rule), now=1.0) != Stop(StopReason.NO_GAIN)
    state = after([1.0, 1.0, 1.05, 1.0], rule)
    assert decide(state, now=1.0) == Stop(StopReason.NO_GAIN)
    state = apply(state, StopRequested(time=1.0, reason=StopReason.NO_GAIN))
    assert decide(state, now=1.0) == Close(SessionOutcome.FINISHED, "no further gain")


@pytest.mark.parametrize(
    ("values", "direction", "stops"),
    [
        ([1.0 + 0.04 * step for step in range(12)], "maximize", False),  # small gains add up
        ([3.0, 2.0, 1.0, 0.5], "minimize", False),
        ([0.5, 1.0, 2.0, 3.0], "minimize", True),
    ],
)
def test_gains_add_up_in_the_direction_of_the_objective(values: list[float], direction: str, stops: bool) -> None:
    command = decide(after(values, {"no_gain_of": 0.1, "within": 3}, direction), now=1.0)
    assert (command == Stop(StopReason.NO_GAIN)) == stops


def test_failed_evaluations_count() -> None:
    opened = opened_with({"no_gain_of": 0.1, "within": 2})
    failed = [
        event for trial in (1, 2) for event in (dispatch((trial, 1)), failure(trial, FailureKind.ERROR, is_final_=True))
    ]
    state = fold(opened, batch(0, [0, 1, 2]), dispatch((0, 1)), success(0), *failed)
    assert decide(state, now=1.0) == Stop(StopReason.NO_GAIN)


@given(values=st.lists(st.integers(0, 20).map(lambda ten: ten / 10), min_size=1, max_size=40), within=st.integers(1, 8))
def test_stop_rule_no_gain_follows_its_definition(values: list[float], within: int) -> None:
    """The rule stops only if the best value rose by less than the gain in the last `within`
    evaluations. It stops at the latest when the best value has not risen in `within` evaluations."""
    rule, gains = StopWhen(no_gain_of=0.25, within=within), Gains()
    for number, value in enumerate(values, start=1):
        gains = gains.after_result(value, number, number, rule)
        reason = gains.stop_reason(rule, number, 1)
        best_before = max(values[: max(number - within, 0)], default=None)
        rise = None if best_before is None else max(values[:number]) - best_before
        if reason is not None:
            assert rise is not None
            assert rise < 0.25
        elif best_before is not None and max(values[: max(number - 2 * within, 0)], default=-1.0) == best_before:
            assert rise is None or rise > 0.0


@pytest.mark.parametrize(
    ("below", "noise", "expected"), [("noise", 0.5, True), ("noise", 0.1, False), (0.3, 9.0, True)]
)
def test_expected_gain_stops_after_its_patience(below: Any, noise: float, expected: bool) -> None:
    opened = opened_with({"expected_gain_below": below})
    begun: list[Event] = [opened, batch(0, [0]), dispatch((0, 1)), success(0)]
    calm = [batch(1 + trial, [trial], possible_gain=0.2, noise=noise) for trial in range(PATIENCE * LEAST_ROUND)]
    assert decide(fold(*begun, *calm[:-1]), now=1.0) != Stop(StopReason.LITTLE_LEFT)
    assert (decide(fold(*begun, *calm), now=1.0) == Stop(StopReason.LITTLE_LEFT)) == expected


def test_patience_restarts_after_one_promising_choice() -> None:
    rule = StopWhen(expected_gain_below=0.3)
    gains = Gains().after_result(1.0, 1, 1, rule)
    for possible in (0.2, 0.4, 0.2):
        gains = gains.after_choice(PATIENCE * LEAST_ROUND - 1, possible, 0.1, rule)
    assert gains.stop_reason(rule, 9, 1) is None
    assert gains.after_choice(1, 0.2, 0.1, rule).stop_reason(rule, 9, 1) is StopReason.LITTLE_LEFT
    assert gains.after_choice(1, None, None, rule).calm == 0


def test_status_has_the_possible_and_the_last_gain() -> None:
    state = fold(session(slots=1), batch(0, [0, 1], possible_gain=0.0312, noise=0.1), dispatch((0, 1)), success(0))
    state = apply(apply(state, dispatch((1, 1))), success(1, 0.5))
    gain = Fact("last gain", "1 result ago", "the model expects at most 0.0312 more")
    assert gain in facts(status_of(state))
    assert "last gain" not in [fact.label for fact in facts(status_of(CampaignState()))]


@pytest.mark.parametrize(("known", "results"), [(2.0, "2 results"), (0.1, "1 result")])
def test_last_gain_counts_from_the_start_if_existing_data_are_best(known: float, results: str) -> None:
    state = fold(existing_data(known), session(slots=1), batch(0, [0, 1]), dispatch((0, 1)), success(0))
    state = apply(apply(state, dispatch((1, 1))), success(1, 0.5))
    assert Fact("last gain", f"{results} ago") in facts(status_of(state))


def attempts_of(kind: FailureKind, retries: int | None) -> int:
    """The attempts of a trial that fails in this way each time."""
    state = fold(session(slots=1, retries=retries), batch(0, [5]))
    for attempt in range(1, 20):
        state = apply(state, dispatch((0, attempt)))
        state = fail(state, 0, kind, attempt)
        if state.totals.failed:
            return attempt
    raise AssertionError("the trial is tried again without end")


def test_retry_is_first_in_the_queue_with_the_next_attempt_number() -> None:
    state = fold(session(slots=1), batch(0, [5, 6]), dispatch((0, 1)), failure(0, FailureKind.ERROR, False))
    assert decide(state, now=1.0) == Dispatch((Trial(0, 5, {}, 2),))


@pytest.mark.parametrize(
    ("kind", "with_two_retries", "by_default"),
    [
        (FailureKind.ERROR, 3, 1),
        (FailureKind.INVALID_VALUE, 1, 1),
        (FailureKind.TIMEOUT, 2, 2),
        (FailureKind.OUT_OF_MEMORY, 2, 2),
        (FailureKind.WORKER_LOST, WORKERS_AN_ARM_MAY_COST, WORKERS_AN_ARM_MAY_COST),
        (FailureKind.NODE_LOST, NODES_A_TRIAL_MAY_COST, NODES_A_TRIAL_MAY_COST),
    ],
)
def test_failure_kinds_have_their_own_number_of_attempts(
    kind: FailureKind, with_two_retries: int, by_default: int
) -> None:
    assert attempts_of(kind, retries=2) == with_two_retries
    assert attempts_of(kind, retries=None) == by_default


@pytest.mark.parametrize("kind", [FailureKind.ERROR, FailureKind.TIMEOUT, FailureKind.OUT_OF_MEMORY])
def test_retries_of_0_hold_for_timeouts_and_memory_too(kind: FailureKind) -> None:
    assert attempts_of(kind, retries=0) == 1


def test_lost_worker_does_not_use_up_the_retries() -> None:
    workers, lost = Workers(retries=1), AttemptFailures().after(FailureKind.WORKER_LOST)
    assert allows_retry(workers, FailureKind.ERROR, lost.after(FailureKind.ERROR), workers_lost=2)
    assert not allows_retry(workers, FailureKind.ERROR, AttemptFailures({FailureKind.ERROR: 2}), workers_lost=0)


def test_after_a_configuration_that_crashes_the_next_ones_get_two_attempts() -> None:
    lost, kind = AttemptFailures({FailureKind.WORKER_LOST: 2}), FailureKind.WORKER_LOST
    assert allows_retry(Workers(), kind, lost, workers_lost=2)
    assert not allows_retry(Workers(), kind, lost, workers_lost=2, quarantined=(7,))


@pytest.mark.parametrize("kind", FailureKind)
def test_retries_are_bounded_and_paused_for_every_kind_of_failure(kind: FailureKind) -> None:
    state, now, attempts = fold(session(slots=1, retries=8), batch(0, [5])), 0.0, 0
    while state.totals.succeeded + state.totals.failed == 0:
        command = decide(state, now)
        if isinstance(command, Pause):
            assert 0.0 < command.seconds <= LONGEST_PAUSE_SECONDS
            now += command.seconds
            continue
        assert isinstance(command, Dispatch)
        attempts += 1
        assert attempts <= 20
        (assignment,) = command.trials
        state = apply(state, dispatch((0, assignment.attempt), time=now))
        state = fail(state, 0, kind, assignment.attempt, time=now)
    assert now >= sum(min(60.0, 2.0**n) for n in range(attempts - 2))


def test_free_worker_does_not_wait_for_a_paused_retry() -> None:
    state = fold(session(slots=1, strategy={"mode": "async"}), batch(0, [5], limit=1))
    for attempt in (1, 2):
        state = apply(state, dispatch((0, attempt)))
        state = apply(state, failure(0, FailureKind.ERROR, False, attempt))
    assert decide(state, now=1.0) == Ask(pending=(5,), limit=1)
    assert decide(state, now=2.0) == Dispatch((Trial(0, 5, {}, 3),))


def test_paused_retry_does_not_wait_for_a_clock_that_was_set_back() -> None:
    state = fold(session(slots=1, time=7200.0), batch(0, [5]))
    for attempt in (1, 2):
        state = apply(state, dispatch((0, attempt), time=7200.0))
        state = apply(state, failure(0, FailureKind.ERROR, False, attempt, time=7200.0))
    state = apply(state, session(slots=1, time=3600.0, epoch=2))
    assert isinstance(decide(state, now=3600.0 + LONGEST_PAUSE_SECONDS), Dispatch)


def test_arm_that_kills_workers_is_quarantined_across_its_trials() -> None:
    state = fold(session(slots=3), batch(0, [5, 5, 5]), dispatch((0, 1), (1, 1), (2, 1)))
    for trial in (0, 1):
        state = fail(state, trial, FailureKind.WORKER_LOST)
        assert trial in {queued.id for queued in state.backlog}
    lost = fail(state, 2, FailureKind.WORKER_LOST)
    assert (lost.totals.failed, lost.failures.quarantined) == (1, (5,))
    state = apply(apply(state, success(2)), dispatch((1, 2)))  # it can be evaluated after all
    assert not ends_trial(state, 1, FailureKind.WORKER_LOST, attempt=2)


def test_cause_joins_messages_that_differ_in_numbers_and_keeps_the_first() -> None:
    causes: Causes = ()
    for trial in range(7):
        causes = with_failure(causes, trial, "error", f"ValueError: dropout 0.{trial} too large\nmore")
    causes = with_failure(causes, 8, "timeout", "ValueError: dropout 0.1 too large")
    first = FailureCause("error", "ValueError: dropout 0.0 too large\nmore", 0, attempts=7)
    assert causes[0] == first
    assert first.summary == "ValueError: dropout 0.0 too large"
    assert [cause.kind for cause in causes] == ["error", "timeout"]


def test_rarest_cause_leaves_if_there_are_too_many() -> None:
    causes: Causes = ()
    words = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(2 * MOST_CAUSES)]
    for trial, word in enumerate(["usual", "usual", *words]):
        causes = with_failure(causes, trial, "error", word)
    assert len(causes) == MOST_CAUSES
    assert causes[0] == FailureCause("error", "usual", 0, attempts=2)
    assert causes[-1].message == words[-1]
