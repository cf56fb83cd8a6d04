"""`python -m benchmarks.peers …`: this project compared with other optimizers in simulated time."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from bbkb.objectives.reference import DataSource
from benchmarks.command import Data, FirstSeed, Out, ReportOnly, Seeds, Workers, parts
from benchmarks.command import run as run_command
from benchmarks.peers.cache import Cache, Key, SearchKey, read
from benchmarks.peers.methods import PEERS, Options, is_applicable, known_methods, make_method
from benchmarks.peers.search import Record, search
from benchmarks.peers.settings import SETS, Setting, group_of, make_problem, problems, settings, shown, strategies
from benchmarks.peers.summary import Found, tables
from benchmarks.tables import write

_WIDTH = 240  # of the output: rows of a table are not wrapped, also in a narrow terminal

Problems = Annotated[str, typer.Option("--problems", help=f"Problems, or {','.join(SETS)}.")]
Methods = Annotated[
    str, typer.Option(help=f"Some of {','.join(PEERS)}, strategies of this project, labels of --strategy.")
]
Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", help="LABEL={name: bbkb, option: value}: a strategy with options as a further method."),
]


def main(
    problem: Problems = "all",
    methods: Methods = "bbkb,random,tpe,cma-es",
    strategy: Strategies = None,
    workers: Workers = "16",
    evaluations: Annotated[str, typer.Option(help="Numbers of evaluations, separated by commas.")] = "200",
    seeds: Seeds = 5,
    first_seed: FirstSeed = 0,
    after: Annotated[str, typer.Option(help="Numbers of evaluations shown; by default a quarter, half and all.")] = "",
    report: ReportOnly = False,
    out: Out = Path("runs/peers"),
    data: Data = None,
) -> None:
    """Compare optimizers on the same problems, workers, durations and seeds.

    A repeated call reads finished searches and runs the others. Tables compare the methods on the
    searches that all of them finished.
    """
    console, own_strategies = Console(width=_WIDTH), strategies(strategy or ())
    names = tuple(dict.fromkeys((*parts(methods), *own_strategies)))
    known_methods(names, own_strategies)
    selected, source = problems(problem), DataSource.find(data)
    seeds_of_searches = range(first_seed, first_seed + seeds)
    caches = {name: Cache(out, name, Record) for name in names}
    results: dict[Setting, Found] = {}
    counts = {setting: shown(setting, after) for setting in settings(workers, evaluations)}
    for setting in counts:
        keys = {
            (name, seed): (name, setting.workers, setting.evaluations, seed)
            for seed, name in product(seeds_of_searches, selected)
        }
        if not report:
            _run(setting, keys, caches, own_strategies, source, console)
        results[setting] = read(caches, keys)
    listed = [table for setting, records in results.items() for table in tables(setting, records, counts[setting])]
    write(listed, out / "results", console)


def _run(
    setting: Setting,
    keys: Mapping[Key, SearchKey],
    caches: Mapping[str, Cache[Record]],
    own_strategies: Mapping[str, Options],
    source: DataSource,
    console: Console,
) -> None:
    """Run missing searches, seed by seed, so that an interrupted run has complete seeds."""
    for (name, seed), key in keys.items():
        problem = make_problem(name, seed, source)
        for method, cache in caches.items():
            if cache.get(*key) is not None or not is_applicable(method, group_of(name)):
                continue
            instance = make_method(method, problem, seed, own_strategies)
            record = search(problem, instance, setting.workers, setting.evaluations, seed, (name, method))
            cache.add(record)
            line = f"{setting}, {name}, {method}, seed {seed}: regret {record.recommended[-1]:.4g}"
            console.print(Text(line), soft_wrap=True)


if __name__ == "__main__":
    run_command(main, "benchmarks.peers")
