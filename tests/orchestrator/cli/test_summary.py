"""Tests of orchestrator/cli/summary.py: what is said before a campaign begins."""

import io
from typing import Any

import pytest
from rich.console import Console

from orchestrator.cli.summary import say_warnings
from orchestrator.session.assemble import build
from orchestrator.settings.model import from_mapping


def warnings(**sections: Any) -> str:
    settings = from_mapping(
        {"name": "c", "objective": {"name": "branin"}, "budget": {"evaluations": 5}, **sections},
    )
    console = Console(file=io.StringIO(), width=300)
    say_warnings(console, settings, build(settings))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("name", ["gp_ucb", "bkb", "igp_ucb", "expected_improvement"])
def test_a_strategy_that_waits_for_each_result_warns_about_idle_workers(name: str) -> None:
    said = warnings(strategy={"name": name}, workers={"count": 4, "executor": "simulated"})
    assert f"the strategy {name} waits for each result" in said
    assert "one of the 4 workers has work" in said


@pytest.mark.parametrize(("name", "count"), [("gp_ucb", 1), ("bbkb", 4), ("gp_bucb", 4), ("uniform", 4)])
def test_nothing_is_said_where_all_workers_have_work(name: str, count: int) -> None:
    assert warnings(strategy={"name": name}, workers={"count": count, "executor": "simulated"}) == ""
