"""The settings of a campaign: the sections of a campaign file as frozen dataclasses, each key with
its default, bounds and meaning.

The settings are the rules of the campaign. The first event records them with all defaults filled
in, a resume records them again with its changes, and every decision reads them from the state. They
are plain values: the objective and the strategy are named with their options, and built by
`bbkb.orchestrator.settings`, which also reads files and reports mistakes. So a log can be read
where the user's code cannot be imported.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from typing_extensions import Doc

from bbkb.objectives.parameters import (
    LARGEST_SIZE,
    Choice,
    Clause,
    Constant,
    Ordered,
    Parameter,
    Parameters,
    Range,
    Sampler,
    Scalar,
    clauses_of,
    plain_listed,
    plain_value,
)
from bbkb.orchestrator.annotations import DECIDED, LISTED, WHOLE, Checked, Plain, Section, Written, key_of
from bbkb.orchestrator.bandit.options import Tagged
from bbkb.orchestrator.campaign.goals import VALUE, CampaignGoals, Constraint, Direction, MetricName, Objective
from bbkb.orchestrator.campaign.trainings import StoppingRule, TrainingRule
from bbkb.orchestrator.credentials import mistake_in_url, redact, stored
from bbkb.workers.executor import TRAITS, ExecutorName, Traits
from bbkb.workers.messages import Share

UNLIMITED = sys.maxsize  # the evaluations of a search whose caller decides when it ends
MOST_TRIALS = 1_000_000_000
MOST_WORKERS = 100_000
FINISH = 3  # the number of best unfinished trials that the end of a budget completes

DEFAULT_STRATEGY = "bbkb"

Configuration = Mapping[str, Any]
Nested = list[Any] | tuple[Any, ...] | dict[str, Any]
Tree = Mapping[str, Any]  # plain values, as in YAML and JSON

NaturalInt = Annotated[int, Ge(0), WHOLE]
PositiveInt = Annotated[int, Ge(1), WHOLE]
PositiveFloat = Annotated[float, Gt(0)]
Hours = Annotated[float, Gt(0), Le(1e6)]  # at most a century
Seconds = Annotated[float, Gt(0), Le(3.6e9)]
Text = Annotated[str, MinLen(1)]

_FIRST_LETTER = "A-Za-z0-9"
_FURTHER_LETTERS = "._-"
_LONGEST_NAME = 64
_NAME = rf"^[{_FIRST_LETTER}][{_FIRST_LETTER}{_FURTHER_LETTERS}]*$"
_TAG = r"^[^\s,]+$"
_DATABASES = ("sqlite", "postgresql", "postgres")


def name_from(text: str) -> str:
    """Return a valid name that resembles a text: other letters become hyphens."""
    name = re.sub(f"[^{_FIRST_LETTER}{_FURTHER_LETTERS}]+", "-", text[:1000]).lstrip(_FURTHER_LETTERS)
    return name[:_LONGEST_NAME].rstrip(_FURTHER_LETTERS) or "campaign"


def _check_name(name: str) -> str:
    if re.fullmatch(_NAME, name) and len(name) <= _LONGEST_NAME:
        return name
    raise ValueError(
        f"must have at most {_LONGEST_NAME} letters of A-Z and a-z, digits, '.', '_' and '-', and begin with a letter "
        f"or digit, such as {name_from(name)}"
    )


def _check_tag(tag: str) -> str:
    if re.match(_TAG, tag) and len(tag) <= _LONGEST_NAME:
        return tag
    raise ValueError(f"must be a word without a comma, of at most {_LONGEST_NAME} characters")


def _check_store(store: str) -> str:
    """Check the URL of a store, without showing a password."""
    scheme = store.partition("://")[0].partition("+")[0]
    shown = redact(store)[:60]
    if store != "sqlite" and not store.startswith("${") and ("://" not in store or scheme not in _DATABASES):
        raise ValueError(f'must be sqlite, sqlite:///FILE or postgresql://…, got "{shown}"')
    if reason := mistake_in_url(store):
        raise ValueError(f'must be a database URL ({reason}), got "{shown}"')
    scheme, _, path = store.partition(":///")
    if store != "sqlite" and scheme.startswith("sqlite") and path in ("", ":memory:"):
        raise ValueError(f'must name a file: sqlite:///FILE, got "{shown}"')
    return store


def _check_gpus(amount: float) -> float:
    if amount > 1 and not amount.is_integer():
        raise ValueError("must be a whole number above 1: a share of less than one graphics processor, or whole ones")
    return amount


Name = Annotated[str, Checked(_check_name, _NAME)]
Tag = Annotated[str, Checked(_check_tag, _TAG)]
StoreUrl = Annotated[str, Checked(_check_store)]


@dataclass(frozen=True, kw_only=True)
class StopWhen(Section):
    """Rules that stop a campaign when further evaluations are not worth their cost. With both
    rules, the first one that applies stops it."""

    no_gain_of: Annotated[
        PositiveFloat | None, Doc("Stop when the best value has not improved by this much; needs `in`.")
    ] = None
    within: Annotated[
        PositiveInt | None, Doc("The number of evaluations without this improvement; needs `no_gain_of`.")
    ] = None
    expected_gain_below: Annotated[
        PositiveFloat | Literal["noise"] | None,
        Doc(
            "Stop when the model's upper bound on the improvement is below this, or below the standard deviation of a "
            "value's noise."
        ),
    ] = None

    def __post_init__(self) -> None:
        if (self.no_gain_of is None) != (self.within is None):
            missing = "no_gain_of" if self.no_gain_of is None else "in"
            raise ValueError(f"must have {missing} too, such as {{no_gain_of: 0.001, in: 64}}")
        if self.no_gain_of is None and self.expected_gain_below is None:
            raise ValueError(
                "must have no_gain_of and in, or expected_gain_below, such as {expected_gain_below: noise}"
            )


@dataclass(frozen=True, kw_only=True)
class Budget(Section):
    """The limits of a campaign, which ends at the first of them."""

    evaluations: Annotated[
        int,
        Ge(1),
        Le(MOST_TRIALS),
        WHOLE,
        Doc("Number of evaluations that the campaign may spend; may be left out if steps is given."),
    ]
    steps: Annotated[
        Annotated[int, Ge(1), Le(1000 * MOST_TRIALS), WHOLE] | None,
        Doc(
            "Number of steps, such as epochs, that all trials together may report. After that, no trial starts. A "
            "trial without reports counts as one step."
        ),
    ] = None
    hours: Annotated[Hours | None, Doc("Hours after which no trial starts.")] = None
    target: Annotated[float | None, Doc("Value at which the campaign stops.")] = None
    stop_when: Annotated[
        StopWhen | None, Doc("Stop conditions for evaluations that are not worth their cost; none by default.")
    ] = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a budget; not if the caller of `ask` decides when the search ends."""
        return self.evaluations != UNLIMITED

    @property
    def seconds(self) -> float | None:
        """The time in sessions, without the pauses between them; None if it is not limited."""
        return None if self.hours is None else self.hours * 3600.0


