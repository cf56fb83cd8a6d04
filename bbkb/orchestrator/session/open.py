"""Creates runs and opens sessions: claims the campaign, rebuilds its state, starts the executor."""

import hashlib
import json
import logging
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bbkb.objectives.objective import Candidates
from bbkb.orchestrator import logs
from bbkb.orchestrator.bandit.arrays import blas_threads
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    Event,
    ExistingTaken,
    PickedTrial,
    SessionOpened,
)
from bbkb.orchestrator.campaign.policy import Close
from bbkb.orchestrator.campaign.settings import Settings, plain
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.engine.engine import OF_MODEL, Engine, Problem, replay
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.session.build import Parts, build, remark_on_reports, with_training
from bbkb.orchestrator.session.driver import Driver
from bbkb.orchestrator.session.evaluations import Places, check_trial_folders, prepare_outputs
from bbkb.orchestrator.session.executors import make_executor, unenforced_limits
from bbkb.orchestrator.session.recorder import user_command
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store import runs, snapshots
from bbkb.orchestrator.store.lease import Heartbeat, Identity, take
from bbkb.orchestrator.store.runs import Run, write_settings
from bbkb.orchestrator.store.store import EventStore, without_collector

if TYPE_CHECKING:
    from bbkb.workers.on_ray.actors import Allocation

_LOGGER = logging.getLogger("bbkb.session")


def as_text(settings: Settings) -> str:
    """Return settings as text, which a claim records and a coordinator receives."""
    return json.dumps(plain(settings))


def from_text(text: str) -> Settings:
    """Return the settings that `as_text` wrote. Raises ConfigError, for example if their strategy is gone."""
    return from_mapping(json.loads(text))


def create_run(settings: Settings, parts: Parts, existing: ExistingTaken | None = None) -> Run:
    """Return the folder of a new run, whose log contains the first events. `existing` is the result
    of `known_results.existing`.

    Raises RunError or StoreError as `store.runs.create` does.
    """
    events = first_events(settings, parts, existing)
    return runs.create(settings, events, began=shlex.join(sys.argv))


def first_events(settings: Settings, parts: Parts, existing: ExistingTaken | None = None) -> list[Event]:
    """Return the first events of a log: the creation of the campaign, the `existing` results, and
    the choice of the enqueued arms."""
    candidates = parts.problem.candidates
    created = CampaignCreated(
        time=time.time(),
        arms=len(candidates),
        candidates_digest=_digest(candidates),
        objective=parts.description,
        optimum=parts.optimum(settings.objective.direction == "maximize"),
        settings=settings,
    )
    events: list[Event] = [created] if existing is None else [created, existing]
    if parts.enqueued:
        picks = [
            PickedTrial(trial=trial, arm=arm, parameters=candidates.parameters(arm))
            for trial, arm in enumerate(parts.enqueued)
        ]
        chosen = BatchChosen(
            time=created.time,
            round=0,
            picks=tuple(picks),
            reason="enqueued in the campaign file",
            seconds=0.0,
            limit=len(picks),
            is_enqueued=True,
        )
        events.append(chosen)
    return events


def _digest(candidates: Candidates) -> str:
    sha = hashlib.sha256(candidates.features.reshape(-1).data)  # avoids a copy of all candidates
    for name, column in candidates.columns.items():
        sha.update(name.encode())
        sha.update(column.tobytes() if column.dtype != object else repr(column.tolist()).encode())
    return sha.hexdigest()


@dataclass(frozen=True)
class OpenSession:
    """A driver that holds the campaign's claim, and the first event of its session."""

    driver: Driver
    opened: SessionOpened
    heartbeat: Heartbeat
    held: ExitStack  # the resources to release at its end

    def run(self) -> Close:
        """Work until the session ends; see `Driver.run`."""
        with self.held:
            self.heartbeat.pass_stop_requests_to(self.driver.stop)
            return self.driver.run(self.opened)


