"""The campaign file: its sections as frozen pydantic models, checked as a whole, every mistake with
file and line.

Relative paths (`candidates.table`, `strategy.warm_start.path`, `data.folder`, a SQLite URL, where a
callable's module is looked for, where a command runs) are relative to the campaign file's folder,
so a campaign is the same from any working directory; only `runs` is relative to the working
directory. `Settings` holds absolute paths.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from objectives.command import ShellCommand
from objectives.conditions import Clause
from objectives.names import KnowsParameters
from objectives.objective import ObjectiveError
from objectives.parameters import Parameter
from objectives.space import SearchSpace
from orchestrator.bandit.model.model import model_of
from orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from orchestrator.bandit.strategy import AnyStrategy, LearnsCurves, Shardable
from orchestrator.credentials import redact
from orchestrator.settings.file import Plain
from orchestrator.settings.goal_sections import (
    ConstraintSettings,
    ObjectiveMetricSettings,
    goal_problems,
    with_direction,
)
from orchestrator.settings.imported import (
    Earlier,
    ExistingData,
    build_earlier,
    build_existing,
    dump_earlier,
    dump_existing,
)
from orchestrator.settings.mistakes import Refusal, align, failure
from orchestrator.settings.sections import (
    AshaSettings,
    BudgetSettings,
    CandidateSettings,
    ComputingSettings,
    DataSettings,
    LogSettings,
    MedianSettings,
    ModelStoppingSettings,
    Name,
    NotifySettings,
    ObjectiveSettings,
    Section,
    StoreUrl,
    Tag,
    folder_of,
)
from orchestrator.settings.spaces import (
    Configuration,
    build_enqueue,
    build_forbid,
    build_space,
    completed_enqueue,
    dump_enqueue,
    dump_forbid,
    dump_space,
    prior_problems,
    read_space,
    space_problems,
)
from orchestrator.settings.strategies import build_strategy, dump_strategy
from orchestrator.settings.worker_sections import WorkerSettings


def _below_working_directory(path: str) -> str:
    return str(Path.cwd() / Path(path).expanduser())


def _strategy(options: object, info: ValidationInfo) -> AnyStrategy:
    return build_strategy(options, folder_of(info))


def _with_space_file(tree: Any, info: ValidationInfo) -> object:
    """Return the plain values with `space`'s ConfigSpace file read into `space` and `forbid`."""
    file = tree.get("space") if isinstance(tree, Mapping) else None
    if not isinstance(file, str):
        return tree
    space, forbid = read_space(file, folder_of(info))
    clauses = tree.get("forbid", [])
    return {**tree, "space": space, "forbid": [*clauses, *forbid] if isinstance(clauses, list | tuple) else clauses}


def _existing_data(tree: object, info: ValidationInfo) -> ExistingData | None:
    objective: ObjectiveSettings | None = info.data.get("objective")
    return None if objective is None else build_existing(tree, folder_of(info), objective.direction)


def _earlier(tree: object, info: ValidationInfo) -> Earlier | None:
    return build_earlier(tree, folder_of(info))


def _space(space: object, info: ValidationInfo) -> Mapping[str, Parameter]:
    objective: ObjectiveSettings | None = info.data.get("objective")
    candidates: CandidateSettings | None = info.data.get("candidates")
    if space or objective is None or candidates is None or candidates.table is not None:
        return build_space(space)
    return dict(objective.own_space() or {})


