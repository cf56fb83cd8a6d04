"""The strategies for tuning, with options that an editor completes.

    from bbkb.strategies import BBKB

    Optimizer(space, "minimize", strategy=BBKB(coverage=0.1))

Each of them has the calibrated settings of a campaign file; `BBKB.paper(…)` is the published
algorithm. `bbkb strategies` lists the names of all strategies.
"""

from orchestrator.bandit.strategies.async_ts import AsyncTS as _AsyncTS
from orchestrator.bandit.strategies.bbkb import BBKB as _BBKB
from orchestrator.bandit.strategies.expected_improvement import ExpectedImprovement as _ExpectedImprovement
from orchestrator.bandit.strategies.gp_bucb import GPBUCB as _GPBUCB
from orchestrator.bandit.strategies.gp_ucb import GPUCB as _GPUCB
from orchestrator.bandit.strategies.pbt import PBT as _PBT
from orchestrator.bandit.strategies.presets import Calibrated
from orchestrator.bandit.strategies.probability_of_improvement import (
    ProbabilityOfImprovement as _ProbabilityOfImprovement,
)
from orchestrator.bandit.strategies.uniform import Uniform as _Uniform
from orchestrator.interop.optuna_sampler import OptunaSampler as _OptunaSampler

__all__ = [
    "BBKB",
    "GPBUCB",
    "GPUCB",
    "PBT",
    "AsyncTS",
    "ExpectedImprovement",
    "OptunaSampler",
    "ProbabilityOfImprovement",
    "Uniform",
]

BBKB = Calibrated(_BBKB)
GPUCB = Calibrated(_GPUCB)
GPBUCB = Calibrated(_GPBUCB)
AsyncTS = Calibrated(_AsyncTS)
ExpectedImprovement = Calibrated(_ExpectedImprovement)
ProbabilityOfImprovement = Calibrated(_ProbabilityOfImprovement)
Uniform = Calibrated(_Uniform)
OptunaSampler = Calibrated(_OptunaSampler)
PBT = Calibrated(_PBT)
