"""Types that occur only in the signatures of `bbkb`, for annotations in your code.

from bbkb.types import CampaignSections, Status
"""

from objectives.goals import Direction
from objectives.objective import Candidates
from objectives.parameters import Parameter
from objectives.space import SearchSpace
from orchestrator.api.arguments import EarlyStopping, Executor, Space
from orchestrator.api.sections import CampaignSections
from orchestrator.ask_tell.older import Front
from orchestrator.ask_tell.strategy import StrategyChoice
from orchestrator.bandit.strategies.presets import Calibrated
from orchestrator.bandit.strategy import Posterior
from orchestrator.campaign.events import Recommendation
from orchestrator.campaign.status import Status
from orchestrator.campaign.trial_result import Trials

__all__ = [
    "Calibrated",
    "CampaignSections",
    "Candidates",
    "Direction",
    "EarlyStopping",
    "Executor",
    "Front",
    "Parameter",
    "Posterior",
    "Recommendation",
    "SearchSpace",
    "Space",
    "Status",
    "StrategyChoice",
    "Trials",
]
