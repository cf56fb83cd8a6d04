"""`benchmarks.papers.campaigns`: An experiment's runs as campaigns of this project, each with a
folder and a log, so that they can be resumed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.papers.campaigns import Comparison, Method, Runs, campaign, finish_and_read, run_all
from benchmarks.papers.experiment import Request
from objectives.tabular import Table
from orchestrator.campaign.events import SessionOpened
from orchestrator.campaign.status import Status
from orchestrator.errors import CampaignError
from orchestrator.session.assemble import OpenSession, build, open_session
from orchestrator.session.first_events import first_events
from orchestrator.store import runs

UNIFORM = Method("uniform", "uniform", {"name": "uniform"})
GREEDY = Method("greedy", "greedy", {"name": "epsilon_greedy"}, evaluations=5)
COMPARISON = Comparison("tiny", {"objective": {"name": "abalone"}}, (UNIFORM, GREEDY))


@pytest.fixture
def request_(tmp_path: Path, data_folder: Path) -> Request:
    return Request(seeds=2, evaluations=9, methods=("uniform",), out=tmp_path, data=data_folder)


def _events_per_run(folder: Path) -> dict[Path, int]:
    return {run: len(runs.open_run(run).events()) for run in sorted(folder.iterdir())}


def _values(runs: Runs, name: str) -> list[list[float]]:
    return [run.values.tolist() for run in runs[name]]


def test_every_method_runs_with_every_seed_and_stops_where_it_should(request_: Request) -> None:
    results = run_all(COMPARISON, request_)
    assert [len(run) for run in results["uniform"]] == [9, 9]
    assert [len(run) for run in results["greedy"]] == [5, 5]
    first, second = _values(results, "uniform")
    assert first != second


def test_a_second_call_reads_what_is_there(request_: Request) -> None:
    first = run_all(COMPARISON, request_)
    logs = _events_per_run(request_.out / "tiny")
    second = run_all(COMPARISON, request_)
    assert _events_per_run(request_.out / "tiny") == logs
    assert len(logs) == 4
    assert _values(first, "greedy") == _values(second, "greedy")


def test_an_interrupted_run_continues_in_its_folder_to_the_same_end(request_: Request, tmp_path: Path) -> None:
    one_seed = replace(request_, seeds=1)
    settings = campaign(COMPARISON, GREEDY, 0, one_seed)
    parts = build(settings)
    events = first_events(settings, parts.problem.candidates, parts.description, 1.0)
    run = runs.create(settings, events, "test")
    sessions: list[OpenSession] = []

    def stop_after_two(status: Status) -> None:
        if status.succeeded >= 2:
            sessions[0].driver.stop(now=True)

    sessions.append(open_session(run, settings, stop_after_two))
    assert sessions[0].run().outcome == "interrupted"
    results = run_all(replace(COMPARISON, methods=(GREEDY,)), one_seed)
    assert [run.folder.name] == [folder.name for folder in (tmp_path / "tiny").iterdir()]
    whole = run_all(COMPARISON, replace(one_seed, out=tmp_path / "elsewhere"))
    assert _values(results, "greedy") == _values(whole, "greedy")


def test_changed_settings_begin_a_run_beside_the_old_one(request_: Request) -> None:
    run_all(COMPARISON, request_)
    bold = replace(GREEDY, strategy={"name": "epsilon_greedy", "exploration": 1.0})
    run_all(replace(COMPARISON, methods=(bold,)), request_)
    assert len(_events_per_run(request_.out / "tiny")) == 6


def test_a_section_may_depend_on_the_seed(request_: Request) -> None:
    shy = replace(GREEDY, strategy=lambda seed: {"name": "epsilon_greedy", "exploration": seed / 10})
    strategies: list[Any] = [campaign(COMPARISON, shy, seed, request_).strategy for seed in range(2)]
    explored = [strategy.exploration for strategy in strategies]
    assert explored == [0.0, 0.1]


@pytest.mark.slow
def test_two_at_a_time_give_the_same_as_one(request_: Request, tmp_path: Path) -> None:
    short = replace(COMPARISON, methods=(GREEDY,))
    both = run_all(short, replace(request_, jobs=2))
    assert _values(both, "greedy") == _values(run_all(short, replace(request_, out=tmp_path / "single")), "greedy")


def test_a_campaign_that_fails_is_an_error_that_names_its_folder(request_: Request, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def broken(x):\n    raise ValueError('no')\n", encoding="utf-8")
    problem = {
        "objective": {"callable": "broken:broken", "options": {"search_paths": [str(tmp_path)]}},
        "space": {"x": {"low": 0, "high": 1}},
        "candidates": {"size": 16},
    }
    with pytest.raises(CampaignError, match="uniform-20-seed0"):
        run_all(Comparison("broken", problem, (UNIFORM,)), replace(request_, evaluations=20))


def test_the_values_are_the_tables(request_: Request) -> None:
    results = run_all(COMPARISON, request_)
    table = build(campaign(COMPARISON, UNIFORM, 0, request_)).objective
    run = results["uniform"][0]
    assert isinstance(table, Table)
    np.testing.assert_allclose(run.values, table.target[run.arms, 0])
    assert run.optimum == 1.0


def test_a_run_whose_course_in_time_matters_is_begun_anew_when_it_was_interrupted(request_: Request) -> None:
    settings = campaign(COMPARISON, GREEDY, 0, request_)
    parts = build(settings)
    first = first_events(settings, parts.problem.candidates, parts.description, 1.0)
    half = runs.create(settings, first, "test")
    events = finish_and_read(settings, is_resumed=False)
    assert len(half.events()) == 1
    assert [event.epoch for event in events if isinstance(event, SessionOpened)] == [1]
    assert len(finish_and_read(settings, is_resumed=False)) == len(events)
    assert len(_events_per_run(request_.out / "tiny")) == 2
