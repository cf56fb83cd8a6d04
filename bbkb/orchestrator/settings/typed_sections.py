"""The sections of a campaign file as typed dictionaries, so that editors complete `settings=`.

Written by `python -m tests.orchestrator.settings.typed_sections_source` from the models in
`bbkb.orchestrator.settings`; a test compares the two. `space` and `known_results` are arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class ObjectiveSection(TypedDict, total=False):
    name: str | None
    callable: str | None
    command: str | None
    function: str | None
    direction: Literal["maximize", "minimize"]
    deterministic: bool
    options: Mapping[str, object] | None


class ObjectiveMetricSection(TypedDict, total=False):
    metric: str
    direction: Literal["maximize", "minimize"]
    reference: float | None


class ConstraintSection(TypedDict, total=False):
    metric: str
    at_most: float | None
    at_least: float | None


class CandidateSection(TypedDict, total=False):
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
    evaluations: int
    steps: int | None
    hours: float | None
    target: float | None
    stop_when: StopWhenSection | None


class FromParameterSection(TypedDict, total=False):
    parameter: str


class SimulationSection(TypedDict, total=False):
    seconds: float
    sigma: float
    straggler_share: float
    straggler_factor: float
    failure_rate: float


class WorkerSection(TypedDict, total=False):
    executor: Literal["ray", "inline", "simulated"]
    kind: Literal["task", "actor", "auto"]
    keep_hours: float
    count: int
    machines: int
    machines_from: FromParameterSection | None
    spread: Literal["strict", "soft"]
    ray_train: bool
    cpus: float
    gpus: float
    cpus_from: FromParameterSection | None
    gpus_from: FromParameterSection | None
    memory_gb: float | None
    timeout_seconds: float | None
    timeout_factor: float | None
    retry_memory_factor: float | None
    retries: int | None
    trial_folders: bool
    simulation: SimulationSection


class AshaSection(TypedDict, total=False):
    rule: Literal["asha"]
    reduction: float
    first_step: int


class MedianSection(TypedDict, total=False):
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
    threads: int | None


class LogSection(TypedDict, total=False):
    level: Literal["debug", "info", "warning", "error"]
    format: Literal["text", "json"]


class NotifySection(TypedDict, total=False):
    command: str | None
    webhook: str | None
    stalled_minutes: float


class DataSection(TypedDict, total=False):
    folder: str | None
    download: bool


class CampaignSections(TypedDict, total=False):
    name: str
    tags: Sequence[str]
    note: str
    seed: int
    objective: ObjectiveSection
    objectives: Sequence[ObjectiveMetricSection]
    constraints: Sequence[ConstraintSection]
    candidates: CandidateSection
    forbid: Sequence[Mapping[str, object]]
    enqueue: Sequence[Mapping[str, object]]
    strategy: Mapping[str, object]
    budget: BudgetSection
    workers: WorkerSection
    early_stopping: AshaSection | MedianSection | ModelStoppingSection | None
    computing: ComputingSection
    log: LogSection
    notify: NotifySection | None
    store: str
    data: DataSection
    runs: str
    run: str | None
