"""The campaign file's sections `objective` and `candidates`, and the checks between them."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, ValidationInfo, model_validator

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.datasets import DataSource
from bbkb.objectives.names import KnowsParameters
from bbkb.objectives.objective import Objective, ObjectiveError
from bbkb.objectives.parameters import Space
from bbkb.objectives.pickled import LIVE
from bbkb.objectives.sampling import Sampler
from bbkb.objectives.space import LARGEST_SIZE
from bbkb.objectives.tabular import Duplicates
from bbkb.orchestrator.settings.mistakes import Refusal, align, failure
from bbkb.orchestrator.settings.options import (
    OBJECTIVE_KEYS,
    AnyObjective,
    External,
    build_objective,
    dump_objective,
    find_options,
)
from bbkb.orchestrator.settings.sections import WHOLE, AbsolutePath, PositiveInt, Section, folder_of


def _check_listed(name: str | None) -> str | None:
    if name is not None:
        find_options(name)
    return name


def _check_function(path: str | None) -> str | None:
    if path is not None and not path.endswith(".pkl") and not path.startswith(LIVE):
        rule = "is for functions that are passed in Python: name a function with callable"
        raise failure([Refusal((), rule)])
    return path


def _objective_options(options: object, info: ValidationInfo) -> AnyObjective | None:
    sources = [key for key in OBJECTIVE_KEYS if info.data.get(key) is not None]
    # none or several are reported elsewhere; the options cannot be checked then
    if len(sources) != 1:
        return None
    return build_objective(sources[0], info.data[sources[0]], {} if options is None else options, folder_of(info))


class ObjectiveSettings(Section):
    """The objective: exactly one of a listed name, a Python callable and a shell command."""

    name: Annotated[str | None, AfterValidator(_check_listed)] = None
    """Name of a listed objective, or package.module:Name of a class of options."""
    callable: str | None = None
    """Python function, package.module:function or path/to/file.py:function; gets keyword
    arguments."""
    command: Annotated[str, Field(min_length=1)] | None = None
    """Shell command in which {name} is replaced by a parameter; its last line of output is the
    value."""
    function: Annotated[str | None, AfterValidator(_check_function)] = None
    """Function that was passed to the Python API; not to be written by hand."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether high or low values are good. Required unless the objective is a listed one."""
    deterministic: bool = False
    """Whether a second evaluation returns the same value; if so, no arm is evaluated twice."""
    options: Annotated[AnyObjective | None, PlainValidator(_objective_options), PlainSerializer(dump_objective)] = (
        Field(default=None, validate_default=True)
    )
    """Options of the objective by name."""

    @property
    def sources(self) -> list[str]:
        """The names of the given keys among `name`, `callable`, `command` and `function`."""
        return [key for key in OBJECTIVE_KEYS if getattr(self, key) is not None]

    @property
    def has_direction(self) -> bool:
        """Whether the direction is given or the objective is a listed one."""
        is_listed = self.sources == ["name"] and ":" not in str(self.name)
        return is_listed or "direction" in self.model_fields_set

    def load(self, source: DataSource) -> Objective | None:
        """Return the objective with its data; None if it is a table. Raises ObjectiveError."""
        return self.options if isinstance(self.options, External | None) else self.options.load(source)

    def own_space(self) -> Space | None:
        """Return a listed objective's space; None if it is not listed or has its own candidates."""
        return None if isinstance(self.options, External | None) else self.options.default_space()


class CandidateSettings(Section):
    """The finite set of arms: points drawn from the space, or the rows of a table."""

    size: Annotated[int, Field(ge=1, le=LARGEST_SIZE), WHOLE] | None = None
    """Number of candidates drawn from the space; null takes all of a finite space of at most 100
    000."""
    sampler: Sampler = "sobol"
    """The method of drawing candidates from the space."""
    grow: bool | None = None
    """Whether candidates are appended around the best ones; null appends them if no size is
    given, not all configurations are candidates, and the strategy supports it."""
    limit: PositiveInt = 20_000
    """The largest number of candidates while they are appended; the worst ones are retired."""
    table: AbsolutePath | None = None
    """CSV or Parquet file whose rows are the candidates, instead of a space."""
    target: str | None = None
    """Column of the table with the value, which makes the table the objective."""
    duplicates: Duplicates = "merge"
    """Rows of the table with equal parameters. merge: they are one candidate, and if the table is
    the objective, each evaluation draws one of their values; keep: each row is a candidate."""

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if self.target is not None and self.table is None:
            raise failure([Refusal(("target",), "needs candidates.table: it names a column of it")])
        return self


def objective_problems(
    objective: ObjectiveSettings,
    candidates: CandidateSettings,
) -> Iterator[Refusal]:
    """Yield mistakes in the choice of the objective."""
    sources = objective.sources
    if candidates.target is not None and sources:
        rule = "must not be given beside candidates.target, which is the objective"
        yield Refusal(("objective", sources[0]), rule)
    elif candidates.target is None and len(sources) != 1:
        got = " and ".join(sources) or "none of them"
        yield Refusal(("objective",), f"must have exactly one of name, callable and command, got {got}")


def parameter_problems(objective: ObjectiveSettings, space: Space) -> Iterable[Refusal]:
    """Return mistakes in the parameters that the objective uses."""
    options: object = objective.options
    try:
        if isinstance(options, ShellCommand) and space:
            options.check(space)
        elif isinstance(options, KnowsParameters):
            return [Refusal(("space", name), rule) for name, rule in options.space_problems(space).items()]
    except ObjectiveError as error:
        key = "command" if isinstance(options, ShellCommand) else "options"
        return [align(("objective", key), str(error))]
    return []


def candidate_problems(
    objective: ObjectiveSettings,
    candidates: CandidateSettings,
    space: Space,
) -> Iterator[Refusal]:
    """Yield a mistake unless exactly one of objective, space and table provides the candidates."""
    is_table = candidates.table is not None
    if candidates.target is None and len(objective.sources) != 1:
        return  # the intended objective is unknown
    if objective.sources == ["name"] and objective.own_space() is None:
        given = {("space",): bool(space), ("candidates", "table"): is_table}
        rule = f"must not be given: {objective.name} brings its own candidates"
        yield from (Refusal(keys, rule) for keys, is_given in given.items() if is_given)
    elif space and is_table:
        yield Refusal(("space",), "must not be given beside candidates.table, whose rows are the candidates")
    elif not space and not is_table:
        yield Refusal(("space",), "is required (or candidates.table): the parameters and their ranges")
