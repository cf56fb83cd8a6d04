"""Builds a session that can run from a checked campaign file: the only module that chooses classes
by settings."""

import json
import logging
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from objectives.command import ShellCommand
from objectives.external import PythonCallable
from objectives.objective import Candidates, HasCandidates, HasDescription, HasOptimum, Objective
from objectives.pickled import PickledFunction
from objectives.sampling import DEFAULT_SIZE, GROWING_SIZE, make_candidates
from objectives.space import LARGEST_WHOLE_SET, SearchSpace
from objectives.tabular import table_candidates, table_objective
from objectives.with_metrics import VALUE, WithMetrics
from orchestrator import logs
from orchestrator.bandit.growing import Grows
from orchestrator.bandit.start.warm_start import DataStart, StartsWarm, UncertaintyStart, warm_start_of, with_warm_start
from orchestrator.bandit.strategy import AnyStrategy
from orchestrator.campaign.commands import Close
from orchestrator.campaign.events import CampaignCreated, ExistingTaken, SessionOpened
from orchestrator.campaign.status import Status
from orchestrator.candidates.matching import find_arm
from orchestrator.errors import CampaignError, RunError, UserError
from orchestrator.session import existing_data
from orchestrator.session.driver import Driver
from orchestrator.session.first_events import digest, first_events
from orchestrator.session.notify import notifications
from orchestrator.session.outputs import prepare_outputs
from orchestrator.session.problem import Problem, Progress, replay
from orchestrator.session.resources import check_program, check_timeout, limits_of, resources_of, unenforced_limits
from orchestrator.session.rules import goals_of, rules_of
from orchestrator.session.training import check_reports, remark_on_reports, with_training
from orchestrator.settings.model import Settings
from orchestrator.store import runs
from orchestrator.store.event_store import EventStore, Writer
from orchestrator.store.lease import Heartbeat, Identity, take
from orchestrator.store.runs import Run, write_settings
from workers.executor import Executor, ExecutorError
from workers.inline import InlineExecutor
from workers.simulated import DurationModel, Failures, SimulatedExecutor

if TYPE_CHECKING:
    from workers.on_ray.allocation import Allocation  # campaigns without Ray do not import it

_LOGGER = logging.getLogger("bbkb.session")


@dataclass(frozen=True)
class Parts:
    """A campaign's objective, candidates and strategy."""

    problem: Problem
    objective: Objective
    enqueued: tuple[int, ...] = ()  # the arms that the user wants evaluated first

    @property
    def description(self) -> str:
        """The objective's description of itself and its data; empty when it has none."""
        inner = self.training_objective
        return inner.description if isinstance(inner, HasDescription) else ""

    def optimum(self, is_maximized: bool) -> float | None:
        """Return the best noise-free value, where the objective knows it and nothing else is
        wanted."""
        return self.objective.optimum(is_maximized) if isinstance(self.objective, HasOptimum) else None

    @property
    def training_objective(self) -> Objective:
        """The objective itself, without what reads its metrics."""
        return self.objective.inner if isinstance(self.objective, WithMetrics) else self.objective


def build(settings: Settings) -> Parts:
    """Load the objective and its candidates. Raises ObjectiveError when data, module or columns are
    missing, UserError when the settings cannot be kept here."""
    check_timeout(settings)
    objective, candidates = _objective_and_candidates(settings)
    if isinstance(objective, PythonCallable | PickledFunction):
        objective.check(candidates.columns, candidates.conditional)
    if isinstance(objective, ShellCommand):
        objective.check(candidates.columns)
    if settings.computing.shards > len(candidates):
        rule = f"at most the number of candidates, {len(candidates)}"
        raise UserError(f"computing.shards must be {rule}, got {settings.computing.shards}")
    strategy = _with_existing(_for_workers(settings.strategy, settings.workers.count), settings)
    problem = Problem(
        settings.name,
        settings.seed,
        candidates,
        strategy,
        is_deterministic=settings.objective.deterministic,
        space=growing_space(settings),
        limit=settings.candidates.limit,
        goals=goals_of(settings).for_strategy,
        resources=resources_of(settings, candidates),
    )
    return Parts(problem, _with_metrics(objective, settings), _find_enqueued(settings, candidates))


