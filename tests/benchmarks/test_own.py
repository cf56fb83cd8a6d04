"""Own learning curves are recorded, end early or diverge, and are searched like the others."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Range
from benchmarks.command import app_of
from benchmarks.curves import own
from benchmarks.curves.__main__ import main
from benchmarks.curves.campaign import run_campaign
from benchmarks.curves.families import FAMILIES, PROBLEMS
from benchmarks.curves.methods import make_method
from benchmarks.curves.own import STEPS, Rows
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Setting, search

ENDS, DIVERGES = 4, 6


def train(rows: Rows, configuration: Mapping[str, object], seed: int) -> Iterator[float]:
    """A curve that rises; every second one ends after four steps, and the one of seed 6 diverges."""
    for step in range(ENDS if seed % 2 else STEPS):
        yield np.nan if seed == DIVERGES and step == ENDS else seed + step / STEPS


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CurveProblem:
    """A recorded problem half of whose trainings end early."""
    small = own.Own({"x": Range(0.0, 1.0)}, "wine", train)
    monkeypatch.setattr(own, "OWN", {"small": small})
    own.record("small", tmp_path, count=64)
    return own.load("small", tmp_path)


def test_own_curves_end_early_and_keep_the_least_value_after_a_divergence(short: CurveProblem) -> None:
    assert short.arms is not None
    curves = [short.curve(short.arms.parameters(arm)) for arm in range(len(short.arms))]
    assert [len(curve) for curve in curves[:4]] == [STEPS, ENDS, STEPS, ENDS]
    assert curves[DIVERGES][ENDS - 1] > 6
    assert set(curves[DIVERGES][ENDS:]) == {0.0}
    assert short.best == 63 + (ENDS - 1) / STEPS


@pytest.mark.parametrize("method", ["random", "random-short", "bbkb", "bbkb-median", "bbkb-model"])
def test_curves_searches_trainings_that_end_early(short: CurveProblem, method: str) -> None:
    setting = Setting(workers=2, trainings=4, seed=0)
    if method.startswith("bbkb"):
        record = run_campaign(short, method, setting)
    else:
        record = search(short, make_method(method, short, setting), method, setting)
    assert 0 < record.finished <= record.starts
    assert record.finished_regret is not None


def test_curves_without_stopping_pays_for_whole_trainings(problem: CurveProblem) -> None:
    record = run_campaign(problem, "bbkb", Setting(workers=2, trainings=4, seed=0))
    assert record.used[0] == 0.25
    assert record.finished == 4


def test_curves_pairs_the_model_with_every_method_and_the_best_random_search(tmp_path: Path) -> None:
    record = {"problem": "taskset-6", "workers": 8, "trainings": 10, "used": [0.1], "finished_regret": 0.5}
    record |= {"starts": 3, "continuations": 0, "finished": 1, "seconds": 0.0}
    for method, regrets in {"bbkb-model": (0.1, 0.3), "random": (0.4, 0.4), "random-asha": (0.2, 0.3)}.items():
        lines = [
            json.dumps({**record, "method": method, "seed": seed, "regrets": [regret]})
            for seed, regret in enumerate(regrets)
        ]
        (tmp_path / f"{method}.jsonl").write_text("\n".join(lines))
    options = ["--report", "--problems", "taskset-verdict", "--methods", "bbkb-model,random,random-asha"]
    sizes = ["--trainings", "10", "--seeds", "2", "--out", str(tmp_path)]
    CliRunner().invoke(app_of(main), [*options, *sizes], catch_exceptions=False)
    (paired,) = (tmp_path / "results").glob("curves-taskset-verdict-*-paired.csv")
    rows = [line.split(",") for line in paired.read_text().splitlines()]
    assert [row[-2:] for row in rows] == [
        ["100%", "searches"],
        ["-0.200 ± 0.100", "2"],
        ["-0.050 ± 0.050", "2"],
        ["-0.050 ± 0.050", "2"],
    ]


def test_families_have_two_halves_without_a_common_problem() -> None:
    assert len(set(PROBLEMS)) == len(PROBLEMS)
    assert [len(FAMILIES[f"{name}-verdict"]) for name in ("lcbench", "taskset", "own")] == [17, 3, 5]


@pytest.mark.parametrize("name", own.OWN)
def test_own_trainings_report_values(name: str, tmp_path: Path) -> None:
    with np.load(own.record(name, tmp_path, count=2)) as archive:
        values = archive["values"]
    assert values.shape == (2, STEPS)
    assert np.isfinite(values[:, 0]).all()


def test_own_curves_that_are_not_recorded_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"run python -m benchmarks\.curves\.own --own"):
        own.load("deep-digits", tmp_path)
