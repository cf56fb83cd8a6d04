"""The campaign file: its sections as frozen pydantic models, checked as a whole, every mistake with file and line.

Relative paths (`candidates.table`, `strategy.warm_start.path`, `data.folder`, a SQLite URL, where a callable's module
is looked for, where a command runs) are relative to the campaign file's folder, so a campaign means the same wherever
it is started from; only `runs` is relative to the working directory, where results belong. `Settings` holds absolute
paths.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from objectives.conditions import Clause
from objectives.datasets import DataSource
from objectives.duplicates import Duplicates
from objectives.names import KnowsParameters
from objectives.objective import Objective, ObjectiveError
from objectives.parameters import Parameter
from objectives.space import LARGEST_SIZE, Sampler
from orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from orchestrator.bandit.strategy import Shardable
from orchestrator.credentials import redacted
from orchestrator.logs import Format, Level
from orchestrator.settings.file import Document, read, with_overrides
from orchestrator.settings.goals import ConstraintSettings, ObjectiveMetricSettings, goal_problems, with_direction
from orchestrator.settings.options import (
    OBJECTIVE_KEYS,
    build_objective,
    build_strategy,
    dump_objective,
    dump_strategy,
    find_options,
    with_model_in_strategy,
)
from orchestrator.settings.problems import Problem, aligned, config_error, failure, shown
from orchestrator.settings.spaces import (
    Configuration,
    build_enqueue,
    build_forbid,
    build_space,
    dump_enqueue,
    dump_forbid,
    dump_space,
    read_space,
    space_problems,
)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _absolute(path: str | None, info: ValidationInfo) -> str | None:
    return None if path is None else str(_folder(info) / Path(path).expanduser())


def _folder(info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("folder", Path.cwd()))


def _named_by_environment() -> str | None:
    """Read once, here: the processes that evaluate may have another environment, and so may a later resume."""
    folder = os.environ.get("BBKB_DATA")
    return str(Path(folder).expanduser().absolute()) if folder else None


def _below_working_directory(path: str) -> str:
    return str(Path.cwd() / Path(path).expanduser())


def _store(store: str, info: ValidationInfo) -> str:
    scheme = store.partition("://")[0].partition("+")[0]
    if store != "sqlite" and not store.startswith("${") and ("://" not in store or scheme not in _DATABASES):
        raise failure([Problem((), "must be sqlite, sqlite:///FILE or postgresql://…", shown(store))])
    scheme, slashes, path = store.partition(":///")
    is_relative = scheme.startswith("sqlite") and path and path != ":memory:" and not Path(path).is_absolute()
    return f"{scheme}{slashes}{_absolute(path, info)}" if is_relative else store


_DATABASES = ("sqlite", "postgresql", "postgres")


def _listed(name: str | None) -> str | None:
    if name is not None:
        find_options(name)
    return name


def _objective_options(options: Any, info: ValidationInfo) -> Any:
    sources = [key for key in OBJECTIVE_KEYS if info.data.get(key) is not None]
    # with none or several of them that is the mistake to report, and what the options should be is unknown
    return build_objective(sources[0], info.data[sources[0]], options, _folder(info)) if len(sources) == 1 else None


def _strategy(options: Any, info: ValidationInfo) -> Any:
    return build_strategy(options, _folder(info))


def _with_space_file(tree: Any, info: ValidationInfo) -> Any:
    """The campaign's plain values with a ConfigSpace file that `space` names read into `space` and `forbid`."""
    file = tree.get("space") if isinstance(tree, Mapping) else None
    if not isinstance(file, str):
        return tree
    space, forbid = read_space(file, _folder(info))
    own = tree.get("forbid", [])
    return {**tree, "space": space, "forbid": [*own, *forbid] if isinstance(own, list | tuple) else own}


def _space(space: Any, info: ValidationInfo) -> Mapping[str, Parameter]:
    objective: ObjectiveSettings | None = info.data.get("objective")
    candidates: CandidateSettings | None = info.data.get("candidates")
    if space or objective is None or candidates is None or candidates.table is not None:
        return build_space(space)
    return dict(objective.own_space() or {})


