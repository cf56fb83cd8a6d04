"""The only loop: outcome → event → store → state → next command.

Events are applied in memory at once and written in one transaction before anything is done about them (before trials
are submitted, before a long computation, before waiting): a result is durable before it is acted on, and a turn of the
loop costs one commit, however many results it took in. The strategy computes beside the loop (`computing`), which goes
on taking results in and handing out what is chosen already.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Literal

from orchestrator.bandit.growing import Grows
from orchestrator.bandit.strategy import Choose, Decision, StrategyState, begin
from orchestrator.campaign.commands import Ask, Await, Begin, Close, Dispatch, GiveUp, Grow, Pause, Stop, Tell
from orchestrator.campaign.endings import Phase, SessionOutcome, StopReason
from orchestrator.campaign.events import (
    AttemptEnded,
    BatchChosen,
    CandidatesGrown,
    ComputingBegan,
    Event,
    ModelRefreshed,
    PickedTrial,
    PlacesChanged,
    ReportsArrived,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialFailed,
    TrialsDispatched,
    TrialStopped,
    TrialSucceeded,
)
from orchestrator.campaign.health import warnings
from orchestrator.campaign.policy import decide
from orchestrator.campaign.state import is_expected, is_final, is_running, knows_remark, stops_early
from orchestrator.campaign.status import Status, idle_seconds, status_of
from orchestrator.campaign.transitions import apply
from orchestrator.errors import BbkbError, CampaignError, StoreError
from orchestrator.pool import Appended
from orchestrator.session.background import Computing
from orchestrator.session.event_lines import log_event
from orchestrator.session.problem import BEGIN, GROW, TELL, Problem, Progress, Refreshed, judged, with_growth
from orchestrator.session.reports import RecordedReports
from orchestrator.store import snapshots
from orchestrator.store.store import Writer
from workers.executor import Executor
from workers.messages import Failure, FailureKind, IntermediateValue, Outcome, Stopped, Success

_LOGGER = logging.getLogger("bbkb.session")

# How long the loop may sit in the executor before it looks at a request to stop.
GIVEN_BACK = Close(SessionOutcome.INTERRUPTED, "stopped at once, running evaluations were cancelled")
_ATTENTION_SECONDS = 0.2
_WARNING_SECONDS = 30.0  # between two looks at the workers, on the executor's clock

# How long a store that is away is waited for (a database server that restarts), and how often it is tried.
STORE_PATIENCE_SECONDS, _STORE_RETRY_SECONDS = 300.0, 1.0


class Span(StrEnum):
    """What the driver takes the time of, for metrics."""

    REFIT = "refit"
    STORE_COMMIT = "store_commit"


class Driver:
    """Runs one session of a campaign. `run` belongs to one thread; `status` and `stop` may be called from any."""

    def __init__(
        self,
        problem: Problem,
        progress: Progress,
        writer: Writer,
        executor: Executor,
        observe: Callable[[Status], None] | None = None,
        computes_in_background: bool = False,
    ) -> None:
        self._problem = problem
        self._campaign = progress.campaign
        self._model = progress.model
        self._pool = progress.pool
        self._writer = writer
        self._executor = executor
        self._observe = observe
        self._snapshot = writer.length  # events that were there when the state was last kept beside the log
        self._unwritten: tuple[int, list[Event]] = (writer.length, [])  # where in the log the first one belongs
        self._computing = Computing(computes_in_background)
        self._reports = RecordedReports()
        self._measured: Callable[[Span, float], None] = lambda _span, _seconds: None
        self._heard: Callable[[Event], None] = lambda _event: None
        self._activity = "starting"
        self._next_warning = 0.0
        self._warned: set[str] = set()  # kinds of warnings that hold since they were logged
        self._stop = threading.Event()
        self._stop_now = threading.Event()

    def run(self, opened: SessionOpened) -> Close:
        """Work until the campaign ends, is stopped, or fails. Always gives the executor back.

        Raises FencedError when another process took the campaign over, StoreError when results cannot be written,
        CampaignError when the strategy itself breaks; whatever was committed stays.
        """
        leave_running = True
        try:
            self._record(opened)
            self._executor.listen(self._take_reports)
            close = self._loop()
            leave_running = False
        except KeyboardInterrupt:
            leave_running = False
            return self._close(GIVEN_BACK)
        except BbkbError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__} in {self._activity}: {error}"
            self._record(SessionClosed(time=self._executor.now(), outcome=SessionOutcome.FAILED, reason=reason))
            self._commit()
            raise CampaignError(f"{reason}. No finished result is lost; `bbkb resume` goes on from here") from error
        finally:
            # the process that takes the campaign over may find them still at work
            self._executor.close(leave_running)
        return close

    def measure(self, take: Callable[[Span, float], None]) -> None:
        """Give the seconds of every refit and commit to `take`, from the thread that runs."""
        self._measured = take

    def listen(self, take: Callable[[Event], None]) -> None:
        """Give every event to `take`, from the thread that runs, before it is written."""
        self._heard = take

    def stop(self, now: bool = False) -> None:
        """Dispatch nothing more and end when what is running has ended; `now`: give it back instead of waiting."""
        self._stop.set()
        if now:
            self._stop_now.set()

    def status(self) -> Status:
        """A snapshot, at any time and from any thread."""
        return status_of(self._problem.name, self._campaign, self._executor.now(), self._activity)

    def _loop(self) -> Close:
        while True:
            self._record_stop()
            self._follow_places()
            self._warn()
            self._computing.poll()
            command = decide(self._campaign, self._executor.now())
            match command:
                case Dispatch():
                    self._dispatch(command)
                case Await():
                    self._await()
                case Pause():
                    self._pause(command)
                case Begin():
                    self._begin(command)
                case Ask():
                    self._ask(command)
                case Tell():
                    self._tell(command)
                case Grow():
                    self._grow(command)
                case GiveUp():
                    self._give_up(command)
                case Stop():
                    self._record(StopRequested(time=self._executor.now(), reason=command.reason))
                case Close():
                    return self._close(command)
            self._show()
            if self._stop_now.is_set():
                return self._close(GIVEN_BACK)

    def _record_stop(self) -> None:
        if self._stop.is_set() and self._campaign.phase is Phase.RUNNING:
            self._record(StopRequested(time=self._executor.now(), reason=StopReason.INTERRUPTED))

    def _follow_places(self) -> None:
        if self._executor.slots != self._campaign.slots:
            self._record(PlacesChanged(time=self._executor.now(), slots=self._executor.slots))

    def _warn(self) -> None:
        """Say in the operator's log, once, what is wrong with the workers."""
        now = self._executor.now()
        if now < self._next_warning:
            return
        self._next_warning = now + _WARNING_SECONDS
        found = warnings(self._campaign, max(0.0, now - self._campaign.last_time))
        for kind, text in found.items():
            if kind not in self._warned:
                _LOGGER.warning("%s", text)
        self._warned = set(found)

    def _dispatch(self, command: Dispatch) -> None:
        attempts = tuple((assignment.trial, assignment.attempt) for assignment in command.assignments)
        self._record(TrialsDispatched(time=self._executor.now(), attempts=attempts))
        self._commit()
        self._executor.submit(
            [
                self._problem.trial(assignment, self._pool.candidates, self._campaign.memory_factor(assignment.trial))
                for assignment in command.assignments
            ]
        )

    def _await(self) -> None:
        self._commit()
        is_computing = self._computing.nap()
        if not is_computing:
            self._activity = "evaluating"
        for outcome in self._executor.next_outcomes(0.0 if is_computing else _ATTENTION_SECONDS):
            if is_expected(self._campaign, outcome):
                self._record(self._event_of(outcome))

    def _take_reports(self, values: Sequence[IntermediateValue]) -> frozenset[int]:
        """Record what running attempts reported; the trials that are stopped early."""
        known = [value for value in values if is_running(self._campaign, value.trial, value.attempt)]
        kept = self._reports.take(known)
        if kept:
            self._record(ReportsArrived(time=self._executor.now(), reports=kept))
        return frozenset(value.trial for value in known if stops_early(self._campaign, value.trial))

    def _pause(self, command: Pause) -> None:
        self._commit()
        self._activity = "waiting to try again what failed"
        self._executor.pause(min(command.seconds, _ATTENTION_SECONDS))

    def _give_up(self, command: GiveUp) -> None:
        """Make their outcomes here: the workers that run them may never answer. Later outcomes are not expected."""
        now = self._executor.now()
        for trial in command.trials:
            run = self._campaign.running[trial]
            self._record(
                self._event_of(
                    Failure(
                        trial=trial,
                        attempt=run.attempt,
                        kind=FailureKind.TIMEOUT,
                        message=command.reason,
                        started=min(run.since, now),
                        finished=now,
                        worker="",
                    )
                )
            )
        self._commit()
        self._executor.cancel(command.trials)

    def _event_of(self, outcome: Outcome) -> Event:
        now = self._executor.now()
        if isinstance(outcome, Stopped):
            return TrialStopped(
                time=now,
                trial=outcome.trial,
                attempt=outcome.attempt,
                value=outcome.value,
                step=outcome.step,
                started=outcome.started,
                finished=outcome.finished,
                worker=outcome.worker,
                reports=self._reports.left(outcome),
            )
        if isinstance(outcome, Success):
            return TrialSucceeded(
                time=now,
                trial=outcome.trial,
                attempt=outcome.attempt,
                value=outcome.value,
                started=outcome.started,
                finished=outcome.finished,
                worker=outcome.worker,
                metrics=outcome.metrics,
                reports=self._reports.left(outcome),
                remark="" if knows_remark(self._campaign, outcome.remark) else outcome.remark,
            )
        return TrialFailed(
            time=now,
            trial=outcome.trial,
            attempt=outcome.attempt,
            failure=outcome.kind.value,
            message=outcome.message,
            is_final=is_final(self._campaign, outcome),
            started=outcome.started,
            finished=outcome.finished,
            worker=outcome.worker,
        )

    def _ask(self, command: Ask) -> None:
        model, strategy = self._model, self._problem.strategy
        began = self._began("choosing", "choosing")
        self._computing.start(
            lambda: strategy.ask(model, command.pending, command.limit),
            lambda decision: self._chosen(decision, command.limit, began),
        )

    def _chosen(self, decision: Decision, limit: int, began: float) -> None:
        picks = decision.picks if isinstance(decision, Choose) else ()
        self._record(
            BatchChosen(
                time=self._executor.now(),
                round=self._campaign.round,
                picks=tuple(
                    PickedTrial(
                        trial=trial,
                        arm=pick.arm,
                        parameters=self._pool.candidates.parameters(pick.arm),
                        mean=_known(pick.mean),
                        width=_known(pick.width),
                        variance=_known(pick.variance),
                    )
                    for trial, pick in enumerate(picks, start=self._campaign.trials)
                ),
                reason=decision.reason,
                seconds=time.perf_counter() - began,
                limit=limit,
            )
        )

    def _begin(self, command: Begin) -> None:
        strategy, model, rng = self._problem.strategy, self._model, self._problem.rng(BEGIN)
        self._refresh((), "learning existing data", lambda: begin(strategy, model, command.existing, rng))

    def _tell(self, command: Tell) -> None:
        observations = [finished.observation for finished in command.finished]
        strategy, model = self._problem.strategy, self._model
        rng = self._problem.rng(TELL, self._campaign.round + 1)
        trials = tuple(finished.trial for finished in command.finished)
        self._refresh(trials, "refitting the model", lambda: strategy.tell(model, observations, rng))

    def _refresh(self, trials: tuple[int, ...], activity: str, refreshed: Callable[[], StrategyState]) -> None:
        """Replace the strategy's state, and record what was drawn."""
        began = self._began("refreshing", activity)
        problem, pool, sign = self._problem, self._pool, self._campaign.rules.sign
        self._computing.start(
            lambda: judged(problem, pool, refreshed(), sign), lambda found: self._finish_refresh(found, trials, began)
        )

    def _finish_refresh(self, found: Refreshed, trials: tuple[int, ...], began: float) -> None:
        self._model = found.model
        self._measured(Span.REFIT, time.perf_counter() - began)
        self._record(
            ModelRefreshed(
                time=self._executor.now(),
                round=self._campaign.round + 1,
                trials=trials,
                dictionary_size=len(found.model.dictionary),
                record=self._problem.strategy.recorded(found.model),
                seconds=time.perf_counter() - began,
                wants_growth=found.wants_growth,
                recommended=found.recommended,
            )
        )

    def _grow(self, command: Grow) -> None:
        strategy, model, pool = self._problem.strategy, self._model, self._pool
        wanted, rng = pool.wanted(strategy, model), self._problem.rng(GROW, self._campaign.round)
        if wanted is None or not isinstance(strategy, Grows):
            raise CampaignError("the log says that candidates are to be appended, the strategy does not")
        began = self._began("growing", "appending candidates")
        self._computing.start(
            lambda: pool.growth(strategy, model, wanted, command.pending, rng),
            lambda appended: self._grown(appended, began),
        )

    def _grown(self, appended: Appended, began: float) -> None:
        event = CandidatesGrown(
            time=self._executor.now(),
            round=self._campaign.round,
            first=len(self._pool.candidates),
            columns={name: tuple(column) for name, column in appended.columns.items()},
            retired=appended.retired,
            seconds=time.perf_counter() - began,
        )
        self._model, self._pool = with_growth(self._problem, self._model, self._pool, event)
        self._record(event)

    def _began(self, what: Literal["choosing", "refreshing", "growing"], activity: str) -> float:
        """Say so in the log; the time it began. Results are in the log before the strategy learns of them, and before
        the loop waits for it."""
        self._record(ComputingBegan(time=self._executor.now(), what=what))
        if what == "refreshing" or not self._computing.is_beside:
            self._commit()
        self._activity = "choosing a batch" if what == "choosing" else activity
        return time.perf_counter()

    def _close(self, command: Close) -> Close:
        now = self._executor.now()
        idle = idle_seconds(self._campaign, max(0.0, now - self._campaign.last_time))
        self._record(SessionClosed(time=now, outcome=command.outcome, reason=command.reason, idle_seconds=idle))
        self._commit()
        self._save_snapshot()
        self._activity = ""
        self._show()
        return command

    def _show(self) -> None:
        if self._observe is not None:  # a snapshot costs as much as there are evaluations under way
            self._observe(self.status())

    def _record(self, event: Event) -> None:
        self._campaign = apply(self._campaign, event)
        log_event(event)
        self._heard(event)
        self._unwritten[1].append(event)

    def _commit(self) -> None:
        # an interrupt may come at any point: both change in one step, and what was written is not written again
        position, events = self._unwritten
        if not events:
            return
        began = time.perf_counter()
        self._write(events, position)
        self._measured(Span.STORE_COMMIT, time.perf_counter() - began)
        self._unwritten = (position + len(events), [])
        if self._unwritten[0] - self._snapshot >= snapshots.SNAPSHOT_EVENTS:
            self._save_snapshot()
        over = [(event.trial, event.attempt) for event in events if isinstance(event, AttemptEnded)]
        if over:
            self._executor.acknowledge(over)

    def _save_snapshot(self) -> None:
        """Keep the state beside the log. It is a copy: that it cannot be written is no reason to end."""
        self._snapshot = self._unwritten[0]
        try:
            snapshots.save(self._writer, self._snapshot, self._campaign)
        except StoreError as error:
            _LOGGER.warning("the snapshot was not written, which costs time when the log is read: %s", error)

    def _write(self, events: Sequence[Event], position: int) -> None:
        """Append to the log; a store that is away for a while is waited for, results stay in memory meanwhile."""
        deadline = time.monotonic() + STORE_PATIENCE_SECONDS
        while True:
            try:
                return self._writer.append(events, position)
            except StoreError as error:
                if not error.is_transient or time.monotonic() > deadline or self._stop_now.is_set():
                    raise
                self._activity = f"waiting for the store: {error}"
                _LOGGER.warning("the store is away, waiting for it: %s", error)
                time.sleep(_STORE_RETRY_SECONDS)


def _known(number: float) -> float | None:
    """A reason for a pick; None where the strategy gives NaN for having none."""
    return None if math.isnan(number) else number
