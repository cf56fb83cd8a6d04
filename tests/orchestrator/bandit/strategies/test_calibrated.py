"""Calibrated strategies: invariance, outliers, and repeated arms."""

import itertools
import json
import types
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest

from bbkb import strategies
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.model.outputs import Outputs, score_pulls
from bbkb.orchestrator.bandit.sparse import argmax_queue
from bbkb.orchestrator.bandit.sparse.verification import PLAUSIBLE_PART
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import VERIFY, with_preset
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick, Recommends, Strategy, StrategyState, Wait
from tests.examples import spread
from tests.orchestrator.bandit.eager import eager
from tests.orchestrator.bandit.sequential_runs import arms_of, choice

RNG = np.random.default_rng(0)
FEATURES = RNG.random((80, 2))
VALUES = np.sin(6 * FEATURES[:, 0]) + FEATURES[:, 1] ** 2
MODEL_BASED = [name for name, cls in STRATEGIES.items() if hasattr(cls, "model")]
CHEAP: dict[str, Any] = {"igp_ucb": {"initial_points": 30, "final_points": 60}}
RARELY = pytest.mark.thorough
MAPS = [
    lambda r: -1000 + 500 * r,
    pytest.param(lambda r: 100 * r, marks=RARELY),
    pytest.param(lambda r: 0.01 * r, marks=RARELY),
    pytest.param(lambda r: r + 1000, marks=RARELY),
]


def build(name: str, **options: Any) -> Strategy[Any]:
    result: Strategy[Any] = STRATEGIES[name](**with_preset(STRATEGIES[name], {**CHEAP.get(name, {}), **options}))
    return result


def reward(arm: int, pull: int) -> float:
    return float(VALUES[arm] + 0.05 * np.random.default_rng([arm, pull]).standard_normal())


def run_campaign(
    strategy: Strategy[Any], change: Callable[[float], float] = float, pulls: int = 45, arms: Arms | None = None
) -> tuple[list[int], list[Any], list[list[Observation]]]:
    """Arms pulled, all with two more pending, and the states."""
    states = [strategy.init(Arms.of(FEATURES) if arms is None else arms, np.random.default_rng(1))]
    pulled: list[int] = []
    batches: list[list[Observation]] = []
    pending: list[int] = []
    while len(pulled) < pulls:
        decision = strategy.ask(states[-1], tuple(pending), 1)
        if isinstance(decision, Choose):
            pending.append(decision.picks[0].arm)
        if not isinstance(decision, Choose) or len(pending) == 3:
            pulled.append(pending.pop(0))
            batches.append([Observation(pulled[-1], float(change(np.float64(reward(pulled[-1], len(pulled))))))])
            states.append(strategy.tell(states[-1], batches[-1], np.random.default_rng([2, len(pulled)])))
    return pulled, states, batches


@cache
def unchanged_campaign(name: str) -> tuple[list[int], list[Any], list[list[Observation]]]:
    return run_campaign(build(name))


@pytest.mark.parametrize("change", MAPS)
@pytest.mark.parametrize("name", MODEL_BASED)
def test_rewards_of_another_scale_and_shift_give_the_same_picks(name: str, change: Callable[[float], float]) -> None:
    assert run_campaign(build(name), change)[0] == unchanged_campaign(name)[0]


@pytest.mark.parametrize("wild", [1e30, -1e30])
def test_outlier_does_not_spoil_the_search(wild: float) -> None:
    strategy, count = build("bbkb"), 0

    def change(value: float) -> float:
        nonlocal count
        count += 1
        return wild if count == 10 else value

    pulled, states, _ = run_campaign(strategy, change, pulls=60)
    others = [arm for arm in pulled if arm != pulled[9]]
    assert VALUES[others].max() > np.quantile(VALUES, 0.97)
    assert pulled.count(pulled[9]) < 20
    means = np.where(
        states[-1].pulls.counts > 0, states[-1].pulls.reward_sums / np.maximum(states[-1].pulls.counts, 1), -np.inf
    )
    best = strategy.recommend(states[-1]) if isinstance(strategy, Recommends) else None
    assert VALUES[int(np.argmax(means)) if best is None else best] > np.quantile(VALUES, 0.97)


