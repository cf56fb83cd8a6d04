"""Types that occur only in signatures, for annotations in your code.

    from bbkb.types import Status

These are the types of `bbkb`, the parts of `Status`, and the types of `bbkb.strategy`. The sections
of a campaign file are in `bbkb.settings`.
"""

from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Comparison, Constant, Parameter
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.api.campaign import Concurrency, EarlyStopping, Executor, Space
from bbkb.orchestrator.bandit.arms import Layout
from bbkb.orchestrator.bandit.curves import CurveValues
from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.bandit.model.curve_kernel import CurveKernel, CurveNumbers
from bbkb.orchestrator.bandit.model.fitting import Fitted
from bbkb.orchestrator.bandit.model.model import Fitting, Mean, ScoredCurves
from bbkb.orchestrator.bandit.model.outputs import Outputs
from bbkb.orchestrator.bandit.pulls import Tally
from bbkb.orchestrator.bandit.strategies.presets import Calibrated, StrategyChoice
from bbkb.orchestrator.bandit.strategy import Growth, HasArms, Perturbation, Posterior
from bbkb.orchestrator.campaign.events import Recommendation
from bbkb.orchestrator.campaign.goals import Direction
from bbkb.orchestrator.campaign.results import Trials
from bbkb.orchestrator.campaign.state import EndedAttempt
from bbkb.orchestrator.campaign.status import (
    BestStatus,
    BudgetStatus,
    GoalsStatus,
    ModelStatus,
    RunningTrial,
    Status,
    TrialsStatus,
    WorkersStatus,
)
from bbkb.orchestrator.campaign.trainings import Forecast

__all__ = [  # noqa: RUF022 (in the order of the docstring)
    "Calibrated", "Candidates", "Comparison", "Concurrency", "Constant",
    "Direction", "EarlyStopping", "Executor", "Parameter", "Posterior", "Recommendation", "SearchSpace",
    "Space", "Status", "StrategyChoice", "Trials",
    # parts of a status
    "BestStatus", "BudgetStatus", "EndedAttempt", "Forecast", "GoalsStatus", "ModelStatus",
    "RunningTrial", "TrialsStatus", "WorkersStatus",
    # of `bbkb.strategy`
    "CurveKernel", "CurveNumbers", "CurveValues", "Fitted", "Fitting", "Goals", "Growth", "HasArms",
    "Layout", "Mean", "Outputs", "Perturbation", "ScoredCurves", "Tally",
]  # fmt: skip
