"""`bbkb validate`, `schema` and `strategies`: commands about campaign files."""

import dataclasses
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from bbkb.objectives.errors import suggestion
from bbkb.orchestrator.annotations import default_of, documentation_of
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.cli.arguments import CampaignFile, Overrides, Workers, overrides
from bbkb.orchestrator.cli.plan import describe, explain_space, say_remarks
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.report.terminal import SafeConsole, say
from bbkb.orchestrator.running.ray_start import check_room
from bbkb.orchestrator.session.build import build_new
from bbkb.orchestrator.settings.loading import load, naming_places
from bbkb.orchestrator.settings.schema import schema as json_schema
from bbkb.orchestrator.settings.strategies import own_strategy
from bbkb.orchestrator.store.connect import connect
from bbkb.orchestrator.wording import one_line

_SUMMARY = 110  # the most characters of a strategy in the list

CheckedAddress = Annotated[
    str | None,
    typer.Option("--address", help="Ray cluster whose nodes are checked; default: RAY_ADDRESS, or else none."),
]


def validate(
    file: CampaignFile, set_: Overrides = None, workers: Workers = None, address: CheckedAddress = None
) -> None:
    """Check a campaign file, its data and its code without running anything.

    With --address (or RAY_ADDRESS), also check whether the nodes of that cluster can hold an
    evaluation.
    """
    console = SafeConsole()
    settings = load(file, overrides(set_, workers))
    with naming_places(file, overrides(set_, workers)):
        if settings.store != "sqlite":
            connect(settings.store).dispose()
        settings, parts, known = build_new(settings)
        check_room(settings, parts.largest, address, or_here=False)
    say(console, f"{file} is valid: {describe(settings, parts)}")
    explain_space(console, settings, parts)
    say_remarks(console, settings, parts, known)


def schema() -> None:
    """Print the campaign file's JSON Schema, for editors."""
    print(json.dumps(json_schema(), indent=2))


StrategyName = Annotated[str | None, typer.Argument(help="A strategy, or module:Name, whose options are explained.")]


def strategies(name: StrategyName = None) -> None:
    """List the strategies, one on each line; or explain the options of one."""
    console = SafeConsole()
    if name is None:
        width = max(map(len, STRATEGIES))
        for listed, strategy in STRATEGIES.items():
            summary = one_line(re.split(r"(?<! al)(?<! eq)\.(?: |$)", _source(strategy))[0], _SUMMARY)
            console.print(Text.assemble((f"{listed:<{width}}", "bold"), "  ", summary), soft_wrap=True)
        console.print(Text("`bbkb strategies NAME` explains the options of one", "dim"), soft_wrap=True)
        return
    if ":" in name:
        sys.path.insert(0, str(Path.cwd()))
        try:
            strategy = own_strategy(name)
        except ValueError as error:
            raise UserError(f"the strategy {name!r} {error}") from error
    elif name in STRATEGIES:
        strategy = STRATEGIES[name]
    else:
        raise UserError(f"there is no strategy {name!r}; {suggestion(name, list(STRATEGIES))}")
    console.print(Text.assemble((name, "bold"), "  ", _source(strategy)), soft_wrap=True)
    calibrated = with_preset(strategy, {})
    texts = documentation_of(strategy)
    for field in dataclasses.fields(strategy):
        default = calibrated.get(field.name, default_of(field))
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            options = dataclasses.asdict(default)  # of a kernel or a warm start, starting with its name
            keys = sorted(options, key=lambda key: key != "name")
            default = "{" + ", ".join(f"{key}: {options[key]}" for key in keys) + "}"
        text = f"  {texts[field.name]}" if field.name in texts else ""
        console.print(Text.assemble("    ", f"{field.name}={default}", (text, "dim")), soft_wrap=True)


def _source(strategy: type[Any]) -> str:
    text = inspect.getdoc(sys.modules[strategy.__module__]) or strategy.__doc__ or ""
    return " ".join(text.split("\n\n")[0].split())
