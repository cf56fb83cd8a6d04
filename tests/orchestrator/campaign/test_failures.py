"""Failed attempts: retries by kind, pauses, and causes."""

import pytest

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
from bbkb.orchestrator.campaign.policy import Ask, Dispatch, Pause, decide
from bbkb.orchestrator.campaign.settings import Workers
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import FailureKind, Trial
from tests.orchestrator.events import (
    batch,
    dispatch,
    ends_trial,
    fail,
    failure,
    fold,
    session,
    success,
)


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
