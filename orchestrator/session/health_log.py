"""Warnings about the workers and the trainings in the operator's log."""

import logging

from orchestrator.campaign.health import warnings
from orchestrator.campaign.state import CampaignState

_LOGGER = logging.getLogger("bbkb.session")
_CHECK_SECONDS = 30.0  # between two checks, on the executor's clock


class HealthLog:
    """Writes each warning once while it applies."""

    def __init__(self) -> None:
        self._next_check = 0.0
        self._kinds: set[str] = set()  # the warnings that were written and still apply

    def update(self, campaign: CampaignState, now: float) -> None:
        """Write the warnings that apply at the time `now` and are new, if a check is due."""
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_SECONDS
        texts = warnings(campaign, max(0.0, now - campaign.clock.last_time))
        for kind, text in texts.items():
            if kind not in self._kinds:
                _LOGGER.warning("%s", text)
        self._kinds = set(texts)