@dataclass(frozen=True, kw_only=True)
class Data(Section):
    """The source of data sets."""

    folder: Annotated[str | None, Doc("Folder with data sets; else BBKB_DATA in the environment.")] = None
    download: Annotated[bool, Doc("Whether a missing data set may be downloaded.")] = False


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings(Section):
    """The objective: exactly one of a listed name, a Python callable and a shell command."""

    name: Annotated[str | None, Doc("Name of a listed objective, or package.module:Name of a class of options.")] = None
    callable: Annotated[
        str | None,
        Doc("Python function, package.module:function or path/to/file.py:function; gets keyword arguments."),
    ] = None
    command: Annotated[
        Text | None,
        Doc("Shell command in which {name} is replaced by a parameter; its last line of output is the value."),
    ] = None
    function: Annotated[str | None, DECIDED, Doc("Function that was passed to the Python API.")] = None
    direction: Annotated[
        Direction | None,
        Doc("Whether high or low values are good. Required unless the objective is a listed one."),
    ] = None
    deterministic: Annotated[
        bool | None,
        Doc(
            "Whether a second evaluation returns the same value; if so, no arm is evaluated twice. None: the best "
            "configuration is evaluated again to find it out."
        ),
    ] = None
    deviation: Annotated[
        MetricName | None,
        Doc("A metric: the standard deviation of the value's noise, such as that of a mean of several folds."),
    ] = None
    options: Annotated[Mapping[str, Any] | None, Doc("Options of the objective by name.")] = None

    @property
    def sources(self) -> list[str]:
        """The names of the given keys among `name`, `callable`, `command` and `function`."""
        return [key for key in OBJECTIVE_KEYS if getattr(self, key) is not None]

    @property
    def is_listed(self) -> bool:
        """Whether the objective is one of those that are part of this software."""
        return self.sources == ["name"] and ":" not in str(self.name)


