"""The state of a campaign: invariants after any course of events: orders of return, failures, crashes, adoptions."""

import functools
import math
import pickle
import random
import weakref
from collections.abc import Mapping, Sized
from dataclasses import FrozenInstanceError, replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from bbkb.orchestrator.campaign.draft import Queue, without
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    ComputingBegan,
    Event,
    ModelRefreshed,
    PlacesChanged,
    StopReason,
    StopRequested,
)
from bbkb.orchestrator.campaign.policy import Ask, Await, Close, Command, Dispatch, Stop, Tell, decide
from bbkb.orchestrator.campaign.state import CampaignState, LearnedModel, is_running, place_between
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import FailureKind, Trial
from tests.orchestrator.events import (
    asynchronous,
    batch,
    dispatch,
    ends_trial,
    failure,
    fold,
    refresh,
    session,
    success,
)
from tests.present import present


def test_late_or_duplicate_result_is_not_expected() -> None:
    state = fold(session(slots=1), batch(0, [5]), dispatch((0, 2)))
    late, current = (success(0, attempt=attempt) for attempt in (1, 2))
    assert not is_running(state, late.trial, late.attempt)
    assert is_running(state, current.trial, current.attempt)
    assert not is_running(apply(state, success(0, attempt=2)), current.trial, current.attempt)


def test_running_trials_are_retried_first_after_a_crash() -> None:
    state = fold(session(slots=2), batch(0, [5, 6, 7]), dispatch((0, 1), (1, 1)), success(1), session(slots=3, epoch=2))
    assert decide(state, now=2.0) == Dispatch((Trial(0, 5, {}, 2), Trial(2, 7, {}, 1)))


def test_state_keeps_no_entry_of_a_trial_that_was_learned() -> None:
    state = fold(session(slots=1, evaluations=10_000))
    entries: list[dict[str, int]] = []
    for trial in range(200):
        for event in (batch(trial, [3]), dispatch((trial, 1)), success(trial)):
            state = apply(state, event)
        state = apply(state, refresh(trial, time=1.0, round_=trial + 1))
        entries.append({name: len(value) for name, value in vars(state).items() if isinstance(value, Sized)})
    assert state.totals.succeeded == state.totals.chosen == 200
    assert entries[-1] == entries[99]


def test_adopted_trial_continues_under_its_attempt() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)))
    again = apply(state, replace(session(slots=2, epoch=2, strategy={"mode": "async"}), adopted=(1,)))
    assert decide(again, now=0.0) == Dispatch((Trial(0, 5, {}, 2),))
    assert is_running(again, 1, 1)


def test_slots_follow_the_capacity_of_the_cluster() -> None:
    grown: list[Event] = [session(slots=2), PlacesChanged(time=10.0, slots=6), PlacesChanged(time=20.0, slots=3)]
    stop = StopRequested(time=30.0, reason=StopReason.INTERRUPTED)
    state = functools.reduce(apply, [*grown, stop], CampaignState())
    assert state.session.slots == 3
    assert state.clock.capacity_seconds == 10 * 2 + 10 * 6 + 10 * 3


ITEMS = st.lists(st.integers(), max_size=4)