MOST_WORKERS = 100_000

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class ObjectiveSettings(_Section):
    """What is optimised: a named objective, a Python callable or a shell command, exactly one of them."""

    name: Annotated[str | None, AfterValidator(_listed)] = Field(
        default=None, description="Name of a listed objective, or package.module:Name of a class of options."
    )
    callable: str | None = Field(
        default=None,
        description="Python function, package.module:function or path/to/file.py:function, called with keywords.",
    )
    command: str | None = Field(
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
        default=False, description="Whether a second evaluation gives the same value, so that no arm gets one."
    )
    options: Annotated[Any, PlainValidator(_objective_options), PlainSerializer(dump_objective)] = Field(
        default_factory=dict, validate_default=True, description="Options of the objective, by their names."
    )

    @property
    def sources(self) -> list[str]:
        """Which of `name`, `callable`, `command` and `function` are given."""
        return [key for key in OBJECTIVE_KEYS if getattr(self, key) is not None]

    def load(self, source: DataSource) -> Objective | None:
        """The objective with its data; None when the candidates' table is it. Raises ObjectiveError."""
        objective: Objective | None = self.options.load(source) if self.sources == ["name"] else self.options
        return objective

    def own_space(self) -> Mapping[str, Parameter] | None:
        """The space a listed objective brings; None when it brings candidates instead, or is not listed."""
        space: Mapping[str, Parameter] | None = self.options.default_space() if self.sources == ["name"] else None
        return space

    @property
    def has_candidates(self) -> bool:
        """Whether the objective brings its own candidates, as a table does."""
        return self.sources == ["name"] and self.own_space() is None


