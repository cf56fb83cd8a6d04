"""The sections of a campaign file as frozen pydantic models, each with its keys, defaults, bounds
and descriptions."""

import ast
import inspect
import os
import re
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema

from bbkb.objectives.datasets import DataSource
from bbkb.orchestrator.credentials import mistake_in_url, redact
from bbkb.orchestrator.logs import Format, Level
from bbkb.orchestrator.settings.mistakes import Refusal, excerpt, failure


class Section(BaseModel):
    """A section of a campaign file: frozen, with only the declared keys and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe each key by the string below its field."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for section in cls.__mro__[: cls.__mro__.index(Section)]:
            for name, text in _strings_below_fields(section).items():
                properties[cls.model_fields[name].alias or name]["description"] = text
        return schema


def _strings_below_fields(cls: type) -> dict[str, str]:
    """Return the strings in the source of a class that document the fields above them. Pydantic can
    read them too, but only when it creates the class, which slows each start."""
    module = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    (body,) = (node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)
    strings = {}
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                strings[name] = " ".join(text.split())
    return strings


def _whole(value: object) -> object:
    """Return 1e3, a float in YAML and JSON, as a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def absolute(path: str | None, info: ValidationInfo) -> str | None:
    """Return the path, relative to the campaign file's folder."""
    return None if path is None else str(folder_of(info) / Path(path).expanduser())


def folder_of(info: ValidationInfo) -> Path:
    """Return the campaign file's folder; the working directory if there is no file."""
    return Path((info.context or {}).get("folder", Path.cwd()))


_WEBHOOK = r"^(https?://|\$\{)"


def _webhook(url: str) -> str:
    if not re.match(_WEBHOOK, url):
        raise failure([Refusal((), "must begin with https:// or http://, or be ${VAR}", excerpt(url))])
    if "@" in url.split("://")[-1].split("/")[0].split("?")[0]:
        raise ValueError("the address must not contain a user and password: write ${VAR}, and set VAR to an address")
    return url


Webhook = Annotated[str, AfterValidator(_webhook), Field(json_schema_extra={"pattern": _WEBHOOK})]


def _name_from_environment() -> str | None:
    """Read the name from the environment only once, because worker processes and a later resume may
    have a different environment."""
    folder = os.environ.get("BBKB_DATA")
    return str(Path(folder).expanduser().absolute()) if folder else None


_FIRST_LETTER = "A-Za-z0-9"
_FURTHER_LETTERS = "._-"
_LONGEST_NAME = 64
_NAME = rf"^[{_FIRST_LETTER}][{_FIRST_LETTER}{_FURTHER_LETTERS}]*$"


def _name(name: str) -> str:
    if re.fullmatch(_NAME, name) and len(name) <= _LONGEST_NAME:
        return name
    rule = f"must have at most {_LONGEST_NAME} letters of A-Z and a-z, digits, '.', '_' and '-', and begin with a "
    raise failure([Refusal((), f"{rule}letter or digit, such as {name_from(name)}", excerpt(name))])


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": _NAME, "maxLength": _LONGEST_NAME})]
Tag = Annotated[str, Field(pattern=r"^[^\s,]+$", max_length=64)]
WHOLE = BeforeValidator(_whole)
NaturalInt = Annotated[int, Field(ge=0), WHOLE]
PositiveInt = Annotated[int, Field(ge=1), WHOLE]
MOST_TRIALS = 1_000_000_000
Hours = Annotated[float, Field(gt=0, le=1e6)]  # at most a century
Seconds = Annotated[float, Field(gt=0, le=3.6e9)]
AbsolutePath = Annotated[str, AfterValidator(absolute)]


_DATABASES = ("sqlite", "postgresql", "postgres")


def _store(store: str, info: ValidationInfo) -> str:
    scheme = store.partition("://")[0].partition("+")[0]
    if store != "sqlite" and not store.startswith("${") and ("://" not in store or scheme not in _DATABASES):
        raise failure([Refusal((), "must be sqlite, sqlite:///FILE or postgresql://…", excerpt(store))])
    if reason := mistake_in_url(store):
        raise failure([Refusal((), f"must be a database URL ({reason})", excerpt(redact(store)))])
    scheme, slashes, path = store.partition(":///")
    if store != "sqlite" and scheme.startswith("sqlite") and path in ("", ":memory:"):
        raise failure([Refusal((), "must name a file: sqlite:///FILE", excerpt(store))])
    is_relative = scheme.startswith("sqlite") and path and not Path(path).is_absolute()
    return f"{scheme}{slashes}{absolute(path, info)}" if is_relative else store


StoreUrl = Annotated[str, AfterValidator(_store), PlainSerializer(redact)]


def name_from(text: str) -> str:
    """Return a `Name` that resembles a text: other letters become hyphens."""
    name = re.sub(f"[^{_FIRST_LETTER}{_FURTHER_LETTERS}]+", "-", text).lstrip(_FURTHER_LETTERS)
    return name[:_LONGEST_NAME].rstrip(_FURTHER_LETTERS) or "campaign"