def build_new(settings: Settings) -> Parts:
    """Return `build` for a campaign that has not begun. What only an older version began, a resume
    may continue.

    Raises UserError also if trials are to be stopped early that report no values, or this machine,
    which is to run a command, lacks its program.
    """
    parts = build(settings)
    check_program(settings)
    check_reports(settings, parts.training_objective)
    return parts


def _with_metrics(objective: Objective, settings: Settings) -> Objective:
    """Return the objective; its evaluations fail without the metrics of goals and constraints."""
    if not settings.objectives and not settings.constraints:
        return objective
    sections = {"objectives": settings.objectives, "constraints": settings.constraints}
    needed = tuple(
        (goal.metric, f"{section}.{number}") for section, named in sections.items() for number, goal in enumerate(named)
    )
    return WithMetrics(objective, settings.objectives[0].metric if settings.objectives else VALUE, needed)


def existing(settings: Settings, parts: Parts) -> ExistingTaken | None:
    """Return the existing data of a new campaign, None without any; a resume finds them in its log.

    Raises UserError when they cannot be read, or match no candidate at all.
    """
    if settings.existing_data is not None:
        data, direction = settings.existing_data, settings.objective.direction
        return existing_data.match(data, parts.problem.candidates, direction, time.time())
    start = warm_start_of(settings.strategy)
    if not isinstance(start, DataStart):
        return None
    return existing_data.read(start, parts.problem.candidates, settings.objective.direction, time.time())


def create_run(settings: Settings, parts: Parts, existing_results: ExistingTaken | None) -> Run:
    """Return the folder of a new run with the first events of its log; `existing_results` is what
    `existing` gave.

    Raises RunError or StoreError as `store.runs.create` does.
    """
    optimum = parts.optimum(settings.objective.direction == "maximize")
    events = first_events(
        settings,
        parts.problem.candidates,
        objective=parts.description,
        optimum=optimum,
        existing=existing_results,
        enqueued=parts.enqueued,
    )
    return runs.create(settings, events, began=shlex.join(sys.argv))


def _find_enqueued(settings: Settings, candidates: Candidates) -> tuple[int, ...]:
    """Return the arms to be evaluated first. Raises UserError when one is no candidate."""
    arms = [find_arm(candidates, configuration) for configuration in settings.first]
    for number, arm in enumerate(arms):
        if arm is None:
            names = ", ".join(candidates.columns)
            raise UserError(
                f"enqueue.{number} must be one of the candidates, got {dict(settings.first[number])}; "
                f"their parameters are {names}"
            )
    return tuple(arm for arm in arms if arm is not None)


def _for_workers(strategy: AnyStrategy, workers: int) -> AnyStrategy:
    """Return the strategy, its uncertainty sampling aiming at this many workers by default."""
    start = warm_start_of(strategy)
    if isinstance(start, UncertaintyStart) and start.workers is None:
        return with_warm_start(strategy, replace(start, workers=workers))
    return strategy


def _with_existing(strategy: AnyStrategy, settings: Settings) -> AnyStrategy:
    """Return the strategy, beginning with existing data, if any, instead of own pulls."""
    begins_warm = isinstance(strategy, StartsWarm)
    if settings.existing_data is None or not begins_warm:
        return strategy
    return with_warm_start(strategy, DataStart("existing data"))


