"""Campaigns in Python: `tune`, `Campaign`, `Result` and `load`, for scripts, notebooks and Ray
jobs.

A campaign started here has the same settings, log, store, resume and report as one from a file.
Terminal output is in `orchestrator.cli`; ask and tell without a campaign is in
`orchestrator.ask_tell`.
"""

from orchestrator.api.campaign import Campaign, tune
from orchestrator.api.result import Result, load
from orchestrator.api.submitted import Submitted
from orchestrator.campaign.trial_result import TrialResult

__all__ = ["Campaign", "Result", "Submitted", "TrialResult", "load", "tune"]