class StopWhenSettings(Section):
    """Rules that stop a campaign when further evaluations are not worth their cost. With both
    rules, the first one that applies stops it."""

    model_config = ConfigDict(populate_by_name=True)  # `in` is a keyword of Python

    no_gain_of: Annotated[float, Field(gt=0)] | None = None
    """Stop when the best value has not improved by this much; needs `in`."""
    within: PositiveInt | None = Field(default=None, alias="in")
    """The number of evaluations without this improvement; needs `no_gain_of`."""
    expected_gain_below: Annotated[float, Field(gt=0)] | Literal["noise"] | None = None
    """Stop when the model's upper bound on the improvement is below this, or below the standard
    deviation of a value's noise."""
    patience: PositiveInt = 2
    """The number of consecutive choices per worker at which `expected_gain_below` must hold."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if (self.no_gain_of is None) != (self.within is None):
            missing = "no_gain_of" if self.no_gain_of is None else "in"
            raise failure([Refusal((), f"must have {missing} too, such as {{no_gain_of: 0.001, in: 64}}")])
        if self.no_gain_of is None and self.expected_gain_below is None:
            example = "such as {expected_gain_below: noise}"
            raise failure([Refusal((), f"must have no_gain_of and in, or expected_gain_below, {example}")])
        return self


class BudgetSettings(Section):
    """The limits of a campaign, which ends at the first of them."""

    evaluations: Annotated[int, Field(ge=1, le=MOST_TRIALS), WHOLE]
    """Number of evaluations that the campaign may spend; may be left out if steps is given."""
    steps: Annotated[int, Field(ge=1, le=1000 * MOST_TRIALS), WHOLE] | None = None
    """Number of steps, such as epochs, that all trials together may report. After that, no trial
    starts. A trial without reports counts as one step."""
    hours: Hours | None = None
    """Hours after which no trial starts."""
    target: float | None = None
    """Value at which the campaign stops."""
    stop_when: StopWhenSettings | None = None
    """Stop conditions for evaluations that are not worth their cost; none by default."""

    @model_validator(mode="before")
    @classmethod
    def _as_many_as_steps(cls, tree: Any) -> Any:
        """Return the section with as many evaluations as steps if only `steps` is given: there can
        be no more trials, because each counts as at least one step."""
        steps = _whole(tree.get("steps")) if isinstance(tree, Mapping) else None
        if steps is not None and "evaluations" not in tree:  # wrong steps are reported alone
            return {**tree, "evaluations": _most_trials(steps) if isinstance(steps, int) else 1}
        return tree


def without_implied(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain settings without `budget.evaluations` if `budget.steps` implies it."""
    budget = tree.get("budget") or {}
    steps = budget.get("steps")
    if not isinstance(steps, int) or budget.get("evaluations") != _most_trials(steps):
        return dict(tree)
    return {**tree, "budget": {key: budget[key] for key in budget if key != "evaluations"}}


def _most_trials(steps: int) -> int:
    """Return the largest number of trials in a budget of steps."""
    return min(max(1, steps), MOST_TRIALS)


class ComputingSettings(Section):
    """Resources of the strategy's own computations."""

    threads: PositiveInt | None = None
    """Threads of its matrix products; null takes one."""


class LogSettings(Section):
    """The format and the level of `run.log` in the run's folder."""

    level: Level = "info"
    """The least severe level that is written; --log-level overrides it."""
    format: Format = "text"
    """Lines of text, or json: one JSON object for each line."""


class NotifySettings(Section):
    """Notifications at the end of a session, at its first failed evaluation, and if no evaluation
    ends."""

    command: Annotated[str, Field(min_length=1)] | None = None
    """Shell command, run where the campaign runs; BBKB_EVENT (ended, failure or stalled) and
    BBKB_TEXT describe the event; its standard input contains them as JSON."""
    webhook: Webhook | None = None
    """Address that receives this JSON by POST. ${VAR} in the address is read from the environment
    at each call."""
    stalled_minutes: Annotated[float, Field(gt=0, le=60e6)] = 60.0
    """Minutes without a finished evaluation after which the campaign counts as stalled."""

    @model_validator(mode="after")
    def _check_receivers(self) -> Self:
        if self.command is None and self.webhook is None:
            raise failure([Refusal((), "must have a command or a webhook")])
        return self


class DataSettings(Section):
    """The source of data sets."""

    folder: AbsolutePath | None = Field(default_factory=_name_from_environment)
    """Folder with data sets; else BBKB_DATA in the environment."""
    download: bool = False
    """Whether a missing data set may be downloaded."""

    def source(self) -> DataSource:
        """Return the source in which objectives look for data."""
        return DataSource.find(Path(self.folder) if self.folder else None, self.download)
