"""`benchmarks.papers.compressed`: Compressed GP bandits (Bedi et al. 2020 and its long version with
Sadler, section 4) and other methods.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.bedi_2020 import METHODS, label, lengthscales, method
from benchmarks.papers.campaigns import Comparison, run_all
from benchmarks.papers.compressed import EXAMPLE_TIMES, MNIST_TIMES, model_order, run_rosenbrock
from benchmarks.papers.experiment import Request
from benchmarks.papers.experiments import find_experiment
from benchmarks.papers.findings import Findings, Interval
from benchmarks.papers.rosenbrock import Rosenbrock, rosenbrock
from objectives.datasets import DataSource
from objectives.parameters import Choice, Range
from objectives.synthetic import Sine

HORIZON = 14
X_ONLY = Sine().default_space()
CLEAN = {
    "objective": {"name": "sine", "options": {"noise_std": 0.0}},
    "candidates": {"size": 101, "sampler": "grid"},
}


def _request(out: Path, methods: tuple[str, ...] = METHODS, seeds: int = 1, evaluations: int = HORIZON) -> Request:
    return Request(seeds=seeds, evaluations=evaluations, methods=methods, out=out)


def _silent(value: float, step: int | None = None, **metrics: float) -> None: ...


def test_lengthscale_1_on_the_domain_is_one_over_its_width() -> None:
    space = {"x": Range(0, 10), "rate": Range(1e-4, 1.0, log=True)}
    assert lengthscales(space) == pytest.approx([0.1, 0.25])
    with pytest.raises(ValueError, match="c is Choice"):
        lengthscales({"c": Choice(("a", "b"))})


def test_the_scaled_kernel_is_the_unscaled_one() -> None:
    space = Rosenbrock().default_space()
    points = np.random.default_rng(0).random((5, 2))
    domain = points * 4.0 + [-2.0, -1.0]
    scaled = np.square((points[:, None] - points) / lengthscales(space)).sum(axis=2)
    np.testing.assert_allclose(scaled, np.square(domain[:, None] - domain).sum(axis=2))


def test_all_methods_of_a_seed_have_the_same_initial_points(tmp_path: Path) -> None:
    results = run_all(
        Comparison("sine", CLEAN, [method(name, X_ONLY, 2) for name in METHODS if name != "default"]),
        _request(tmp_path, evaluations=2),
    )
    assert {tuple(runs[0].arms[:2].tolist()) for runs in results.values()} == {
        tuple(results["bkb"][0].arms[:2].tolist())
    }


def test_skipping_evaluates_what_the_compressed_run_stores(tmp_path: Path) -> None:
    names = [f"{kind}_{suffix}" for kind in ("compressed", "skipping") for suffix in ("ucb", "ei", "mpi")]
    results = run_all(Comparison("sine", CLEAN, [method(name, X_ONLY, 40) for name in names]), _request(tmp_path))
    for acquisition in ("ucb", "ei", "mpi"):
        run, skipped = results[f"compressed_{acquisition}"][0], results[f"skipping_{acquisition}"][0]
        is_stored = np.diff(model_order("compressed", run), prepend=0.0) > 0
        stored = run.arms[is_stored].tolist()
        assert skipped.arms[: len(stored)].tolist() == stored
        assert len(stored) < len(run)


def test_uncompressed_every_pull_is_in_the_model(tmp_path: Path) -> None:
    results = run_all(Comparison("sine", CLEAN, [method("dense_mpi", X_ONLY, HORIZON)]), _request(tmp_path))
    assert model_order("dense_mpi", results["dense_mpi"][0]).tolist() == list(range(1, HORIZON + 1))


def _columns(findings: Findings) -> None:
    for table in findings.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)


FEW = ("dense_ei", "skipping_ei", "bkb", "default")


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("compressed_example", FEW),
        pytest.param("compressed_rosenbrock", METHODS, marks=pytest.mark.slow),
        ("compressed_mnist", FEW),
    ],
)
def test_every_method_has_its_row_and_every_acquisition_its_column(
    name: str, methods: tuple[str, ...], tmp_path: Path, data_folder: Path
) -> None:
    request = Request(seeds=1, evaluations=6, methods=methods, out=tmp_path, data=data_folder)
    results = find_experiment(name).run(request)
    _columns(results)
    for table, figure in zip(results.tables, results.figures, strict=True):
        assert [row[0] for row in table.rows] == [label(method_name) for method_name in methods]
        assert [panel.title for panel in figure.panels] == ["UCB", "EI", "MPI"] * 3


def test_where_the_optimum_is_not_known_it_is_the_best_that_was_seen(tmp_path: Path, data_folder: Path) -> None:
    request = Request(seeds=1, evaluations=4, methods=("dense_ei", "dense_mpi"), out=tmp_path, data=data_folder)
    table = find_experiment("compressed_mnist").run(request).tables[0]
    assert "digits" in table.title  # the data folder has no MNIST
    simple = [row[table.columns.index("simple regret")] for row in table.rows]
    assert min(cell.mean for cell in simple if isinstance(cell, Interval)) == 0.0


def test_some_methods_alone_are_compared_with_what_is_there(tmp_path: Path) -> None:
    results = run_rosenbrock(_request(tmp_path, ("compressed_ei",), evaluations=6))
    _columns(results)
    assert results.tables[0].rows[0][results.tables[0].columns.index("÷ uncompressed")] == "–"


def test_published_times_are_those_of_the_tables() -> None:
    assert [EXAMPLE_TIMES.time(name) for name in ("dense_ucb", "compressed_ei", "bkb")] == [6.756, 4.133, 9.56]
    assert MNIST_TIMES.time("skipping_mpi") == 0.227
    assert MNIST_TIMES.time("default") is None


@settings(deadline=None, max_examples=30)
@given(st.floats(-2, 2), st.floats(-1, 3))
def test_rosenbrock_lies_between_its_extremes(x: float, y: float) -> None:
    objective = Rosenbrock(noise_std=0.0).load(DataSource(None))
    value = objective.evaluate({"x": x, "y": y}, 0, _silent).value
    assert objective.optimum(maximize=False) <= value <= objective.optimum(maximize=True) + 1e-9


def test_rosenbrocks_minimum_and_maximum_are_taken() -> None:
    assert rosenbrock(1.0, 1.0) == 0.0 == Rosenbrock().optimum(maximize=False)
    assert Rosenbrock().optimum(maximize=True) == 259.0


def test_rosenbrocks_noise_is_drawn_from_the_seed() -> None:
    values = {Rosenbrock().evaluate({"x": 0.0, "y": 0.0}, seed, _silent).value for seed in (0, 0, 1)}
    assert len(values) == 2
    with pytest.raises(ValueError, match="noise_std must be finite and >= 0, got -1"):
        Rosenbrock(noise_std=-1)
