"""Runs of strategies, one arm or a whole batch at a time, on a smooth function with noise, and what the tests
of strategies read from them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategy import AnyStrategy, Choose, Decision, Observation, Pick


def value(arms: Floats) -> Floats:
    """The function without noise, of the first and the last feature."""
    result: Floats = np.sin(4 * arms[:, 0]) * np.cos(3 * arms[:, -1])
    return result


def run_sequentially(
    arms: Floats,
    strategy: AnyStrategy,
    rounds: int,
    seed: int = 0,
    noise: float = 0.1,
    fails: Callable[[int], bool] = lambda arm: False,
) -> Iterator[tuple[Any, Pick]]:
    """Every state of a run and the pick at it; arms that `fails` names cannot be evaluated."""
    rng = np.random.default_rng(seed)
    state = strategy.init(Arms.of(arms), rng)
    for _ in range(rounds):
        decision = choice(strategy.ask(state, (), 7))
        (pick,) = decision.picks
        yield state, pick
        reward = None if fails(pick.arm) else float(value(arms[[pick.arm]])[0] + noise * rng.standard_normal())
        state = strategy.tell(state, [Observation(pick.arm, reward)], rng)


def play(
    arms: Floats, strategy: AnyStrategy, rounds: int, seed: int = 0, limit: int = 10_000
) -> Iterator[tuple[Any, Choose]]:
    """Every decision of a synchronous run, and the state before it."""
    rng = np.random.default_rng(seed)
    state = strategy.init(Arms.of(arms), rng)
    for _ in range(rounds):
        decision = choice(strategy.ask(state, (), limit))
        yield state, decision
        picked = [pick.arm for pick in decision.picks]
        rewards = value(arms[picked]) + 0.1 * rng.standard_normal(len(picked))
        observations = [Observation(arm, float(reward)) for arm, reward in zip(picked, rewards, strict=True)]
        state = strategy.tell(state, observations, rng)


def choice(decision: Decision) -> Choose:
    """`decision`, which must be a choice."""
    assert isinstance(decision, Choose), decision
    return decision


def arms_of(decision: Decision) -> list[int]:
    """The arms of `decision`, which must be a choice."""
    return [pick.arm for pick in choice(decision).picks]


def effective_dimension(kernel: Kernel, arms: Floats, pulls: Pulls, regularization: float) -> float:
    """Return d_eff = Tr K (K + λI)⁻¹ over the multiset of pulled arms (BBKB §2)."""
    roots = np.sqrt(pulls.counts[pulls.arms])
    gram = kernel.cross(arms[pulls.arms], arms[pulls.arms]) * np.multiply.outer(roots, roots)
    spectrum = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    return float((spectrum / (spectrum + regularization)).sum())
