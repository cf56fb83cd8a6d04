"""Renders the templates of `templates/`, with values quoted for a shell, and checks what all
launchers check."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import jinja2

from orchestrator.errors import UserError
from orchestrator.settings.model import Settings
from workers.on_ray.packing import Need, places_on


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in a generated file, with the reason for it, to be displayed."""

    name: str
    value: str
    reason: str


def render(template: str, values: Mapping[str, object]) -> str:
    """Return the file of this name in `templates/`, filled. A value that the template names and
    `values` lacks is an error."""
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


def places_of(settings: Settings, nodes: Sequence[Mapping[str, float]], several: str) -> int:
    """Count the evaluations that run at the same time on nodes with these resources, by Ray's
    names.

    Raises UserError when an evaluation takes several machines and these nodes cannot hold one;
    `several`: what the cluster consists of.
    """
    workers = settings.workers
    need = Need(cpus=workers.cpus, gpus=workers.gpus, machines=workers.machines, is_spread=workers.is_spread)
    places = places_on(nodes, need)
    if places == 0 and workers.machines > 1:
        raise UserError(
            f"--{several} must be enough for one evaluation, which takes {workers.machines} machines with "
            f"{workers.cpus:g} CPUs and {workers.gpus:g} GPUs each, got {len(nodes)}"
        )
    return places


def check_node(settings: Settings, *, cpus: float, gpus: float, several: str) -> None:
    """Raise UserError unless evaluations run on Ray and one node with `cpus` and `gpus` holds one;
    `several`: what the cluster consists of."""
    workers = settings.workers
    if workers.executor != "ray":
        raise UserError(f"workers.executor must be ray to run on several {several}, got {workers.executor}")
    for name, has, wants in (("cpus", cpus, workers.cpus), ("gpus", gpus, workers.gpus)):
        if wants > has:
            raise UserError(f"--{name} must be >= workers.{name} = {wants:g}, which one evaluation needs, got {has}")