class Settings(Section):
    """One campaign, complete and checked. Build it with `load` or `from_mapping`."""

    name: Name = Field(description="Name of the campaign, and the first part of the name of its run's folder.")
    tags: tuple[Tag, ...] = Field(
        default=(), strict=False, description="Words by which `bbkb list --tag` finds the campaign's runs."
    )
    note: Annotated[str, Field(max_length=10_000)] = Field(
        default="", description="What the campaign is about, for people."
    )
    seed: int = Field(default=0, ge=0, description="Seed of all random numbers.")
    objective: ObjectiveSettings = Field(default=ObjectiveSettings(), description="What is optimised.")
    objectives: tuple[ObjectiveMetricSettings, ...] = Field(
        default=(), strict=False, description="Several objectives, each a metric; the first is the value of a result."
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
        default=(), description="Combinations of values that are excluded, such as {model: svm, kernel: poly}."
    )
    enqueue: Annotated[tuple[Configuration, ...], PlainValidator(build_enqueue), PlainSerializer(dump_enqueue)] = Field(
        default=(), description="Configurations that are evaluated first, in this order."
    )
    existing_data: Annotated[ExistingData | None, PlainValidator(_existing_data), PlainSerializer(dump_existing)] = (
        Field(
            default=None,
            description="Earlier results, which cost no budget: an Optuna study, a Ray Tune folder, or a list.",
        )
    )
    earlier: Annotated[Earlier | None, PlainValidator(_earlier), PlainSerializer(dump_earlier)] = Field(
        default=None,
        description="Folders of runs of the same space, whose best configurations are evaluated first. Their "
        "objective may be another one: no value of theirs is learned.",
    )
    strategy: Annotated[AnyStrategy, PlainValidator(_strategy), PlainSerializer(dump_strategy)] = Field(
        default_factory=lambda: build_strategy({}), description="The algorithm that chooses, with its options."
    )
    budget: BudgetSettings = Field(description="When the campaign ends.")
    workers: WorkerSettings = Field(default_factory=WorkerSettings, description="Where evaluations run.")
    early_stopping: (
        Annotated[AshaSettings | MedianSettings | ModelStoppingSettings, Field(discriminator="rule")] | None
    ) = Field(
        default=None,
        description="Stop trials early that report worse intermediate values than others: by `report(value, step)` in "
        "a function, lines BBKB_REPORT step value of a command.",
    )
    computing: ComputingSettings = Field(
        default=ComputingSettings(), description="Resources of the strategy's own computations."
    )
    log: LogSettings = Field(default=LogSettings(), description="Level and format of run.log in the run's folder.")
    notify: NotifySettings | None = Field(
        default=None,
        description="A command or webhook at the end, at the first failure and when no evaluation ends.",
    )
    store: StoreUrl = Field(
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
    def _read_space_file(cls, tree: object, info: ValidationInfo) -> object:
        return with_direction(_with_space_file(tree, info))

    @model_validator(mode="after")
    def _check_together(self) -> "Settings":
        checks = (
            _existing_problems,
            _earlier_problems,
            _training_problems,
            _objective_problems,
            _budget_problems,
            _goal_problems,
            _candidate_problems,
            _space_problems,
            _computing_problems,
            _worker_problems,
            _notify_problems,
        )
        if problems := next((mistakes for check in checks if (mistakes := check(self))), None):
            raise failure(problems)
        if self.space and self.enqueue:  # recorded whole: a later version may draw other values
            whole, problems = completed_enqueue(SearchSpace(self.space, self.forbid), self.enqueue, self.seed)
            if problems:
                raise failure(problems)
            object.__setattr__(self, "enqueue", whole)
        return self

    @property
    def first(self) -> tuple[Configuration, ...]:
        """The configurations that are evaluated first: those enqueued, then those of earlier
        runs."""
        taken = () if self.earlier is None or self.earlier.first is None else self.earlier.first
        return (*self.enqueue, *(configuration for configuration in taken if configuration not in self.enqueue))

    def resolved(self) -> Plain:
        """Return everything as plain values, all defaults filled in and no password; `from_mapping`
        makes equal settings of it where there was none."""
        tree = self.model_dump(mode="json")
        for key in ("objectives", "constraints"):
            if not tree[key]:  # with one objective the form of older versions is kept
                del tree[key]
        start = tree["strategy"].get("warm_start")
        if isinstance(start, dict) and isinstance(start.get("path"), str):
            start["path"] = redact(start["path"])
        return tree


def _existing_problems(settings: Settings) -> list[Refusal]:
    if settings.existing_data is not None and isinstance(warm_start_of(settings.strategy), DataStart):
        return [
            Refusal(
                ("existing_data",),
                "must not be given together with strategy.warm_start data, which also gives existing data",
            )
        ]
    return []


def _earlier_problems(settings: Settings) -> list[Refusal]:
    if settings.earlier is not None and not settings.space:
        return [Refusal(("earlier",), "needs a space: the configurations of other runs are no rows of a table")]
    return []


def _training_problems(settings: Settings) -> list[Refusal]:
    """Return mistakes in the early stopping by the model."""
    rule = settings.early_stopping
    if not isinstance(rule, ModelStoppingSettings):
        return []
    problems = []
    strategy = settings.strategy
    if not isinstance(strategy, LearnsCurves) or model_of(strategy) is None:
        problems.append(
            Refusal(
                ("early_stopping", "rule"),
                "must be median or asha with this strategy: model needs one whose model learns curves, such as bbkb "
                "with its default preset",
            )
        )
    if rule.keep_checkpoints is not None and rule.keep_checkpoints < rule.finish:
        rule_text = f"must be >= finish, {rule.finish}, got {rule.keep_checkpoints}"
        problems.append(Refusal(("early_stopping", "keep_checkpoints"), rule_text))
    return problems


def _space_problems(settings: Settings) -> list[Refusal]:
    most, number = settings.budget.evaluations, len(settings.enqueue)
    if number > most:
        return [Refusal(("enqueue",), f"must hold at most budget.evaluations, {most}, configurations, got {number}")]
    return space_problems(settings.space, settings.forbid) or prior_problems(settings.space, settings.strategy)


def _budget_problems(settings: Settings) -> list[Refusal]:
    rule = settings.budget.stop_when
    if rule is None:
        return []
    if (rule.no_gain_of is None) != (rule.within is None):
        missing = "no_gain_of" if rule.no_gain_of is None else "in"
        return [Refusal(("budget", "stop_when"), f"must have {missing} too, such as {{no_gain_of: 0.001, in: 64}}")]
    if rule.no_gain_of is None and rule.expected_gain_below is None:
        text = "must have no_gain_of and in, or expected_gain_below, such as {expected_gain_below: noise}"
        return [Refusal(("budget", "stop_when"), text)]
    return []


def _goal_problems(settings: Settings) -> list[Refusal]:
    start = warm_start_of(settings.strategy)
    excluded: dict[tuple[str, ...], tuple[object, str]] = {
        ("budget", "target"): (settings.budget.target, "no single value is good enough"),
        ("budget", "stop_when"): (settings.budget.stop_when, "no single value shows a gain"),
        ("early_stopping",): (
            settings.early_stopping,
            "a trial that is stopped has none of its metrics. Remove early_stopping (reports are shown without it), or "
            "tune one objective without constraints",
        ),
        ("strategy", "warm_start"): (
            start if isinstance(start, DataStart) else None,
            "existing data have one value each",
        ),
        ("existing_data",): (settings.existing_data, "existing data have one value each"),
    }
    direction = settings.objective.direction
    return goal_problems(settings.objectives, settings.constraints, direction, settings.strategy, excluded)


def _computing_problems(settings: Settings) -> list[Refusal]:
    shards = settings.computing.shards
    if shards > 1 and not isinstance(settings.strategy, Shardable):
        return [Refusal(("computing", "shards"), f"must be 1 with this strategy, bbkb can have more, got {shards}")]
    if shards > 1 and settings.workers.executor != "ray":
        return [Refusal(("computing", "shards"), f"must be 1 without workers.executor ray, got {shards}")]
    return []


def _worker_problems(settings: Settings) -> list[Refusal]:
    workers = settings.workers
    if workers.machines > 1 and workers.executor != "ray":
        rule = f"must be 1 without workers.executor ray, got {workers.machines}"
        return [Refusal(("workers", "machines"), rule)]
    for key, is_set in (("machines_from", workers.machines_from is not None), ("ray_train", workers.ray_train)):
        if is_set and workers.executor != "ray":
            return [Refusal(("workers", key), "needs workers.executor ray", workers.executor)]
    if workers.is_gang and workers.kind == "task":
        rule = (
            "must be actor or auto where workers.machines is above 1, and with machines_from or ray_train: a task ends "
            "with the campaign's process"
        )
        return [Refusal(("workers", "kind"), rule, "task")]
    if workers.ray_train and settings.objective.command is not None:
        return [Refusal(("workers", "ray_train"), "needs a function: a command's trainer makes a group of its own")]
    factor = settings.workers.retry_memory_factor
    if factor is not None and settings.workers.memory_gb is None:
        return [Refusal(("workers", "retry_memory_factor"), "needs workers.memory_gb: it multiplies that")]
    return []


def _notify_problems(settings: Settings) -> list[Refusal]:
    notify = settings.notify
    if notify is not None and notify.command is None and notify.webhook is None:
        return [Refusal(("notify",), "must have a command or a webhook")]
    return []


def _objective_problems(settings: Settings) -> list[Refusal]:
    sources, target = settings.objective.sources, settings.candidates.target
    if target is not None and settings.candidates.table is None:
        return [Refusal(("candidates", "target"), "needs candidates.table: it names a column of it")]
    if target is not None and sources:
        return [
            Refusal(("objective", sources[0]), "must not be given beside candidates.target, which is the objective")
        ]
    if target is None and len(sources) != 1:
        got = " and ".join(sources) or "none of them"
        return [Refusal(("objective",), f"must have exactly one of name, callable and command, got {got}")]
    options: object = settings.objective.options
    if isinstance(options, ShellCommand) and settings.space:
        try:
            options.check(settings.space)
        except ObjectiveError as error:
            return [align(("objective", "command"), str(error))]
    if isinstance(options, KnowsParameters):
        try:
            rules = options.space_problems(settings.space)
        except ObjectiveError as error:
            return [align(("objective", "options"), str(error))]
        return [Refusal(("space", name), rule) for name, rule in rules.items()]
    return []


def _candidate_problems(settings: Settings) -> list[Refusal]:
    candidates, objective = settings.candidates, settings.objective
    if objective.has_candidates:
        conflicts = [("space",)] * bool(settings.space) + [("candidates", "table")] * (candidates.table is not None)
        return [Refusal(keys, f"must not be given: {objective.name} brings its own candidates") for keys in conflicts]
    if settings.space and candidates.table is not None:
        return [Refusal(("space",), "must not be given beside candidates.table, whose rows are the candidates")]
    if not settings.space and candidates.table is None:
        return [Refusal(("space",), "is required (or candidates.table): the parameters and their ranges")]
    return []
