"""Renders the templates of `templates/`, and contains the checks shared by all launchers."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jinja2

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import UserError
from bbkb.workers.messages import Share
from bbkb.workers.packing import Need, slots_on


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in a generated file and its reason, for display."""

    name: str
    value: str
    reason: str


def set_path(key: str, path: object) -> str:
    """Return `KEY=PATH` for `--set`, which reads the value as YAML."""
    text = str(path)
    return f"{key}={text if re.fullmatch(r'[A-Za-z0-9/._-]+', text) else json.dumps(text)}"


def render(template: str, values: Mapping[str, object]) -> str:
    """Render the file with this name in `templates/`. A missing value is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bbkb.orchestrator.cli.launchers"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(template).render(values)


def places_of(settings: Settings, nodes: Sequence[Mapping[str, float]], several: str) -> int:
    """Return the number of parallel evaluations on nodes with these resources, by Ray's names; at
    least one. `several` is the name of the nodes in messages, such as `pods`.

    Raises UserError if an evaluation takes several machines and these nodes cannot hold one.
    """
    largest = settings.workers.largest_share(settings.space)
    if slots_on(nodes, _need(settings, largest)) == 0 and largest.machines > 1:
        raise UserError(
            f"--{several} must be enough for one evaluation, which takes {largest.machines} machines with "
            f"{largest.cpus:g} CPUs and {largest.gpus:g} GPUs each, got {len(nodes)}"
        )
    return max(1, slots_on(nodes, _need(settings, settings.workers.share_of({}))))


def count_setting(settings: Settings, places: int, reason: str) -> Setting:
    """Return the number of parallel evaluations, and whether it replaces the campaign's."""
    workers = settings.workers
    differs = workers.count not in (places, os.cpu_count() or 1)  # the default is not the campaign's choice
    replaced = f"; replaces the campaign's {workers.count}"
    return Setting("workers.count", str(places), reason + replaced * differs)


def least_nodes(settings: Settings, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return the number of these nodes, in order, that the largest evaluation needs."""
    need = _need(settings, settings.workers.largest_share(settings.space))
    return next((count for count in range(1, len(nodes)) if slots_on(nodes[:count], need) > 0), len(nodes))


def _need(settings: Settings, share: Share) -> Need:
    return Need(cpus=share.cpus, gpus=share.gpus, machines=share.machines, is_spread=settings.workers.is_spread)


def check_node(settings: Settings, *, cpus: float, gpus: float, several: str) -> None:
    """Raise UserError unless evaluations run on Ray and a node with `cpus` and `gpus` can hold one.

    `several` is the name of the nodes in messages, such as `pods`.
    """
    workers = settings.workers
    if not workers.traits.on_ray:
        raise UserError(f"workers.executor must be ray to run on several {several}, got {workers.executor}")
    largest = settings.workers.largest_share(settings.space)
    for name, has, needed in (("cpus", cpus, largest.cpus), ("gpus", gpus, largest.gpus)):
        if needed > has:
            amount = f"workers.{name} = {needed:g}"
            if name == "gpus" and workers.gpus_from is not None:
                amount = f"the largest workers.gpus_from, {needed:g}"
            raise UserError(f"--{name} must be >= {amount}, which one evaluation needs, got {has}")
