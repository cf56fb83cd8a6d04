"""The only loop: outcome → event → store → state → next command.

Events are applied in memory at once and written in one transaction before anything is done about
them (before trials are submitted, before a long computation, before waiting): a result is durable
before it is acted on, and a turn of the loop costs one commit for any number of results
(`recorder`). The strategy computes in the background (`background`) while the loop collects results
and dispatches chosen trials.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

from orchestrator.bandit.growing import Grows
from orchestrator.bandit.strategy import Choose, Decision, Pick, StrategyState, begin
from orchestrator.campaign.commands import (
    Ask,
    Await,
    Begin,
    Close,
    Dispatch,
    Finish,
    GiveUp,
    Grow,
    Pause,
    QueuedAttempt,
    RemoveCheckpoints,
    Stop,
    Tell,
)
from orchestrator.campaign.endings import Phase, SessionOutcome, StopReason
from orchestrator.campaign.events import (
    BatchChosen,
    CandidatesGrown,
    CheckpointsRemoved,
    Computed,
    ComputingBegan,
    ContinuedTrial,
    Event,
    ModelRefreshed,
    PlacesChanged,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialsContinued,
    TrialsDispatched,
)
from orchestrator.campaign.health import warnings
from orchestrator.campaign.policy import decide
from orchestrator.campaign.state import (
    ACTIVITIES,
    CampaignState,
    cause_at_limit,
    is_expected,
    is_running,
    step_limit,
    stop_cause,
)
from orchestrator.campaign.status import Status, idle_seconds, status_of
from orchestrator.campaign.training import StopCause
from orchestrator.candidates.pool import Appended
from orchestrator.errors import BbkbError, CampaignError, place_of, trace_of
from orchestrator.session.background import Computing
from orchestrator.session.outcome_events import event_of, number_or_none, trials_of_picks
from orchestrator.session.outputs import remove_outputs, with_output
from orchestrator.session.problem import (
    BEGIN,
    GROW,
    TELL,
    Problem,
    Progress,
    Refreshed,
    describe_refresh,
    with_growth,
    with_told_curves,
)
from orchestrator.session.recorder import Recorder, Span
from orchestrator.session.reports import RecordedReports
from orchestrator.store.event_store import Writer
from workers.checkpoints import remove_checkpoints
from workers.executor import Executor
from workers.messages import Attempt, Failure, FailureKind, IntermediateValue, Stopped

_LOGGER = logging.getLogger("bbkb.session")

CANCELLED = Close(SessionOutcome.INTERRUPTED, "stopped at once, running evaluations were cancelled")
_ATTENTION_SECONDS = 0.2  # the longest wait for outcomes, after which the loop checks for a request to stop
_WARNING_SECONDS = 30.0  # between two checks of the workers, on the executor's clock


class Driver:
    """Runs one session. `run` is for one thread; `status` and `stop` are for any."""

    def __init__(
        self,
        problem: Problem,
        progress: Progress,
        writer: Writer,
        executor: Executor,
        observe: Callable[[Status], None] | None = None,
        computes_in_background: bool = False,
        show_seconds: float = 0.0,
    ) -> None:
        """`observe` gets a snapshot after a turn of the loop, at most one in `show_seconds`: a
        snapshot costs as much as there are running evaluations. It gets the last one of the session
        in any case."""
        self._problem = problem
        self._strategy_state = progress.model
        self._pool = progress.pool
        self._executor = executor
        self._observe = observe
        self._computing = Computing(computes_in_background)
        self._reports = RecordedReports()
        self._stop_causes: dict[int, StopCause] = {}
        self._activity = "starting"
        self._next_warning = 0.0
        self._show_seconds = show_seconds
        self._next_shown = 0.0
        self._warned: set[str] = set()  # kinds of warnings that hold since they were logged
        self._stop = threading.Event()
        self._stop_now = threading.Event()
        self._recorder = Recorder(progress.campaign, writer, self._stop_now.is_set, self._wait_for_store)

    @property
    def _campaign(self) -> CampaignState:
        return self._recorder.campaign

    def run(self, opened: SessionOpened) -> Close:
        """Work until the campaign ends, is stopped, or fails. Always closes the executor.

        Raises FencedError when another process took the campaign over, StoreError when results
        cannot be written, CampaignError when the strategy itself breaks; whatever was committed
        stays.
        """
        leave_running = True
        try:
            self._recorder.record(opened)
            remove_checkpoints(self._problem.trial_folders, sorted(self._campaign.training.removed))
            self._executor.listen(self._take_reports)
            close = self._loop()
            leave_running = False
        except KeyboardInterrupt:
            leave_running = False
            return self._close(CANCELLED)
        except BbkbError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__} in {self._activity}: {error}{place_of(error)}"
            _LOGGER.error("%s", reason, exc_info=error)
            self._recorder.record(
                SessionClosed(time=self._executor.now(), outcome=SessionOutcome.FAILED, reason=reason)
            )
            self._commit()
            remedy = "No finished result is lost; `bbkb resume` continues from here"
            raise CampaignError(f"{reason}. {remedy}\n{trace_of(error)}") from error
        finally:
            # the process that takes over the campaign may adopt running evaluations
            self._executor.close(leave_running)
            if not leave_running:
                remove_outputs(self._problem.outputs)
        return close

    def measure(self, take: Callable[[Span, float], None]) -> None:
        """Call `take` with the seconds of every refit and commit, in the thread of `run`."""
        self._recorder.measured = take

    def listen(self, take: Callable[[Event], None]) -> None:
        """Call `take` with every event, in the thread of `run`, before it is written."""
        self._recorder.heard = take

    def stop(self, now: bool = False) -> None:
        """Dispatch nothing more and end when the running evaluations have ended; `now`: cancel them
        instead of waiting."""
        self._stop.set()
        if now:
            self._stop_now.set()

    def status(self) -> Status:
        """Return a snapshot, at any time and from any thread."""
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
                case Finish():
                    self._continue(tuple(Pick(-1, trial=trial) for trial in command.trials), "finish")
                case RemoveCheckpoints():
                    self._remove_checkpoints(command)
                case GiveUp():
                    self._give_up(command)
                case Stop():
                    self._recorder.record(StopRequested(time=self._executor.now(), reason=command.reason))
                case Close():
                    return self._close(command)
            self._show()
            if self._stop_now.is_set():
                return self._close(CANCELLED)

    def _record_stop(self) -> None:
        if self._stop.is_set() and self._campaign.session.phase is Phase.RUNNING:
            self._recorder.record(StopRequested(time=self._executor.now(), reason=StopReason.INTERRUPTED))

    def _follow_places(self) -> None:
        if self._executor.slots != self._campaign.session.slots:
            self._recorder.record(PlacesChanged(time=self._executor.now(), slots=self._executor.slots))

    def _warn(self) -> None:
        """Write warnings about the workers into the operator's log, each once while it holds."""
        now = self._executor.now()
        if now < self._next_warning:
            return
        self._next_warning = now + _WARNING_SECONDS
        texts = warnings(self._campaign, max(0.0, now - self._campaign.clock.last_time))
        for kind, text in texts.items():
            if kind not in self._warned:
                _LOGGER.warning("%s", text)
        self._warned = set(texts)

    def _dispatch(self, command: Dispatch) -> None:
        attempts = tuple((assignment.trial, assignment.attempt) for assignment in command.assignments)
        self._recorder.record(TrialsDispatched(time=self._executor.now(), attempts=attempts))
        self._commit()
        self._executor.submit([self._attempt(assignment) for assignment in command.assignments])

    def _attempt(self, assignment: QueuedAttempt) -> Attempt:
        state, trial = self._campaign, assignment.trial
        return self._problem.attempt(
            assignment,
            self._pool.candidates,
            state.memory_factor(trial),
            step_limit(state, trial),
            can_be_stopped=state.rules.stopping is not None,
        )

    def _await(self) -> None:
        self._commit()
        is_computing = self._computing.wait_briefly()
        if not is_computing:
            self._activity = "evaluating"
        for outcome in self._executor.next_outcomes(0.0 if is_computing else _ATTENTION_SECONDS):
            if is_expected(self._campaign, outcome):
                outcome = with_output(outcome, self._problem.outputs)
                cause = self._stop_causes.pop(outcome.trial, "")
                if isinstance(outcome, Stopped) and not cause:  # at the limit that its worker keeps
                    cause = cause_at_limit(self._campaign, outcome.trial) or ""
                self._recorder.record(event_of(outcome, self._campaign, self._reports, self._executor.now(), cause))

    def _take_reports(self, values: Sequence[IntermediateValue]) -> frozenset[int]:
        """Record what running attempts reported; the trials that are stopped early."""
        current = [value for value in values if is_running(self._campaign, value.trial, value.attempt)]
        if current:
            self._recorder.record(self._reports.take(current, self._executor.now()))
        causes = {trial: stop_cause(self._campaign, trial) for trial in {value.trial for value in current}}
        stopped = {trial: cause for trial, cause in causes.items() if cause is not None}
        self._stop_causes.update(stopped)
        return frozenset(stopped)

    def _pause(self, command: Pause) -> None:
        self._commit()
        self._activity = "waiting to try again what failed"
        self._executor.pause(min(command.seconds, _ATTENTION_SECONDS))

    def _give_up(self, command: GiveUp) -> None:
        """Record their outcomes here: their workers may never answer. Later ones are ignored."""
        now = self._executor.now()
        for trial in command.trials:
            run = self._campaign.running[trial]
            self._stop_causes.pop(trial, None)  # of this attempt, not of the next one
            failure = Failure(
                trial=trial,
                attempt=run.attempt,
                kind=FailureKind.TIMEOUT,
                message=command.reason,
                started=min(run.since, now),
                finished=now,
                worker="",
            )
            self._recorder.record(event_of(failure, self._campaign, self._reports, now))
        self._commit()
        self._executor.cancel(command.trials)

    def _ask(self, command: Ask) -> None:
        model, strategy = self._strategy_state, self._problem.strategy
        began = self._announce("choosing")
        self._computing.start(
            lambda: strategy.ask(model, command.pending, command.limit),
            lambda decision: self._finish_choice(decision, command.limit, began),
        )

    def _finish_choice(self, decision: Decision, limit: int, began: float) -> None:
        picks = decision.picks if isinstance(decision, Choose) else ()
        continued = tuple(pick for pick in picks if pick.trial is not None)
        picks = tuple(pick for pick in picks if pick.trial is None)
        before = self._campaign.remarks
        prospect = decision.prospect if isinstance(decision, Choose) else None
        self._recorder.record(
            BatchChosen(
                time=self._executor.now(),
                round=self._campaign.refresh.round,
                picks=trials_of_picks(picks, self._campaign.totals.chosen, self._pool.candidates),
                reason=decision.reason,
                seconds=time.perf_counter() - began,
                limit=limit,
                continued=tuple(pick.trial for pick in continued if pick.trial is not None),
                possible_gain=None if prospect is None else number_or_none(prospect.gain),
                noise=None if prospect is None else number_or_none(prospect.noise),
            )
        )
        for remark in self._campaign.remarks[len(before) :]:
            _LOGGER.warning("%s", remark)
        if continued:
            self._continue(continued, "promising")

    def _continue(self, picks: Sequence[Pick], reason: Literal["promising", "finish"]) -> None:
        """Queue stopped trials again, those of them that still can be continued."""
        paused = self._campaign.training.paused
        trials = tuple(
            ContinuedTrial(
                trial=pick.trial,
                arm=paused[pick.trial].run.arm,
                attempt=paused[pick.trial].run.attempt,
                parameters=paused[pick.trial].run.parameters,
                mean=number_or_none(pick.mean),
                width=number_or_none(pick.width),
                variance=number_or_none(pick.variance),
            )
            for pick in picks
            if pick.trial is not None and pick.trial in paused
        )
        self._recorder.record(TrialsContinued(time=self._executor.now(), trials=trials, reason=reason))

    def _remove_checkpoints(self, command: RemoveCheckpoints) -> None:
        """Record it before: a process that dies in between leaves files to the next session."""
        self._recorder.record(CheckpointsRemoved(time=self._executor.now(), trials=command.trials))
        self._commit()
        remove_checkpoints(self._problem.trial_folders, command.trials)

    def _begin(self, command: Begin) -> None:
        strategy, model, rng = self._problem.strategy, self._strategy_state, self._problem.rng(BEGIN)
        self._refresh((), "learning existing data", lambda _: begin(strategy, model, command.existing, rng))

    def _tell(self, command: Tell) -> None:
        observations = [finished.observation for finished in command.finished]
        problem, model = self._problem, self._strategy_state
        rng = problem.rng(TELL, self._campaign.refresh.round + 1)
        trials = tuple(finished.trial for finished in command.finished)

        def tell_results(campaign: CampaignState) -> StrategyState:
            state: StrategyState = problem.strategy.tell(with_told_curves(problem, model, campaign), observations, rng)
            return state

        self._refresh(trials, "refitting the model", tell_results)

    def _refresh(
        self, trials: tuple[int, ...], activity: str, refreshed: Callable[[CampaignState], StrategyState]
    ) -> None:
        """Replace the strategy's state, and record what was drawn. `refreshed` gets the campaign's
        state of now."""
        began = self._announce("refreshing", activity)
        problem, pool, campaign = self._problem, self._pool, self._campaign
        self._computing.start(
            lambda: describe_refresh(problem, pool, refreshed(campaign), campaign),
            lambda result: self._finish_refresh(result, trials, began),
        )

    def _finish_refresh(self, refreshed: Refreshed, trials: tuple[int, ...], began: float) -> None:
        self._strategy_state = refreshed.model
        self._recorder.measured(Span.REFIT, time.perf_counter() - began)
        self._recorder.record(
            ModelRefreshed(
                time=self._executor.now(),
                round=self._campaign.refresh.round + 1,
                trials=trials,
                dictionary_size=len(refreshed.model.dictionary),
                record=self._problem.strategy.recorded(refreshed.model),
                seconds=time.perf_counter() - began,
                wants_growth=refreshed.wants_growth,
                recommended=refreshed.recommended,
                forecasts=refreshed.forecasts,
            )
        )

    def _grow(self, command: Grow) -> None:
        strategy, model, pool = self._problem.strategy, self._strategy_state, self._pool
        demand, rng = pool.demand(strategy, model), self._problem.rng(GROW, self._campaign.refresh.round)
        if demand is None or not isinstance(strategy, Grows):
            raise CampaignError("the log says that candidates are to be appended, the strategy does not")
        began = self._announce("growing")
        self._computing.start(
            lambda: pool.growth(strategy, model, demand, command.pending, rng),
            lambda appended: self._finish_growth(appended, began),
        )

    def _finish_growth(self, appended: Appended, began: float) -> None:
        event = CandidatesGrown(
            time=self._executor.now(),
            round=self._campaign.refresh.round,
            first=len(self._pool.candidates),
            columns={name: tuple(column) for name, column in appended.columns.items()},
            retired=appended.retired,
            seconds=time.perf_counter() - began,
        )
        self._strategy_state, self._pool = with_growth(self._problem, self._strategy_state, self._pool, event)
        self._recorder.record(event)

    def _announce(self, what: Computed, activity: str = "") -> float:
        """Record the beginning of a computation and return its time. Results are in the log before
        the strategy learns from them, and before the loop waits for it."""
        self._recorder.record(ComputingBegan(time=self._executor.now(), what=what))
        if what == "refreshing" or not self._computing.is_in_background:
            self._commit()
        self._activity = activity or ACTIVITIES[what]
        return time.perf_counter()

    def _close(self, command: Close) -> Close:
        now = self._executor.now()
        idle = idle_seconds(self._campaign, max(0.0, now - self._campaign.clock.last_time))
        self._recorder.record(
            SessionClosed(time=now, outcome=command.outcome, reason=command.reason, idle_seconds=idle)
        )
        self._commit()
        self._recorder.save_snapshot()
        self._activity = ""
        if self._observe is not None:
            self._observe(self.status())
        return command

    def _show(self) -> None:
        now = time.perf_counter()
        if self._observe is not None and now >= self._next_shown:
            self._next_shown = now + self._show_seconds
            self._observe(self.status())

    def _commit(self) -> None:
        ended_attempts = self._recorder.commit()
        if ended_attempts:
            self._executor.acknowledge(ended_attempts)

    def _wait_for_store(self, activity: str) -> None:
        self._activity = activity
