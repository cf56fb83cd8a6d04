"""Calandriello et al. 2020, figures 5 and 6: regret ratio on Abalone and Cadata, one bandwidth for
all methods."""

from collections.abc import Mapping

from benchmarks.papers.calandriello_2020 import LABELS, method
from benchmarks.papers.campaigns import Comparison, Runs, run_all
from benchmarks.papers.experiment import Experiment, Request
from benchmarks.papers.findings import Cell, Figure, Findings, Interval, Panel, Table
from benchmarks.papers.regression import METHODS, RATIO_LABEL, ratio_curves, ratios

BANDWIDTHS = (5.0, 7.5, 10.0, 12.5, 15.0, 17.5)
DATA_SETS = ("abalone", "cadata")

Sweep = Mapping[float, Runs]  # runs by bandwidth


def run(request: Request) -> Findings:
    """Reproduce figures 5 and 6."""
    sweeps = {name: _sweep(name, request) for name in DATA_SETS}
    figures = [
        _figure(f"bandwidth-{name}", f"BBKB, figure {number}: regret ratio on {name}", sweep)
        for number, (name, sweep) in enumerate(sweeps.items(), start=5)
    ]
    notes = (f"{request.seeds} seeds; δ = 1/{request.evaluations}, all other settings as in figures 1 and 2.",)
    return Findings([_table(name, sweep, request.evaluations) for name, sweep in sweeps.items()], figures, notes)


def _sweep(name: str, request: Request) -> Sweep:
    """The runs of all bandwidths, and of one uniform policy, which has no bandwidth."""
    problem = {"objective": {"name": name}}
    uniform = run_all(Comparison(f"{name}-uniform", problem, [method("uniform", 1.0, request.evaluations)]), request)
    sweep = {}
    for bandwidth in BANDWIDTHS:
        methods = [method(method_name, bandwidth, request.evaluations) for method_name in request.methods]
        sweep[bandwidth] = {**run_all(Comparison(f"{name}-{bandwidth:g}", problem, methods), request), **uniform}
    return sweep


def _table(name: str, sweep: Sweep, horizon: int) -> Table:
    methods = [method_name for method_name in next(iter(sweep.values())) if method_name != "uniform"]
    rows: list[tuple[Cell, ...]] = [
        (LABELS[method_name], *(Interval.of(ratios(runs, method_name)[:, -1]) for runs in sweep.values()))
        for method_name in methods
    ]
    columns = ("method", *(f"b = {bandwidth:g}" for bandwidth in sweep))
    return Table(f"bandwidth-{name}", f"{name}: regret ratio by bandwidth, T = {horizon}", columns, rows)


def _figure(name: str, title: str, sweep: Sweep) -> Figure:
    panels = [Panel(f"b = {bandwidth:g}", "t", RATIO_LABEL, ratio_curves(runs)) for bandwidth, runs in sweep.items()]
    return Figure(name, title, panels, columns=3)


BANDWIDTH = Experiment(
    "BBKB, appendix D.1, figures 5 and 6",
    "regret ratio on Abalone and Cadata with bandwidths from 5 to 17.5",
    tuple(name for name in METHODS if name not in ("default", "uniform")),
    10_000,
    run,
    ("bbkb", "bbkb_local", "gp_ucb", "gp_bucb", "async_ts"),
)
