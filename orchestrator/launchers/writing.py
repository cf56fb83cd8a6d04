"""Templates filled with values: the one place that knows where they lie and how a shell is quoted."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import jinja2


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in a generated file and why it is what it is, for people."""

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
