"""Calandriello et al. 2020, section 5, figures 3, 4 and 7: NAS-Bench-101 with and without initial
evaluations.

Times and batch sizes are measured on all 12416 cells, most of which have predicted rewards; regret
is measured on the 914 cells with a recorded accuracy (see `nasbench101_cells`). The paper compares
BBKB with regularised evolution.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.papers.calandriello_2020 import LABELS, method, with_uniform
from benchmarks.papers.campaigns import Comparison, Method, Plain, Runs, Tree, run_all
from benchmarks.papers.experiment import Experiment, Request
from benchmarks.papers.findings import Curve, Figure, Findings, Floats, Interval, Panel, Table
from benchmarks.papers.measured import Measured
from benchmarks.papers.nasbench101_cells import Cells
from benchmarks.papers.regression import RATIO_LABEL, ratio_curves, ratios, steps
from objectives.datasets import DataSource
from objectives.tabular import ROW

METHODS = ("bbkb", "bbkb_local", "bkb", "regularized_evolution", "default", "uniform")
WITHOUT_START, WITH_START = 100.0, 125.0  # bandwidths, appendix D.2

INITIAL_SHARE = 2000 / 12416
CELLS: tuple[Literal["all", "recorded"], ...] = ("all", "recorded")
STARTED = ("bbkb", "bbkb_local", "bkb")  # methods that can start from given evaluations

_BASELINES = ("uniform",)


@dataclass(frozen=True)
class _Scenario:
    """The comparisons on both sets of cells, with or without initial evaluations."""

    everything: Runs
    recorded: Runs


def run(request: Request) -> Findings:
    """Figure 7, without initial evaluations, then figures 3 and 4, with them."""
    plain = _run_without_start(request)
    started = _run_with_start(plain, request)
    tables = [*_tables("without", plain), *_tables("with", started)]
    return Findings(tables, [_figure_7(plain), _figure_3(started), _figure_4(started, plain)], _notes(request))


def _tables(start: str, scenario: _Scenario) -> list[Table]:
    return [
        _timing(f"nasbench101-timing-{start}", f"all cells, {start} initial evaluations", scenario.everything),
        _regret(f"nasbench101-regret-{start}", f"the recorded cells, {start} initial evaluations", scenario.recorded),
    ]


def _run_without_start(request: Request) -> _Scenario:
    methods = [method(name, WITHOUT_START, request.evaluations) for name in with_uniform(request.methods)]
    return _Scenario(*(run_all(Comparison(cells, _problem(cells), methods), request) for cells in CELLS))


def _run_with_start(plain: _Scenario, request: Request) -> _Scenario:
    """The runs with initial evaluations. Regularised evolution and the uniform policy cannot use
    them: their runs are those of `plain`.
    """
    names = [name for name in request.methods if name in STARTED]
    measured = []
    for cells, before in zip(CELLS, (plain.everything, plain.recorded), strict=True):
        methods = [_start_from(name, cells, request) for name in names]
        comparison = Comparison(f"{cells}-initial", _problem(cells), methods)
        measured.append({**before, **(run_all(comparison, request) if methods else {})})
    return _Scenario(*measured)


def _problem(cells: str) -> Plain:
    return {"objective": {"name": f"{Cells.__module__}:{Cells.__qualname__}", "options": {"cells": cells}}}


def _start_from(name: str, cells: Literal["all", "recorded"], request: Request) -> Method:
    """The method with the initial evaluations of its seed as its warm start."""

    def strategy(seed: int) -> Tree:
        start = {"name": "data", "path": str(initial_evaluations(cells, seed, request))}
        return method(name, WITH_START, request.evaluations, warm_start=start).strategy_of(seed)

    return Method(name, LABELS[name], strategy)


def initial_evaluations(cells: Literal["all", "recorded"], seed: int, request: Request) -> Path:
    """A CSV file with T_init different, uniformly drawn cells and their results; it is written when
    it does not exist.

    T_init is 2000 of the 12416 cells, and the same share of the recorded ones.
    """
    path = request.out / "initial" / f"{cells}-seed{seed}.csv"
    if path.is_file():
        return path
    table = Cells(cells).load(DataSource.find(request.data))
    rng = np.random.default_rng([seed, 1])
    rows = rng.choice(len(table.features), round(INITIAL_SHARE * len(table.features)), replace=False).tolist()
    seeds = rng.integers(2**31, size=len(rows)).tolist()
    values = [
        table.evaluate({ROW: row}, row_seed, _ignore_report).value for row, row_seed in zip(rows, seeds, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text("".join(f"{row},{value}\n" for row, value in [("arm", "reward"), *zip(rows, values, strict=True)]))
    draft.replace(path)
    return path


def _ignore_report(value: float, step: int | None = None, **metrics: float) -> None: ...


def _timing(name: str, title: str, results: Runs) -> Table:
    columns = ("method", "strategy's s", "batches", "mean batch", "largest batch", "dictionary", "days with training")
    rows = [
        (
            LABELS[method_name],
            Interval.of([run.clock[-1] for run in runs]),
            Interval.of([run.batch_count for run in runs]),
            Interval.of([len(run) / (run.batches[-1] + 1) for run in runs]),
            Interval.of([run.batch_sizes.max() for run in runs]),
            Interval.of([run.dictionary_sizes[-1] for run in runs]),
            Interval.of([run.total_clock[-1] / 86400 for run in runs]),
        )
        for method_name, runs in _shown_methods(results)
    ]
    return Table(name, f"Time and batches on {title}", columns, rows)


def _regret(name: str, title: str, results: Runs) -> Table:
    columns = ("method", "regret ratio", "simple regret", "batches", "strategy's s")
    rows = [
        (
            LABELS[method_name],
            Interval.of(ratios(results, method_name)[:, -1]),
            Interval.of([run.simple_regret[-1] for run in runs]),
            Interval.of([run.batch_count for run in runs]),
            Interval.of([run.clock[-1] for run in runs]),
        )
        for method_name, runs in results.items()
    ]
    return Table(name, f"Regret on {title}", columns, rows)


def _figure_7(plain: _Scenario) -> Figure:
    panels = (_ratio_panel(plain), _batch_panel(plain), _time_panel(plain), _total_panel(plain))
    return Figure("nasbench101-figure-7", "BBKB, figure 7: NAS-Bench-101 without initial evaluations", panels)


def _figure_3(started: _Scenario) -> Figure:
    panels = (_time_panel(started), _batch_panel(started), _total_panel(started))
    title = "BBKB, figure 3: NAS-Bench-101 with initial evaluations"
    return Figure("nasbench101-figure-3", title, panels, columns=3)


def _figure_4(started: _Scenario, plain: _Scenario) -> Figure:
    panels = (
        _ratio_panel(started),
        _simple_panel(started),
        replace(_simple_panel(plain), title="Simple regret without initial evaluations"),
    )
    title = "BBKB, figure 4: NAS-Bench-101 with initial evaluations"
    return Figure("nasbench101-figure-4", title, panels, columns=3)


def _ratio_panel(scenario: _Scenario) -> Panel:
    return Panel("Regret ratio, 914 recorded cells", "t", RATIO_LABEL, ratio_curves(scenario.recorded))


def _simple_panel(scenario: _Scenario) -> Panel:
    curves = _curves(scenario.recorded, lambda run: run.simple_regret)
    return Panel("Simple regret, 914 recorded cells", "t", "f* − best f so far", curves, y_scale="log")


def _batch_panel(scenario: _Scenario) -> Panel:
    curves = _curves(scenario.everything, lambda run: run.batch_sizes)
    return Panel("Batch size, all 12416 cells", "t", "size of the batch of pull t", curves)


def _time_panel(scenario: _Scenario) -> Panel:
    curves = _curves(scenario.everything, lambda run: run.clock)
    return Panel("Time without training, all 12416 cells", "t", "strategy's seconds", curves, y_scale="log")


def _total_panel(scenario: _Scenario) -> Panel:
    curves = _curves(scenario.everything, lambda run: run.total_clock / 86400)
    return Panel("Total run time, all 12416 cells", "t", "days, batches in parallel", curves, y_scale="log")


def _curves(results: Runs, of: Callable[[Measured], Floats]) -> list[Curve]:
    return [
        Curve.over_seeds(LABELS[name], steps(runs), [of(run) for run in runs]) for name, runs in _shown_methods(results)
    ]


def _shown_methods(results: Runs) -> list[tuple[str, Sequence[Measured]]]:
    return [(name, runs) for name, runs in results.items() if name not in _BASELINES]


def _notes(request: Request) -> tuple[str, ...]:
    return (
        f"{request.seeds} seeds; δ = 1/{request.evaluations}, F = 1, q̄ = 2, C̃ = 2, λ = ξ² = 1e-4.",
        "Accuracies are recorded for 914 of the 12416 cells, one training each. Regret is of these 914 alone. On all "
        "cells, the others have accuracies and training times that kernel ridge regression predicts from the 914.",
        "Noise N(0, 0.01²) is added to the accuracy; the paper draws one of three trainings, not available here.",
        "Total run time: the strategy's seconds plus, for each batch, its longest training (one worker for each pull).",
        "Regularised evolution pulls one arm at a time, as in the paper; a mutation is a step to a nearest candidate.",
        "Initial evaluations are 2000 of the 12416 cells, 147 of the 914; they are not among the pulls, but BLESS's "
        "time is in the strategy's. Regularised evolution and the uniform policy do not use them.",
    )


NASBENCH101 = Experiment(
    "BBKB, section 5 and appendix D.2, figures 3, 4 and 7",
    "time, batches and regret on NAS-Bench-101's cells, with and without initial evaluations",
    METHODS,
    12_000,
    run,
    ("bbkb", "bbkb_local", "regularized_evolution", "uniform"),
)
