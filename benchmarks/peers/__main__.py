"""`python -m benchmarks.peers …`: the product against other optimisers in simulated time."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from benchmarks.command import data_folder
from benchmarks.command import run as run_command
from benchmarks.papers.findings import Findings
from benchmarks.papers.writing import write
from benchmarks.peers.cache import Cache
from benchmarks.peers.figures import figures
from benchmarks.peers.measures import Found, Key
from benchmarks.peers.methods.catalogue import PEERS, is_applicable, known_methods, make_method
from benchmarks.peers.search import Record, search
from benchmarks.peers.settings import SETS, Setting, make_problem, parts, problems, settings, strategies
from benchmarks.peers.summary import tables
from objectives.datasets import DataSource

_WIDTH = 240  # of the output: a row of numbers is not folded, whatever the terminal

Problems = Annotated[str, typer.Option("--problems", help=f"Some problems, or {','.join(SETS)}.")]
Methods = Annotated[str, typer.Option(help=f"Some of {','.join(PEERS)}, strategies of ours, labels of --strategy.")]
Strategies = Annotated[
    list[str] | None, typer.Option("--strategy", help="LABEL={name: bbkb, option: value}; a method.")
]
Workers = Annotated[str, typer.Option(help="Numbers of simulated workers, with commas between.")]
Evaluations = Annotated[str, typer.Option(help="Numbers of evaluations, with commas between.")]
Seeds = Annotated[int, typer.Option(min=1, help="Repetitions.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="Seed of the first one; the next ones have the next seeds.")]
Seconds = Annotated[float, typer.Option(min=1e-6, help="A mean evaluation, where suggestion time is counted.")]
ReportOnly = Annotated[bool, typer.Option("--report", help="Run nothing: tables and pictures of what is there.")]
Out = Annotated[Path, typer.Option(help="Folder for finished searches and results.")]
Data = Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")]


def main(
    problem: Problems = "all",
    methods: Methods = "bbkb,random,tpe,cma-es",
    strategy: Strategies = None,
    workers: Workers = "16",
    evaluations: Evaluations = "200",
    seeds: Seeds = 5,
    first_seed: FirstSeed = 0,
    seconds: Seconds = 10.0,
    report: ReportOnly = False,
    out: Out = Path("runs/peers"),
    data: Data = None,
) -> None:
    """Compare optimisers on the same problems, workers, durations and seeds.

    Called again it takes up what is there: finished searches are read, the others run. Tables compare the methods on
    the searches that all of them finished.
    """
    console, own = Console(width=_WIDTH), strategies(strategy or ())
    names = tuple(dict.fromkeys((*parts(methods), *own)))
    known_methods(names, own)
    chosen, source = problems(problem), DataSource.find(data_folder(data))
    caches = {name: Cache(out, name) for name in names}
    results: dict[Setting, Found] = {}
    for setting in settings(workers, evaluations):
        if not report:
            _run(setting, chosen, range(first_seed, first_seed + seeds), caches, own, source, console)
        results[setting] = _read(setting, chosen, range(first_seed, first_seed + seeds), caches)
    found = [table for setting, one in results.items() for table in tables(setting, one, seconds)]
    write(Findings(found, list(figures(results, seconds))), out / "results", console)


def _run(
    setting: Setting,
    chosen: tuple[str, ...],
    seeds: range,
    caches: dict[str, Cache],
    own: dict[str, dict[str, Any]],
    source: DataSource,
    console: Console,
) -> None:
    """Run what is missing, seed by seed, so that an interrupted run has whole seeds."""
    for seed in seeds:
        for name in chosen:
            problem = make_problem(name, seed, source)
            for method, cache in caches.items():
                is_done = cache.get(name, setting.workers, setting.evaluations, seed) is not None
                if is_done or not is_applicable(method, problem):
                    continue
                instance = make_method(method, problem, seed, setting.evaluations, own)
                record = search(problem, instance, setting.workers, setting.evaluations, seed, (name, method))
                cache.add(record)
                line = f"{setting}, {name}, {method}, seed {seed}: regret {record.recommended[-1]:.4g}"
                console.print(Text(line), soft_wrap=True)


def _read(setting: Setting, chosen: tuple[str, ...], seeds: range, caches: dict[str, Cache]) -> Found:
    found: dict[str, dict[Key, Record]] = {}
    for method, cache in caches.items():
        at = {
            (name, seed): cache.get(name, setting.workers, setting.evaluations, seed)
            for name in chosen
            for seed in seeds
        }
        found[method] = {key: record for key, record in at.items() if record is not None}
    return {method: records for method, records in found.items() if records}


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.peers")