@pytest.mark.parametrize("name", MODEL_BASED)
def test_fit_is_recorded_and_not_repeated_by_a_restore(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = build(name)
    _, states, batches = unchanged_campaign(name)
    record = json.loads(json.dumps([strategy.recorded(state) for state in states]))
    assert record[-1]["model"]["results"] >= 16

    def refuse(*_: Any) -> None:
        raise AssertionError("a restore must not fit")

    monkeypatch.setattr("bbkb.orchestrator.bandit.model.model.fit", refuse)
    state = strategy.init(Arms.of(FEATURES), np.random.default_rng(1))
    for number, observations in enumerate(batches, 1):
        state = strategy.restore(state, observations, record[number])
        assert state == states[number]


@pytest.mark.parametrize("name", MODEL_BASED)
def test_arm_is_pulled_once_if_rewards_are_declared_deterministic(name: str) -> None:
    pulled = run_campaign(build(name), pulls=60, arms=Arms.of(FEATURES, is_deterministic=True))[0]
    assert len(set(pulled)) == len(pulled)


def test_deterministic_rewards_lead_to_other_arms_while_any_remain() -> None:
    strategy = build("bbkb")
    state, pulled = strategy.init(Arms.of(FEATURES), np.random.default_rng(1)), list[int]()
    for number in range(100):
        pulled.append(choice(strategy.ask(state, (), 1)).picks[0].arm)
        state = strategy.tell(state, [Observation(pulled[-1], VALUES[pulled[-1]])], np.random.default_rng([2, number]))
        if len(set(pulled)) == len(FEATURES):
            break
    assert len(pulled) - len(set(pulled)) <= 1
    assert isinstance(strategy, Recommends)
    assert strategy.recommend(state) is None  # the largest reward is not due to noise
    assert isinstance(strategy.ask(state, (), 2), Choose)


@pytest.mark.parametrize("most", [2**22, 2000])  # 2000: so few that arms are sent back
def test_lazy_and_eager_evaluation_pick_the_same_arms_under_a_fitted_kernel(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(argmax_queue, "MOST_NUMBERS", most)
    strategy = build("bbkb")
    assert isinstance(strategy, BBKB)
    assert run_campaign(strategy)[0] == run_campaign(eager(strategy))[0] == unchanged_campaign("bbkb")[0]


def test_bbkb_never_waits_and_ends_when_every_arm_was_chosen_once() -> None:
    strategy = build("bbkb")
    state = strategy.init(Arms.of(FEATURES, repeats=False), np.random.default_rng(0))
    first = arms_of(strategy.ask(state, (), 500))
    second = strategy.ask(state, tuple(first), 500)
    assert isinstance(second, Wait)
    assert sorted(first) == list(range(len(FEATURES)))


def test_first_pulls_follow_a_sequence() -> None:
    strategy = build("bbkb")
    state = strategy.init(Arms.of(FEATURES, is_sequence=True), np.random.default_rng(0))
    picks = choice(strategy.ask(state, (), 40)).picks
    assert [pick.arm for pick in picks] == list(range(40))
    assert [pick.arm for pick in choice(strategy.ask(state, tuple(range(16)), 4)).picks] == [16, 17, 18, 19]


def test_free_worker_gets_a_pick_during_the_warm_start() -> None:
    strategy = build("bbkb")
    state = strategy.init(Arms.of(FEATURES), np.random.default_rng(0))
    first = arms_of(strategy.ask(state, (), 4))
    state = strategy.tell(state, [Observation(first[0], 0.5)], np.random.default_rng(1))
    assert len(choice(strategy.ask(state, tuple(first[1:]), 30)).picks) == 30


def test_results_are_predicted_before_the_model_knows_them() -> None:
    calibration = run_campaign(build("bbkb"), pulls=60)[1][-1].calibration
    assert calibration.predicted == 60 - 16
    assert calibration.inside > 0.6 * calibration.predicted


@pytest.mark.parametrize("name", MODEL_BASED)
def test_scores_kernel_and_noise_do_not_depend_on_the_strategy(name: str) -> None:
    assert fitted_by(name) == fitted_by("bbkb")


@cache
def fitted_by(name: str) -> tuple[object, ...]:
    """Return the model fitted to the same results."""
    strategy, arms = build(name), np.random.default_rng(5).integers(len(FEATURES), size=40).tolist()
    state = strategy.init(Arms.of(FEATURES), np.random.default_rng(1))
    for part in (arms[:20], arms[20:]):
        learned = [Observation(arm, reward(arm, pull)) for pull, arm in enumerate(part)]
        state = strategy.tell(state, learned, np.random.default_rng(2))
    return state.calibration.fitted, state.model.kernel, state.model.outputs, state.model.mean


def test_compressed_ucb_without_a_budget_is_gp_ucb() -> None:
    expected, states, _ = unchanged_campaign("gp_ucb")
    pulled, compressed, _ = run_campaign(build("compressed_ucb", epsilon=0.0))
    assert pulled == expected
    np.testing.assert_allclose(compressed[-1].belief.mean, states[-1].belief.mean, atol=1e-9)
    assert compressed[-1].model_order == len(pulled)


@pytest.mark.parametrize("name", ["compressed_ucb", "compressed_ei", "compressed_mpi"])
def test_compressed_belief_is_that_of_the_stored_pairs_with_the_scores_of_all_results(name: str) -> None:
    strategy = build(name, verify=0.0)  # so that arms repeat
    _, states, learned = run_campaign(strategy, pulls=60)
    stored: Counter[int] = Counter()
    fits = set()
    for after, observations in zip(states[1:], learned, strict=True):
        stored.update(observations[position].arm for position in after.stored)
        fits.add(after.calibration.fitted)
        order = np.array(sorted(stored))
        assert after.dictionary.tolist() == order.tolist()
        scores = score_pulls(after.pulls, Outputs.HALF_RANK).reward_sums[order] / after.pulls.counts[order]
        fitted, points = after.model, FEATURES[order]
        noise = np.array([fitted.regularization / stored[arm] for arm in order])
        inverse = np.linalg.inv(fitted.kernel.cross(points, points) + np.diag(noise))
        constant = inverse.sum(axis=0) @ scores / (inverse.sum() + 1.0)
        cross = fitted.kernel.cross(FEATURES, points)
        np.testing.assert_allclose(after.belief.mean, constant + cross @ inverse @ (scores - constant), atol=1e-6)
        variance = 1.0 - np.einsum("ap,pq,aq->a", cross, inverse, cross)
        np.testing.assert_allclose(fitted.regularization * after.belief.variance, variance, atol=1e-6)
        assert after.largest == scores.max()
    assert len(fits) > 3
    assert 16 <= states[-1].model_order < 60


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("name", ["bbkb", "gp_bucb"])
def test_converged_search_recommends_by_the_posterior_only_with_noise(name: str, noise: float) -> None:
    rng = np.random.default_rng(3)
    points = np.vstack((rng.random((30, 2)), 0.4 + 1e-5 * rng.standard_normal((90, 2))))
    rewards = -np.sum((points - 0.4) ** 2, axis=1) + noise * 1e-10 * rng.standard_normal(120)
    strategy = build(name)
    assert isinstance(strategy, Recommends)
    state = strategy.init(Arms.of(points, repeats=False), np.random.default_rng(1))
    learned = [Observation(arm, reward) for arm, reward in enumerate(rewards.tolist())]
    state = strategy.tell(state, learned, np.random.default_rng(2))
    assert state.calibration.fitted.noise > 0.05, "the fit to all arms mistakes it for noise"
    recommended = strategy.recommend(state)
    if noise:
        plausible = np.argsort(-rewards)[: len(rewards) // PLAUSIBLE_PART]
        mean = strategy.posterior(state).mean
        assert recommended == plausible[np.argmax(mean[plausible])] != np.argmax(rewards)
    else:
        assert recommended is None  # the largest reward


@pytest.mark.parametrize("name", ["bbkb", "gp_bucb"])
def test_optimum_too_narrow_for_the_model_does_not_lead_to_a_poor_recommendation(name: str) -> None:
    points = np.random.default_rng(2).random((60, 2)) ** 2
    points[:2] = 1e-6
    rewards = -np.abs(np.log10(points) + np.array([3.0, 2.0])).sum(axis=1)
    strategy = build(name)
    assert isinstance(strategy, Recommends)
    state = strategy.init(Arms.of(points, repeats=False), np.random.default_rng(1))
    learned = [Observation(arm, reward) for arm, reward in enumerate(rewards.tolist())]
    state = strategy.tell(state, learned, np.random.default_rng(2))
    assert rewards[np.argmax(strategy.posterior(state).mean)] == rewards.min(), "the fit mistakes the optimum for noise"
    recommended = strategy.recommend(state)
    assert recommended is not None
    assert np.mean(rewards >= rewards[recommended]) <= 1 / PLAUSIBLE_PART


def test_strategy_with_calibrated_settings_is_not_a_base_class() -> None:
    with pytest.raises(TypeError, match=r"bbkb\.strategies is not a class: .* ModelFree"):
        types.resolve_bases((strategies.BBKB,))


CALIBRATED = sorted(
    name for name, strategy in STRATEGIES.items() if "verify" in {field.name for field in fields(strategy)}
)
GRID = np.stack(np.meshgrid(np.linspace(0, 1, 15), np.linspace(0, 1, 15)), axis=-1).reshape(-1, 2)
LEVELS = np.repeat(np.eye(3), 60, axis=0)
CHOICES = np.hstack((LEVELS, np.tile(np.linspace(0, 1, 60), 3)[:, None]))
SETS: Mapping[str, Arms] = {
    "grid": Arms.of(GRID),
    "choices": Arms.of(CHOICES, [0, 0, 0, 1]),
    "integers": Arms.of(np.arange(120.0)[:, None] / 119.0),
}
TRUTHS: Mapping[str, Floats] = {
    name: 0.9 - 0.3 * np.sum((arms.features[:, -2:] - 0.4) ** 2, axis=1) for name, arms in SETS.items()
}
Noise = Callable[[float, np.random.Generator], float]


def exact(value: float, rng: np.random.Generator) -> float:
    return value


def accuracy(value: float, rng: np.random.Generator) -> float:
    """An exact accuracy of 360 examples."""
    return round(value * 360) / 360


def noisy_accuracy(value: float, rng: np.random.Generator) -> float:
    """An accuracy of 360 examples with noise of one example."""
    return round((value + rng.standard_normal() / 360) * 360) / 360


def below_a_step(value: float, rng: np.random.Generator) -> float:
    """Noise that is a tenth of a step: most repeats give the same value."""
    return round((value + rng.standard_normal() / 3600) * 360) / 360


def nearly_exact(value: float, rng: np.random.Generator) -> float:
    return value + 1e-5 * rng.standard_normal()


def noisy(value: float, rng: np.random.Generator) -> float:
    return value + 0.1 * rng.standard_normal()


def noisy_if_good(value: float, rng: np.random.Generator) -> float:
    return value + (0.1 if value > 0.85 else 0.001) * rng.standard_normal()


def nothing_but_noise(value: float, rng: np.random.Generator) -> float:
    return float(rng.standard_normal())


def search(name: str, arms: Arms, truth: Floats, noise: Noise, count: int, seed: int = 0) -> list[Pick]:
    """The picks of an asynchronous search with four workers, or one if the strategy is sequential. It ends early if
    all arms are evaluated, and values are exact."""
    strategy = STRATEGIES[name](**with_preset(STRATEGIES[name], {}))
    workers = 1 if getattr(strategy, "is_sequential", False) else 4
    rng = np.random.default_rng(seed)
    state: StrategyState = strategy.init(arms, np.random.default_rng(seed))
    pending: list[int] = []
    picks: list[Pick] = []
    while len(picks) < count:
        decision = strategy.ask(state, pending, workers - len(pending))
        chosen = decision.picks if isinstance(decision, Choose) else ()
        if not chosen and not pending:
            assert repeats(picks) == len(picks) - len(arms)
            break
        picks += chosen
        pending += [pick.arm for pick in chosen]
        arm = pending.pop(int(rng.integers(len(pending))))
        state = strategy.tell(state, [Observation(arm, noise(float(truth[arm]), rng))], rng)
    return picks


def repeats(picks: list[Pick]) -> int:
    return len(picks) - len({pick.arm for pick in picks})


# with the most repeats
NEARLY_EXACT: Mapping[Noise, int] = {exact: 1, nearly_exact: 1, accuracy: 3, below_a_step: 3, noisy_accuracy: 6}


@pytest.mark.parametrize(("name", "case"), spread(CALIBRATED, itertools.product(SETS, NEARLY_EXACT)))
def test_strategies_hardly_repeat_values_that_are_nearly_exact(name: str, case: tuple[str, Noise]) -> None:
    """If the fit mistakes differences between neighbors for noise, one repeat shows that they are not,
    or up to three if different arms share values."""
    arms, noise = case
    most = NEARLY_EXACT[noise]
    picks = search(name, SETS[arms], TRUTHS[arms], noise, 40)
    verified = sum(pick.reason == "verification" for pick in picks)
    assert verified <= most
    # a converged search repeats the best arm if values vary
    assert repeats(picks) == verified + sum(pick.reason == "exploitation" for pick in picks) <= 3 * most


@pytest.mark.parametrize(
    ("name", "case"), spread(CALIBRATED, itertools.product(SETS, [noisy, noisy_if_good, nothing_but_noise]))
)
def test_strategies_repeat_noisy_values_as_a_share_of_the_picks(name: str, case: tuple[str, Noise]) -> None:
    arms, noise = case
    picks = search(name, SETS[arms], TRUTHS[arms], noise, 60)
    reasons = Counter(pick.reason for pick in picks)
    assert repeats(picks) == reasons["verification"] + reasons["exploitation"]
    assert reasons["verification"] <= VERIFY * len(picks)


@pytest.mark.parametrize("noise", [exact, noisy])
@pytest.mark.parametrize("name", CALIBRATED)
def test_strategies_evaluate_all_of_a_small_set_before_they_repeat_with_a_reason(name: str, noise: Noise) -> None:
    arms = Arms.of(GRID[::12])
    picks = search(name, arms, TRUTHS["grid"][::12], noise, 40)
    seen = set[int]()
    for pick in picks:
        expected = {"verification", "exploitation"} if pick.arm in seen else {""}
        assert pick.reason in ({"exhausted"} if len(seen) == len(arms) else expected)
        seen.add(pick.arm)
    assert len(seen) == len(arms)
    assert (len(picks) < 40) == (noise is exact)


def test_published_settings_leave_repeats_to_the_strategy() -> None:
    for name in CALIBRATED:
        assert "verify" not in with_preset(STRATEGIES[name], {"preset": "paper"})
        assert STRATEGIES[name]().verify == 0.0
