"""Repeated evaluations, with every strategy that uses the calibrated model: only noisy values are
repeated, as a share of the picks, until all candidates were evaluated."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import VERIFY, with_preset
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick, StrategyState
from tests.examples import spread

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
    """The picks of an asynchronous search with four workers, or one if the strategy is sequential."""
    strategy = STRATEGIES[name](**with_preset(STRATEGIES[name], {}))
    workers = 1 if getattr(strategy, "is_sequential", False) else 4
    rng = np.random.default_rng(seed)
    state: StrategyState = strategy.init(arms, np.random.default_rng(seed))
    pending: list[int] = []
    picks: list[Pick] = []
    while len(picks) < count:
        decision = strategy.ask(state, pending, workers - len(pending))
        chosen = decision.picks if isinstance(decision, Choose) else ()
        assert chosen or pending
        picks += chosen
        pending += [pick.arm for pick in chosen]
        arm = pending.pop(int(rng.integers(len(pending))))
        state = strategy.tell(state, [Observation(arm, noise(float(truth[arm]), rng))], rng)
    return picks


def repeats(picks: list[Pick]) -> int:
    return len(picks) - len({pick.arm for pick in picks})


@pytest.mark.parametrize(
    ("noise", "most"),
    [(exact, 1), (nearly_exact, 1), (accuracy, 3), (below_a_step, 3), (noisy_accuracy, 6)],
)
@pytest.mark.parametrize(("name", "arms"), spread(CALIBRATED, SETS))
def test_strategies_hardly_repeat_values_that_are_nearly_exact(name: str, arms: str, noise: Noise, most: int) -> None:
    """If the fit mistakes differences between neighbors for noise, one or two repeats show that
    they are not; three are needed if different arms share values."""
    picks = search(name, SETS[arms], TRUTHS[arms], noise, 40)
    verified = sum(pick.reason == "verification" for pick in picks)
    assert verified <= most
    # a converged search repeats the best arm if values vary
    assert repeats(picks) == verified + sum(pick.reason == "exploitation" for pick in picks) <= 3 * most


@pytest.mark.parametrize("noise", [noisy, noisy_if_good, nothing_but_noise])
@pytest.mark.parametrize(("name", "arms"), spread(CALIBRATED, SETS))
def test_strategies_repeat_noisy_values_as_a_share_of_the_picks(name: str, arms: str, noise: Noise) -> None:
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


def test_published_settings_leave_repeats_to_the_strategy() -> None:
    for name in CALIBRATED:
        assert "verify" not in with_preset(STRATEGIES[name], {"preset": "paper"})
        assert STRATEGIES[name]().verify == 0.0
