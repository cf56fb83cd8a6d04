"""Asynchronous campaigns: the conditions of the proof hold at every pick, and no worker waits for
the strategy."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.termination import Termination
from bbkb.orchestrator.bandit.start.warm_start import UncertaintyStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from bbkb.orchestrator.campaign.events import AttemptEnded, BatchChosen, Event, TrialSucceeded
from bbkb.orchestrator.engine.engine import INIT, TELL
from bbkb.orchestrator.session.driver import Driver
from bbkb.orchestrator.settings.strategies import build_strategy
from bbkb.orchestrator.store.store import EventStore
from bbkb.workers.local import DurationModel
from tests.examples import examples
from tests.orchestrator.fakes import Campaign, Parabola, Puppet

X = np.linspace(0.0, 1.0, 41)
KERNEL, LAMBDA, EVALUATIONS = RBF(0.15), 0.2, 40


def exact_strategy(**options: Any) -> BBKB:
    """BBKB with every pulled arm in its dictionary: its posterior is the exact one."""
    start = UncertaintyStart(workers=4, max_pulls=5)
    return BBKB(kernel=KERNEL, regularization=LAMBDA, oversampling=1e9, warm_start=start, **options)


def run(
    folder: Path, strategy: Any, slots: int = 4, sigma: float = 1.0, failure_rate: float = 0.0, seed: int = 1
) -> tuple[Campaign, Driver]:
    """A campaign in virtual time that has been run to its end."""
    campaign = make(folder, strategy, slots)
    executor = campaign.simulated_executor(failure_rate, DurationModel(1.0, sigma), seed)
    driver = campaign.driver(executor)
    assert driver.run(campaign.session_event(executor)).outcome == "finished"
    return campaign, driver


def make(folder: Path, strategy: Any, slots: int) -> Campaign:
    objective = Parabola(breaks_below=0.04, noise=0.05)
    return Campaign(folder, EVALUATIONS, objective, strategy, slots, points=len(X))


def exact_variance(pulled: Sequence[int]) -> Floats:
    """σ² of every arm on the 1/λ scale after these pulls."""
    pulls = Pulls.none(len(X)).add(pulled, np.zeros(len(pulled)))
    return exact_posterior(KERNEL, X[:, None], pulls, LAMBDA)[1]


def arms_in_posterior(model: Any) -> list[int]:
    """The multiset of arms in the posterior."""
    return np.repeat(np.arange(len(X)), model.pulls.counts).tolist()


@settings(max_examples=examples(8))
@given(
    seed=st.integers(0, 2**16), slots=st.integers(1, 9), sigma=st.floats(0.0, 2.0), failure_rate=st.floats(0.0, 0.4),
    threshold=st.sampled_from([1.5, 3.0]), growth=st.sampled_from([0.0, 0.05, 1e9]),
    rule=st.sampled_from(["global", "global_then_local", "product"]),
)  # fmt: skip
def test_posterior_drifts_no_further_than_the_widths_in_any_order_of_results(
    tmp_path_factory: pytest.TempPathFactory, seed: int, slots: int, sigma: float, failure_rate: float,
    threshold: float, growth: float, rule: Termination,
) -> None:  # fmt: skip
    """At each pick by upper bounds: σ²_D(x) / σ²_{D ∪ P}(x) ≤ C̃ for every arm x, D and P being the
    learned and the pending pulls at that moment, with exact posteriors; and the sum over P is
    within the budget."""
    strategy = exact_strategy(ratio_threshold=threshold, refresh_growth=growth, termination=rule, mode="async")
    campaign, _ = run(tmp_path_factory.mktemp("run"), strategy, slots, sigma, failure_rate, seed)
    engine, checked = campaign.problem.engine(), 0
    for event in campaign.events():
        if isinstance(event, BatchChosen) and event.reason != "warm start":
            learned, pending = arms_in_posterior(engine.model), list(engine.state.pending)
            before = exact_variance(learned)
            for pick in event.picks:
                assert (before <= threshold * exact_variance([*learned, *pending]) * (1 + 1e-6)).all()
                if rule == "global":
                    assert 1.0 + before[pending].sum() <= threshold + 1e-6
                pending.append(pick.arm)
                checked += 1
        engine.restore(event)
    assert checked > 0
    totals = engine.state.totals
    assert totals.chosen == totals.succeeded + totals.failed == EVALUATIONS


@pytest.mark.parametrize("name", ["bbkb", "gp_bucb", "async_ts", "epsilon_greedy"])
def test_free_worker_gets_a_pick_at_once_by_default(tmp_path: Path, name: str) -> None:
    _, driver = run(tmp_path, build_strategy(name))
    # in simulated time workers are idle only when nothing is left to be dispatched
    assert set(driver.status().workers.idle_seconds) <= {"campaign_end"}


@pytest.mark.parametrize("name", ["async_ts", "epsilon_greedy"])
def test_workers_wait_for_the_end_of_a_batch_as_published(tmp_path: Path, name: str) -> None:
    _, driver = run(tmp_path, build_strategy({"name": name, "preset": "paper", "batch_size": 4}))
    assert driver.status().workers.idle_seconds["batch_end"] > 0.0


def test_batch_mode_makes_the_pulls_of_a_plain_loop(tmp_path: Path) -> None:
    """The oracle: ask, evaluate all of it, tell; no campaign, no workers."""
    strategy = replace(BBKB(), mode="batch", ratio_threshold=3.0)
    campaign, _ = run(tmp_path, strategy, slots=5, failure_rate=0.2, seed=3)
    problem, events = campaign.problem, campaign.events()
    rewards = {event.trial: event.value for event in events if isinstance(event, TrialSucceeded)}
    state, trial = strategy.init(X[:, None], problem.engine().rng(INIT)), 0
    expected: list[int] = []
    while trial < EVALUATIONS:
        decision = strategy.ask(state, (), EVALUATIONS - trial)
        assert isinstance(decision, Choose)
        arms = [pick.arm for pick in decision.picks]
        # in the order in which they finished: sums of rewards round by it
        finished = [
            event.trial for event in events if isinstance(event, AttemptEnded) and getattr(event, "is_final", True)
        ]
        batch = sorted(range(trial, trial + len(arms)), key=finished.index)
        observations = [Observation(arms[number - trial], rewards.get(number)) for number in batch]
        state = strategy.tell(state, observations, problem.engine().rng(TELL, state.round + 1))
        expected += arms
        trial += len(arms)
    picked = [pick.arm for event in events if isinstance(event, BatchChosen) for pick in event.picks]
    assert picked == expected


@pytest.mark.parametrize("name", [name for name, cls in STRATEGIES.items() if hasattr(cls, "mode")])
def test_replayed_log_gives_the_live_state_and_the_same_decisions(tmp_path: Path, name: str) -> None:
    campaign, driver = run(tmp_path, replace(STRATEGIES[name](), mode="async"), slots=6, failure_rate=0.2, seed=5)
    engine, asked = campaign.problem.engine(), 0
    for event in campaign.events():
        if isinstance(event, BatchChosen):
            decision = engine.strategy.ask(engine.model, engine.state.pending, event.limit)
            picks = decision.picks if isinstance(decision, Choose) else ()
            assert [pick.arm for pick in picks] == [pick.arm for pick in event.picks]
            asked += 1
        engine.restore(event)
    assert asked > 5
    live = driver.recorder.engine
    assert (engine.state, engine.model) == (live.state, live.model)


def test_stragglers_hold_up_no_other_worker(tmp_path: Path) -> None:
    """All workers but the straggler's continue; in a batch they would wait for it."""

    class OneStraggler(DurationModel):
        def draw(self, rng: np.random.Generator) -> float:
            return 30.0 if super().draw(rng) > 2.0 else 1.0

    def makespan(mode: Any) -> float:
        (tmp_path / mode).mkdir()
        campaign = make(tmp_path / mode, replace(BBKB(), mode=mode), slots=4)
        executor = campaign.simulated_executor(durations=OneStraggler(1.0, 0.5), seed=11)
        campaign.run(executor)
        return executor.now()

    assert makespan("async") < 0.7 * makespan("batch")


