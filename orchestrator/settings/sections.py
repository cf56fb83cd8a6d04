"""The sections of a campaign file as frozen pydantic models, each with its keys, defaults, bounds
and descriptions."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from objectives.datasets import DataSource
from objectives.duplicates import Duplicates
from objectives.objective import Objective
from objectives.parameters import Parameter
from objectives.sampling import Sampler
from objectives.space import LARGEST_SIZE
from orchestrator.credentials import mistake_in_url, redact
from orchestrator.logs import Format, Level
from orchestrator.settings.mistakes import Refusal, excerpt, failure
from orchestrator.settings.options import (
    OBJECTIVE_KEYS,
    AnyObjective,
    External,
    build_objective,
    dump_objective,
    find_options,
)


class Section(BaseModel):
    """A section of a campaign file: frozen, with the declared keys and types only."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_whole_numbers(cls, tree: Any) -> Any:
        """Read 1e3, a float in YAML and JSON, as a whole number where one is needed."""
        if not isinstance(tree, Mapping):
            return tree
        annotations = {field.alias or name: field.annotation for name, field in cls.model_fields.items()}
        whole = {
            key: int(value)
            for key, value in tree.items()
            if isinstance(value, float) and value.is_integer() and key in annotations
            if _takes_whole_numbers_only(annotations[key])
        }
        return {**tree, **whole} if whole else tree


def _takes_whole_numbers_only(annotation: object) -> bool:
    """Return whether `annotation` is int, alone or in a union with None."""
    members = [member for member in get_args(annotation) if member is not type(None)] or [annotation]
    if len(members) == 1 and get_origin(members[0]) is Annotated:
        members = [get_args(members[0])[0]]
    return members == [int]


def absolute(path: str | None, info: ValidationInfo) -> str | None:
    """Return the path, relative to the campaign file's folder."""
    return None if path is None else str(folder_of(info) / Path(path).expanduser())


def folder_of(info: ValidationInfo) -> Path:
    """Return the campaign file's folder; the working directory where there is no file."""
    return Path((info.context or {}).get("folder", Path.cwd()))


def _webhook(url: str) -> str:
    if "@" in url.split("://")[-1].split("/")[0].split("?")[0]:
        raise ValueError("the address must not contain a user and password: write ${VAR}, and set VAR to an address")
    return url


def _name_from_environment() -> str | None:
    """Read once, here: worker processes and a later resume may have another environment."""
    folder = os.environ.get("BBKB_DATA")
    return str(Path(folder).expanduser().absolute()) if folder else None


def _check_listed(name: str | None) -> str | None:
    if name is not None:
        find_options(name)
    return name


def _objective_options(options: object, info: ValidationInfo) -> AnyObjective | None:
    sources = [key for key in OBJECTIVE_KEYS if info.data.get(key) is not None]
    # none or several is reported elsewhere; the options cannot be checked then
    if len(sources) != 1:
        return None
    return build_objective(sources[0], info.data[sources[0]], {} if options is None else options, folder_of(info))


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
PositiveInt = Annotated[int, Field(ge=1)]
MOST_TRIALS = 1_000_000_000
Hours = Annotated[float, Field(gt=0, le=1e6)]  # a century
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


class ObjectiveSettings(Section):
    """What is optimised: a named objective, a Python callable or a shell command, exactly one of
    them."""

    name: Annotated[str | None, AfterValidator(_check_listed)] = Field(
        default=None, description="Name of a listed objective, or package.module:Name of a class of options."
    )
    callable: str | None = Field(
        default=None,
        description="Python function, package.module:function or path/to/file.py:function, called with keywords.",
    )
    command: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Shell command in which {name} stands for a parameter; its last line of output is the value.",
    )
    function: str | None = Field(
        default=None, description="File with a function that the Python API pickled; written by it, not by hand."
    )
    direction: Literal["maximize", "minimize"] = Field(
        default="maximize", description="Whether high or low values are good."
    )
    deterministic: bool = Field(
        default=False, description="Whether a second evaluation gives the same value; if so, no arm is evaluated twice."
    )
    options: Annotated[AnyObjective | None, PlainValidator(_objective_options), PlainSerializer(dump_objective)] = (
        Field(default=None, validate_default=True, description="Options of the objective, by their names.")
    )

    @property
    def sources(self) -> list[str]:
        """Which of `name`, `callable`, `command` and `function` are given."""
        return [key for key in OBJECTIVE_KEYS if getattr(self, key) is not None]

    def load(self, source: DataSource) -> Objective | None:
        """Return the objective with its data; None if a table is it. Raises ObjectiveError."""
        return self.options if isinstance(self.options, External | None) else self.options.load(source)

    def own_space(self) -> Mapping[str, Parameter] | None:
        """Return a listed objective's space; None when it brings candidates or is not listed."""
        return None if isinstance(self.options, External | None) else self.options.default_space()

    @property
    def has_candidates(self) -> bool:
        """Whether the objective brings its own candidates, as a table does."""
        return self.sources == ["name"] and self.own_space() is None


