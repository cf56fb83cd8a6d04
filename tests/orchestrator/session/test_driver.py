"""The loop: what is stored when, replay equals live state, stopping, breaking."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from objectives.objective import Candidates, Evaluation, Parameters, Report
from orchestrator.bandit.start.warm_start import DataStart
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.campaign.commands import Close
from orchestrator.campaign.endings import SessionOutcome
from orchestrator.campaign.events import (
    CampaignCreated,
    Event,
    ExistingTaken,
    SessionClosed,
    SessionOpened,
    TrialSucceeded,
)
from orchestrator.campaign.status import Status
from orchestrator.errors import CampaignError, FencedError, StoreError
from orchestrator.history.fold import fold
from orchestrator.session.driver import Driver
from orchestrator.session.problem import Problem, Progress, replay
from orchestrator.store.event_store import EventStore
from orchestrator.store.store import Writer
from workers.executor import Executor
from workers.inline import InlineExecutor
from workers.messages import FailureKind, Limits
from workers.simulated import Durations, Failures, SimulatedExecutor


@dataclass(frozen=True)
class Parabola:
    """Best at x = 0.3; fails where the test wants it."""

    breaks_below: float = -1.0

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        if parameters["x"] < self.breaks_below:
            raise RuntimeError("too small")
        noise = 0.01 * np.random.default_rng(seed).standard_normal()
        return Evaluation(1.0 - (parameters["x"] - 0.3) ** 2 + float(noise))


@dataclass
class Campaign:
    """A campaign on a SQLite file that can be run, killed and resumed."""

    folder: Path
    evaluations: int = 30
    objective: Any = field(default_factory=Parabola)
    strategy: str = "bbkb"
    slots: int = 3
    existing: bool = False

    def __post_init__(self) -> None:
        x = np.linspace(0.0, 1.0, 101)
        self.problem = Problem("parabola", 7, Candidates(x[:, None], {"x": x}), STRATEGIES[self.strategy]())
        self.store = EventStore(f"sqlite:///{self.folder / 'campaign.sqlite'}")
        self.settings: dict[str, Any] = {
            "objective": {"direction": "maximize"},
            "budget": {"evaluations": self.evaluations},
            "workers": {"retries": 1},
        }
        created = CampaignCreated(
            time=0.0,
            name="parabola",
            seed=7,
            arms=101,
            candidates_digest="",
            objective="",
            optimum=1.0,
            settings=self.settings,
        )
        self.store.create("c", [created, *self.existing_events()])

    def existing_events(self) -> list[Event]:
        """A steeper parabola than the campaign's own, with its top elsewhere: as another data set would give."""
        if not self.existing:
            return []
        arms = tuple(range(0, 100, 2)) + tuple(range(0, 90, 3))
        values = tuple(1.0 - 4.0 * (arm / 100 - 0.6) ** 2 for arm in arms)
        event = ExistingTaken(time=0.0, source="t.csv", arms=arms, values=values, unmatched=0, first_unmatched="")
        return [event]

    def events(self) -> list[Event]:
        return list(self.store.read("c"))

    def driver(self, executor: Executor, observe: Any = lambda status: None) -> Driver:
        writer = self.store.claim("c", "test")
        return Driver(self.problem, replay(self.problem, self.events()), writer, executor, observe)

    def session_event(self, executor: Executor, **settings: Any) -> SessionOpened:
        return SessionOpened(
            time=executor.now(), epoch=1, executor="test", slots=executor.slots, settings={**self.settings, **settings}
        )

    def simulated_executor(self, failure_rate: float = 0.0) -> SimulatedExecutor:
        failures = Failures(failure_rate, FailureKind.WORKER_LOST)
        return SimulatedExecutor(self.objective, self.slots, Durations(1.0, 0.5), failures, 7)

    def run(self, executor: Executor) -> Close:
        return self.driver(executor).run(self.session_event(executor))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["inline", "simulated"])
