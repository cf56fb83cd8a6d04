"""Calandriello et al. 2020, section 5, figures 3, 4 and 7: NAS-Bench-101.

Times and batch sizes are measured on all 12 416 cells, most of which have predicted rewards; regret
is measured on the 914 cells with a recorded accuracy (see `nasbench101_cells`). The paper compares
BBKB with regularized evolution, with and without initial evaluations.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from bbkb.objectives.reference import DataSource
from bbkb.objectives.tabular import ROW
from benchmarks.papers.calandriello_2020 import method, with_uniform
from benchmarks.papers.campaigns import Comparison, Method, Plain, Request, experiment
from benchmarks.papers.nasbench101_cells import Cells

METHODS = (
    *("bbkb", "bbkb_theory", "bbkb_local", "bbkb_local_theory", "bkb", "bkb_practical"),
    *("regularized_evolution", "default", "uniform"),
)
WITHOUT_START = 100.0  # the bandwidths of appendix D.2
WITH_START = 125.0
INITIAL_SHARE = 2000 / 12416
STARTED = METHODS[:6]  # methods that can start from given evaluations

CellSet = Literal["all", "recorded"]
CELLS: tuple[CellSet, ...] = ("all", "recorded")


def comparisons(request: Request) -> Sequence[Comparison]:
    """Compare the methods on both sets of cells, without and with initial evaluations."""
    names = with_uniform(request.methods)
    plain = [method(name, WITHOUT_START, request.evaluations) for name in names]
    plain = [  # regularized evolution changes one edge or one operation of a cell
        replace(one, strategy={**one.strategy, "mutation": "component"}) if one.name == "regularized_evolution" else one
        for one in plain
    ]
    compared = [_comparison(cells, f"{cells}", plain) for cells in CELLS]
    started = [method(name, WITH_START, request.evaluations) for name in request.methods if name in STARTED]
    if started:
        for cells in CELLS:  # each starts with the initial evaluations of its seed
            known = partial(initial_evaluations, cells, request=request)
            compared.append(_comparison(cells, f"{cells}-initial", [replace(one, known=known) for one in started]))
    return compared


def _comparison(cells: CellSet, name: str, methods: Sequence[Method]) -> Comparison:
    name_of_class = f"{Cells.__module__}:{Cells.__qualname__}"
    options: Plain = {"name": name_of_class, "options": {"cells": cells}, "direction": "maximize"}
    start = "with" if name.endswith("initial") else "without"
    return Comparison(
        name=name,
        title=f"NAS-Bench-101, {cells} cells, {start} initial evaluations",
        problem={"objective": options},
        methods=methods,
    )


def initial_evaluations(cells: CellSet, seed: int, request: Request) -> Path:
    """Write a CSV file with T_init different, uniformly drawn cells and their results, once.

    T_init is 2000 of the 12 416 cells, and the same share of the recorded ones.
    """
    path = request.out / "initial" / f"{cells}-seed{seed}.csv"
    if path.is_file():
        return path
    table = Cells(cells).load(DataSource.find(request.data))
    rng = np.random.default_rng([seed, 1])
    count = round(INITIAL_SHARE * len(table.features))
    rows = rng.choice(len(table.features), count, replace=False).tolist()
    seeds = rng.integers(2**31, size=count).tolist()
    lines = ["arm,reward"]
    for row, row_seed in zip(rows, seeds, strict=True):
        lines.append(f"{row},{table.evaluate({ROW: row}, row_seed, _ignore_report).value}")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(path)
    return path


def _ignore_report(value: object, step: int | None = None, **metrics: float) -> None: ...


NASBENCH101 = experiment(
    "BBKB, section 5 and appendix D.2, figures 3, 4 and 7",
    "time, batches and regret on NAS-Bench-101's cells, with and without initial evaluations",
    METHODS,
    12_000,
    comparisons,
    ("bbkb", "bbkb_local", "regularized_evolution", "uniform"),
)