class Lines(RuleBasedStateMachine):
    """A queue does not change when others are derived from it; tuples are the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("bbkb.orchestrator.campaign.draft._KEPT", 1)  # a few items behave as hundreds do
        self.made: list[tuple[Queue[int], tuple[int, ...]]] = [(Queue(), ())]

    def add(self, queue: Queue[int], expected: tuple[int, ...]) -> None:
        self.made.append((queue, expected))
        for made_queue, items in self.made:
            assert tuple(made_queue) == items
            assert len(made_queue) == len(items)
            assert made_queue == items
            assert [made_queue[at] for at in range(-len(items), len(items))] == [*items, *items]

    def teardown(self) -> None:
        self.patch.undo()

    @rule(data=st.data(), items=ITEMS)
    def extend(self, data: st.DataObject, items: list[int]) -> None:
        queue, expected = data.draw(st.sampled_from(self.made))
        self.add(queue.with_last(items), (*expected, *items))

    @rule(data=st.data(), items=ITEMS)
    def precede(self, data: st.DataObject, items: list[int]) -> None:
        queue, expected = data.draw(st.sampled_from(self.made))
        self.add(queue.with_first(items), (*items, *expected))

    @rule(data=st.data(), count=st.integers(0, 6))
    def shorten(self, data: st.DataObject, count: int) -> None:
        queue, expected = data.draw(st.sampled_from(self.made))
        self.add(queue.without_first(count), expected[count:])

    @rule(data=st.data(), start=st.integers(-6, 6), stop=st.integers(-6, 6))
    def slice(self, data: st.DataObject, start: int, stop: int) -> None:
        queue, expected = data.draw(st.sampled_from(self.made))
        assert queue[start:stop] == expected[start:stop]


TestLines = Lines.TestCase


def test_pickled_queue_has_its_own_items_only_and_rejects_an_index_beyond_its_end() -> None:
    queue = pickle.loads(pickle.dumps(Queue(range(1000)).without_first(998)))
    assert queue == (998, 999)
    assert len(pickle.dumps(queue)) < 200
    with pytest.raises(IndexError):
        queue[2]


def test_queue_releases_removed_items() -> None:
    class Item:
        pass

    queue = Queue([Item() for _ in range(40)])
    alive = weakref.WeakSet(queue)
    for _ in range(2000):
        new = Item()
        alive.add(new)
        queue = queue.with_last((new,)).without_first(1)
        del new
    assert len(queue) == 40
    assert len(alive) < 200


@given(st.dictionaries(st.integers(0, 9), st.integers()), st.sets(st.integers(0, 12)))
def test_mapping_without_keys_is_a_copy(items: dict[int, int], keys: set[int]) -> None:
    mapping = dict(items)
    assert without(mapping, keys) == {key: value for key, value in items.items() if key not in keys}
    assert mapping == items


times = st.floats(0.0, 1e6).map(lambda it: round(it, 3))


@pytest.mark.parametrize(
    ("started", "finished", "placed"),
    [(105.0, 108.0, (105.0, 108.0)), *((time, time, (104.0, 109.0)) for time in (math.nan, math.inf, -math.inf))],
)
def test_times_of_a_correct_clock_are_unchanged_and_of_a_broken_one_those_of_the_attempt(
    started: float, finished: float, placed: tuple[float, float]
) -> None:
    assert place_between(started, finished, dispatched=104.0, arrived=109.0) == placed


@given(started=times, finished=times, dispatched=times, waited=times)
def test_evaluation_lies_between_dispatch_and_arrival(
    started: float, finished: float, dispatched: float, waited: float
) -> None:
    arrived = dispatched + waited
    first, last = place_between(started, finished, dispatched, arrived)
    assert dispatched <= first <= last <= arrived
    assert last - first == pytest.approx(min(max(0.0, finished - started), waited), abs=1e-6)


def learned_model(record: Mapping[str, object] | None = None, **changes: Any) -> LearnedModel:
    model = {"inside": 38, "predicted": 40, **changes}
    return present(LearnedModel.of({"dictionary": [1, 2], "model": model, **(record or {})}))


def test_record_has_facts_of_a_fitted_model_only() -> None:
    assert LearnedModel.of({"dictionary": [1, 2]}) is None
    model = learned_model({"reliability": [[4, 0.5], [8, 1.0]], "cautious_reliability": [[4, 0.3], [8, 1.0]]})
    assert (model.steps, model.cautious_steps) == (((4, 0.5), (8, 1.0)), ((4, 0.3), (8, 1.0)))


@pytest.mark.parametrize(
    ("changes", "share", "remark"),
    [
        ({}, 0.95, ""),
        ({"inside": 1, "predicted": 5}, None, ""),  # too few
        ({"inside": 24}, 0.6, "the model is overconfident: 60% of 40 results"),
        ({"inside": 30}, 0.75, ""),  # which chance explains
        ({"inside": 300, "predicted": 400}, 0.75, "the model is overconfident"),
        ({"inside": 17, "predicted": 24}, 17 / 24, ""),  # misses of a single refresh
    ],
)
def test_model_is_remarked_on_if_it_is_overconfident(changes: dict[str, Any], share: float | None, remark: str) -> None:
    model = learned_model(**changes)
    assert model.share == share
    assert bool(model.remarks) == bool(remark)
    assert "".join(model.remarks).startswith(remark)


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
