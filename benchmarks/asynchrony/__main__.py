"""`python -m benchmarks.asynchrony …`: asynchronous BBKB compared with other methods in virtual
time."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.asynchrony.comparing import run
from benchmarks.asynchrony.figures import figures
from benchmarks.asynchrony.problems import TABLES
from benchmarks.asynchrony.settings import DURATIONS, LABELS, check_known, settings
from benchmarks.asynchrony.tables import OURS, origins, regrets, utilisation_table, verdicts
from benchmarks.command import run as run_command
from benchmarks.papers.experiment import Request
from benchmarks.papers.findings import Findings
from benchmarks.papers.writing import write
from orchestrator.errors import UserError

_WIDTH = 320  # of the output: rows of a table are not wrapped, also in a narrow terminal
_ALL_DURATIONS, _ALL_METHODS = ",".join(DURATIONS), ",".join(LABELS)

Workers = Annotated[str, typer.Option(help="Numbers of virtual workers, separated by commas.")]
Durations = Annotated[str, typer.Option(help=f"Some of {_ALL_DURATIONS}; the last for cells, alone.")]
Problems = Annotated[str, typer.Option(help=f"Some of {','.join(TABLES)}.")]
Methods = Annotated[str, typer.Option(help=f"Some of {_ALL_METHODS}; {OURS} always runs.")]
Seeds = Annotated[int, typer.Option(min=1, help="Repetitions.")]
FirstSeed = Annotated[
    int, typer.Option(min=0, help="Seed of the first repetition; each further one has the next seed.")
]
Evaluations = Annotated[
    int | None, typer.Option(min=1, help="Evaluations of a campaign; by default 24 for each worker, and at least 1000.")
]
Out = Annotated[Path, typer.Option(help="Folder for runs and results.")]
Data = Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")]


def main(
    workers: Workers = "8,64",
    durations: Durations = _ALL_DURATIONS,
    problems: Problems = "fcnet,cells",
    methods: Methods = _ALL_METHODS,
    seeds: Seeds = 3,
    first_seed: FirstSeed = 0,
    evaluations: Evaluations = None,
    out: Out = Path("runs/asynchrony"),
    data: Data = None,
) -> None:
    """Compare the methods at equal times: regret, makespan and utilisation, with 95 % intervals
    over seeds.

    A repeated call reads finished campaigns, and starts an interrupted one again.
    """
    console = Console(width=_WIDTH)
    selected = settings(_parts(problems), _parts(durations), _counts(workers), evaluations)
    check_known("--methods", _parts(methods), tuple(LABELS))
    names = tuple(name for name in LABELS if name == OURS or name in _parts(methods))
    findings = {}
    for setting in selected:
        request = Request(seeds, setting.evaluations, names, out.absolute(), data=data)
        findings[setting] = run(setting, request, first_seed, console)
    results = out / f"results-{'-'.join(str(count) for count in sorted(_counts(workers)))}"
    tables = [utilisation_table(findings), regrets(findings), origins(findings), verdicts(findings)]
    write(Findings(tables, figures(findings)), results, console)


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _counts(text: str) -> tuple[int, ...]:
    if not all(part.isdecimal() and int(part) for part in _parts(text)):
        raise UserError(f"--workers must be whole numbers >= 1, separated by commas, got {text!r}")
    return tuple(int(part) for part in _parts(text))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.asynchrony")
