"""Types that occur only in signatures, for annotations in your code.

    from bbkb.types import CampaignSections, Status

These are the types of `bbkb`, the sections of `CampaignSections`, the parts of `Status`, and the
types of `bbkb.strategy`.
"""

from objectives.conditions import Comparison
from objectives.goals import Direction
from objectives.objective import Candidates
from objectives.parameters import Constant, Parameter
from objectives.space import SearchSpace
from orchestrator.api.arguments import EarlyStopping, Executor, Space
from orchestrator.ask_tell.strategy import StrategyChoice
from orchestrator.bandit.arms import Layout
from orchestrator.bandit.checks import HasArms
from orchestrator.bandit.curves import CurveValues
from orchestrator.bandit.goals import Goals
from orchestrator.bandit.growing import Growth, Perturbation
from orchestrator.bandit.model.curve_kernel import CurveKernel
from orchestrator.bandit.model.curve_numbers import CurveNumbers
from orchestrator.bandit.model.fitting import Fitted
from orchestrator.bandit.model.model import Fitting, Mean, ScoredCurves
from orchestrator.bandit.model.outputs import Outputs
from orchestrator.bandit.pulls import Tally
from orchestrator.bandit.strategies.presets import Calibrated
from orchestrator.bandit.strategy import Posterior
from orchestrator.campaign.attempts import EndedAttempt
from orchestrator.campaign.events import Recommendation
from orchestrator.campaign.status import (
    BestStatus,
    BudgetStatus,
    GoalsStatus,
    ModelStatus,
    PopulationStatus,
    RunningTrial,
    Status,
    TrialsStatus,
    WorkersStatus,
)
from orchestrator.campaign.trainings.reports import Band, Forecast
from orchestrator.campaign.trial_result import Trials
from orchestrator.settings.typed_sections import (
    AshaSection,
    BudgetSection,
    CampaignSections,
    CandidateSection,
    ComputingSection,
    ConstraintSection,
    DataSection,
    FromParameterSection,
    LogSection,
    MedianSection,
    ModelStoppingSection,
    NotifySection,
    ObjectiveMetricSection,
    ObjectiveSection,
    SimulationSection,
    StopWhenSection,
    WorkerSection,
)

__all__ = [  # noqa: RUF022 (in the order of the docstring)
    "Calibrated", "CampaignSections", "Candidates", "Comparison", "Constant", "Direction",
    "EarlyStopping", "Executor", "Parameter", "Posterior", "Recommendation", "SearchSpace",
    "Space", "Status", "StrategyChoice", "Trials",
    # sections
    "AshaSection", "BudgetSection", "CandidateSection", "ComputingSection", "ConstraintSection",
    "DataSection", "FromParameterSection", "LogSection", "MedianSection", "ModelStoppingSection",
    "NotifySection", "ObjectiveMetricSection", "ObjectiveSection", "SimulationSection",
    "StopWhenSection", "WorkerSection",
    # parts of a status
    "Band", "BestStatus", "BudgetStatus", "EndedAttempt", "Forecast", "GoalsStatus", "ModelStatus",
    "PopulationStatus", "RunningTrial", "TrialsStatus", "WorkersStatus",
    # of `bbkb.strategy`
    "CurveKernel", "CurveNumbers", "CurveValues", "Fitted", "Fitting", "Goals", "Growth", "HasArms",
    "Layout", "Mean", "Outputs", "Perturbation", "ScoredCurves", "Tally",
]  # fmt: skip
