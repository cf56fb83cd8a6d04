"""`python -m benchmarks.curves`: searches of trainings in steps, with early stopping, in simulated
time.

Finished searches are kept in `--out`; a repeated call runs only the others.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from benchmarks.command import Data, FirstSeed, Out, ReportOnly, Seeds, Workers, numbers, parts
from benchmarks.command import run as run_command
from benchmarks.curves.campaign import CAMPAIGNS, run_campaign
from benchmarks.curves.families import FAMILIES, PROBLEMS, load_problem
from benchmarks.curves.methods.catalogue import LABELS, known_methods, make_method
from benchmarks.curves.own import FOLDER
from benchmarks.curves.simulate import Record, Setting, search
from benchmarks.curves.summary import tables
from benchmarks.peers.cache import Cache, read
from benchmarks.tables import Table, write
from objectives.datasets import DataSource
from objectives.keywords import did_you_mean
from orchestrator.errors import UserError

_WIDTH = 240
DEFAULT_FAMILIES = "lcbench,taskset,nb101"

Problems = Annotated[
    str, typer.Option(help=f"Problems such as {PROBLEMS[0]}, or families, some of {','.join(FAMILIES)}.")
]
Methods = Annotated[str, typer.Option(help=f"Some of {','.join(LABELS)}, separated by commas.")]
Trainings = Annotated[str, typer.Option(help="Budgets in full trainings, separated by commas.")]
Durations = Annotated[
    Literal["equal", "recorded"], typer.Option(help="Whether all steps take as long, or the seconds on record.")
]
Base = Annotated[str, typer.Option(help="The method that the others are compared with.")]
Processes = Annotated[int, typer.Option(min=1, help="Searches at the same time.")]
Own = Annotated[Path, typer.Option(help="Folder of the curves own-…, which `benchmarks.curves.own` records.")]


@dataclass(frozen=True)
class Task:
    """One search to run."""

    problem: str
    method: str
    setting: Setting
    source: DataSource
    own: Path  # the folder of the curves own-…


def main(
    problems: Problems = DEFAULT_FAMILIES,
    methods: Methods = "random,random-asha,random-short,bbkb,bbkb-median,bbkb-model",
    workers: Workers = "8",
    trainings: Trainings = "10,20,40",
    seeds: Seeds = 5,
    first_seed: FirstSeed = 0,
    durations: Durations = "equal",
    base: Base = "bbkb-model",
    processes: Processes = 1,
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
        Setting(workers=count, trainings=budget, seed=seed, durations=durations)
        for count, budget, seed in product(
            numbers("--workers", workers), numbers("--trainings", trainings), range(first_seed, first_seed + seeds)
        )
    ]
    caches = {name: Cache(out, name, Record) for name in names}
    if not report:
        missing = [
            Task(problem, name, setting, source, own)
            for setting, problem, name in product(settings, selected, names)
            if caches[name].get(*_key(problem, setting)) is None
        ]
        _run(missing, processes, lambda record: _keep(record, caches, console))
    listed: list[Table] = []
    for (label, same), family in product(_by_label(settings).items(), FAMILIES):
        searches = [(name, setting) for name in FAMILIES[family] if name in selected for setting in same]
        found = read(caches, {(name, setting.seed): _key(name, setting) for name, setting in searches})
        listed.extend(tables(family, label, found, base))
    write(listed, out / "results", console)


def _run(missing: Sequence[Task], processes: int, keep: Callable[[Record], None]) -> None:
    """Run the searches, one seed after the other, so that an interrupted run has complete seeds."""
    if processes == 1:
        for task in missing:
            keep(_search(task))
        return
    with ProcessPoolExecutor(processes) as pool:
        for record in pool.map(_search, missing):
            keep(record)


def _search(task: Task) -> Record:
    problem = load_problem(task.problem, task.source, task.own)
    if task.method in CAMPAIGNS:
        return run_campaign(problem, task.method, task.setting)
    return search(problem, make_method(task.method, problem, task.setting), task.method, task.setting)


def _keep(record: Record, caches: Mapping[str, Cache[Record]], console: Console) -> None:
    caches[record.method].add(record)
    setting = f"{record.workers} workers, {record.trainings} trainings, seed {record.seed}"
    line = f"{record.problem}, {record.method}, {setting}: regret {record.regrets[-1]:.4f}"
    console.print(Text(line), soft_wrap=True)


def _key(problem: str, setting: Setting) -> tuple[str | int, ...]:
    return (problem, setting.workers, setting.trainings, setting.durations, setting.seed)


def _by_label(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    labels: dict[str, list[Setting]] = {}
    for setting in settings:
        times = "" if setting.durations == "equal" else ", recorded durations"
        labels.setdefault(f"{setting.trainings} trainings, {setting.workers} workers{times}", []).append(setting)
    return labels


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
