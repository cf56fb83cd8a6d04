"""`python -m benchmarks.curves`: searches of trainings in steps, with early stopping, in simulated
time.

Finished searches are kept in `--out`; a repeated call runs only the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.reference import DataSource
from bbkb.orchestrator.errors import UserError
from benchmarks.command import Data, FirstSeed, Out, ReportOnly, Seeds, Workers, numbers, parts
from benchmarks.command import run as run_command
from benchmarks.curves.campaign import CAMPAIGNS, run_campaign
from benchmarks.curves.families import FAMILIES, PROBLEMS, load_problem
from benchmarks.curves.methods import LABELS, RANDOM, known_methods, make_method
from benchmarks.curves.own import FOLDER
from benchmarks.curves.problems import Floats
from benchmarks.curves.simulate import Record, Setting, at_marks, search
from benchmarks.peers.cache import Cache, Key, common, read
from benchmarks.tables import Cell, Table, write

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
                loaded = load_problem(problem, source, own)
                if name in CAMPAIGNS:
                    record = run_campaign(loaded, name, setting)
                else:
                    record = search(loaded, make_method(name, loaded, setting), name, setting)
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


MARKS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_SHARES = tuple(f"{mark:.0%}" for mark in MARKS)
_COUNTS = ("best to the end", "begun", "to the end", "continued", "CPU s", "ratio")

Found = Mapping[str, Mapping[Key, Record]]  # by method


def tables(family: str, setting: str, results: Found, base: str) -> Iterator[Table]:
    """Mean regrets of the searches that all methods finished, and their differences from `base`."""
    name = f"curves-{family}-{setting}".replace(",", "").replace(" ", "-")
    if common(results):
        yield _means(name, f"{family}, {setting}", results, base)
        if base in results and len(results) > 1:
            yield _pairs(f"{name}-paired", f"{family}, {setting}", results, base)


def _means(name: str, label: str, results: Found, base: str) -> Table:
    keys = common(results)
    found = {method: [records[key] for key in keys] for method, records in results.items()}
    ours = mean_regrets(found[base])[-1] if base in found else np.nan
    rows = [_row(method, records, float(ours)) for method, records in found.items()]
    searches = f"{len(keys)} searches of {len({key[0] for key in keys})} problems"
    title = f"{label}: mean regret after shares of the budget, {searches}; ratio: {LABELS[base]} / this"
    return Table(name, title, ("method", *_SHARES, *_COUNTS), rows)


def _pairs(name: str, label: str, results: Found, base: str) -> Table:
    title = f"{label}: regret of {LABELS[base]} − another method's, paired, ± standard error"
    others = {LABELS[method]: records for method, records in results.items() if method != base}
    searches = {method: results[method] for method in RANDOM if method in results}
    if keys := common(searches):  # of all random searches
        best = min(searches, key=lambda method: mean_regrets([searches[method][key] for key in keys])[-1])
        others[f"the best random search: {LABELS[best]}"] = results[best]
    pairs = [(other, *differences(results[base], records)) for other, records in others.items()]
    return Table(name, title, ("method", *_SHARES, "searches"), pairs)


def differences(our_records: Mapping[Key, Record], their_records: Mapping[Key, Record]) -> tuple[Cell, ...]:
    """Mean of ours − theirs at each of MARKS over the searches of both, ± its standard error, and
    the number of these searches."""
    keys = sorted(set(our_records) & set(their_records))
    gaps = np.array([at_marks(our_records[key], MARKS) - at_marks(their_records[key], MARKS) for key in keys])
    means = gaps.mean(axis=0)
    if len(keys) == 1:
        return (*(f"{mean:+.3f}" for mean in means), 1)
    errors = gaps.std(axis=0, ddof=1) / np.sqrt(len(keys))
    return (*(f"{mean:+.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)), len(keys))


def mean_regrets(records: Sequence[Record]) -> Floats:
    """The mean regret (M,) at MARKS."""
    means: Floats = np.mean([at_marks(record, MARKS) for record in records], axis=0)
    return means


def _row(method: str, records: Sequence[Record], ours: float) -> tuple[Cell, ...]:
    regrets = mean_regrets(records).tolist()
    return (
        LABELS[method],
        *(round(regret, 3) for regret in regrets),
        round(_mean(records, "finished_regret"), 3),
        *(_mean(records, name) for name in ("starts", "finished", "continuations", "seconds")),
        round(ours / (regrets[-1] or np.nan), 2),
    )


def _mean(records: Sequence[Record], name: str) -> float:
    """The mean of a number of the records; NaN if one of them lacks it."""
    values = [getattr(record, name) for record in records]
    return float(np.mean([np.nan if value is None else value for value in values]))


if __name__ == "__main__":
    run_command(main, "benchmarks.curves")
