"""The table of strategies: names, and classes that are imported when they are looked up."""

import subprocess
import sys

import pytest

from bbkb.orchestrator.bandit.strategies import STRATEGIES


def test_strategies_name_their_classes() -> None:
    assert [STRATEGIES.name_of(cls) for cls in STRATEGIES.values()] == list(STRATEGIES)
    assert STRATEGIES.name_of(dict) is None


def test_strategies_have_no_other_name() -> None:
    assert "gp_ucb2" not in STRATEGIES
    with pytest.raises(KeyError):
        STRATEGIES["gp_ucb2"]


def test_settings_of_the_default_strategy_import_no_other_strategy() -> None:
    script = """
import sys
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy
dump_strategy(build_strategy("bbkb"))
print([name for name in sys.modules if name.endswith((".papers", ".problems", ".interop"))])
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"
