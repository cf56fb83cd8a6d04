"""The strategies, by their names in a campaign file. A new strategy is one file and one line here.

Code that several strategies share belongs in the packages beside this one.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.bandit.strategies.adaptive_discretization import AdaptiveDiscretization
from orchestrator.bandit.strategies.async_ts import AsyncTS
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategies.bkb import BKB
from orchestrator.bandit.strategies.compressed_ei import CompressedEI
from orchestrator.bandit.strategies.compressed_mpi import CompressedMPI
from orchestrator.bandit.strategies.compressed_ucb import CompressedUCB
from orchestrator.bandit.strategies.epsilon_greedy import EpsilonGreedy
from orchestrator.bandit.strategies.expected_improvement import ExpectedImprovement
from orchestrator.bandit.strategies.gp_bucb import GPBUCB
from orchestrator.bandit.strategies.gp_threds import GPThreDS
from orchestrator.bandit.strategies.gp_ucb import GPUCB
from orchestrator.bandit.strategies.igp_ucb import IGPUCB
from orchestrator.bandit.strategies.optuna_sampler import OptunaSampler
from orchestrator.bandit.strategies.probability_of_improvement import ProbabilityOfImprovement
from orchestrator.bandit.strategies.regularized_evolution import RegularizedEvolution
from orchestrator.bandit.strategies.uniform import Uniform

STRATEGIES: Mapping[str, type[Any]] = {
    "bbkb": BBKB,
    "uniform": Uniform,
    "gp_ucb": GPUCB,
    "bkb": BKB,
    "compressed_ucb": CompressedUCB,
    "compressed_ei": CompressedEI,
    "compressed_mpi": CompressedMPI,
    "gp_bucb": GPBUCB,
    "regularized_evolution": RegularizedEvolution,
    "epsilon_greedy": EpsilonGreedy,
    "async_ts": AsyncTS,
    "igp_ucb": IGPUCB,
    "expected_improvement": ExpectedImprovement,
    "probability_of_improvement": ProbabilityOfImprovement,
    "gp_threds": GPThreDS,
    "adaptive_discretization": AdaptiveDiscretization,
    "optuna": OptunaSampler,
}
