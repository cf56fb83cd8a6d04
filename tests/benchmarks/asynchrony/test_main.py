"""The whole command on tiny tables: every method, durations drawn and recorded."""

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.asynchrony.__main__ import app
from benchmarks.asynchrony.comparing import Courses, run
from benchmarks.asynchrony.settings import LABELS, Setting, settings
from benchmarks.papers.experiment import Request
from orchestrator.errors import UserError

SETTING = Setting("cadata", "lognormal-0.5", 4, 40)


@pytest.fixture(scope="module")
def courses(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Courses:
    request = Request(1, 40, tuple(LABELS), tmp_path_factory.mktemp("out"), data=data_folder)
    return run(SETTING, request, 7, Console(quiet=True))


@pytest.mark.slow
def test_every_method_does_all_evaluations_and_is_never_faster_than_possible(courses: Courses) -> None:
    for (course,) in courses.values():
        assert len(course.values) == 40
        assert course.makespan >= course.least_seconds * (1 - 1e-12)
        idle = course.slots * course.makespan * (1.0 - course.utilisation(0.0, course.makespan))
        assert sum(course.idle_seconds.values()) == pytest.approx(idle, abs=1e-6)


@pytest.mark.slow
def test_the_liar_keeps_every_worker_busy_and_a_barrier_does_not(courses: Courses) -> None:
    (liar,), (barrier,) = courses["liar"], courses["barrier"]
    assert liar.utilisation(liar.warm_up_end, liar.last_start) == pytest.approx(1.0)
    assert barrier.idle_seconds["batch_end"] > 0.0
    assert "batch_end" not in liar.idle_seconds


@pytest.mark.slow
def test_the_command_writes_tables_and_takes_up_what_is_there(data_folder: Path, tmp_path: Path) -> None:
    words = ["--workers", "2", "--problems", "cells,cadata", "--durations", "constant,recorded", "--seeds", "2"]
    words += ["--evaluations", "12", "--methods", "batch", "--out", str(tmp_path), "--data", str(data_folder)]
    first = CliRunner().invoke(app, words, catch_exceptions=False)
    assert first.exit_code == 0
    written = (tmp_path / "results-2" / "findings.json").read_text(encoding="utf-8")
    tables = {table["name"]: table["rows"] for table in json.loads(written)["tables"]}
    assert [row[0] for row in tables["verdict"]] == ["cells, recorded, 2 workers", "cadata, constant, 2 workers"]
    assert len(tables["busy"]) == len(tables["regret"]) == len(tables["origin"]) == 4
    runs = sorted(tmp_path.glob("*/*-seed*"))
    assert len(runs) == 8
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert sorted(tmp_path.glob("*/*-seed*")) == runs
    assert (tmp_path / "results-2" / "findings.json").read_text(encoding="utf-8") == written


def test_recorded_durations_go_with_the_table_that_has_them() -> None:
    options = settings(("fcnet", "cells"), ("constant", "recorded"), (64, 8))
    assert [(option.problem, option.durations, option.workers, option.evaluations) for option in options] == [
        ("fcnet", "constant", 8, 1000),
        ("cells", "recorded", 8, 1000),
        ("fcnet", "constant", 64, 1536),
        ("cells", "recorded", 64, 1536),
    ]


@pytest.mark.parametrize(("problems", "durations"), [(("fcnets",), ("constant",)), (("fcnet",), ("lognormal",))])
def test_an_unknown_name_is_refused(problems: tuple[str, ...], durations: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="must be some of"):
        settings(problems, durations, (8,))