@pytest.fixture
def slow_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A campaign in a thread whose first refresh does not end before the test lets it."""
    strategy = replace(BBKB(), mode="async", warm_start=UncertaintyStart(max_pulls=2))
    campaign = make(tmp_path, strategy, slots=2)
    began, may_end, tell = threading.Event(), threading.Event(), BBKB.tell

    def slow_tell(*arguments: Any) -> Any:
        began.set()
        assert may_end.wait(200)
        return tell(*arguments)

    monkeypatch.setattr(BBKB, "tell", slow_tell)
    puppet = Puppet()
    driver = campaign.driver(puppet, computes_in_background=True)
    thread = threading.Thread(target=driver.run, args=(campaign.session_event(puppet),))
    thread.start()
    yield puppet, driver, campaign.store, began
    may_end.set()
    driver.stop(now=True)
    thread.join(200)
    assert not thread.is_alive()


def test_result_is_stored_while_the_strategy_computes(slow_campaign: Any) -> None:
    puppet, _, store, began = slow_campaign
    assert puppet.has_news.wait(200)
    first, second = puppet.submitted
    puppet.finish(first)
    assert began.wait(200)
    puppet.finish(second)
    stored = [event.trial for event in store.read("c") if isinstance(event, TrialSucceeded)]
    assert stored == [first.trial, second.trial]


def test_campaign_can_be_stopped_while_the_strategy_computes(slow_campaign: Any) -> None:
    puppet, driver, store, began = slow_campaign
    assert puppet.has_news.wait(200)
    puppet.finish(puppet.submitted[0])
    assert began.wait(200)
    assert driver.status().activity == "refitting the model"
    driver.stop(now=True)
    assert _wait_for(store, "session_closed")


def _wait_for(store: EventStore, kind: str) -> Event | None:
    for _ in range(500):
        for event in store.read("c"):
            if event.kind == kind:
                return event
        threading.Event().wait(0.02)
    return None
