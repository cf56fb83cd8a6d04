"""The strategies for tuning, with options that an editor completes.

    from bbkb.strategies import BBKB

    Optimizer(space, "minimize", strategy=BBKB(coverage=0.1))
    Optimizer(space, "minimize", strategy=BBKB.paper(kernel=RBF(lengthscale=0.3), warm_start=UncertaintyStart()))

Each of them has the calibrated settings of a campaign file. `BBKB.paper(…)` has those of the
authors' experiments, and `BBKB.theory(…)` those of the regret bound. `bbkb strategies` lists the
names of all strategies.

Their options take kernels (`RBF`, `Matern32`, `Matern52`, `Linear`), warm starts (`RandomStart`,
`UncertaintyStart`, `SpreadStart`), and the names of widths (`Schedule`) and of termination rules
(`Termination`).
"""

from bbkb.objectives.errors import checks_arguments
from bbkb.orchestrator.adapters.optuna_sampler import OptunaSampler as _OptunaSampler
from bbkb.orchestrator.bandit.kernels import RBF, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.scheduling import Schedule
from bbkb.orchestrator.bandit.sparse.termination import Termination
from bbkb.orchestrator.bandit.start.warm_start import RandomStart, SpreadStart, UncertaintyStart
from bbkb.orchestrator.bandit.strategies.async_ts import AsyncTS as _AsyncTS
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB as _BBKB
from bbkb.orchestrator.bandit.strategies.bkb import BKB as _BKB
from bbkb.orchestrator.bandit.strategies.gp_bucb import GPBUCB as _GPBUCB
from bbkb.orchestrator.bandit.strategies.gp_ucb import GPUCB as _GPUCB
from bbkb.orchestrator.bandit.strategies.gp_ucb import ExpectedImprovement as _ExpectedImprovement
from bbkb.orchestrator.bandit.strategies.gp_ucb import (
    ProbabilityOfImprovement as _ProbabilityOfImprovement,
)
from bbkb.orchestrator.bandit.strategies.pbt import PBT as _PBT
from bbkb.orchestrator.bandit.strategies.presets import Calibrated
from bbkb.orchestrator.bandit.strategies.uniform import Uniform as _Uniform

__all__ = [
    "BBKB",
    "BKB",
    "GPBUCB",
    "GPUCB",
    "PBT",
    "RBF",
    "AsyncTS",
    "ExpectedImprovement",
    "Linear",
    "Matern32",
    "Matern52",
    "OptunaSampler",
    "ProbabilityOfImprovement",
    "RandomStart",
    "Schedule",
    "SpreadStart",
    "Termination",
    "UncertaintyStart",
    "Uniform",
]

BBKB = Calibrated(checks_arguments(_BBKB))
BKB = Calibrated(checks_arguments(_BKB))
GPUCB = Calibrated(checks_arguments(_GPUCB))
GPBUCB = Calibrated(checks_arguments(_GPBUCB))
AsyncTS = Calibrated(checks_arguments(_AsyncTS))
ExpectedImprovement = Calibrated(checks_arguments(_ExpectedImprovement))
ProbabilityOfImprovement = Calibrated(checks_arguments(_ProbabilityOfImprovement))
Uniform = Calibrated(checks_arguments(_Uniform))
OptunaSampler = Calibrated(checks_arguments(_OptunaSampler))
PBT = Calibrated(checks_arguments(_PBT))