class CandidateSettings(Section):
    """The finite set of arms: drawn from the space, or the rows of a table."""

    size: Annotated[int, Field(ge=1, le=LARGEST_SIZE)] | None = Field(
        default=None,
        description="Number of candidates drawn from the space; null takes all of a finite space of at most 100 000.",
    )
    sampler: Sampler = Field(default="sobol", description="How candidates are drawn from the space.")
    grow: bool | None = Field(
        default=None,
        description="Whether candidates are appended around the best ones; null appends them where no size is given, "
        "the space is not taken whole and the strategy can use them.",
    )
    limit: PositiveInt = Field(
        default=20_000, description="Candidates kept at most while they are appended; the worst ones are retired."
    )
    table: AbsolutePath | None = Field(
        default=None, description="CSV or Parquet file whose rows are the candidates, instead of a space."
    )
    target: str | None = Field(
        default=None, description="Column of the table that holds the value, which makes the table the objective."
    )
    duplicates: Duplicates = Field(
        default="merge",
        description="Rows of the table with equal parameters: merge makes them one candidate (each evaluation of which "
        "draws one of their values, where the table is the objective), keep makes each a candidate of its own.",
    )


class StopWhenSettings(Section):
    """When further evaluations are not worth their cost; with both rules the first one that
    holds."""

    model_config = ConfigDict(populate_by_name=True)  # `in` is no name in Python

    no_gain_of: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Stop when the best value has not improved by this much; needs `in`."
    )
    within: PositiveInt | None = Field(
        default=None, alias="in", description="The number of evaluations in which it has not, beside `no_gain_of`."
    )
    expected_gain_below: Annotated[float, Field(gt=0)] | Literal["noise"] | None = Field(
        default=None,
        description="Stop when the model's upper bound on the improvement is below this, or below the standard "
        "deviation of a value's noise.",
    )
    patience: PositiveInt = Field(
        default=2, description="For how many choices per worker in a row it is, beside `expected_gain_below`."
    )


class BudgetSettings(Section):
    """The bounds of a campaign: it ends at the first of these."""

    evaluations: PositiveInt = Field(
        le=MOST_TRIALS, description="Number of evaluations that the campaign may spend; may be left out beside steps."
    )
    steps: Annotated[int, Field(ge=1, le=1000 * MOST_TRIALS)] | None = Field(
        default=None,
        description="Number of steps, such as epochs, that all trials together may report; then nothing new is "
        "started. A trial that reports none counts as one.",
    )
    hours: Hours | None = Field(default=None, description="Hours after which nothing new is started.")
    target: float | None = Field(default=None, description="Value that is good enough to stop.")
    stop_when: StopWhenSettings | None = Field(
        default=None, description="When further evaluations are not worth their cost; never if not given."
    )

    @model_validator(mode="before")
    @classmethod
    def _as_many_as_steps(cls, tree: Any) -> Any:
        """Return the section with as many evaluations as steps where only `steps` is given: more
        trials cannot begin, because each counts as one step at least."""
        if isinstance(tree, Mapping) and isinstance(tree.get("steps"), int) and "evaluations" not in tree:
            return {**tree, "evaluations": min(max(1, tree["steps"]), MOST_TRIALS)}
        return tree