OBJECTIVE_KEYS = ("name", "callable", "command", "function")


@dataclass(frozen=True, kw_only=True)
class CandidateSettings(Section):
    """The finite set of arms: points drawn from the space, or the rows of a table."""

    size: Annotated[
        Annotated[int, Ge(1), Le(LARGEST_SIZE), WHOLE] | None,
        Doc(
            "Number of candidates drawn from the space. null takes all of a finite space of at most 100 000; from "
            "another space it draws some, and appends others around the best ones."
        ),
    ] = None
    sampler: Annotated[Sampler, Doc("The method of drawing candidates from the space.")] = "sobol"
    table: Annotated[str | None, Doc("CSV or Parquet file whose rows are the candidates, instead of a space.")] = None
    target: Annotated[str | None, Doc("Column of the table with the value, which makes the table the objective.")] = (
        None
    )

    def __post_init__(self) -> None:
        if self.target is not None and self.table is None:
            raise ValueError("target needs candidates.table: it names a column of it")


@dataclass(frozen=True, kw_only=True)
class Asha(Section):
    """Early stopping by asynchronous successive halving."""

    rule: Annotated[Literal["asha"], Doc("Stop a trial unless it is among the best 1/reduction at its step.")] = "asha"
    reduction: Annotated[
        float, Gt(1), Doc("One in this number of trials at a step continues to `reduction` times that step.")
    ] = 3.0
    after: Annotated[PositiveInt, Doc("The first step at which trials are compared.")] = 1
    metric: Annotated[
        str | None, Doc("The objective whose reports are compared, by its metric; null: the first one.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Median(Section):
    """Early stopping by the median rule."""

    rule: Annotated[Literal["median"], Doc("Stop a trial that is worse than the median at its step.")] = "median"
    after: Annotated[PositiveInt, Doc("The first step at which trials are compared.")] = 3
    metric: Annotated[
        str | None, Doc("The objective whose reports are compared, by its metric; null: the first one.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ModelStopping(Section):
    """Early stopping by the model over configurations and steps."""

    rule: Annotated[
        Literal["model"],
        Doc(
            "Learn from learning curves: pause trials after 1/2, 1/4, 1/8 of their steps and so on, and continue those "
            "with the best expected final values. Without checkpoints: stop trials that are worse than the median at "
            "their step. In both cases, also stop trials whose expected final value is worse than the best one."
        ),
    ] = "model"
    last_step: Annotated[
        Annotated[int, Ge(2), WHOLE] | None,
        Doc(
            "The step at which a training ends. null: the epochs of a training that is part of bbkb; for other "
            "objectives the largest step of a finished trial, and there are no short first trainings."
        ),
    ] = None
    after: Annotated[PositiveInt, Doc("The first step at which trials are paused or compared.")] = 3
    continues: Annotated[
        bool | Literal["anew"] | None,
        Doc(
            "Whether a promising stopped trial continues. true: from a checkpoint in its folder, which implies "
            "workers.trial_folders; anew: it restarts from its first step at the end of the budget; false: never; "
            "null: true if the function has an argument `folder`, the command names BBKB_FOLDER, or the training is "
            "part of bbkb, else anew."
        ),
    ] = None
    first_trials: Annotated[
        NaturalInt | None,
        DECIDED,
        Doc(
            "The number of trials that are trained for first_steps only, before the best ones continue; by the budget."
        ),
    ] = None
    first_steps: Annotated[PositiveInt | None, DECIDED, Doc("The number of steps of each of the first trials.")] = None
    keep_checkpoints: Annotated[
        NaturalInt | None,
        Doc(
            "The number of stopped trials whose files are kept: those with the best forecasts. The other trials cannot "
            "continue. null: the files of all trials are kept."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.keep_checkpoints is not None and self.keep_checkpoints < FINISH:
            raise ValueError(
                f"keep_checkpoints must be >= {FINISH}, the trials that the end of the budget completes, got "
                f"{self.keep_checkpoints}"
            )


EarlyStopping = Annotated[
    Asha | Median | ModelStopping, Tagged("rule", (("asha", Asha), ("median", Median), ("model", ModelStopping)))
]


@dataclass(frozen=True, kw_only=True)
class Simulation(Section):
    """Virtual time, for the simulated executor."""

    seconds: Annotated[Seconds, Doc("Mean duration of an evaluation in virtual seconds.")] = 1.0
    sigma: Annotated[float, Ge(0), Le(10), Doc("Standard deviation of the duration's logarithm; 0 is constant.")] = 0.0
    failure_rate: Annotated[float, Ge(0), Lt(1), Doc("Share of attempts that fail.")] = 0.0


@dataclass(frozen=True, kw_only=True)
class Workers(Section):
    """The executor of evaluations and the resources of each of them."""

    executor: Annotated[
        ExecutorName,
        Doc(
            "The executor of evaluations: ray (in parallel), inline (one at a time, in this process) or simulated (in "
            "virtual time)."
        ),
    ] = "ray"
    kind: Annotated[
        Literal["task", "actor", "auto"],
        Doc(
            "Under Ray: a task for each evaluation, or worker actors, in which evaluations continue when the "
            "campaign's process dies; auto takes tasks for 1000 or more evaluations of less than 0.1 s."
        ),
    ] = "auto"
    count: Annotated[
        int,
        Ge(1),
        Le(MOST_WORKERS),
        WHOLE,
        Doc("The number of concurrent evaluations; default: this machine's cores."),
    ] = field(default_factory=lambda: os.cpu_count() or 1)
    machines: Annotated[
        int,
        Ge(1),
        Le(100_000),
        WHOLE,
        Doc(
            "Machines of one evaluation, each with cpus and gpus: the objective runs on all of them at the same time, "
            "and the value is that of the first."
        ),
    ] = 1
    spread: Annotated[
        Literal["strict", "soft"],
        Doc(
            "Whether the machines of an evaluation must be different nodes; soft lets them share nodes if there are "
            "too few."
        ),
    ] = "strict"
    ray_train: Annotated[
        bool,
        Doc(
            "Whether the function starts a trainer of Ray Train. Its workers, at most `machines` with cpus and gpus "
            "each, use the resources of the evaluation. The function runs once, and `spread` has no effect."
        ),
    ] = False
    cpus: Annotated[float, Gt(0), Le(1e6), Doc("Processor cores of one evaluation.")] = 1.0
    gpus: Annotated[
        float,
        Ge(0),
        Le(1e6),
        Checked(_check_gpus),
        Doc("Graphics processors of one evaluation: a share of one, or a whole number."),
    ] = 0.0
    gpus_from: Annotated[
        str | None, Doc("The parameter that gives the number of graphics processors of a trial, instead of gpus.")
    ] = None
    memory_gb: Annotated[
        Annotated[float, Gt(0), Le(1e6)] | None, Doc("Largest memory of one evaluation, in 10^9 bytes.")
    ] = None
    timeout_seconds: Annotated[
        Seconds | None, Doc("Seconds after which an evaluation is killed and counts as failed.")
    ] = None
    retries: Annotated[
        Annotated[int, Ge(0), Le(1_000_000), WHOLE] | None,
        Doc(
            "Number of further attempts after an exception; null: none, and one after a time-out or running out of "
            "memory. 0: none after these either. Lost workers are always replaced."
        ),
    ] = None
    trial_folders: Annotated[
        bool,
        Doc(
            "Give each trial a folder below the run's, the same for all its attempts, for checkpoints and artifacts: "
            "`folder` of a function, BBKB_FOLDER of a command. Beyond one machine the run's folder must be on a shared "
            "disk."
        ),
    ] = False
    simulation: Annotated[Simulation, Doc("Virtual time, for the simulated executor.")] = Simulation()

    def __post_init__(self) -> None:
        if self.executor not in TRAITS:
            return  # `tune` and `Campaign` report it with its key
        if not self.traits.on_ray:
            if self.machines > 1:
                raise ValueError(f"machines must be 1 without workers.executor ray, got {self.machines}")
            if self.ray_train:
                raise ValueError(f"ray_train needs workers.executor ray, got {self.executor}")
        elif self.is_gang and self.kind == "task":
            raise ValueError(
                "kind must be actor or auto if workers.machines is above 1, and with ray_train: a task ends with the "
                "campaign's process, got task"
            )

    @property
    def traits(self) -> Traits:
        """The properties of the executor."""
        return TRAITS[self.executor]

    def share_of(self, parameters: Parameters) -> Share:
        """Return the resources of a trial with these parameters. If the parameter that gives `gpus`
        is inactive because of its condition, `gpus` itself applies."""
        gpus = parameters.get(self.gpus_from) if self.gpus_from is not None else None
        number = float(gpus) if isinstance(gpus, int | float) else self.gpus
        return Share(cpus=self.cpus, gpus=number, machines=self.machines)

    def largest_share(self, space: Mapping[str, Parameter]) -> Share:
        """Return the largest known amount of each resource that a trial takes."""
        if self.gpus_from is None:
            return self.share_of({})
        parameter = space.get(self.gpus_from)
        levels = () if parameter is None else parameter.levels or ends_of(parameter)
        largest = max((level for level in levels if isinstance(level, int | float)), default=None)
        return self.share_of({self.gpus_from: largest})

    @property
    def is_gang(self) -> bool:
        """Whether an evaluation may have several processes that Ray places together."""
        return self.machines > 1 or self.ray_train

    @property
    def is_spread(self) -> bool:
        """Whether the machines of one evaluation must be different nodes."""
        return self.spread == "strict" and not self.ray_train

    @property
    def all_cpus(self) -> float:
        """The cores of one evaluation on all its machines."""
        return self.cpus * self.machines

    @property
    def all_gpus(self) -> float:
        """The graphics processors of one evaluation on all its machines."""
        return self.gpus * self.machines

    @property
    def needs(self) -> str:
        """The resources of one evaluation, such as `2 machines with 3 CPUs and 1 GPU each`."""
        amounts = [f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}"]
        if self.gpus:
            amounts.append(f"{self.gpus:g} GPU{'s' * (self.gpus != 1)}")
        if self.memory_gb is not None:
            amounts.append(f"{self.memory_gb:g} GB")
        *first, last = amounts
        listed = f"{', '.join(first)} and {last}" if first else last
        return listed if self.machines == 1 else f"{self.machines} machines with {listed} each"


@dataclass(frozen=True, kw_only=True)
class ResultTable(Section):
    """A CSV or Parquet table. Its columns besides `reward` are either `arm`, the index of a
    candidate, or one column for each parameter."""

    table: Annotated[Text, Doc("A CSV or Parquet table of results.")]
    reward: Annotated[Text, Doc("The column of the table with the values, on the scale of the objective.")] = "reward"


@dataclass(frozen=True, kw_only=True)
class KnownRun(Section):
    """The evaluations of another run."""

    store: Annotated[
        StoreUrl | None, Doc("The database that contains the run; null: the run's folder contains it.")
    ] = None
    run: Annotated[Text, Doc("A run's folder; with store, the run's name in the database.")]

    def __post_init__(self) -> None:
        if self.store is None and "://" in self.run:
            raise ValueError("run must be a folder, or a name beside store: URL")


@dataclass(frozen=True, kw_only=True)
class OptunaStudy(Section):
    """The completed trials of a study."""

    optuna: Annotated[Text, Doc("Storage of a study: a database URL, or a journal file.")]
    study: Annotated[Text | None, Doc("The name of the study; may be left out if the storage contains only one.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class TuneExperiment(Section):
    """The last report of each trial of an experiment."""

    ray_tune: Annotated[Text, Doc("Folder of an experiment of Ray Tune.")]
    metric: Annotated[Text | None, Doc("The metric that its trials reported.")] = None


OWN_RESULTS = "the campaign file"


@dataclass(frozen=True, kw_only=True)
class KnownResult(Section):
    """A configuration that was evaluated elsewhere."""

    parameters: Annotated[Mapping[str, Scalar | Nested], MinLen(1), Doc("The configuration.")]
    value: Annotated[float, Doc("Its value, on the scale of the objective.")]

    def __post_init__(self) -> None:
        for name, value in self.parameters.items():
            if not isinstance(value, Scalar):
                plain_value(f"{name} must be", value)


@dataclass(frozen=True, kw_only=True)
class GivenResults(Section):
    """Results of another tuner or of the campaign file, in their original order."""

    results: Annotated[tuple[KnownResult, ...], LISTED, MinLen(1), Doc("A list of {parameters: …, value: …}.")]
    source: Annotated[str, DECIDED, Doc("The origin of the results, for display.")] = OWN_RESULTS
    origin: Annotated[str | None, DECIDED, Doc("The table or the run from which they were read.")] = None


KINDS_OF_RESULTS: Mapping[str, type[Section]] = {
    "table": ResultTable,
    "run": KnownRun,
    "optuna": OptunaStudy,
    "ray_tune": TuneExperiment,
    "results": GivenResults,
}


def kind_of_results(source: object) -> str | None:
    """Return the tag of a source of known results: its first key that selects a kind."""
    keys = source if isinstance(source, Mapping) else getattr(type(source), "__dataclass_fields__", ())
    return next((f"a {key}" for key in KINDS_OF_RESULTS if key in keys), None)


Source = ResultTable | KnownRun | OptunaStudy | TuneExperiment | GivenResults


def origin_of(source: Source) -> str | None:
    """Return a text that identifies a table or a run; None for other sources."""
    match source:
        case ResultTable():
            return f"{source.reward} of {source.table}"
        case KnownRun():
            return source.run if source.store is None else f"{source.run} in {redact(source.store)}"
        case _:
            return None


Known = tuple[
    Annotated[
        Source,
        Tagged(
            kind_of_results,
            tuple((f"a {key}", cls) for key, cls in KINDS_OF_RESULTS.items()),
            otherwise=f"must be a mapping with one of the keys {', '.join(KINDS_OF_RESULTS)}",
        ),
    ],
    ...,
]

PARAMETERS: Mapping[str, type[Parameter]] = {  # kinds of parameters by their identifying key
    "choices": Choice,
    "ordered": Ordered,
    "constant": Constant,
    "low": Range,
    "high": Range,
}


def parameter_kind(options: Tree) -> type[Parameter]:
    """Return the kind that the keys of a parameter identify. Raises ValueError."""
    for key, kind in PARAMETERS.items():
        if key in options:
            return kind
    raise ValueError("must have low and high, or choices, or ordered, or constant")


def _read_space(space: Mapping[str, Any]) -> dict[str, Parameter]:
    return {
        name: options if isinstance(options, Parameter) else parameter_kind(options)(**options)
        for name, options in space.items()
    }


def plain_space(space: Mapping[str, Parameter]) -> dict[str, dict[str, Any]]:
    """Return the parameters as plain values."""
    plain: dict[str, dict[str, Any]] = _plain(space)
    return plain


def _plain(value: Any) -> Any:
    """Return sections, parameters, mappings and tuples as plain values with their keys in a file."""
    if isinstance(value, Parameter):
        listed = plain_listed(value)
        others = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return {key: listed[key] if key in listed else _plain(child) for key, child in others.items()}
    if is_dataclass(value):
        value = {key_of(field.name): getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """One campaign. `bbkb.orchestrator.settings` reads and checks a whole file; paths are then
    absolute, and all defaults are filled in."""

    name: Annotated[Name, Doc("Name of the campaign; the name of its run's folder begins with it.")]
    tags: Annotated[tuple[Tag, ...], LISTED, Doc("Words with which `bbkb list --tag` finds the campaign's runs.")] = ()
    note: Annotated[str, MaxLen(10_000), Doc("A description of the campaign, for display.")] = ""
    seed: Annotated[NaturalInt, Doc("Seed of all random numbers.")] = 0
    objective: Annotated[ObjectiveSettings, Doc("The function, command or problem to optimize.")] = ObjectiveSettings()
    objectives: Annotated[
        tuple[Objective, ...],
        LISTED,
        Doc("Several objectives, each a metric; the first is the value of a result."),
    ] = ()
    constraints: Annotated[
        tuple[Constraint, ...], LISTED, Doc("Bounds on metrics that the best results must satisfy.")
    ] = ()
    candidates: Annotated[CandidateSettings, Doc("The finite set of arms.")] = CandidateSettings()
    space: Annotated[
        Mapping[str, Parameter],
        Plain(_read_space, plain_space),
        Doc("Parameters by name, or a ConfigSpace file; else the objective's own space."),
    ] = field(default_factory=dict)
    forbid: Annotated[
        tuple[Clause, ...],
        Plain(lambda clauses: clauses_of(tuple(clauses)) if clauses else (), _plain),
        Doc("Excluded combinations of values, such as {model: svm, kernel: poly}."),
    ] = ()
    enqueue: Annotated[tuple[Configuration, ...], LISTED, Doc("Configurations to evaluate first, in this order.")] = ()
    known_results: Annotated[
        Known,
        LISTED,
        Doc(
            "Results that exist already and cost no budget: tables, runs, studies of Optuna, folders of Ray Tune, or "
            "lists."
        ),
    ] = ()
    strategy: Annotated[Mapping[str, Any], Doc("The algorithm that chooses configurations, with its options.")] = field(
        default_factory=lambda: {"name": DEFAULT_STRATEGY}
    )
    budget: Annotated[Budget, Doc("The limits at which the campaign ends.")]
    workers: Annotated[Workers, Doc("The executor of evaluations, and the resources of each evaluation.")] = field(
        default_factory=Workers
    )
    early_stopping: Annotated[
        EarlyStopping | None,
        Doc(
            "Stop trials whose intermediate values are worse than those of others. A function reports them with "
            "`report(value, step)`, a command with lines BBKB_REPORT step value."
        ),
    ] = None
    on_event: Annotated[
        Text | None,
        Doc(
            "Shell command, run where the campaign runs at the first failed evaluation of a session and at its end; "
            "BBKB_EVENT (failure or ended) and BBKB_TEXT describe the event; its standard input contains them as JSON."
        ),
    ] = None
    store: Annotated[
        StoreUrl,
        Doc(
            "The store of the results: sqlite in the run's folder, or a database URL, in which ${VAR} is taken from "
            "the environment when the connection is made."
        ),
    ] = "sqlite"
    data: Annotated[Data, Doc("The source of data sets.")] = Data()
    runs: Annotated[str, Doc("Folder in which the run's folder is created.")] = "runs"
    run: Annotated[
        Name | None,
        Doc("Name of the run's folder and, in a shared database, of the campaign; null: name and time."),
    ] = None

    @property
    def objective_name(self) -> str:
        """The objective as one word or line: for a pickled function, the campaign's name; empty if a
        table is the objective."""
        if self.objective.function is not None:
            return self.name
        return next((str(getattr(self.objective, key)) for key in self.objective.sources), "")

    @cached_property
    def _plain(self) -> Tree:
        tree: dict[str, Any] = _plain(self)
        tree["store"] = stored(self.store)
        for source in tree["known_results"]:
            if source.get("store"):
                source["store"] = stored(source["store"])
        return tree

    # Rules that follow from several keys. Every decision of the campaign reads the settings here.

    @cached_property
    def goals(self) -> CampaignGoals:
        """The objectives (at least one) and the constraints."""
        alone = Objective(VALUE, self.objective.direction or "maximize")
        return CampaignGoals(self.objectives or (alone,), self.constraints)

    @cached_property
    def training(self) -> TrainingRule | None:
        """The rule for trainings that are paused and continued; None without such a rule."""
        if self.pauses_trials:
            # one trial is trained to its end, so that a budget of steps always yields a result
            return TrainingRule(
                continues=True,
                has_checkpoints=True,
                finish=1,
                last_step=self.strategy.get("last_step"),
                trains_whole=False,
                saves_checkpoints=True,
            )
        rule = self.early_stopping
        if not isinstance(rule, ModelStopping):
            return None
        return TrainingRule(
            first_trials=rule.first_trials or 0,
            first_steps=rule.first_steps or 1,
            continues=bool(rule.continues),
            has_checkpoints=rule.continues is True,
            finish=FINISH,
            last_step=rule.last_step,
            keep_checkpoints=rule.keep_checkpoints,
        )

    def stopping(self, end: int | None) -> StoppingRule | None:
        """Return the rule that stops or pauses trials by intermediate values; None if there is none.
        `end`: the last step of a training, on which pauses depend; None if it is unknown."""
        if self.pauses_trials:
            return StoppingRule.every(self.strategy["interval"])
        match self.early_stopping:
            case Asha() as rule:
                return StoppingRule.asha(rule.reduction, rule.after, rule.metric)
            case Median() as rule:
                return StoppingRule.median(rule.after, rule.metric)
            case ModelStopping() as rule if self.training is not None:
                return self.training.stopping(rule.after, end)
        return None

    @property
    def last_step(self) -> int | None:
        """The step at which a training ends; None if it is not given."""
        return None if self.training is None else self.training.last_step

    @property
    def has_checkpoints(self) -> bool:
        """Whether stopped trials continue from their checkpoints."""
        return self.training is not None and self.training.has_checkpoints

    @property
    def pauses_trials(self) -> bool:
        """Whether the strategy pauses its trials itself: it then has these options (`PausesTrials`)."""
        return "interval" in self.strategy and "last_step" in self.strategy

    @property
    def is_asynchronous(self) -> bool:
        """Whether the strategy chooses a trial as soon as a worker is idle, without batches."""
        return self.strategy.get("mode") == "async"

    @property
    def refresh_growth(self) -> float:
        """The growth of the results at which a refit is due; 0: after each result."""
        return float(self.strategy.get("refresh_growth") or 0.0)

    @property
    def has_own_strategy(self) -> bool:
        """Whether the strategy is the user's, named as `package.module:Name`."""
        return ":" in self.strategy["name"]


def plain(settings: Settings) -> Tree:
    """Return all settings as plain values with the keys of a campaign file, without passwords. They are
    computed once, and not to be changed."""
    return settings._plain


Recorded = Annotated[Settings, Written(plain)]  # in an event: complete, because a default may change


def shown(settings: Settings) -> dict[str, Any]:
    """Return the settings for display: without a number of evaluations that follows from the number
    of steps."""
    return without_implied(plain(settings))


def without_implied(tree: Tree) -> dict[str, Any]:
    """Return plain settings without `budget.evaluations` if `budget.steps` implies it."""
    budget = tree.get("budget") or {}
    steps = budget.get("steps")
    if not isinstance(steps, int) or budget.get("evaluations") != most_trials(steps):
        return dict(tree)
    return {**tree, "budget": {key: budget[key] for key in budget if key != "evaluations"}}


def most_trials(steps: int) -> int:
    """Return the largest number of trials in a budget of steps: each counts as at least one."""
    return min(max(1, steps), MOST_TRIALS)


def ends_of(parameter: Parameter | None) -> tuple[Scalar, ...]:
    """Return both ends of a range, or the value of a constant; empty for listed values."""
    if isinstance(parameter, Range):
        return (parameter.low, parameter.high)
    return (parameter.constant,) if isinstance(parameter, Constant) else ()


def leaves(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield each dotted key of a tree with its value."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
