"""`python -m benchmarks.papers <experiment> …`: run one of the papers' experiments; `list` lists
all of them."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from benchmarks.command import run as run_command
from benchmarks.papers.experiment import Request
from benchmarks.papers.experiments import EXPERIMENTS, find_experiment
from benchmarks.papers.writing import write

_WIDTH = 220  # of the output: rows of a table are not wrapped, also in a narrow terminal

Name = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Name of an experiment, or list.", show_default=False)]
Seeds = Annotated[int, typer.Option(min=1, help="Repetitions, seeds 0, 1, ….")]
Jobs = Annotated[
    int, typer.Option(min=1, help="Campaigns at the same time; with more than one, measured times are longer.")
]
Evaluations = Annotated[int | None, typer.Option(min=1, help="Horizon T; the paper's when not given.")]
Methods = Annotated[str, typer.Option(help="Names of methods, separated by commas; all when not given.")]
Out = Annotated[Path | None, typer.Option(help="Folder for runs and results; runs/papers/<experiment> when not given.")]
Data = Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")]
Authors = Annotated[
    Path | None,
    typer.Option(help="Folder with the code of the paper's authors, for a comparison."),
]


def main(
    experiment: Name,
    seeds: Seeds = 10,
    jobs: Jobs = 1,
    evaluations: Evaluations = None,
    methods: Methods = "",
    out: Out = None,
    data: Data = None,
    authors: Authors = None,
) -> None:
    """Reproduce an experiment: its numbers with 95 % confidence intervals, and its figure as PNG
    and SVG.

    A repeated call reads finished runs and continues interrupted ones.
    """
    console = Console(width=_WIDTH)
    if experiment == "list":
        _list(console)
        return
    chosen_experiment = find_experiment(experiment)
    request = Request(
        seeds=seeds,
        evaluations=evaluations or chosen_experiment.evaluations,
        methods=chosen_experiment.chosen(tuple(name.strip() for name in methods.split(",") if name.strip())),
        out=(out or Path("runs", "papers", experiment)).absolute(),
        jobs=jobs,
        data=data,
        authors=authors,
    )
    if os.environ.get("OMP_NUM_THREADS") is None:
        console.print(Text("note: OMP_NUM_THREADS is not set; set it to 1 for times that can be compared"))
    write(chosen_experiment.run(request), request.out / f"results-{request.evaluations}", console)


def _list(console: Console) -> None:
    for name in EXPERIMENTS:
        experiment = find_experiment(name)
        console.print(Text.assemble((name, "bold"), f"  {experiment.summary} ({experiment.source})"), soft_wrap=True)
        console.print(
            Text(f"    T = {experiment.evaluations}, methods {','.join(experiment.methods)}", "dim"), soft_wrap=True
        )


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(main)


if __name__ == "__main__":
    run_command(app, "benchmarks.papers")