def test_a_campaign_ends_with_every_trial_evaluated_once(tmp_path: Path, strategy: str, kind: str) -> None:
    campaign = Campaign(tmp_path, strategy=strategy)
    executor = campaign.simulated_executor() if kind == "simulated" else InlineExecutor(campaign.objective, Limits())
    assert campaign.run(executor) == Close(SessionOutcome.FINISHED, "budget spent")
    succeeded = [event.trial for event in campaign.events() if isinstance(event, TrialSucceeded)]
    assert sorted(succeeded) == list(range(30))


def test_bbkb_finds_the_top_of_a_parabola(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=60)
    campaign.run(campaign.simulated_executor())
    best = fold(campaign.events()).best
    assert best is not None
    assert abs(cast(float, best.parameters["x"]) - 0.3) < 0.1


def test_an_interrupt_just_after_a_transaction_writes_nothing_twice(tmp_path: Path, monkeypatch: Any) -> None:
    campaign, calls = Campaign(tmp_path), itertools.count()
    append = Writer.append

    def append_and_interrupt(self: Writer, events: Any, position: int | None = None) -> None:
        append(self, events, position)
        if next(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Writer, "append", append_and_interrupt)
    assert campaign.run(campaign.simulated_executor()).outcome == "interrupted"
    assert next(calls) == 6  # the end of the session was written after the interrupt
    events = campaign.events()
    assert len({repr(event) for event in events}) == len(events)
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    succeeded = [event.trial for event in campaign.events() if isinstance(event, TrialSucceeded)]
    assert sorted(succeeded) == list(range(30))


