"""Every method of every experiment of the papers is constructed and plays (benchmarks/papers)."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bbkb.objectives.reference import DataSource
from bbkb.orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from bbkb.orchestrator.bandit.strategy import Choose, Observation, begin
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.settings.strategies import build_strategy
from benchmarks.command import app_of
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
