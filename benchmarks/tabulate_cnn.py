"""`python -m benchmarks.tabulate_cnn FOLDER`: a table of a smaller CNN problem than that of Salgia
et al. 2021 (D.3).

Trains each setting of a coarser grid once and writes the accuracies, so that repetitions of the
experiment run on the simulated executor in seconds. Two files are written:

* `mnist_cnn.csv`: for `candidates: {table: …, target: accuracy}` of a campaign file. Batch size and
  learning rate are given by their logarithms, because a table's numbers are scaled linearly and the
  paper scales these two logarithmically;
* `mnist_cnn_timed.csv`: the same with the column `seconds`, for `table_objective(path, "accuracy",
  "seconds")`.

Each training is appended to the second file when it ends. The same command, started again,
continues after the last one.
"""

import csv
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from objectives.datasets import DataSource
from objectives.objective import Candidates, Objective, ObjectiveError, Parameters
from objectives.parameters import Ordered
from objectives.sampling import make_candidates
from objectives.training.cnn import ConvolutionalNetwork

Row = dict[str, float]

_PLAIN, _TIMED = "mnist_cnn.csv", "mnist_cnn_timed.csv"


def grid(options: ConvolutionalNetwork) -> Candidates:
    """The paper's settings with every second batch size and three numbers of hidden units: 1152
    instead of 23808."""
    coarser = {"batch_size": Ordered((8, 32, 128, 512)), "hidden": Ordered((10, 25, 40))}
    return make_candidates({**options.default_space(), **coarser}, size=None)


def tabulate(objective: Objective, candidates: Candidates, seed: int, first: int = 0) -> Iterator[Row]:
    """One row for each candidate from number `first` on, each trained with another seed; a training
    that diverged has the accuracy 0."""
    for arm in range(first, len(candidates)):
        yield _row(objective, candidates.parameters(arm), seed + arm)


def _row(objective: Objective, parameters: Parameters, seed: int) -> Row:
    began = time.perf_counter()
    value = objective.evaluate(parameters, seed, _ignore_report).value
    seconds = time.perf_counter() - began
    return {
        "log2_batch_size": round(math.log2(parameters["batch_size"])),
        "first_kernel": parameters["first_kernel"],
        "second_kernel": parameters["second_kernel"],
        "hidden": parameters["hidden"],
        "log10_learning_rate": round(math.log10(parameters["learning_rate"])),
        "accuracy": value if math.isfinite(value) else 0.0,
        "seconds": round(seconds, 4),
    }


def _ignore_report(value: float, step: int | None = None, **metrics: float) -> None: ...


def write(rows: Iterator[Row], folder: Path) -> list[Row]:
    """Append each of `rows` to the timed table in `folder`, then write the other table; returns all
    rows.

    The folder is created when it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _TIMED).open("a", encoding="utf-8", newline="") as file:
        for row in rows:
            if not file.tell():
                file.write(",".join(row) + "\n")
            file.write(",".join(map(str, row.values())) + "\n")
            file.flush()
    recorded_rows = _read_rows(folder)
    with (folder / _PLAIN).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(recorded_rows[0])[:-1], extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(recorded_rows)
    return read(folder)


def read(folder: Path) -> list[Row]:
    """The rows of the timed table in `folder`; none when it does not exist."""
    return [{name: float(text) for name, text in row.items()} for row in _read_rows(folder)]


def _read_rows(folder: Path) -> list[dict[str, str]]:
    if not (folder / _TIMED).exists():
        return []
    with (folder / _TIMED).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main(
    folder: Annotated[Path, typer.Argument(help="Folder for the two files.")],
    dataset: Annotated[Literal["auto", "mnist", "digits"], typer.Option(help="Images to learn.")] = "digits",
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each training.")] = 5,
    train_size: Annotated[int | None, typer.Option(help="Training rows; the data set's default if not given.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first row; each further row has the next seed.")] = 0,
    data: Annotated[Path | None, typer.Option(envvar="BBKB_DATA", help="Folder with the data sets.")] = None,
) -> None:
    """Train the whole coarser grid on one core, print its statistics and write the tables."""
    try:
        options = ConvolutionalNetwork(epochs=epochs, dataset=dataset, train_size=train_size)
        objective = options.load(DataSource.find(data))
    except (ValueError, ObjectiveError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo(objective.description)
    rows = write(tabulate(objective, grid(options), seed, first=len(read(folder))), folder)
    accuracy, seconds = (np.array([row[name] for row in rows]) for name in ("accuracy", "seconds"))
    typer.echo(f"best: {rows[int(accuracy.argmax())]}")
    typer.echo(
        f"{len(rows)} settings, accuracy median {np.median(accuracy):.4f}, quartiles "
        f"{np.quantile(accuracy, 0.25):.4f} and {np.quantile(accuracy, 0.75):.4f}, worst {accuracy.min():.4f}; "
        f"seconds each median {np.median(seconds):.3f}, from {seconds.min():.3f} to {seconds.max():.3f}; "
        f"{seconds.sum():.0f} seconds in all"
    )


if __name__ == "__main__":
    typer.run(main)