def test_the_log_replayed_gives_the_live_state(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor(failure_rate=0.2)
    driver = campaign.driver(executor)
    driver.run(campaign.session_event(executor))
    again = replay(campaign.problem, campaign.events())
    assert again.campaign == driver._campaign
    assert campaign.problem.strategy.recorded(again.model) == campaign.problem.strategy.recorded(driver._model)
    ours, theirs = (campaign.problem.strategy.posterior(model) for model in (again.model, driver._model))
    np.testing.assert_array_equal(ours.ucb, theirs.ucb)


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the driver may catch it."""


@pytest.mark.parametrize("seed", range(5))
def test_a_campaign_killed_again_and_again_makes_the_same_decisions_as_one_left_alone(
    tmp_path: Path, seed: int
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    undisturbed = Campaign(tmp_path / "a")
    undisturbed.run(undisturbed.simulated_executor())
    campaign = Campaign(tmp_path / "b")
    chance = np.random.default_rng(seed)
    close, kills = None, 0
    while close is None:
        lives = int(chance.integers(1, 15))

        def observe(status: Status) -> None:
            nonlocal lives
            lives -= 1
            if lives == 0:
                raise Killed

        executor = campaign.simulated_executor()
        try:
            close = campaign.driver(executor, observe).run(campaign.session_event(executor))
        except Killed:
            kills += 1
    assert kills > 3
    rows, expected = fold(campaign.events()).trials, fold(undisturbed.events()).trials
    assert [(row.arm, row.value) for row in rows] == [(row.arm, row.value) for row in expected]


def test_a_result_is_stored_before_anything_is_done_about_it(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, slots=1, evaluations=8)
    inner = campaign.simulated_executor()
    stored_when_submitting: list[int] = []

    class Watched:
        slots = 1
        handed_out = acknowledged = 0

        def submit(self, trials: Sequence[Any]) -> None:
            stored = sum(isinstance(event, TrialSucceeded) for event in campaign.events())
            stored_when_submitting.append(stored)
            assert stored == self.handed_out == self.acknowledged
            inner.submit(trials)

        def next_outcomes(self, timeout: float | None) -> list[Any]:
            outcomes = inner.next_outcomes(timeout)
            self.handed_out += len(outcomes)
            return outcomes

        def listen(self, take: Any) -> None:
            inner.listen(take)

        def adopt(self, attempts: Any) -> frozenset[int]:
            return inner.adopt(attempts)

        def acknowledge(self, attempts: Any) -> None:
            self.acknowledged += len(attempts)

        def cancel(self, trials: Any) -> None:
            inner.cancel(trials)

        def now(self) -> float:
            return inner.now()

        def close(self, leave_running: bool = False) -> None:
            inner.close(leave_running)

    campaign.run(cast(Executor, Watched()))
    assert stored_when_submitting == list(range(8))


def test_a_doubled_result_is_counted_once(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=10)
    executor = campaign.simulated_executor()
    single = executor.next_outcomes
    executor.next_outcomes = lambda timeout: 2 * single(timeout)  # type: ignore[method-assign]  # an echo on the wire
    assert campaign.run(executor).outcome == "finished"
    history = fold(campaign.events())
    assert len(history.attempts) == history.status().done == 10


def test_a_clean_stop_lets_running_evaluations_end(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver: Driver = campaign.driver(executor, lambda status: driver.stop() if status.succeeded == 5 else None)
    assert driver.run(campaign.session_event(executor)).outcome == "interrupted"
    rows = fold(campaign.events()).trials
    assert not any(row.status == "running" for row in rows)


def test_a_stop_at_once_gives_running_evaluations_back(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver: Driver = campaign.driver(executor, lambda status: driver.stop(now=True) if status.succeeded == 5 else None)
    close = driver.run(campaign.session_event(executor))
    assert "were cancelled" in close.reason
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    assert fold(campaign.events()).status().done == 30


def test_failing_arms_are_set_aside_and_the_campaign_goes_on(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=40, objective=Parabola(breaks_below=0.2))
    assert campaign.run(campaign.simulated_executor()).outcome == "finished"
    history = fold(campaign.events())
    failed = [row for row in history.trials if row.status == "failed"]
    assert failed
    assert all(row.attempts == 2 for row in failed)
    assert all("RuntimeError: too small" in row.error for row in failed)
    batches_after = {row.arm: row.batch for row in failed}
    assert not [row for row in history.trials if row.arm in batches_after and row.batch > batches_after[row.arm]]


def test_a_campaign_in_which_everything_fails_ends_soon_and_says_why(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=101, objective=Parabola(breaks_below=2.0))
    close = campaign.run(campaign.simulated_executor())
    assert close.outcome == "failed"
    assert "RuntimeError: too small" in close.reason
    assert len(fold(campaign.events()).trials) < 20


def test_a_writer_that_was_fenced_off_stops_without_writing(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()

    def take_over(status: Status) -> None:
        if status.succeeded == 3:
            campaign.store.claim("c", "a usurper")

    with pytest.raises(FencedError, match="a usurper"):
        campaign.driver(executor, take_over).run(campaign.session_event(executor))
    assert fold(campaign.events()).sessions[-1].outcome == "killed"


def test_a_strategy_that_breaks_is_reported_and_nothing_finished_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver = campaign.driver(executor)

    def raise_error(*arguments: Any) -> Any:
        raise ArithmeticError("no such number")

    monkeypatch.setattr(type(campaign.problem.strategy), "tell", raise_error)
    with pytest.raises(CampaignError, match="ArithmeticError in refitting the model: no such number"):
        driver.run(campaign.session_event(executor))
    events = campaign.events()
    assert isinstance(events[-1], SessionClosed)
    assert fold(events).status().done > 0


def test_replay_of_nothing_is_a_fresh_start(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    fresh = replay(campaign.problem, campaign.events())
    assert isinstance(fresh, Progress)
    assert fresh.campaign.trials == 0


STARTING = [name for name, cls in STRATEGIES.items() if "warm_start" in {option.name for option in fields(cls)}]


def campaign_with_existing(folder: Path, strategy: str, direction: str = "maximize", **options: Any) -> Campaign:
    """A campaign that knows 80 values of a parabola with its top (or bottom) at x = 0.6."""
    campaign = Campaign(folder, evaluations=12, strategy=strategy, existing=True, **options)
    campaign.settings["objective"] = {"direction": direction}
    campaign.problem = replace(
        campaign.problem, strategy=STRATEGIES[strategy](warm_start=DataStart("t.csv"), regularization=0.01)
    )
    return campaign


@pytest.mark.parametrize("strategy", STARTING)
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_campaign_with_existing_data_chooses_with_them_in_its_posterior(
    tmp_path: Path, strategy: str, direction: str
) -> None:
    campaign = campaign_with_existing(tmp_path, strategy, direction)
    campaign.run(campaign.simulated_executor())
    history = fold(campaign.events())
    first = history.batches[0].picks[0]
    # the parabola falls to both sides: the best known place when maximised, an end when minimised
    assert (abs(cast(float, first.parameters["x"]) - 0.6) < 0.2) == (direction == "maximize")
    assert len(history.trials) == 12
    assert history.existing is not None
    assert (history.refreshes[0].trials, history.refreshes[0].round) == ((), 1)


@pytest.mark.parametrize("strategy", STARTING)
def test_existing_data_are_learned_once_and_a_replay_gives_the_live_state(tmp_path: Path, strategy: str) -> None:
    campaign = campaign_with_existing(tmp_path, strategy)
    executor = campaign.simulated_executor()
    driver = campaign.driver(executor)
    driver.run(campaign.session_event(executor))
    again = replay(campaign.problem, campaign.events())
    assert again.model == driver._model
    assert again.campaign == driver._campaign
    assert driver._model.pulls.total == 80 + 12


def test_a_campaign_killed_before_it_has_learned_existing_data_learns_them_on_resume(tmp_path: Path) -> None:
    campaign = campaign_with_existing(tmp_path, "bbkb")

    def kill(status: Status) -> None:
        raise Killed

    executor = campaign.simulated_executor()
    with pytest.raises(Killed):
        campaign.driver(executor, kill).run(campaign.session_event(executor))
    assert not fold(campaign.events()).refreshes  # what it learned was not committed yet
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    (tmp_path / "undisturbed").mkdir()
    undisturbed = campaign_with_existing(tmp_path / "undisturbed", "bbkb")
    undisturbed.run(undisturbed.simulated_executor())
    ours, theirs = (fold(one.events()) for one in (campaign, undisturbed))
    assert [row.arm for row in ours.trials] == [row.arm for row in theirs.trials]


def test_a_store_that_is_away_for_a_while_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign, calls = Campaign(tmp_path), itertools.count()
    append = Writer.append

    def append_or_fail(self: Writer, events: Any, position: int | None = None) -> None:
        if 3 <= next(calls) < 6:
            raise StoreError("the server restarts", is_transient=True)
        append(self, events, position)

    monkeypatch.setattr(Writer, "append", append_or_fail)
    monkeypatch.setattr("orchestrator.session.recorder._STORE_RETRY_SECONDS", 0.001)
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    assert len(fold(campaign.events()).succeeded) == 30


@pytest.mark.parametrize("is_transient", [True, False])
def test_a_store_that_stays_away_ends_the_session_and_leaves_evaluations_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_transient: bool
) -> None:
    campaign, calls = Campaign(tmp_path), itertools.count()
    append = Writer.append

    def append_or_fail(self: Writer, events: Any, position: int | None = None) -> None:
        if next(calls) >= 5:
            raise StoreError("the disk is full", is_transient)
        append(self, events, position)

    monkeypatch.setattr(Writer, "append", append_or_fail)
    monkeypatch.setattr("orchestrator.session.recorder._STORE_RETRY_SECONDS", 0.001)
    monkeypatch.setattr("orchestrator.session.recorder.STORE_PATIENCE_SECONDS", 0.01)
    executor = campaign.simulated_executor()
    closed: list[Any] = []
    monkeypatch.setattr(executor, "close", closed.append)
    with pytest.raises(StoreError, match="the disk is full"):
        campaign.run(executor)
    assert closed == [True]
    monkeypatch.setattr(Writer, "append", append)
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")


def test_an_attempt_past_its_deadline_is_cancelled_and_what_it_says_later_is_ignored(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, slots=4)
    campaign.settings |= {"workers": {"retries": 1, "timeout_factor": 3.0}, "strategy": {"mode": "async"}}

    class Straggling(Durations):
        def draw(self, rng: np.random.Generator) -> float:
            return 500.0 if rng.random() < 0.1 else 5.0

    executor = SimulatedExecutor(campaign.objective, 4, Straggling(), Failures(), 7)
    campaign.run(executor)
    history = fold(campaign.events())
    given_up = [attempt for attempt in history.attempts if attempt.failure == "timeout"]
    assert given_up
    assert history.status().done == 30
    keys = [(attempt.trial, attempt.attempt) for attempt in history.attempts]
    assert len(set(keys)) == len(keys)
