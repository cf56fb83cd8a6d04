"""The sections of a campaign file as typed dictionaries, so that editors complete `settings=`.

Written by `python -m tests.orchestrator.api.sections_source` from the models in
`orchestrator.settings`; a test compares the two.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class ObjectiveSection(TypedDict, total=False):
    """Keys of a campaign file."""

    name: str | None
    callable: str | None
    command: str | None
    function: str | None
    direction: Literal["maximize", "minimize"]
    deterministic: bool
    options: Mapping[str, object] | None


class ObjectiveMetricSection(TypedDict, total=False):
    """Keys of a campaign file."""

    metric: str
    direction: Literal["maximize", "minimize"]
    reference: float | None


class ConstraintSection(TypedDict, total=False):
    """Keys of a campaign file."""

    metric: str
    at_most: float | None
    at_least: float | None


class CandidateSection(TypedDict, total=False):
    """Keys of a campaign file."""

    size: int | None
    sampler: Literal["sobol", "random", "grid"]
    grow: bool | None
    limit: int
    table: str | None
    target: str | None
    duplicates: Literal["merge", "keep"]


StopWhenSection = TypedDict(
    "StopWhenSection",
    {
        "no_gain_of": float | None,
        "in": int | None,
        "expected_gain_below": float | Literal["noise"] | None,
        "patience": int,
    },
    total=False,
)


class BudgetSection(TypedDict, total=False):
    """Keys of a campaign file."""

    evaluations: int
    steps: int | None
    hours: float | None
    target: float | None
    stop_when: StopWhenSection | None


class FromParameterSection(TypedDict, total=False):
    """Keys of a campaign file."""

    parameter: str


class SimulationSection(TypedDict, total=False):
    """Keys of a campaign file."""

    seconds: float
    sigma: float
    straggler_share: float
    straggler_factor: float
    failure_rate: float


class ResourceKeys(TypedDict, total=False):
    """The resources of one evaluation."""

    machines: int
    machines_from: FromParameterSection | None
    spread: Literal["strict", "soft"]
    ray_train: bool
    cpus: float
    gpus: float
    cpus_from: FromParameterSection | None
    gpus_from: FromParameterSection | None
    memory_gb: float | None


class AttemptKeys(TypedDict, total=False):
    """The attempts at one evaluation."""

    timeout_seconds: float | None
    timeout_factor: float | None
    retry_memory_factor: float | None
    retries: int | None
    trial_folders: bool


class WorkerSection(ResourceKeys, AttemptKeys, total=False):
    """Keys of a campaign file."""

    executor: Literal["ray", "inline", "simulated"]
    kind: Literal["task", "actor", "auto"]
    keep_hours: float
    count: int
    simulation: SimulationSection


class AshaSection(TypedDict, total=False):
    """Keys of a campaign file."""

    rule: Literal["asha"]
    reduction: float
    first_step: int


class MedianSection(TypedDict, total=False):
    """Keys of a campaign file."""

    rule: Literal["median"]
    after: int


ModelStoppingSection = TypedDict(
    "ModelStoppingSection",
    {
        "rule": Literal["model"],
        "last_step": int | None,
        "after": int,
        "continue": bool | Literal["anew"] | None,
        "first_trials": int | None,
        "first_steps": int | None,
        "finish": int,
        "keep_checkpoints": int | None,
    },
    total=False,
)


class ComputingSection(TypedDict, total=False):
    """Keys of a campaign file."""

    threads: int | None
    shards: int


class LogSection(TypedDict, total=False):
    """Keys of a campaign file."""

    level: Literal["debug", "info", "warning", "error"]
    format: Literal["text", "json"]


class NotifySection(TypedDict, total=False):
    """Keys of a campaign file."""

    command: str | None
    webhook: str | None
    stalled_minutes: float


class DataSection(TypedDict, total=False):
    """Keys of a campaign file."""

    folder: str | None
    download: bool


class ProblemSections(TypedDict, total=False):
    """The objective, its goals, and the candidates."""

    objective: ObjectiveSection
    objectives: Sequence[ObjectiveMetricSection]
    constraints: Sequence[ConstraintSection]
    candidates: CandidateSection
    forbid: Sequence[Mapping[str, object]]
    enqueue: Sequence[Mapping[str, object]]
    data: DataSection


class RunSections(TypedDict, total=False):
    """The name of a run, its files, and its messages."""

    name: str
    tags: Sequence[str]
    note: str
    log: LogSection
    notify: NotifySection | None
    store: str
    runs: str
    run: str | None


class CampaignSections(ProblemSections, RunSections, total=False):
    """The sections of a campaign file; `space` and `known_results` are arguments."""

    seed: int
    strategy: Mapping[str, object]
    budget: BudgetSection
    workers: WorkerSection
    early_stopping: AshaSection | MedianSection | ModelStoppingSection | None
    computing: ComputingSection
