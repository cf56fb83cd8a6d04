"""The state of a campaign: invariants after any course of events, drafts, attempts, facts of the model."""

import functools
import math
import pickle
import weakref
from collections.abc import Sized
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from bbkb.orchestrator.campaign.commands import Dispatch
from bbkb.orchestrator.campaign.draft import Queue, without
from bbkb.orchestrator.campaign.events import Event, PlacesChanged, StopReason, StopRequested
from bbkb.orchestrator.campaign.policy import decide
from bbkb.orchestrator.campaign.state import CampaignState, LearnedModel, is_running, place_between
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import Trial
from tests.orchestrator.events import (
    asynchronous,
    batch,
    dispatch,
    fold,
    refresh,
    session,
    success,
)


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


def test_pickled_queue_has_its_own_items_only() -> None:
    queue = Queue(range(1000)).without_first(998)
    assert pickle.loads(pickle.dumps(queue)) == (998, 999)
    assert len(pickle.dumps(queue)) < 200


def test_queue_rejects_an_index_beyond_its_end() -> None:
    with pytest.raises(IndexError):
        Queue([1])[1]


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


DAY = 86400.0
times = st.floats(0.0, 1e6).map(lambda it: round(it, 3))


def test_times_of_a_correct_clock_are_unchanged() -> None:
    assert place_between(105.0, 108.0, dispatched=104.0, arrived=109.0) == (105.0, 108.0)


@pytest.mark.parametrize("wrong_by", [-DAY, DAY])
def test_times_of_a_wrong_clock_are_moved_into_the_attempt(wrong_by: float) -> None:
    started, finished = place_between(105.0 + wrong_by, 108.0 + wrong_by, dispatched=104.0, arrived=109.0)
    assert 104.0 <= started <= finished <= 109.0
    assert finished - started == 3.0


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf])
def test_times_of_a_broken_clock_are_those_of_the_attempt(time: float) -> None:
    assert place_between(time, time, dispatched=104.0, arrived=109.0) == (104.0, 109.0)


@given(started=times, finished=times, dispatched=times, waited=times)
def test_evaluation_lies_between_dispatch_and_arrival(
    started: float, finished: float, dispatched: float, waited: float
) -> None:
    arrived = dispatched + waited
    first, last = place_between(started, finished, dispatched, arrived)
    assert dispatched <= first <= last <= arrived
    assert last - first == pytest.approx(min(max(0.0, finished - started), waited), abs=1e-6)


def record(**changes: object) -> dict[str, object]:
    model = {"inside": 38, "predicted": 40, "noise": 0.001, "most_pulled": [7, 3], "pulls": 60}
    return {"dictionary": [1, 2], "model": {**model, **changes}}


def learned_model(**changes: object) -> LearnedModel:
    model = LearnedModel.of(record(**changes))
    assert model is not None
    return model


def test_record_without_a_fitted_model_has_no_remark() -> None:
    assert LearnedModel.of({"dictionary": [1, 2]}) is None


def test_valid_model_has_a_share_and_no_remark() -> None:
    assert learned_model().share == 0.95
    assert learned_model().remarks == ()


def test_share_is_omitted_for_few_results() -> None:
    assert learned_model(inside=1, predicted=5).share is None
    assert learned_model(inside=1, predicted=5).remarks == ()


def test_overconfident_model_is_remarked_on() -> None:
    (remark,) = learned_model(inside=24).remarks
    assert remark.startswith("the model is overconfident: 60% of 40 results")


def test_share_that_chance_explains_is_not_overconfidence() -> None:
    assert learned_model(inside=30).remarks == ()
    assert learned_model(inside=300, predicted=400).remarks


def test_misses_of_a_single_refresh_are_not_overconfidence() -> None:
    """In the run of the first tutorial, seven of ten results near the optimum were better than
    predicted."""
    model = learned_model(inside=17, predicted=24)
    assert model.share is not None
    assert (round(model.share, 2), model.remarks) == (0.71, ())


def test_candidate_with_a_fifth_of_noiseless_evaluations_is_remarked_on() -> None:
    (remark,) = learned_model(most_pulled=[7, 13]).remarks
    assert remark.startswith("candidate 7 took 13 of 60 evaluations")
    assert "objective.deterministic" in remark
    assert learned_model(most_pulled=[7, 13], noise=0.2).remarks == ()
    assert learned_model(most_pulled=[7, 12]).remarks == ()


def test_record_of_an_older_version_has_no_cautious_correlations() -> None:
    pairs = {"reliability": [[4, 0.5], [8, 1.0]], "cautious_reliability": [[4, 0.3], [8, 1.0]]}
    model = LearnedModel.of({**record(), **pairs})
    assert model is not None
    assert (model.steps, model.cautious_steps) == (((4, 0.5), (8, 1.0)), ((4, 0.3), (8, 1.0)))
    older = LearnedModel.of({**record(), "reliability": pairs["reliability"]})
    assert older is not None
    assert (older.steps, older.cautious_steps) == (model.steps, ())
