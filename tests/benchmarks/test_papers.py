"""Every method of every experiment of the papers plays; simulated and own learning curves."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Range
from bbkb.objectives.reference import DataSource
from bbkb.orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from bbkb.orchestrator.bandit.strategy import Choose, Observation, begin
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import CampaignError
from bbkb.orchestrator.settings.strategies import build_strategy
from benchmarks.command import app_of
from benchmarks.curves import own
from benchmarks.curves.__main__ import main
from benchmarks.curves.campaign import run_campaign
from benchmarks.curves.families import FAMILIES, PROBLEMS
from benchmarks.curves.methods import make_method
from benchmarks.curves.own import STEPS, Rows
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Continue, Record, Setting, Start, Suggestion, at_marks, search
from benchmarks.papers.__main__ import EXPERIMENTS, MEASURED, stale_defaults
from benchmarks.papers.__main__ import main as papers
from benchmarks.papers.campaigns import DEFAULT_LABEL, Request, campaign, digest

CELLS = 16


@pytest.fixture(scope="module")
def data(source: DataSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a data folder with a few cells of NAS-Bench-101."""
    folder = tmp_path_factory.mktemp("cells")
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "adjacency": np.triu(rng.integers(0, 2, (CELLS, 6, 6)), 1),
        "ops": np.where(rng.random((CELLS, 6)) < 0.5, 0, 2),
        "n_vertices": np.full(CELLS, 6),
        "val_acc_108": rng.random(CELLS),
        "train_time_108": 1000.0 + rng.random(CELLS),
    }
    (folder / "nasbench101").mkdir()
    for name in ("nasbench101_30001.npz", "space_423624.npz"):
        np.savez(folder / "nasbench101" / name, **arrays)
    return folder


def _campaigns(name: str, data: Path, out: Path) -> Iterator[Settings]:
    experiment = EXPERIMENTS[name]
    assert experiment.comparisons is not None
    request = Request(1, experiment.evaluations, experiment.methods, out, data=data)
    for comparison in experiment.comparisons(request):
        for method in comparison.methods:
            yield campaign(comparison, method, 0, request)


def _play(settings: Settings) -> int:
    """Play two batches after the warm start on made-up candidates; return the number of pulls."""
    strategy: Any = build_strategy(settings.strategy)
    lengthscale = getattr(getattr(strategy, "kernel", None), "lengthscale", 1.0)
    rng = np.random.default_rng(0)
    arms = rng.random((64, len(lengthscale) if isinstance(lengthscale, tuple) else 2))
    rewards = np.sin(3.0 * arms).sum(axis=1)
    state = strategy.init(arms, rng)
    if isinstance(warm_start_of(strategy), DataStart):
        state = begin(strategy, state, [Observation(arm, float(rewards[arm])) for arm in range(20)], rng)
    batches = 0
    while batches < 2:
        decision = strategy.ask(state, (), 30)
        if not isinstance(decision, Choose):  # a bandit that skips uninformative steps may have ended
            assert "skipped" in repr(strategy)
            break
        observations = [Observation(pick.arm, float(rewards[pick.arm] + 0.1 * rng.normal())) for pick in decision.picks]
        state = strategy.tell(state, observations, rng)
        batches += decision.reason not in ("warm start", "initial point")
    return int(state.pulls.total)


@pytest.mark.parametrize("name", [name for name, one in EXPERIMENTS.items() if one.comparisons is not None])
def test_every_method_of_an_experiment_plays_two_batches(name: str, data: Path, tmp_path: Path) -> None:
    seen = set()
    for settings in _campaigns(name, data, tmp_path):
        method = settings.name.rpartition("-seed")[0]
        key = (method, bool(settings.known_results))
        if key not in seen:  # comparisons of other bandwidths or constants have the same methods
            assert _play(settings) >= 2
        seen.add(key)
    assert {method for method, _ in seen} >= {
        f"{method}-{EXPERIMENTS[name].evaluations}" for method in EXPERIMENTS[name].methods if method != "uniform"
    } or "threds" in name  # whose other methods end earlier


def test_nasbench101_starts_from_the_known_results_of_its_seed(data: Path, tmp_path: Path) -> None:
    known = [settings for settings in _campaigns("nasbench101", data, tmp_path) if settings.known_results]
    assert len(known) == 12
    assert all(isinstance(warm_start_of(build_strategy(settings.strategy)), DataStart) for settings in known)


