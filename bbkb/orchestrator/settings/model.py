"""The campaign file: its sections as frozen pydantic models, checked as a whole. Every mistake is
reported with file and line.

Relative paths (`candidates.table`, those in `known_results`, `data.folder`, a SQLite URL, the
search path of a callable, the working directory of a command) are relative to the campaign file's
folder, so a campaign is the same from any working directory. Only `runs` is relative to the working
directory. `Settings` holds absolute paths.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from bbkb.objectives.conditions import Clause
from bbkb.objectives.parameters import Parameter
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.bandit.start.warm_start import with_known_results
from bbkb.orchestrator.bandit.strategy import AnyStrategy
from bbkb.orchestrator.settings import goal_sections, objective_sections, spaces, stopping_sections, worker_sections
from bbkb.orchestrator.settings.file import Plain
from bbkb.orchestrator.settings.goal_sections import ConstraintSettings, ObjectiveMetricSettings
from bbkb.orchestrator.settings.known_results import BestOf, Known, has_values, known_problems, of_kind
from bbkb.orchestrator.settings.mistakes import Refusal, failure
from bbkb.orchestrator.settings.objective_sections import CandidateSettings, ObjectiveSettings
from bbkb.orchestrator.settings.sections import (
    BudgetSettings,
    ComputingSettings,
    DataSettings,
    LogSettings,
    Name,
    NaturalInt,
    NotifySettings,
    Section,
    StoreUrl,
    Tag,
    folder_of,
)
from bbkb.orchestrator.settings.stopping_sections import StoppingSettings
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy
from bbkb.orchestrator.settings.worker_sections import WorkerSettings


def _with_space_file(tree: Any, info: ValidationInfo) -> object:
    """Return the plain values with `space`'s ConfigSpace file read into `space` and `forbid`."""
    file = tree.get("space") if isinstance(tree, Mapping) else None
    if not isinstance(file, str):
        return tree
    space, forbid = spaces.read_space(file, folder_of(info))
    clauses = tree.get("forbid", [])
    return {**tree, "space": space, "forbid": [*clauses, *forbid] if isinstance(clauses, list | tuple) else clauses}


def _space(space: object, info: ValidationInfo) -> Mapping[str, Parameter]:
    objective: ObjectiveSettings | None = info.data.get("objective")
    candidates: CandidateSettings | None = info.data.get("candidates")
    if space or objective is None or candidates is None or candidates.table is not None:
        return spaces.build_space(space)
    return dict(objective.own_space() or {})


def _strategy(options: object, info: ValidationInfo) -> AnyStrategy:
    return build_strategy(options, (info.context or {}).get("evaluations"))


# Each check receives the sections named by its parameters, and yields the mistakes between them.
_CHECKS: tuple[Callable[..., Iterable[Refusal]], ...] = (
    known_problems,
    stopping_sections.stopping_problems,
    stopping_sections.pause_problems,
    objective_sections.objective_problems,
    goal_sections.direction_problems,
    objective_sections.parameter_problems,
    goal_sections.goal_problems,
    goal_sections.excluded_problems,
    objective_sections.candidate_problems,
    spaces.enqueue_problems,
    spaces.space_problems,
    spaces.prior_problems,
    worker_sections.trainer_problems,
)
# The sections needed to complete the enqueued configurations.
_COMPLETED = frozenset({"space", "forbid", "enqueue"})


