"""`python -m benchmarks.papers EXPERIMENT`: run an experiment of a paper; `list` lists them all."""

import csv
import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from bbkb.objectives.errors import did_you_mean
from bbkb.orchestrator.errors import UserError
from benchmarks.command import Data, parts
from benchmarks.command import run as run_command
from benchmarks.papers import calandriello_2020, compressed, nasbench101, threds, variance_starvation
from benchmarks.papers.campaigns import DEFAULT_LABEL, Experiment, Request, default_method, digest
from benchmarks.tables import write, write_csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED = Path(__file__).parents[2] / "docs" / "measurements" / "papers"  # the published tables
PICTURES = (".png", ".svg", ".pdf")  # the kinds of figures
_WIDTH = 220  # of the output: rows of a table are not wrapped, also in a narrow terminal

EXPERIMENTS: Mapping[str, Experiment] = {
    "abalone": calandriello_2020.ABALONE,
    "cadata": calandriello_2020.CADATA,
    "bandwidth": calandriello_2020.BANDWIDTH,
    "constants": calandriello_2020.CONSTANTS,
    "nasbench101": nasbench101.NASBENCH101,
    "threds_branin": threds.THREDS_BRANIN,
    "threds_rosenbrock": threds.THREDS_ROSENBROCK,
    "threds_cnn": threds.CNN,
    "variance_starvation": variance_starvation.VARIANCE_STARVATION,
    "compressed_example": compressed.EXAMPLE,
    "compressed_tradeoff": compressed.TRADEOFF_OF_ALPHA,
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
    picture: Annotated[
        Path | None, typer.Option(help="File for the figure, such as abalone.png; of several problems, one file each.")
    ] = None,
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
    if picture is not None:
        check_picture(picture)
    results = found.run(request)
    folder = request.out / f"results-{request.evaluations}"
    write([result.table for result in results], folder, console)
    for result in results:
        write_csv(result.curves, folder)
        (folder / f"{result.table.name}.settings.json").write_text(json.dumps(result.settings, indent=2) + "\n")
        if picture is not None:
            named = picture if len(results) == 1 else picture.with_stem(f"{picture.stem}-{result.table.name}")
            draw(result.draw, named)
            console.print(Text(f"figure: {named}"), soft_wrap=True)


def stale_defaults(folder: Path) -> list[str]:
    """Return the CSV files in `folder` with a row of BBKB's defaults that was measured with other
    settings than today's, or whose settings are unknown."""
    today = digest(default_method(workers=1).strategy)
    stale = []
    for file in sorted(folder.glob("*.csv")):
        settings = file.with_suffix(".settings.json")
        measured = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
        with file.open(encoding="utf-8") as lines:
            labels = {row[0] for row in csv.reader(lines) if row and row[0].startswith(DEFAULT_LABEL)}
        if any(measured.get(label) != today for label in labels):
            stale.append(file.name)
    return stale


def check_picture(path: Path) -> None:
    """Raise UserError if matplotlib is missing or cannot write a file of this kind."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError('--picture needs matplotlib, which is not installed: pip install "matplotlib>=3.8,<4"')
    if path.suffix not in PICTURES:
        raise UserError(f"--picture must end with {', '.join(PICTURES)}, got {path}")


def draw(drawing: "Callable[[Figure], None]", path: Path) -> None:
    """Write a figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.5), layout="constrained")
    drawing(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    run_command(main, "benchmarks.papers")
