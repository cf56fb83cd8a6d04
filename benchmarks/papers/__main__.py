"""`python -m benchmarks.papers EXPERIMENT`: run an experiment of a paper; `list` lists them all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from bbkb.objectives.keywords import did_you_mean
from bbkb.orchestrator.errors import UserError
from benchmarks.command import Data, parts
from benchmarks.command import run as run_command
from benchmarks.papers import calandriello_2020, compressed, nasbench101, threds, variance_starvation
from benchmarks.papers.campaigns import Experiment, Request
from benchmarks.tables import write

_WIDTH = 220  # of the output: rows of a table are not wrapped, also in a narrow terminal

EXPERIMENTS: Mapping[str, Experiment] = {
    "abalone": calandriello_2020.ABALONE,
    "cadata": calandriello_2020.CADATA,
    "bandwidth": calandriello_2020.BANDWIDTH,
    "nasbench101": nasbench101.NASBENCH101,
    "threds_branin": threds.THREDS_BRANIN,
    "threds_rosenbrock": threds.THREDS_ROSENBROCK,
    "threds_cnn": threds.CNN,
    "variance_starvation": variance_starvation.VARIANCE_STARVATION,
    "compressed_example": compressed.EXAMPLE,
    "compressed_rosenbrock": compressed.ROSENBROCK,
    "compressed_mnist": compressed.MNIST,
}

Name = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Name of an experiment, or list.")]


def main(
    experiment: Name,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, seeds 0, 1, ….")] = 10,
    jobs: Annotated[int, typer.Option(min=1, help="Campaigns at the same time.")] = 1,
    evaluations: Annotated[int | None, typer.Option(min=1, help="Horizon T; default: the paper's.")] = None,
    methods: Annotated[str, typer.Option(help="Names of methods, separated by commas.")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder; default: runs/papers/EXPERIMENT.")] = None,
    data: Data = None,
) -> None:
    """Reproduce an experiment: its numbers with 95 % confidence intervals.

    A repeated call reads finished runs and continues interrupted ones. Set OMP_NUM_THREADS=1 for
    times that can be compared.
    """
    console = Console(width=_WIDTH)
    if experiment == "list":
        for name, one in EXPERIMENTS.items():
            line = Text.assemble((name, "bold"), f"  {one.summary} ({one.source})")
            console.print(line, soft_wrap=True)
            line = Text(f"    T = {one.evaluations}, methods {','.join(one.methods)}", "dim")
            console.print(line, soft_wrap=True)
        return
    if experiment not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        hint = did_you_mean(experiment, EXPERIMENTS)
        raise UserError(f"the experiment must be one of {known}, got {experiment!r}{hint}")
    found = EXPERIMENTS[experiment]
    request = Request(
        seeds=seeds,
        evaluations=evaluations or found.evaluations,
        methods=found.chosen(parts(methods)),
        out=(out or Path("runs", "papers", experiment)).absolute(),
        jobs=jobs,
        data=data,
    )
    write(found.run(request), request.out / f"results-{request.evaluations}", console)


if __name__ == "__main__":
    run_command(main, "benchmarks.papers")
