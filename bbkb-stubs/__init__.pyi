"""The types of `bbkb`, which is a module and so cannot have a `py.typed` marker (PEP 561)."""

from objectives.goals import Constraint as Constraint
from objectives.goals import Objective as Objective
from objectives.machines import Machine as Machine
from objectives.objective import EvaluationStopped as EvaluationStopped
from objectives.objective import ObjectiveError as ObjectiveError
from objectives.parameters import Choice as Choice
from objectives.parameters import Ordered as Ordered
from objectives.parameters import Range as Range
from orchestrator.api import Campaign as Campaign
from orchestrator.api import Result as Result
from orchestrator.api import Submitted as Submitted
from orchestrator.api import load as load
from orchestrator.api import tune as tune
from orchestrator.ask_tell.candidates import CandidateOptimizer as CandidateOptimizer
from orchestrator.ask_tell.space import OpenTrial as OpenTrial
from orchestrator.ask_tell.space import Optimizer as Optimizer
from orchestrator.campaign.trial_result import TrialResult as TrialResult
from orchestrator.errors import BbkbError as BbkbError
from orchestrator.errors import CampaignError as CampaignError
from orchestrator.errors import ConfigError as ConfigError
from orchestrator.errors import RunError as RunError
from orchestrator.errors import StoreError as StoreError
from orchestrator.errors import UserError as UserError
from orchestrator.version import __version__ as __version__

from . import adapters as adapters
from . import integrations as integrations
from . import strategies as strategies
from . import strategy as strategy
from . import types as types

def import_own_packages() -> None: ...
def main() -> None: ...
