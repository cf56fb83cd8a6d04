"""Campaigns whose end completes two trials."""

import pytest

from bbkb.orchestrator.campaign import settings


@pytest.fixture(autouse=True)
def finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete the two best unfinished trials at the end of a budget."""
    monkeypatch.setattr(settings, "FINISH", 2)
