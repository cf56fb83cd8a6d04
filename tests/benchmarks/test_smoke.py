"""Each benchmark runs on a small problem, and writes its table."""

import copy
import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Range, Space
from bbkb.objectives.reference import DataSource
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.errors import UserError
from bbkb.workers.messages import Attempt, Report, TrialStopped, TrialSucceeded
from benchmarks import bench, counts, frozen
from benchmarks.bench import CommandMeasurement, Measurement
from benchmarks.command import app_of
from benchmarks.curves.__main__ import main as curves
from benchmarks.curves.campaign import TrainingExecutor
from benchmarks.curves.problems import CurveProblem
from benchmarks.mutants import mutants, mutated
from benchmarks.papers.__main__ import main as papers
from benchmarks.peers import odd
from benchmarks.peers.__main__ import main as peers
from benchmarks.peers.engineering import DESIGNS
from benchmarks.peers.methods import make_method
from benchmarks.peers.problems import Evaluation, Point, Several, WholeSpace
from benchmarks.peers.search import search
from benchmarks.speed import measure
from benchmarks.speed.measure import load


def test_peers_runs_each_search_once(tmp_path: Path) -> None:
    options = ["--problems", "branin", "--methods", "random,bbkb", "--strategy", "wide={name: uniform}"]
    sizes = ["--workers", "2", "--evaluations", "8", "--seeds", "2", "--out", str(tmp_path)]
    first = CliRunner().invoke(app_of(peers), [*options, *sizes], catch_exceptions=False)
    assert "W = 2, T = 8, branin, wide, seed 1" in first.output
    again = CliRunner().invoke(app_of(peers), [*options, *sizes], catch_exceptions=False)
    assert "seed 1" not in again.output
    assert (tmp_path / "results" / "regret-functions-w2-t8.csv").is_file()


@dataclass(frozen=True)
class Plane(WholeSpace):
    """Both coordinates are maximized; their sum is at most 1."""

    space: Space = field(default_factory=lambda: {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)})
    several = Several(2, 1, lambda results: 1.0 - max(sum(r.rewards or ()) if r.is_feasible else 0.0 for r in results))

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        x, y = float(str(point["x"])), float(str(point["y"]))
        return Evaluation((x, y), 0.0, margins=(x + y - 1.0,))


@pytest.mark.parametrize("method", ["bbkb", "random", "tpe", "nsga-ii"])
def test_peers_search_for_several_objectives_and_a_constraint(method: str) -> None:
    problem = Plane()
    found = search(problem, make_method(method, problem, 0, {}), 2, 20, 0, ("plane", method)).recommended
    assert sorted(found, reverse=True) == list(found)
    assert 0.0 <= found[-1] < 0.5


@pytest.mark.parametrize("name", DESIGNS)
def test_a_design_has_two_or_three_finite_objectives(name: str) -> None:
    design = DESIGNS[name]
    largest = [p.high if isinstance(p, Range) else float(str(p.levels[-1])) for p in design.parameters]
    values = np.array(design.of(largest))
    assert len(values) == int(name[2])
    assert np.isfinite(values).all()


def _write_experiment(folder: Path, name: str, kind: str, rows: str) -> None:
    """Write an Olympus data set with two parameters."""
    folder.mkdir(exist_ok=True)
    parameters = [{"name": parameter, "type": kind} for parameter in "xy"]
    (folder / f"dataset_{name}.config.json").write_text(
        json.dumps({"parameters": parameters, "default_goal": "minimize"})
    )
    (folder / f"dataset_{name}.data.csv").write_text(rows)