def _objective_and_candidates(settings: Settings) -> tuple[Objective, Candidates]:
    table = settings.candidates.table
    if table is not None and settings.candidates.target is not None:
        looked_up = table_objective(Path(table), settings.candidates.target, duplicates=settings.candidates.duplicates)
        return looked_up, looked_up.candidates()
    objective = settings.objective.load(settings.data.source())
    if objective is None:  # after the checks of the campaign file, only a table with a target has no objective
        raise CampaignError("the campaign has no objective")
    if table is not None:
        return objective, table_candidates(Path(table), settings.candidates.duplicates)
    if isinstance(objective, HasCandidates):
        return objective, objective.candidates()
    section, points = settings.candidates, DEFAULT_SIZE if growing_space(settings) is None else GROWING_SIZE
    space = SearchSpace(settings.space, settings.forbid)
    first = [*settings.first, *existing_data.configurations(settings.existing_data, space)]
    return objective, make_candidates(
        space, size=section.size, sampler=section.sampler, seed=settings.seed, first=first, points=points
    )


def growing_space(settings: Settings) -> SearchSpace | None:
    """Return the space that further candidates are drawn from while the campaign runs; None when
    there are never any.

    Raises UserError when they are requested and impossible.
    """
    grow, can = settings.candidates.grow, isinstance(settings.strategy, Grows) and settings.strategy.grows
    if grow and not (can and settings.space):
        raise UserError(
            "candidates.grow needs a space and a strategy that can use more candidates: bbkb with its own model"
        )
    if grow is False or not can or not settings.space or (grow is None and settings.candidates.size is not None):
        return None
    space = SearchSpace(settings.space, settings.forbid)
    most = max(LARGEST_WHOLE_SET, settings.candidates.size or 0)
    return None if space.is_finite and space.count(most) is not None else space


@dataclass(frozen=True)
class OpenSession:
    """A driver that holds the campaign's claim, and the event that opens its session."""

    driver: Driver
    opened: SessionOpened
    heartbeat: Heartbeat
    held: ExitStack  # the resources that are released with it
    threads: int | None = None

    def run(self) -> Close:
        """Work until the session ends; see `Driver.run`."""
        with self.held, threadpool_limits(self.threads, user_api="blas"):
            self.heartbeat.pass_stop_requests_to(self.driver.stop)
            return self.driver.run(self.opened)


def open_session(
    run: Run,
    settings: Settings,
    observe: Callable[[Status], None] | None = None,
    show_seconds: float = 0.0,
    parts: Parts | None = None,
    allocation: "Allocation | None" = None,
) -> OpenSession:
    """Claim the campaign in `run` for a session with `settings`, rebuild its state from the log,
    prepare workers.

    The settings are part of the claim: `campaign.yaml` is written after it was won, and not read
    here. `observe` gets a snapshot after a turn of the loop, at most one in `show_seconds`.
    `parts`: what `build` gave for these settings, where that is known; `allocation`: workers that
    have been started for them on Ray.

    Raises HeldError when another process runs the campaign, RunError when the candidates are not
    those of the log, StoreError and ObjectiveError as their makers do, UserError when no worker can
    ever be had.
    """
    parts = parts or build(settings)
    with ExitStack() as resources:  # released immediately when a line below raises, else at the end of the session
        resources.enter_context(logs.log_into(run.folder, run.name, settings.log.level, settings.log.format))
        store = resources.enter_context(run.store())
        is_begun = store.holding(run.name).epoch > 0
        settings = with_training(settings, parts.training_objective, is_begun)
        writer = take(store, run.name, settings=json.dumps(settings.resolved()))
        reports = remark_on_reports(settings, parts.training_objective)
        for remark in filter(None, (parts.problem.candidates.remark, unenforced_limits(settings), reports)):
            _LOGGER.warning("%s", remark)
        _LOGGER.info("claimed the campaign for session %d as %s", writer.epoch, Identity.of_this_process())
        heartbeat = Heartbeat(writer)  # the following steps may take longer than a lease without a sign of life
        heartbeat.start()
        resources.callback(heartbeat.end)
        if run.folder.is_dir():  # it may be on another machine
            write_settings(run, settings)
        problem = _place_arms(_with_folders(run, parts.problem, settings), settings, resources)
        progress = _replay(run, store, parts, problem, settings)
        executor = _executor(settings, parts, run.name, progress.campaign.clock.last_time, allocation)
        opened = _opening(progress, executor, writer, settings)
        # in virtual time, and when evaluations run in this thread, there is nothing else to do
        # meanwhile
        in_background = settings.workers.executor == "ray"
        driver = Driver(
            problem=problem,
            progress=progress,
            writer=writer,
            executor=executor,
            observe=observe,
            computes_in_background=in_background,
            show_seconds=show_seconds,
        )
        driver.listen(resources.enter_context(notifications(settings.notify, run, driver.status)))
        return OpenSession(driver, opened, heartbeat, resources.pop_all(), settings.computing.threads)


