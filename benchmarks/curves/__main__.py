"""`python -m benchmarks.curves`: searches of trainings in steps, with early stopping, in simulated
time.

Finished searches are kept in `--out`; a repeated call runs only the others.
"""

from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from bbkb.objectives.datasets import DataSource
from bbkb.objectives.keywords import did_you_mean
from bbkb.orchestrator.errors import UserError
from benchmarks.command import Data, FirstSeed, Out, ReportOnly, Seeds, Workers, numbers, parts
from benchmarks.command import run as run_command
from benchmarks.curves.campaign import CAMPAIGNS, run_campaign
from benchmarks.curves.families import FAMILIES, PROBLEMS, load_problem
from benchmarks.curves.methods import LABELS, known_methods, make_method
from benchmarks.curves.own import FOLDER
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Record, Setting, search
from benchmarks.curves.summary import tables
from benchmarks.peers.cache import Cache, read
from benchmarks.tables import Table, write

_WIDTH = 240
DEFAULT_FAMILIES = "lcbench,taskset,nb101"

Problems = Annotated[
    str, typer.Option(help=f"Problems such as {PROBLEMS[0]}, or families, some of {','.join(FAMILIES)}.")
]
Methods = Annotated[str, typer.Option(help=f"Some of {','.join(LABELS)}, separated by commas.")]
Trainings = Annotated[str, typer.Option(help="Budgets in full trainings, separated by commas.")]
Own = Annotated[Path, typer.Option(help="Folder of the curves own-…, which `benchmarks.curves.own` records.")]


def main(
    problems: Problems = DEFAULT_FAMILIES,
    methods: Methods = "random,random-asha,random-short,bbkb,bbkb-median,bbkb-model",
    workers: Workers = "8",
    trainings: Trainings = "10,20,40",
    seeds: Seeds = 5,
    first_seed: FirstSeed = 0,
    base: Annotated[str, typer.Option(help="The method that the others are compared with.")] = "bbkb-model",
    report: ReportOnly = False,
    out: Out = Path("runs/curves"),
    own: Own = FOLDER,
    data: Data = None,
) -> None:
    """Compare searches of trainings in steps on the same curves, workers, budgets and seeds."""
    console, source = Console(width=_WIDTH), DataSource.find(data)
    names = parts(methods)
    selected = _problems(problems)
    known_methods((*names, base))
    settings = [
        Setting(workers=count, trainings=budget, seed=seed)
        for count, budget, seed in product(
            numbers("--workers", workers), numbers("--trainings", trainings), range(first_seed, first_seed + seeds)
        )
    ]
    caches = {name: Cache(out, name, Record) for name in names}
    if not report:
        for setting, problem, name in product(settings, selected, names):
            if caches[name].get(*_key(problem, setting)) is None:
                record = _search(load_problem(problem, source, own), name, setting)
                caches[name].add(record)
                line = f"{problem}, {name}, {setting}: regret {record.regrets[-1]:.4f}"
                console.print(Text(line), soft_wrap=True)
    listed: list[Table] = []
    labels = dict.fromkeys(setting.label for setting in settings)
    for label, family in product(labels, FAMILIES):
        same = [setting for setting in settings if setting.label == label]
        searches = [(name, setting) for name in FAMILIES[family] if name in selected for setting in same]
        found = read(caches, {(name, setting.seed): _key(name, setting) for name, setting in searches})
        listed.extend(tables(family, label, found, base))
    write(listed, out / "results", console)


def _search(problem: CurveProblem, name: str, setting: Setting) -> Record:
    if name in CAMPAIGNS:
        return run_campaign(problem, name, setting)
    return search(problem, make_method(name, problem, setting), name, setting)


def _key(problem: str, setting: Setting) -> tuple[str | int, ...]:
    return (problem, setting.workers, setting.trainings, setting.seed)


def _problems(text: str) -> list[str]:
    names = [name for part in parts(text) for name in FAMILIES.get(part, (part,))]
    for name in names:
        if name not in PROBLEMS:
            choices = (*FAMILIES, *PROBLEMS)
            raise UserError(
                f"--problems must be families, some of {','.join(FAMILIES)}, or problems such as "
                f"{','.join(family[0] for family in FAMILIES.values())}, got {name!r}{did_you_mean(name, choices)}"
            )
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    run_command(main, "benchmarks.curves")
