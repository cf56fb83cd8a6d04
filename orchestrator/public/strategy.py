"""What a strategy of your own imports: the protocol, its values, and the parts that strategies
share.

    from bbkb.strategy import Choose, ModelFree, ModelFreeState, Pick

The guide "Choosing a strategy" has a complete example.
"""

from orchestrator.bandit.arms import Arms
from orchestrator.bandit.arrays import read_only
from orchestrator.bandit.checks import refusal
from orchestrator.bandit.growing import Grows
from orchestrator.bandit.kernels import RBF, Kernel, KernelOption, Linear, Matern32, Matern52
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.observations import arms_and_rewards, check_arms, with_set_aside
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.strategies.model_free import ModelFree, ModelFreeState
from orchestrator.bandit.strategy import (
    BeginsWithExisting,
    Choose,
    Decision,
    EstimatesRewards,
    Mode,
    Multiobjective,
    Observation,
    Pick,
    Posterior,
    Prospect,
    Recommends,
    Record,
    RefreshesByGrowth,
    Sequential,
    Strategy,
    StrategyState,
    Wait,
    Waits,
)

__all__ = [
    "RBF",
    "Arms",
    "BeginsWithExisting",
    "Choose",
    "Decision",
    "EstimatesRewards",
    "Grows",
    "Kernel",
    "KernelOption",
    "Linear",
    "Matern32",
    "Matern52",
    "Mode",
    "Model",
    "ModelFree",
    "ModelFreeState",
    "Multiobjective",
    "Observation",
    "Pick",
    "Posterior",
    "Prospect",
    "Pulls",
    "Recommends",
    "Record",
    "RefreshesByGrowth",
    "Sequential",
    "Strategy",
    "StrategyState",
    "Wait",
    "Waits",
    "arms_and_rewards",
    "check_arms",
    "read_only",
    "refusal",
    "with_set_aside",
]
