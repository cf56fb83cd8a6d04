"""Renders the templates of `templates/`, with values quoted for a shell, and checks what all launchers check."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import jinja2

from orchestrator.errors import UserError
from orchestrator.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in a generated file, with the reason for it, to be displayed."""

    name: str
    value: str
    reason: str


def render(template: str, values: Mapping[str, object]) -> str:
    """The file of this name in `templates/`, filled. A value that the template names and `values` lacks is an error."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("orchestrator.launchers"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["shell"] = lambda value: shlex.quote(str(value))
    return environment


def check_node(settings: Settings, *, cpus: float, gpus: float, several: str) -> None:
    """Raise UserError unless evaluations run on Ray and one node with `cpus` and `gpus` holds one; `several`: what the
    cluster consists of."""
    workers = settings.workers
    if workers.executor != "ray":
        raise UserError(f"workers.executor must be ray to run on several {several}, got {workers.executor}")
    for name, has, wants in (("cpus", cpus, workers.cpus), ("gpus", gpus, workers.gpus)):
        if wants > has:
            raise UserError(f"--{name} must be >= workers.{name} = {wants:g}, which one evaluation needs, got {has}")