class CandidateSettings(_Section):
    """The finite set of arms: drawn from the space, or the rows of a table."""

    size: Annotated[int, Field(ge=1, le=LARGEST_SIZE)] | None = Field(
        default=None,
        description="Number of candidates drawn from the space; null takes a finite space of at most 100 000 whole.",
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


class BudgetSettings(_Section):
    """When the campaign ends: at the first of these."""

    evaluations: PositiveInt = Field(description="Number of evaluations that the campaign may spend.")
    hours: PositiveFloat | None = Field(default=None, description="Hours after which nothing new is started.")
    target: float | None = Field(default=None, description="Value that is good enough to stop.")


class SimulationSettings(_Section):
    """Virtual time, for the simulated executor."""

    seconds: PositiveFloat = Field(default=1.0, description="Mean duration of an evaluation in virtual seconds.")
    sigma: float = Field(
        default=0.0, ge=0, description="Standard deviation of the duration's logarithm; 0 is constant."
    )
    straggler_share: float = Field(default=0.0, ge=0, le=1, description="Share of attempts that take far longer.")
    straggler_factor: float = Field(
        default=20.0, ge=1, description="How many times longer these take; `seconds` stays the mean of all."
    )
    failure_rate: float = Field(default=0.0, ge=0, lt=1, description="Share of attempts that are made to fail.")


class WorkerSettings(_Section):
    """Where evaluations run and what each of them may use."""

    executor: Literal["ray", "inline", "simulated"] = Field(
        default="ray", description="On Ray, one after the other in the central process, or in virtual time."
    )
    kind: Literal["task", "actor", "auto"] = Field(
        default="auto",
        description="Under Ray: a task for each evaluation, or worker actors, in which evaluations go on when the "
        "campaign's process dies; auto takes tasks for evaluations of a few seconds.",
    )
    keep_hours: PositiveFloat = Field(
        default=12.0, description="Hours that worker actors wait for a resume when the campaign's process has died."
    )
    count: PositiveInt = Field(
        default_factory=lambda: os.cpu_count() or 1,
        le=MOST_WORKERS,
        description="Evaluations that run at the same time; this machine's cores if not given.",
    )
    cpus: PositiveFloat = Field(default=1.0, description="Processor cores an evaluation takes.")
    gpus: float = Field(default=0.0, ge=0, description="Graphics processors an evaluation takes.")
    memory_gb: PositiveFloat | None = Field(default=None, description="Memory an evaluation may use, in 10^9 bytes.")
    timeout_seconds: PositiveFloat | None = Field(
        default=None, description="Seconds after which an evaluation is given up."
    )
    timeout_factor: Annotated[float, Field(gt=1)] | None = Field(
        default=None,
        description="Without timeout_seconds: an evaluation that has run this many times as long as the longest "
        "success so far is given up.",
    )
    retry_memory_factor: Annotated[float, Field(ge=1)] | None = Field(
        default=None,
        description="An evaluation that ran out of memory is tried again with this many times workers.memory_gb.",
    )
    retries: int = Field(default=2, ge=0, description="How often a failed evaluation is tried again.")
    trial_folders: bool = Field(
        default=False,
        description="Give each trial a folder below the run's, the same for all its attempts, for checkpoints and "
        "artefacts: `folder` of a function, BBKB_FOLDER of a command. Beyond one machine the run's folder must be on a "
        "shared disk.",
    )
    simulation: SimulationSettings = Field(
        default=SimulationSettings(), description="Virtual time, for the simulated executor."
    )


class AshaSettings(_Section):
    """Early stopping by asynchronous successive halving."""

    rule: Literal["asha"] = Field(description="Stop a trial unless it is among the best 1/reduction at its step.")
    reduction: Annotated[float, Field(gt=1)] = Field(
        default=3.0, description="Of the trials that reach a step, one in this many goes on to `reduction` times that."
    )
    first_step: PositiveInt = Field(default=1, description="The first step at which trials are compared.")


class MedianSettings(_Section):
    """Early stopping by the median rule."""

    rule: Literal["median"] = Field(description="Stop a trial that is worse than the median at its step.")
    after: PositiveInt = Field(default=3, description="The first step at which trials are compared.")


class ComputingSettings(_Section):
    """What the strategy itself computes with."""

    threads: PositiveInt | None = Field(
        default=None, description="Threads of its matrix products; null takes what the process has, one under Ray."
    )
    shards: PositiveInt = Field(
        default=1, description="Ray actors that share the work on very many candidates; 1 keeps them in one process."
    )


class LogSettings(_Section):
    """What is written into `run.log` in the run's folder."""

    level: Level = Field(default="info", description="The least severe level that is written; --log-level sets it.")
    format: Format = Field(default="text", description="Lines of text, or json: one JSON object a line.")


class NotifySettings(_Section):
    """Who is notified at the end of a session, at its first failed evaluation, and when no evaluation ends."""

    command: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Shell command, run where the campaign runs; BBKB_EVENT (ended, failure or stalled) and BBKB_TEXT "
        "say what happened, and so does JSON on its standard input.",
    )
    webhook: Annotated[str, Field(pattern=r"^(https?://|\$\{)")] | None = Field(
        default=None,
        description="Address that gets this JSON by POST; ${VAR} in it is taken from the environment when it is sent.",
    )
    stalled_minutes: PositiveFloat = Field(
        default=60.0, description="Minutes without an evaluation that ends, after which the campaign counts as stalled."
    )


class DataSettings(_Section):
    """Where data sets come from."""

    folder: AbsolutePath | None = Field(
        default_factory=_named_by_environment, description="Folder with data sets; else BBKB_DATA in the environment."
    )
    download: bool = Field(default=False, description="Whether a data set that is not there may be downloaded.")

    def source(self) -> DataSource:
        """Where objectives look for data."""
        return DataSource.find(Path(self.folder) if self.folder else None, self.download)


