"""The summary after a session."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bbkb.orchestrator.cli.summary import summarize
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.terminal import SafeConsole
from bbkb.orchestrator.store.runs import Run
from tests.orchestrator.synthetic_log import SyntheticLog


def summary_of(history: History, waited_seconds: float) -> str:
    console = SafeConsole(file=io.StringIO(), width=200)
    run = Run(Path("runs/demo"), "sqlite://", "demo")
    summarize(console, run, history, "finished", "budget spent", waited_seconds)
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # of a StringIO


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_summary_names_inline_if_ray_takes_longer_than_all_evaluations(factor: float) -> None:
    history = SyntheticLog(sessions=1).history()
    evaluated = sum(row.seconds or 0.0 for row in history.trials)
    text = summary_of(history, factor * evaluated)
    assert ("workers: {executor: inline}" in text) is (factor > 1)


@pytest.mark.parametrize("key", ["gpus", "memory_gb"])
def test_summary_does_not_name_inline_if_evaluations_need_ray(key: str) -> None:
    history = SyntheticLog(sessions=1).history()
    workers = replace(history.settings.workers, **cast(Any, {key: 1.0}))
    history.settings = replace(history.settings, workers=workers)
    assert "inline" not in summary_of(history, 1e9)