def _with_folders(run: Run, problem: Problem, settings: Settings) -> Problem:
    """Return the problem, each trial of which gets a folder of its own where the settings ask for
    one, and keeps what it prints where this machine has the run's folder."""
    outputs = prepare_outputs(run) if run.folder.is_dir() else None
    folders = run.trials if settings.workers.trial_folders else None
    return replace(problem, trial_folders=folders, outputs=outputs)


def _place_arms(problem: Problem, settings: Settings, resources: ExitStack) -> Problem:
    """Return the problem with its candidates here, or divided among Ray actors."""
    if settings.computing.shards == 1:
        return problem
    from orchestrator.candidates.shards import ShardedArms  # campaigns without Ray do not import it

    features = problem.candidates.features
    sharded = ShardedArms.start(features, settings.computing.shards, settings.computing.threads)
    resources.callback(sharded.close)
    return replace(problem, sharded_arms=sharded)


def _replay(run: Run, store: EventStore, parts: Parts, problem: Problem, settings: Settings) -> Progress:
    """Return both states, rebuilt from the log of the same candidates and objective."""
    created, events = run.stream(store)
    _check_unchanged(run, parts, created)
    with threadpool_limits(settings.computing.threads, user_api="blas"):
        return replay(problem, chain((created,), events))


def _opening(progress: Progress, executor: Executor, writer: Writer, settings: Settings) -> SessionOpened:
    """Return the session's first event, with trials that workers still hold from before."""
    adopted = executor.adopt({trial: attempt.attempt for trial, attempt in progress.campaign.running.items()})
    return SessionOpened(
        time=executor.now(),
        epoch=writer.epoch,
        executor=settings.workers.executor,
        slots=executor.slots,
        settings=settings.resolved(),
        rules=rules_of(settings, executor.slots),
        adopted=tuple(sorted(adopted)),
    )


def _check_unchanged(run: Run, parts: Parts, created: CampaignCreated) -> None:
    """Raise RunError when candidates or objective differ from those of the log: the results would
    belong to another problem."""
    if created.candidates_digest != digest(parts.problem.candidates):
        raise RunError(
            f"the candidates of {run.folder} are not those of its start: its table or data folder has changed; "
            f"restore the old file, or start a new run"
        )
    if created.objective != parts.description:
        raise RunError(
            f"the objective of {run.folder} was {created.objective!r} and is {parts.description!r} now: restore its "
            f"data, or start a new run"
        )


def _executor(
    settings: Settings, parts: Parts, campaign: str, start_at: float, allocation: "Allocation | None"
) -> Executor:
    workers, objective, limits = settings.workers, parts.objective, limits_of(settings)
    match workers.executor:
        case "inline":
            return InlineExecutor(objective, limits)
        case "simulated":
            simulation = workers.simulation
            durations = DurationModel(
                simulation.seconds, simulation.sigma, simulation.straggler_share, simulation.straggler_factor
            )
            failures = Failures(simulation.failure_rate)
            return SimulatedExecutor(
                objective,
                slots=workers.count,
                durations=durations,
                failures=failures,
                seed=settings.seed,
                start_at=start_at,
            )
        case "ray":
            # imported here so that campaigns without Ray do not need it
            from orchestrator.session.ray_workers import placement_of
            from workers.on_ray.executor import RayExecutor

            placement = placement_of(settings, campaign, parts.problem.resources)
            try:
                return RayExecutor(objective, workers.count, limits, placement, allocation)
            except ExecutorError as error:
                raise UserError(str(error)) from error