class Settings(_Section):
    """One campaign, complete and checked. Build it with `load` or `from_mapping`."""

    name: Name = Field(description="Name of the campaign, which begins the name of its run's folder.")
    seed: int = Field(default=0, ge=0, description="Seed of everything that is drawn.")
    objective: ObjectiveSettings = Field(default=ObjectiveSettings(), description="What is optimised.")
    objectives: tuple[ObjectiveMetricSettings, ...] = Field(
        default=(), strict=False, description="Several objectives, each a metric; the first gives a result its value."
    )
    constraints: tuple[ConstraintSettings, ...] = Field(
        default=(), strict=False, description="Bounds on metrics that the best results have to keep."
    )
    candidates: CandidateSettings = Field(default=CandidateSettings(), description="The finite set of arms.")
    space: Annotated[Mapping[str, Parameter], PlainValidator(_space), PlainSerializer(dump_space)] = Field(
        default_factory=dict,
        validate_default=True,
        description="Parameters by name, or a ConfigSpace file; else the objective's own space.",
    )
    forbid: Annotated[tuple[Clause, ...], PlainValidator(build_forbid), PlainSerializer(dump_forbid)] = Field(
        default=(), description="Combinations of values that are no candidates, such as {model: svm, kernel: poly}."
    )
    enqueue: Annotated[tuple[Configuration, ...], PlainValidator(build_enqueue), PlainSerializer(dump_enqueue)] = Field(
        default=(), description="Configurations that are evaluated first, in this order."
    )
    strategy: Annotated[Any, PlainValidator(_strategy), PlainSerializer(dump_strategy)] = Field(
        default_factory=dict, validate_default=True, description="The algorithm that chooses, with its options."
    )
    budget: BudgetSettings = Field(description="When the campaign ends.")
    workers: WorkerSettings = Field(default_factory=WorkerSettings, description="Where evaluations run.")
    early_stopping: Annotated[AshaSettings | MedianSettings, Field(discriminator="rule")] | None = Field(
        default=None,
        description="Stop trials early that report worse intermediate values than others: by `report(value, step)` in "
        "a function, lines BBKB_REPORT step value of a command.",
    )
    computing: ComputingSettings = Field(
        default=ComputingSettings(), description="What the strategy itself computes with."
    )
    log: LogSettings = Field(default=LogSettings(), description="What the log in the run's folder says.")
    notify: NotifySettings | None = Field(
        default=None,
        description="A command or webhook at the end, at the first failure and when nothing ends any more.",
    )
    store: Annotated[str, AfterValidator(_store), PlainSerializer(redacted)] = Field(
        default="sqlite",
        description="Where results are kept: sqlite in the run's folder, or a database URL, in which ${VAR} is taken "
        "from the environment when the connection is made.",
    )
    data: DataSettings = Field(default_factory=DataSettings, description="Where data sets come from.")
    runs: Annotated[str, AfterValidator(_below_working_directory)] = Field(
        default="runs", validate_default=True, description="Folder in which a folder for the run is made."
    )
    run: Name | None = Field(
        default=None,
        description="Name of the run's folder and, in a shared database, of the campaign; else name and time.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_space_file(cls, tree: Any, info: ValidationInfo) -> Any:
        return with_direction(_with_space_file(tree, info))

    @model_validator(mode="after")
    def _check_together(self) -> "Settings":
        checks = (
            _objective_problems,
            _goal_problems,
            _candidate_problems,
            _space_problems,
            _computing_problems,
            _worker_problems,
            _notify_problems,
        )
        if problems := next((found for check in checks if (found := check(self))), None):
            raise failure(problems)
        return self

    def resolved(self) -> dict[str, Any]:
        """Everything as plain values, all defaults filled in and no password; `from_mapping` makes equal settings of
        it where there was none."""
        tree = self.model_dump(mode="json")
        for key in ("objectives", "constraints"):
            if not tree[key]:  # one objective is written as it was before there could be several
                del tree[key]
        start = tree["strategy"].get("warm_start")
        if isinstance(start, dict) and isinstance(start.get("path"), str):
            start["path"] = redacted(start["path"])
        return tree


def _space_problems(settings: Settings) -> list[Problem]:
    most, number = settings.budget.evaluations, len(settings.enqueue)
    if number > most:
        return [Problem(("enqueue",), f"must hold at most budget.evaluations, {most}, configurations, got {number}")]
    return space_problems(settings.space, settings.forbid, settings.enqueue)


def _goal_problems(settings: Settings) -> list[Problem]:
    start = warm_start_of(settings.strategy)
    excluded: dict[tuple[str, ...], tuple[object, str]] = {
        ("budget", "target"): (settings.budget.target, "no single value is good enough"),
        ("early_stopping",): (settings.early_stopping, "a trial that is stopped has none of its metrics"),
        ("strategy", "warm_start"): (
            start if isinstance(start, DataStart) else None,
            "existing data have one value each",
        ),
    }
    direction = settings.objective.direction
    return goal_problems(settings.objectives, settings.constraints, direction, settings.strategy, excluded)


def _computing_problems(settings: Settings) -> list[Problem]:
    shards = settings.computing.shards
    if shards > 1 and not isinstance(settings.strategy, Shardable):
        return [Problem(("computing", "shards"), f"must be 1 with this strategy, bbkb can have more, got {shards}")]
    if shards > 1 and settings.workers.executor != "ray":
        return [Problem(("computing", "shards"), f"must be 1 without workers.executor ray, got {shards}")]
    return []


def _worker_problems(settings: Settings) -> list[Problem]:
    factor = settings.workers.retry_memory_factor
    if factor is not None and settings.workers.memory_gb is None:
        return [Problem(("workers", "retry_memory_factor"), "needs workers.memory_gb: it multiplies that")]
    return []


def _notify_problems(settings: Settings) -> list[Problem]:
    notify = settings.notify
    if notify is not None and notify.command is None and notify.webhook is None:
        return [Problem(("notify",), "must have a command or a webhook")]
    return []


def _objective_problems(settings: Settings) -> list[Problem]:
    sources, target = settings.objective.sources, settings.candidates.target
    if target is not None and settings.candidates.table is None:
        return [Problem(("candidates", "target"), "needs candidates.table: it names a column of it")]
    if target is not None and sources:
        return [
            Problem(("objective", sources[0]), "must not be given beside candidates.target, which is the objective")
        ]
    if target is None and len(sources) != 1:
        got = " and ".join(sources) or "none of them"
        return [Problem(("objective",), f"must have exactly one of name, callable and command, got {got}")]
    if sources == ["command"] and settings.space:
        try:
            settings.objective.options.check(settings.space)
        except ObjectiveError as error:
            return [aligned(("objective", "command"), str(error))]
    if isinstance(settings.objective.options, KnowsParameters):
        try:
            found = settings.objective.options.space_problems(settings.space)
        except ObjectiveError as error:
            return [aligned(("objective", "options"), str(error))]
        return [Problem(("space", name), rule) for name, rule in found.items()]
    return []


def _candidate_problems(settings: Settings) -> list[Problem]:
    candidates, objective = settings.candidates, settings.objective
    if objective.has_candidates:
        given = [("space",)] * bool(settings.space) + [("candidates", "table")] * (candidates.table is not None)
        return [Problem(keys, f"must not be given: {objective.name} brings its own candidates") for keys in given]
    if settings.space and candidates.table is not None:
        return [Problem(("space",), "must not be given beside candidates.table, whose rows are the candidates")]
    if not settings.space and candidates.table is None:
        return [Problem(("space",), "is required (or candidates.table): the parameters and their ranges")]
    return []


def load(path: str | Path, overrides: Sequence[str] = ()) -> Settings:
    """Settings of a campaign file after `a.b.c=value` overrides (relative paths in them count from the file too).

    Raises ConfigError with one line a mistake, each beginning with its place (`file:line` or `--set …`).
    """
    path = Path(path)
    return _settings(with_overrides(read(path), overrides), path.parent.resolve())


def from_mapping(tree: Mapping[str, Any], overrides: Sequence[str] = (), origin: str = "settings") -> Settings:
    """Settings of plain values, such as `resolved()` gave; messages begin with `origin`. Raises ConfigError."""
    return _settings(with_overrides(Document(tree, {}, origin), overrides), Path.cwd())


def _settings(document: Document, folder: Path) -> Settings:
    document = with_model_in_strategy(document)
    try:
        return Settings.model_validate(document.tree, context={"folder": folder})
    except ValidationError as error:
        raise config_error(document, error, Settings) from error