def test_peers_runs_tables_emulators_trainings_and_failing_evaluations(tmp_path: Path) -> None:
    _write_experiment(tmp_path / "olympus", "perovskites", "categorical", "a,c,1.5\na,d,2\nb,c,1\nb,d,4\n")
    _write_experiment(tmp_path / "olympus", "snar", "continuous", "0,0,1\n0,2,3\n2,0,2\n2,2,5\n1,1,0\n")
    problems = ("olympus-perovskites", "olympus-snar", "training-knn-reg-diabetes", "odd-failing-at-random", "odd-tree")
    options = ["--problems", ",".join(problems), "--methods", "bbkb", "--data", str(tmp_path), "--out", str(tmp_path)]
    sizes = ["--workers", "2", "--evaluations", "8", "--seeds", "1"]
    CliRunner().invoke(app_of(peers), [*options, *sizes], catch_exceptions=False)
    records = [json.loads(line) for line in (tmp_path / "bbkb.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record["problem"] for record in records] == list(problems)
    assert records[0]["recommended"][-1] == 0.0
    assert all(np.isfinite(record["regrets"]).all() for record in records)


def test_peers_names_the_missing_file_of_an_experiment(tmp_path: Path) -> None:
    arguments = ["--problems", "olympus-snar", "--data", str(tmp_path), "--out", str(tmp_path)]
    with pytest.raises(ObjectiveError, match=r"olympus/dataset_snar.config.json must be in the data folder"):
        CliRunner().invoke(app_of(peers), arguments, catch_exceptions=False)


@pytest.mark.parametrize("name", odd.PROBLEMS)
def test_no_point_of_an_odd_problem_is_better_than_its_optimum(name: str) -> None:
    problem = odd.load_odd(name, seed=3)
    drawn = make_candidates(problem.space, 64, at_center=True)
    assert min(problem.of(drawn.parameters(row)) for row in range(len(drawn))) > -1e-6


def test_peers_names_an_unknown_problem(tmp_path: Path) -> None:
    arguments = ["--problems", "brannin", "--out", str(tmp_path)]
    with pytest.raises(UserError, match="did you mean 'branin'"):
        CliRunner().invoke(app_of(peers), arguments, catch_exceptions=False)


def test_curves_compares_a_campaign_with_random_search(source: DataSource, tmp_path: Path) -> None:
    options = ["--problems", "taskset-0", "--methods", "random-asha,random-short,bbkb-median,bbkb-model"]
    sizes = ["--workers", "2", "--trainings", "4", "--seeds", "1", "--out", str(tmp_path)]
    arguments = [*options, *sizes, "--data", str(source.folder)]
    CliRunner().invoke(app_of(curves), arguments, catch_exceptions=False)
    record = json.loads((tmp_path / "bbkb-model.jsonl").read_text(encoding="utf-8"))
    assert 0.0 < record["used"][-1] <= 1.0
    assert len(list((tmp_path / "results").glob("curves-taskset-4-trainings-2-workers*.csv"))) == 2


def test_curves_executor_continues_a_stopped_trial_after_its_last_step(problem: CurveProblem) -> None:
    executor = TrainingExecutor(problem, 1)
    steps: list[int] = []

    def take(values: list[Report]) -> set[int]:
        steps.extend(value.step for value in values)
        return {value.trial for value in values if value.step == 5 and value.attempt == 1}

    executor.listen(take)  # type: ignore[arg-type]
    assert problem.arms is not None
    parameters = problem.arms.parameters(0)
    outcomes = []
    for number in (1, 2):
        executor.submit([Attempt(0, 0, parameters, 0, number)])
        outcomes += executor.next_outcomes(None)
    assert [type(outcome) for outcome in outcomes] == [TrialStopped, TrialSucceeded]
    assert steps == list(problem.steps)


@pytest.mark.parametrize(
    ("experiment", "methods", "rows"),
    [
        ("compressed_rosenbrock", "compressed_ucb,bkb_ucb", 2),
        ("threds_branin", "gp_threds,igp_ucb", 2),
        ("variance_starvation", "", 2),
    ],
)
def test_papers_writes_the_table_of_an_experiment(
    source: DataSource, tmp_path: Path, experiment: str, methods: str, rows: int
) -> None:
    options = ["--seeds", "2", "--evaluations", "6", "--methods", methods, "--data", str(source.folder)]
    arguments = [experiment, *options, "--out", str(tmp_path)]
    CliRunner().invoke(app_of(papers), arguments, catch_exceptions=False)
    (table,) = (path for path in (tmp_path / "results-6").glob("*.csv") if not path.stem.endswith("-curves"))
    with table.open(encoding="utf-8") as file:
        assert len(list(csv.reader(file))) == 1 + rows


def test_speed_measures_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    small = load("synthetic", 300, 3)
    monkeypatch.setattr(measure, "load", lambda name, arms=300, dimension=3: load("synthetic", arms, dimension))
    run = measure.ours("cadata", 60, "global_then_local", "paper")
    assert run["ratio"] == pytest.approx(small.ratio(run["arms"]))
    assert small.ratio([int(np.argmax(small.values))]) == 0.0
    assert len(measure.defaults(200, workers=4, horizon=30, dimension=3)["arms"]) == 30


def test_bench_names_the_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Measurement("a short search", "defaults", {"arms": 64, "workers": 2, "horizon": 4})
    missing = Measurement("data", "ours", {}, "cadata")
    monkeypatch.setattr(bench, "MEASUREMENTS", (short, missing))
    monkeypatch.setattr(bench, "COMMANDS", (CommandMeasurement("help", "uniform", 0, ("--help",)),))
    bench.main(repeats=1, data=None, out=tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| a short search | 0." in page
    assert "| data | no data: name their folder with `--data` |" in page


def test_bench_rejects_a_commit_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--base must be a commit of this repository, got nowhere"):
        bench.main(base="nowhere", out=tmp_path / "page.md")


def test_counts_finds_rooms_arrows_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "__init__": "",
        "a/__init__": "",
        "a/x": "from house.b import y\nimport os\n",
        "b/y": "import ray._raylet\n",
    }.items():
        file = tmp_path / "house" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert counts.rooms("house") == {"house", "house.a", "house.b"}
    assert counts.arrows("house") == {("house.a", "house.b")}
    assert counts.lines(counts.files("house")) == 3
    assert counts.private_ray(counts.files("house")) == ["house/b/y.py: ray._raylet"]
    schema = {
        "$defs": {"Log": {"properties": {"level": {}}}},
        "properties": {"log": {"anyOf": [{"$ref": "#/$defs/Log"}]}},
    }
    assert counts.settings_keys(schema) == {"log.level"}


@pytest.fixture(scope="module")
def record() -> dict[str, dict[str, Any]]:
    return {**frozen.measure(["picks"], "uniform"), **frozen.measure(["mistakes"], "minimise")}


def test_frozen_records_the_picks_and_the_place_of_a_mistake(record: dict[str, dict[str, Any]]) -> None:
    ((name, picks),) = record["picks"].items()
    assert name == "strategy uniform"
    assert len(picks) == frozen.EVALUATIONS
    ((_, (ended, mistake)),) = record["mistakes"].items()
    assert ended == {"exit": 2}
    assert (mistake["line"], mistake["key"]) == (3, "objective.direction")


def test_frozen_finds_a_changed_pick_and_does_not_count_a_changed_text(record: dict[str, dict[str, Any]]) -> None:
    assert not list(frozen.differences(record, record))
    after = copy.deepcopy(record)
    after["picks"]["strategy uniform"][7][0]["x"] += 1e-6
    (mistake,) = after["mistakes"].values()
    mistake[1]["text"] = "another text"
    (pick, text) = frozen.differences(record, after)
    assert pick[0]
    assert "from number 7 on" in pick[1]
    assert not text[0]


SOURCE = """
LIMIT = 3


def clip(x: int = 0, low: float = 1.5) -> float:
    if not x <= low and x is not None:
        raise ValueError(f"{x + 1}")
    print(x)
    return min(x, low) * 2 if x else -low
"""


def test_mutants_change_one_place_of_a_function_and_no_text_of_an_error(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "clip.py").write_text(SOURCE)
    found = mutants(tmp_path, "code")
    sources = {mutated(SOURCE, mutant) for mutant in found}
    assert len(sources) == len(found)
    for source in sources:
        compile(source, "clip.py", "exec")
        assert "LIMIT = 3" in source
        assert "{x + 1}" in source
    changes = [
        "x < low",
        "x is None",
        "low or x",
        "max(x, low)",
        "min(x, low) / 2",
        "x: int=1",
        "low: float=2.5",
        "pass",
    ]
    for change in changes:
        assert sum(change in source and change not in SOURCE for source in sources) == 1, change
