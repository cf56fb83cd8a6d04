"""The settings of campaign files with only the sections that a test needs."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from bbkb.orchestrator.campaign.settings import Settings

_ADAPTER = TypeAdapter(Settings)


def settings_from(tree: Mapping[str, Any]) -> Settings:
    """Return the settings of plain values that may lack sections."""
    strategy = {"name": "bbkb", "refresh_growth": math.inf, **tree.get("strategy", {})}
    return _ADAPTER.validate_python({"name": "c", "budget": {"evaluations": 10}, **tree, "strategy": strategy})
