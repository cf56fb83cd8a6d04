"""`bbkb compare`: runs side by side."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bbkb.orchestrator.cli.arguments import find_run
from bbkb.orchestrator.display.console import SafeConsole
from bbkb.orchestrator.display.terminal import say, write_file
from bbkb.orchestrator.history.comparing import side_by_side
from bbkb.orchestrator.history.reading import read_history
from bbkb.orchestrator.store.runs import open_run

_NARROWEST = 17  # characters of a column

Runs = Annotated[
    list[Path],
    typer.Argument(
        help="Folders of runs; NAME is short for runs/NAME.",
        show_default=False,
        callback=lambda folders: [find_run(folder) for folder in folders],
    ),
]


def compare(
    folders: Runs,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Also draw the best values so far into this file: .html, .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Compare runs: strategy, evaluations, best value and its origin, the recommended configuration
    if values are noisy, time and utilization."""
    names = [folder.resolve().name for folder in folders]
    histories = [read_history(open_run(folder)) for folder in folders]
    rows = side_by_side(histories)
    console = SafeConsole()
    room = console.width - max(len(label) for label, _ in rows)
    count = max(1, room // _NARROWEST)  # the number of runs in one table
    for first in range(0, len(names), count):
        table = Table(box=None, pad_edge=False)
        for heading in ("", *names[first : first + count]):
            table.add_column(escape(heading), overflow="fold")
        for label, cells in rows:
            table.add_row(label, *map(Text, cells[first : first + count]))
        console.print(*([""] if first else []), table, sep="\n")
    if picture is not None:
        from bbkb.orchestrator.report.comparison import write_picture  # loads plotly

        named = list(zip(names, histories, strict=True))
        write_file(picture, lambda path: write_picture(named, path))
        say(console, f"picture {picture.resolve()}")
