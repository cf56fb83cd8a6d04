"""`bbkb init`: a commented campaign file for a function, a command or a table."""

import json
import shlex
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console

from bbkb.orchestrator.campaign.settings import name_from
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.report.terminal import SafeConsole, say, write_file
from bbkb.orchestrator.settings.schema import schema

SCHEMA = "campaign.schema.json"


class Template(StrEnum):
    """The kind of objective."""

    FUNCTION = "function"
    COMMAND = "command"
    TABLE = "table"


_COMPANIONS: Mapping[Template, str] = {  # the example beside the file
    Template.FUNCTION: "objective.py",
    Template.COMMAND: "train.py",
    Template.TABLE: "results.csv",
}


def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("campaign.yaml"),
    template: Annotated[
        Template | None,
        typer.Option(
            "--template", help="The kind of objective. By default the command asks; function without a terminal."
        ),
    ] = None,
    evaluations: Annotated[int, typer.Option("--evaluations", min=1, help="The budget: number of trials.")] = 100,
    workers: Annotated[int, typer.Option("--workers", min=1, help="The number of concurrent evaluations.")] = 4,
) -> None:
    """Write a commented campaign file to start from, and an example objective beside it."""
    if file.exists():
        raise UserError(f"{file} exists already: name another file, or remove it")
    kind = template or Template.FUNCTION
    if template is None:
        try:
            # some versions of typer omit the choices
            question = f"What is tuned ({', '.join(Template)})"
            kind = Template(typer.prompt(question, default=kind.value, type=Template, show_choices=False))
        except typer.Abort:
            if sys.stdin.isatty():
                raise
    name = name_from(file.stem)
    if yaml.safe_load(name) != name:  # a number, a date or null
        name = json.dumps(name)
    values = {"name": name, "evaluations": evaluations, "workers": workers, "schema": SCHEMA}
    console = SafeConsole()
    _write(console, file, _fill(f"{kind.value}.yaml.jinja", values))
    _write(console, file.parent / _COMPANIONS[kind], _fill(f"{_COMPANIONS[kind]}.jinja", values))
    _write(console, file.parent / SCHEMA, json.dumps(schema(), indent=1) + "\n")
    named = shlex.quote(str(file))
    say(console, f"check it with: bbkb validate {named}; run it with: bbkb run {named}")


def _fill(template: str, values: Mapping[str, object]) -> str:
    loader = PackageLoader("bbkb.orchestrator.cli", "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.get_template(template).render(values)


def _write(console: Console, path: Path, text: str) -> None:
    """Write a file unless it exists already."""
    if path.exists():
        say(console, f"{path} exists already and is unchanged")
        return
    write_file(path, lambda target: target.write_text(text, encoding="utf-8"))
    say(console, f"wrote {path}")
