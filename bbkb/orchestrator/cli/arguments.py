"""Arguments and options that several commands share."""

import json
from pathlib import Path
from typing import Annotated

import typer


def find_run(folder: Path) -> Path:
    """Return the folder, or `runs/NAME` if there is no folder with that name here."""
    below = Path("runs") / folder
    return below if len(folder.parts) == 1 and not folder.exists() and below.is_dir() else folder


CampaignFile = Annotated[Path, typer.Argument(help="Campaign file (YAML).", show_default=False)]
RunFolder = Annotated[
    Path,
    typer.Argument(
        help="A run's folder, created by `bbkb run`; NAME is short for runs/NAME.",
        show_default=False,
        callback=find_run,
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key: strategy.ratio_threshold=3.")
]
Workers = Annotated[int | None, typer.Option("--workers", help="The number of concurrent evaluations: workers.count.")]
Address = Annotated[
    str | None, typer.Option("--address", help="Ray cluster to join; default: RAY_ADDRESS, or else a new local one.")
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="NAME", help="Name of the run's folder; default: the key `run`, or else name and time."
    ),
]
OrResume = Annotated[
    bool, typer.Option("--or-resume", help="Resume the run named by --run (or `run:`) if it exists already.")
]


Quiet = Annotated[bool, typer.Option("--quiet", help="Print only errors.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print lines of JSON: the status when it changes, and messages.")
]
Serve = Annotated[bool, typer.Option("--serve", help="Also serve the live page; its address is printed.")]


def overrides(set_: list[str] | None, workers: int | None = None, run: str | None = None) -> list[str]:
    """Return the assignments of `--set`, followed by those of other options that are shortcuts."""
    options = {"workers.count": workers, "run": None if run is None else json.dumps(run)}
    return [*(set_ or ()), *(f"{key}={value}" for key, value in options.items() if value is not None)]