class Settings(Section):
    """One campaign, complete and checked. Built by `load` or `from_mapping`."""

    name: Name
    """Name of the campaign; the name of its run's folder begins with it."""
    tags: tuple[Tag, ...] = Field(default=(), strict=False)
    """Words with which `bbkb list --tag` finds the campaign's runs."""
    note: Annotated[str, Field(max_length=10_000)] = ""
    """A description of the campaign, for display."""
    seed: NaturalInt = 0
    """Seed of all random numbers."""
    objective: ObjectiveSettings = ObjectiveSettings()
    """The function, command or problem to optimize."""
    objectives: tuple[ObjectiveMetricSettings, ...] = Field(default=(), strict=False)
    """Several objectives, each a metric; the first is the value of a result."""
    constraints: tuple[ConstraintSettings, ...] = Field(default=(), strict=False)
    """Bounds on metrics that the best results must satisfy."""
    candidates: CandidateSettings = CandidateSettings()
    """The finite set of arms."""
    space: Annotated[Mapping[str, Parameter], PlainValidator(_space), PlainSerializer(spaces.dump_space)] = Field(
        default_factory=dict, validate_default=True
    )
    """Parameters by name, or a ConfigSpace file; else the objective's own space."""
    forbid: Annotated[
        tuple[Clause, ...],
        PlainValidator(spaces.build_forbid),
        PlainSerializer(spaces.dump_forbid),
    ] = ()
    """Excluded combinations of values, such as {model: svm, kernel: poly}."""
    enqueue: Annotated[
        tuple[spaces.Configuration, ...], PlainValidator(spaces.build_enqueue), PlainSerializer(spaces.dump_enqueue)
    ] = ()
    """Configurations to evaluate first, in this order."""
    known_results: Known = Field(default=(), strict=False)
    """Results that exist already and cost no budget: tables, runs, studies of Optuna, folders of
    Ray Tune, or lists; {best_of: [runs/a]} evaluates the best configurations of other runs
    first."""
    strategy: Annotated[AnyStrategy, PlainValidator(_strategy), PlainSerializer(dump_strategy)] = Field(
        default_factory=lambda: build_strategy({})
    )
    """The algorithm that chooses configurations, with its options."""
    budget: BudgetSettings
    """The limits at which the campaign ends."""
    workers: WorkerSettings = Field(default_factory=WorkerSettings)
    """The executor of evaluations, and the resources of each evaluation."""
    early_stopping: StoppingSettings | None = None
    """Stop trials whose intermediate values are worse than those of others. A function reports them
    with `report(value, step)`, a command with lines BBKB_REPORT step value."""
    computing: ComputingSettings = ComputingSettings()
    """Resources of the strategy's own computations."""
    log: LogSettings = LogSettings()
    """Level and format of run.log in the run's folder."""
    notify: NotifySettings | None = None
    """A command or webhook, called at the end, at the first failure and if no evaluation ends."""
    store: StoreUrl = "sqlite"
    """The store of the results: sqlite in the run's folder, or a database URL, in which ${VAR} is
    taken from the environment when the connection is made."""
    data: DataSettings = Field(default_factory=DataSettings)
    """The source of data sets."""
    runs: Annotated[str, AfterValidator(lambda path: str(Path.cwd() / Path(path).expanduser()))] = Field(
        default="runs", validate_default=True
    )
    """Folder in which the run's folder is created."""
    run: Name | None = None
    """Name of the run's folder and, in a shared database, of the campaign; null: name and time."""

    @model_validator(mode="before")
    @classmethod
    def _read_space_file(cls, tree: object, info: ValidationInfo) -> object:
        return goal_sections.with_direction(_with_space_file(tree, info))

    @model_validator(mode="after")
    def _check_together(self, info: ValidationInfo) -> Self:
        # the sections that are wrong by themselves
        wrong: frozenset[str] = (info.context or {}).get("wrong", frozenset())
        problems: list[Refusal] = []
        for check in _CHECKS:
            names = inspect.signature(check).parameters
            if not wrong & names.keys():
                problems += check(**{name: getattr(self, name) for name in names})
        wrong |= {str(problem.keys[0]) for problem in problems}
        if self.enqueue and self.space and not wrong & _COMPLETED:
            # recorded completely, so that a resume needs no draws
            whole, mistakes = spaces.completed_enqueue(SearchSpace(self.space, self.forbid), self.enqueue, self.seed)
            problems += mistakes
            object.__setattr__(self, "enqueue", whole)
        if problems:
            raise failure(problems)
        if has_values(self.known_results) and hasattr(self.strategy, "warm_start"):
            object.__setattr__(self, "strategy", with_known_results(self.strategy))
        return self

    @property
    def first(self) -> tuple[spaces.Configuration, ...]:
        """The configurations to evaluate first: the enqueued ones, then those of earlier runs."""
        taken = [
            configuration for source in of_kind(self.known_results, BestOf) for configuration in source.first or ()
        ]
        return (*self.enqueue, *(configuration for configuration in taken if configuration not in self.enqueue))

    def resolved(self) -> Plain:
        """Return all settings as plain values, including defaults but without passwords.
        `from_mapping` restores equal settings if there was no password."""
        tree = self.model_dump(mode="json")
        for key in ("objectives", "constraints"):
            if not tree[key]:
                del tree[key]
        return tree