def test_picture_and_curves_have_every_method_and_step(source: DataSource, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = [
        "abalone",
        "--methods",
        "bbkb,bkb,gp_ucb",
        "--seeds",
        "2",
        "--evaluations",
        "6",
        "--out",
        str(tmp_path),
    ]
    arguments += ["--data", str(source.folder), "--picture", str(tmp_path / "abalone.png")]
    CliRunner().invoke(app_of(papers), arguments, catch_exceptions=False)
    assert (tmp_path / "abalone.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "results-6" / "abalone-curves.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {(row["method"], row["step"]) for row in rows} == {
        (label, str(step))
        for label in ("Global-BBKB", "BKB, its theorem's width", "GP-UCB", "uniform")
        for step in range(1, 7)
    }
    assert all(float(row["regret ratio"]) == 1.0 for row in rows if row["method"] == "uniform")
    orders = [int(row["model order"]) for row in rows if row["method"].startswith("BKB")]
    assert orders[0] == 1
    assert max(orders) <= 6
    assert [int(row["model order"]) for row in rows if row["method"] == "GP-UCB"] == [1, 2, 3, 4, 5, 6]  # all pulls


def test_row_of_a_default_is_stale_after_its_settings_have_changed(tmp_path: Path) -> None:
    (tmp_path / "abalone.csv").write_text(f'method,pulls\n"{DEFAULT_LABEL}",9\n')
    assert stale_defaults(tmp_path) == ["abalone.csv"]
    settings = tmp_path / "abalone.settings.json"
    settings.write_text(json.dumps({DEFAULT_LABEL: digest({"name": "bbkb", "mode": "async"})}))
    assert stale_defaults(tmp_path) == []
    settings.write_text(json.dumps({DEFAULT_LABEL: digest({"name": "bbkb", "mode": "async", "width": 1.0})}))
    assert stale_defaults(tmp_path) == ["abalone.csv"]


def test_published_rows_of_defaults_have_todays_settings() -> None:
    """Measure the experiment of a stale file again (`python -m benchmarks.papers NAME --methods default,uniform`), or
    remove its rows."""
    assert MEASURED.is_dir()
    assert stale_defaults(MEASURED) == []


class Script:
    """Gives the suggestions of a list, then new trials; pauses each trial at the steps of
    `pauses`."""

    watches = True

    def __init__(self, problem: CurveProblem, suggestions: Sequence[Suggestion | None], pauses: set[int]) -> None:
        assert problem.arms is not None
        self._arms, self._suggestions, self._pauses = problem.arms, list(suggestions), pauses
        self._next = 0
        self.reports: list[tuple[int, int]] = []
        self.ends: list[int] = []

    def suggest(self) -> Suggestion | None:
        if self._suggestions:
            suggestion = self._suggestions.pop(0)
            if suggestion is None or isinstance(suggestion, Continue):
                return suggestion
        self._next += 1
        return Start(self._arms.parameters(self._next - 1))

    def report(self, trial: int, step: int, value: float) -> bool:
        self.reports.append((trial, step))
        return step not in self._pauses

    def end(self, trial: int, value: float) -> None:
        self.ends.append(trial)


def start(problem: CurveProblem) -> Start:
    assert problem.arms is not None
    return Start(problem.arms.parameters(0))


def test_paused_trial_continues_from_its_step(problem: CurveProblem) -> None:
    method = Script(problem, [start(problem), Continue(0)], {2})
    record = search(problem, method, "script", Setting(workers=1, trainings=1, seed=0))
    assert method.reports[:4] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert method.ends == [0]
    assert (record.starts, record.continuations, record.finished) == (1, 1, 1)


def test_running_trial_cannot_be_continued(problem: CurveProblem) -> None:
    with pytest.raises(CampaignError, match="trial 0 is not paused"):
        search(
            problem, Script(problem, [start(problem), Continue(0)], set()), "x", Setting(workers=2, trainings=1, seed=0)
        )


def test_waiting_while_nothing_runs_is_an_error(problem: CurveProblem) -> None:
    with pytest.raises(CampaignError, match="waits on taskset-0"):
        search(problem, Script(problem, [None], set()), "script", Setting(workers=1, trainings=1, seed=0))


def test_search_ends_after_all_configurations(problem: CurveProblem) -> None:
    assert problem.arms is not None
    suggestions: list[Suggestion | None] = [start(problem)] * len(problem.arms)
    method = Script(problem, [*suggestions, None], {1})
    record = search(problem, method, "script", Setting(workers=1, trainings=9, seed=0))
    assert record.starts == len(problem.arms)


def test_budget_counts_reported_steps(problem: CurveProblem) -> None:
    method = Script(problem, [], set())
    search(problem, method, "script", Setting(workers=3, trainings=2, seed=0))
    assert len(method.reports) + len(method.ends) == 2 * problem.last_step


def test_recommendation_is_the_trial_with_the_best_last_value(problem: CurveProblem) -> None:
    record = search(problem, Script(problem, [], {3}), "script", Setting(workers=1, trainings=1, seed=0))
    assert problem.arms is not None
    curves = [problem.curve(problem.arms.parameters(arm)) for arm in range(record.starts)]
    assert record.starts == 9  # 27 steps, three each
    best = max(curves, key=lambda curve: float(curve[2]))
    assert record.regrets[-1] == pytest.approx(problem.regret(float(best[-1])))
    assert np.all(np.diff(record.used) >= 0)


def test_method_without_reports_pays_whole_trainings_only(problem: CurveProblem) -> None:
    class Blind(Script):
        watches = False

    anew = replace(problem, costs=tuple(2 * one for one in problem.costs))
    method = Blind(anew, [], set())
    record = search(anew, method, "blind", Setting(workers=1, trainings=3, seed=0))
    assert record.finished == 3
    assert not method.reports


def test_regret_before_the_first_report_equals_the_first_regret() -> None:
    record = Record(
        problem="p", method="m", workers=1, trainings=1, seed=0, used=[0.2, 0.6], regrets=[0.5, 0.1],
        finished_regret=None, starts=1, continuations=0, finished=0, seconds=0.0,
    )  # fmt: skip
    assert at_marks(record, [0.1, 0.2, 0.5, 0.6, 1.0]).tolist() == [0.5, 0.5, 0.5, 0.1, 0.1]


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
