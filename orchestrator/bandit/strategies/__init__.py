"""The strategies by the names they have in a campaign file. A new one: one file, and one line here."""

from collections.abc import Mapping
from typing import Any

from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategies.uniform import Uniform

STRATEGIES: Mapping[str, type[Any]] = {"bbkb": BBKB, "uniform": Uniform}