def open_session(
    run: Run,
    settings: Settings,
    observe: Callable[[Status], None] | None = None,
    show_seconds: float = 0.0,
    parts: Parts | None = None,
    allocation: "Allocation | None" = None,
    me: Identity | None = None,
) -> OpenSession:
    """Claim the campaign in `run` for a session with `settings`, rebuild its state from the log,
    and prepare workers.

    The settings are part of the claim. `campaign.yaml` is written after the claim has succeeded,
    and is not read here. `observe` receives a snapshot after a turn of the loop, at most one in
    `show_seconds`. `parts` is the result of `build` for these settings if it is known; `allocation`
    has workers that Ray has already started for them; `me` is the holder of the
    claim (this process if None).

    Raises HeldError if another process runs the campaign, RunError if the candidates differ from
    those in the log or the folders of the trials cannot be created, UserError if the executor can never
    provide a worker, and StoreError and ObjectiveError as the store and the objective do.
    """
    parts = parts or build(settings)
    # released immediately if a statement below raises, otherwise at the end of the session
    with ExitStack() as resources:
        resources.enter_context(logs.log_into(run.folder, run.name))
        store = resources.enter_context(run.store())
        is_begun = store.holding(run.name).epoch > 0
        settings = with_training(settings, parts.training_objective, is_begun)
        # the previous holder may be on another machine
        if settings.workers.trial_folders and run.folder.is_dir():
            check_trial_folders(run)
        me = me or Identity.of_this_process()
        writer = take(store, run.name, me=me, settings=as_text(settings))
        reports = remark_on_reports(settings, parts.training_objective)
        for remark in (parts.problem.candidates.remark, unenforced_limits(settings), reports):
            if remark:
                _LOGGER.warning("%s", remark)
        _LOGGER.info("claimed the campaign for session %d as %s", writer.epoch, me)
        # the following steps may take longer than a lease lasts without a heartbeat
        heartbeat = Heartbeat(writer)
        heartbeat.start()
        resources.callback(heartbeat.end)
        has_folder = run.folder.is_dir()  # on this machine
        if has_folder:
            write_settings(run, settings)
        places = Places(
            folders=run.trials if settings.workers.trial_folders else None,
            outputs=prepare_outputs(run) if has_folder else None,
        )
        _check_unchanged(run, parts, run.first(store))
        engine = rebuild(parts.problem, store, run.name)
        campaign, traits = engine.state, settings.workers.traits
        executor = make_executor(settings, parts, run.name, campaign.clock.last_time, allocation)
        # the trials that workers still hold from an earlier session, or whose process died with it
        running = {trial: attempt.trial.attempt for trial, attempt in campaign.running.items()}
        is_cancelled = traits.one_at_a_time and not campaign.session.is_open  # not by their own fault
        adopted = executor.adopt({} if is_cancelled else running)
        opened = SessionOpened(
            time=executor.now(),
            epoch=writer.epoch,
            slots=executor.slots,
            settings=settings,
            adopted=tuple(sorted(adopted)),
        )
        driver = Driver(
            engine=engine,
            writer=writer,
            executor=executor,
            observe=observe,
            computes_in_background=not (traits.one_at_a_time or traits.in_virtual_time),
            show_seconds=show_seconds,
            places=places,
        )
        driver.recorder.heard = resources.enter_context(user_command(settings.on_event, run, driver.status))
        return OpenSession(driver, opened, heartbeat, resources.pop_all())


def rebuild(problem: Problem, store: EventStore, campaign: str) -> Engine:
    """Return the engine after the events of a log. The newest snapshot has the campaign's state, and of the events
    before it, only those that change the model or the candidates are decoded.

    Raises StoreError if the log cannot be read, or is damaged anywhere.
    """
    position, state = snapshots.load(store, campaign)
    of_model = store.read(campaign, until=position, kinds=OF_MODEL)
    with blas_threads(1), without_collector():
        return replay(problem, store.read(campaign, after=position), of_model, state)


def _check_unchanged(run: Run, parts: Parts, created: CampaignCreated) -> None:
    """Raise RunError if candidates or objective differ from those in the log, because the results
    would belong to another problem."""
    if created.candidates_digest != _digest(parts.problem.candidates):
        settings = created.settings
        cause = "its table or data folder has changed; restore the old file"
        if settings.space and settings.candidates.table is None:
            cause = "other versions of NumPy, SciPy or bbkb draw other ones; install the old versions"
        raise RunError(
            f"the candidates of {run.folder} differ from those at its start: {cause}, or start a new run, which learns "
            "these results as known_results"
        )
    if created.objective != parts.description:
        raise RunError(
            f"the objective of {run.folder} was {created.objective!r} and is {parts.description!r} now: restore its "
            f"data, or start a new run"
        )
