"""`benchmarks.asynchrony.settings`: The settings of the comparison: problems × durations × workers,
and the methods, which share their options; only the default of this project differs.
"""

from pathlib import Path

from benchmarks.asynchrony.settings import CALIBRATED, Setting
from benchmarks.papers.campaigns import campaign
from benchmarks.papers.experiment import Request
from orchestrator.ask_tell.strategy import named_strategy


def test_the_default_is_what_a_user_gets_who_sets_nothing(tmp_path: Path) -> None:
    comparison = Setting("fcnet", "constant", workers=4, evaluations=10).comparison((CALIBRATED, "batch"))
    default, batch = (campaign(comparison, method, 0, Request(1, 10, (), tmp_path)) for method in comparison.methods)
    assert default.strategy == named_strategy("bbkb", {})
    assert batch.strategy != default.strategy
