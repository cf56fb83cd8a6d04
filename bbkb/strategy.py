"""The names for writing your own strategy.

    from bbkb.strategy import Choose, ModelFree, Observation, Pick, Wait

A strategy subclasses `ModelFree`, receives `Observation` values, and returns `Choose` with `Pick`
values, or `Wait`. The guide "Write a strategy" has complete examples.

Advanced: `Strategy` and `StrategyState` are protocols for strategies without this base class.
`Waits`, `Grows`, `Multiobjective`, `Recommends` and others are optional protocols that a strategy
may implement. `Kernel`, `Model` and `Pulls` are parts of the strategies with a model.
"""

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import read_only
from bbkb.orchestrator.bandit.kernels import RBF, Kernel, KernelOption, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategies.uniform import ModelFree, ModelFreeState
from bbkb.orchestrator.bandit.strategy import (
    BeginsWithExisting,
    Choose,
    Decision,
    EstimatesRewards,
    Grows,
    Mode,
    Multiobjective,
    Observation,
    Pick,
    Posterior,
    Prospect,
    Recommends,
    Record,
    Sequential,
    Strategy,
    StrategyState,
    Wait,
    Waits,
    arms_and_rewards,
    check_arms,
    refusal,
    with_set_aside,
)

__all__ = [  # noqa: RUF022 (the names that every strategy needs come first)
    "ModelFree", "Choose", "Wait", "Pick", "Observation",
    # advanced
    "RBF", "Arms", "BeginsWithExisting", "Decision", "EstimatesRewards", "Grows", "Kernel",
    "KernelOption", "Linear", "Matern32", "Matern52", "Mode", "Model", "ModelFreeState",
    "Multiobjective", "Posterior", "Prospect", "Pulls", "Recommends", "Record",
    "Sequential", "Strategy", "StrategyState", "Waits", "arms_and_rewards", "check_arms",
    "read_only", "refusal", "with_set_aside",
]  # fmt: skip