class AshaSettings(Section):
    """Early stopping by asynchronous successive halving."""

    rule: Literal["asha"] = Field(description="Stop a trial unless it is among the best 1/reduction at its step.")
    reduction: Annotated[float, Field(gt=1)] = Field(
        default=3.0,
        description="Of the trials that reach a step, one in this many continues to `reduction` times that.",
    )
    first_step: PositiveInt = Field(default=1, description="The first step at which trials are compared.")


class MedianSettings(Section):
    """Early stopping by the median rule."""

    rule: Literal["median"] = Field(description="Stop a trial that is worse than the median at its step.")
    after: PositiveInt = Field(default=3, description="The first step at which trials are compared.")


class ModelStoppingSettings(Section):
    """Early stopping by the model over configurations and steps."""

    model_config = ConfigDict(populate_by_name=True)  # `continue` is no name in Python

    rule: Literal["model"] = Field(
        description="Learn from learning curves: pause trials after 1/2, 1/4, 1/8 of their steps and so on, and "
        "continue those that the model expects to end best. Without checkpoints: stop trials that are worse than the "
        "median at their step. In both cases trials stop that the model expects to end worse than the best one."
    )
    last_step: Annotated[int, Field(ge=2)] | None = Field(
        default=None,
        description="The step at which a training ends. null: the epochs of a training that is part of bbkb; for other "
        "objectives the largest step of a finished trial, and there are no short first trainings.",
    )
    after: PositiveInt = Field(default=3, description="The first step at which trials are paused or compared.")
    continues: bool | Literal["anew"] | None = Field(
        default=None,
        alias="continue",
        description="Whether a stopped trial is taken up again when it looks good: true, from a checkpoint in its "
        "folder, which implies workers.trial_folders; anew, from its first step, at the end of the budget; false, "
        "never. null: true if the function has an argument `folder`, the command names BBKB_FOLDER, or the training is "
        "part of bbkb, else anew.",
    )
    first_trials: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="How many trials are trained for first_steps only, before the best are continued; null: by the "
        "budget; 0: none. Needs trials that can be continued.",
    )
    first_steps: PositiveInt | None = Field(
        default=None, description="Steps of each of the first trials; null: about an eighth of the budget in all."
    )
    finish: Annotated[int, Field(ge=0)] = Field(
        default=3, description="How many of the best unfinished trials are completed at the end of the budget."
    )
    keep_checkpoints: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Of how many stopped trials the files in their folders are kept, those of the best forecasts; the "
        "others are not continued. null: of all.",
    )


class ComputingSettings(Section):
    """Resources of the strategy's own computations."""

    threads: PositiveInt | None = Field(
        default=None, description="Threads of its matrix products; null takes those of the process, one under Ray."
    )
    shards: PositiveInt = Field(
        default=1, description="Ray actors that share the work on very many candidates; 1 keeps them in one process."
    )


class LogSettings(Section):
    """What is written into `run.log` in the run's folder."""

    level: Level = Field(
        default="info", description="The least severe level that is written; --log-level overrides it."
    )
    format: Format = Field(default="text", description="Lines of text, or json: one JSON object for each line.")


class NotifySettings(Section):
    """Notifications at the end of a session, at its first failed evaluation, and when no evaluation
    ends."""

    command: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Shell command, run where the campaign runs; BBKB_EVENT (ended, failure or stalled) and BBKB_TEXT "
        "describe what happened; JSON on its standard input has the same.",
    )
    webhook: Annotated[str, Field(pattern=r"^(https?://|\$\{)"), AfterValidator(_webhook)] | None = Field(
        default=None,
        description="Address that gets this JSON by POST; ${VAR} in it is taken from the environment when it is sent.",
    )
    stalled_minutes: Annotated[float, Field(gt=0, le=60e6)] = Field(
        default=60.0, description="Minutes in which no evaluation ends, after which the campaign counts as stalled."
    )


class DataSettings(Section):
    """The source of data sets."""

    folder: AbsolutePath | None = Field(
        default_factory=_name_from_environment, description="Folder with data sets; else BBKB_DATA in the environment."
    )
    download: bool = Field(default=False, description="Whether a data set that is not there may be downloaded.")

    def source(self) -> DataSource:
        """Return the source in which objectives look for data."""
        return DataSource.find(Path(self.folder) if self.folder else None, self.download)
