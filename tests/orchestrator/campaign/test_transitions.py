"""Any course of a campaign: random batches, orders of return, failures, crashes and adoptions."""

import pickle
import random
from dataclasses import FrozenInstanceError, replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.events import BatchChosen, ComputingBegan, Event, ModelRefreshed, StopRequested
from bbkb.orchestrator.campaign.policy import Ask, Await, Close, Command, Dispatch, Stop, Tell, decide
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import FailureKind
from tests.orchestrator.events import batch, dispatch, ends_trial, failure, fold, refresh, session, success

MOST_TURNS = 2000


class Course:
    """A campaign whose commands are carried out with random results, one turn a second. Checks
    invariants after every event."""

    def __init__(self, seed: int, slots: int, evaluations: int, strategy: dict[str, Any]) -> None:
        self.state, self.log = CampaignState(), list[Event]()
        self.over: list[int] = []  # trials that have ended, in order
        self._random, self._now = random.Random(seed), 0.0
        self._evaluations = evaluations
        self._session = session(slots=slots, evaluations=evaluations, strategy=strategy)
        self._computed: BatchChosen | ModelRefreshed | None = None  # the result of the running computation

    def run(self) -> Close | None:
        """The command that closes the session; None if there is none within `MOST_TURNS`."""
        self._record(self._session)
        for _ in range(MOST_TURNS):
            self._now += 1.0
            if self._random.random() < 0.05:
                self._crash()
            if self._computed is not None and self._random.random() < 0.5:
                self._record(replace(self._computed, time=self._now))
                self._computed = None
            command = decide(self.state, self._now)
            if isinstance(command, Close):
                return command
            self._carry_out(command)
        return None

    def _record(self, event: Event) -> None:
        self.log.append(event)
        self.state = state = apply(self.state, event)
        assert len(state.running) <= state.session.slots
        assert state.totals.chosen <= self._evaluations
        open_trials = len(state.running) + len(state.backlog)
        assert state.totals.chosen == open_trials + state.totals.succeeded + state.totals.failed
        assert len(state.pending) == open_trials + len(state.finished)

    def _crash(self) -> None:
        adopted = tuple(trial for trial in self.state.running if self._random.random() < 0.5)
        self._record(replace(self._session, time=self._now, epoch=self.state.session.epoch + 1, adopted=adopted))
        self._computed = None

    def _carry_out(self, command: Command | None) -> None:
        match command:
            case Ask():
                # a strategy always allows one pull when none is pending
                size = self._random.randint(0 if command.pending else 1, min(command.limit, 6))
                self._compute("choosing", batch(self.state.totals.chosen, [0] * size, limit=command.limit))
            case Dispatch():
                self._record(dispatch(*((trial.id, trial.attempt) for trial in command.trials), time=self._now))
            case Tell():
                trials = (finished.trial for finished in command.finished)
                round_ = self.state.refresh.round + 1
                self._compute("refreshing", refresh(*trials, time=self._now, round_=round_))
            case Await():
                self._end_any_attempt()
            case Stop():
                self._record(StopRequested(time=self._now, reason=command.reason))

    def _compute(self, what: Literal["choosing", "refreshing"], result: BatchChosen | ModelRefreshed) -> None:
        self._record(ComputingBegan(time=self._now, what=what))
        self._computed = result

    def _end_any_attempt(self) -> None:
        if not self.state.running:
            return
        trial = self._random.choice(sorted(self.state.running))
        attempt = self.state.running[trial].trial.attempt
        kind = self._random.choice([None, None, None, *FailureKind])
        if kind is None:
            self._record(success(trial, attempt=attempt, time=self._now))
        else:
            is_final = ends_trial(self.state, trial, kind, attempt, self._now)
            self._record(failure(trial, kind, is_final, attempt, self._now))
        if trial not in self.state.running and all(queued.id != trial for queued in self.state.backlog):
            self.over.append(trial)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32), slots=st.integers(1, 4), evaluations=st.integers(1, 25),
    mode=st.sampled_from(["batch", "async"]), growth=st.sampled_from([0.0, 0.2]),
)  # fmt: skip
def test_random_campaign_keeps_its_budget_and_ends_every_trial_once(
    seed: int, slots: int, evaluations: int, mode: str, growth: float
) -> None:
    strategy = {"mode": mode, "refresh_growth": growth}
    course = Course(seed, slots, evaluations, strategy)
    assert course.run() is not None
    assert len(course.over) == len(set(course.over))
    if course.state.session.stop_reason is None:
        assert sorted(course.over) == list(range(evaluations))
    assert fold(*course.log) == course.state


def test_state_is_frozen_after_an_event_and_earlier_states_do_not_change() -> None:
    before = fold(session(slots=1), batch(0, [5]), dispatch((0, 1)))
    copy = pickle.loads(pickle.dumps(before))
    after = before
    for event in (success(0), batch(1, [6]), dispatch((1, 1))):
        after = apply(after, event)
    assert (after.totals.succeeded, before.totals.succeeded) == (1, 0)
    assert before == copy
    for frozen in (before.totals, after.session, after.trainings.steps):
        with pytest.raises(FrozenInstanceError):
            setattr(frozen, "failed", 1)  # noqa: B010
