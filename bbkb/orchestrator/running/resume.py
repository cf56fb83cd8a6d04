"""The checks of a resume: which settings have changed, and which of them may, whether another process runs the
campaign, and whether there is work left. `bbkb resume --retry-failed` queues failed trials again."""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from bbkb.orchestrator.campaign.events import SessionOpened, SessionOutcome, StopReason, TrialsReopened
from bbkb.orchestrator.campaign.policy import Close, Stop, close, decide
from bbkb.orchestrator.campaign.settings import (
    GivenResults,
    ModelStopping,
    Settings,
    leaves,
    most_trials,
    origin_of,
    plain,
)
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.history.fold import read_history
from bbkb.orchestrator.session.build import Function, Parts, build
from bbkb.orchestrator.session.open import as_text
from bbkb.orchestrator.store import runs, snapshots
from bbkb.orchestrator.store.lease import find_free, take
from bbkb.orchestrator.wording import plural
from bbkb.workers.messages import FailureKind, Trial
from bbkb.workers.output import last_trial

# The log remains valid if these change; any other change would result in a different campaign.
CHANGEABLE = ("budget", "workers", "runs", "run", "tags", "note", "objective.deterministic")
# folders with the code of a function or command: each Ray job has its own copy of the uploaded one
_PLACES = ("objective.options.search_paths", "objective.options.working_directory")
# settings of `rule: model` that the first session determines unless they are given
_DECIDED = ("continues", "last_step", "first_trials", "first_steps")
_SHOWN = 10  # the number of differences in the message of a refused resume
_CHANGEABLE = f"{', '.join(CHANGEABLE[:-1])} and {CHANGEABLE[-1]}"
_MORE = "raise budget.evaluations"
_REMEDIES: Mapping[str, str] = {  # the reason of the end → the remedy
    StopReason.STEPS_SPENT: "raise budget.steps",
    StopReason.TIME_SPENT: "raise budget.hours",
    StopReason.TARGET_REACHED: "change budget.target",
    StopReason.NO_GAIN: "change budget.stop_when",
    StopReason.LITTLE_LEFT: "change budget.stop_when",
}


def prepare(
    old: runs.Run,
    settings: Settings,
    say: Callable[[str], None],
    retried: frozenset[FailureKind] = frozenset(),
    compared: tuple[str, ...] = (),
    function: Function | None = None,
) -> tuple[Settings, Parts] | Close:
    """Return the settings with which `old` is continued and the parts built from them, or the end
    of the campaign if there is no work left.

    Nothing is written, except that failures of the kinds `retried` are queued again. `say` prints a
    line. `compared` are prefixes of dotted keys that the caller has already compared. `function`: see `build`.

    Raises RunError if a setting differs that a resume may not change, the budget is already spent,
    or the log has lost its end; HeldError if another process runs the campaign; and the errors of
    `build`.
    """
    with old.store() as store:
        find_free(store, old.name, say)  # before the log is read, which does not grow any more
        state = snapshots.current(old, store)
        chosen, last = state.totals.chosen, last_trial(old.trials)
        if last is not None and last >= chosen:  # campaign.sqlite was copied without campaign.sqlite-wal
            raise RunError(
                f"the log of {old.folder} has lost its end: {old.trials} has files of trial {last}, and the log has "
                f"{chosen} trials. Restore the log (campaign.sqlite with campaign.sqlite-wal); or, to continue without "
                f"the lost results, move the files of trials from {chosen} on away"
            )
        now = status_of(state)
        trials_done = now.trials.done
        settings = with_recorded(state.settings, settings)
    changes = differences(plain(state.settings), plain(settings))
    changes = [change for change in changes if not change.key.startswith(compared)]
    if refused := [change for change in changes if not may_change(change.key)]:
        # the keys of another section are None here
        differing = [change for change in refused if change.old != change.new]
        lines = [f"  {change.key}: {change.old!r} became {change.new!r}\n" for change in differing]
        further = f"  and {len(lines) - _SHOWN} more\n" * (len(lines) > _SHOWN)
        raise RunError(
            f"a resume may change only {_CHANGEABLE}; these settings differ from those of {old.folder}:\n"
            f"{''.join(lines[:_SHOWN])}{further}"
            "Restore these values, or start a new run, which learns these results as known_results"
        )
    for change in changes:
        say(f"{change.key}: {change.old} becomes {change.new}")
    if settings.budget.evaluations < trials_done:
        raise RunError(
            f"budget.evaluations must be at least {trials_done}, the number of trials that are done already, got "
            f"{settings.budget.evaluations}: raise it"
        )
    parts = build(settings, function) if retried else None  # errors are raised before anything is written
    if retried:
        count, others, state = reopen(old, settings, retried)
        trials_done -= count
        listed = ", ".join(f"{number} of kind {kind!r}" for kind, number in sorted(others.items()))
        say(f"failed trials to be evaluated again: {count}{listed and f'; not again: {listed}'}")
    end = end_of(state, settings)
    if end is not None:
        ended, remedy = end
        say(f"{old.folder} has {ended.outcome}: {ended.reason}. To continue, {remedy}")
        return ended
    parts = parts or build(settings, function)  # errors are raised before anything starts
    budget = settings.budget
    spent = f"{trials_done} of {budget.evaluations} done"
    if budget.steps is not None:
        spent = f"{plural(trials_done, 'trial')} done, {now.budget.steps} of {budget.steps} steps"
    say(f"resuming {old.folder}: {spent}")
    return settings, parts


def end_of(state: CampaignState, settings: Settings) -> tuple[Close, str] | None:
    """Return the end of another session, and the remedy, if it would end immediately; None if there
    is work left."""
    opened = SessionOpened(
        time=state.clock.last_time,
        # epoch 0 would mean that no session has begun and there is no work left
        epoch=state.session.epoch + 1,
        slots=settings.workers.count,
        settings=settings,
    )
    reopened = apply(state, opened)
    command = decide(reopened, now=state.clock.last_time)
    if isinstance(command, Stop):
        return close(reopened, command.reason), _REMEDIES.get(command.reason, _MORE)
    if not isinstance(command, Close):
        return None
    is_failed = command.outcome is SessionOutcome.FAILED
    return command, f"fix the cause and add --retry-failed, or {_MORE}" if is_failed else _MORE


def reopen(
    run: runs.Run, settings: Settings, kinds: Collection[FailureKind]
) -> tuple[int, Mapping[str, int], CampaignState]:
    """Queue the trials of a run whose last attempt failed with one of `kinds` again for the next session.

    Returns the number of these trials, the numbers of other failed ones by kind, and the campaign's state
    afterwards. Raises HeldError if a process is running the campaign, and StoreError if the log cannot be read
    or written.
    """
    with run.store() as store, contextlib.ExitStack() as resources:
        writer = take(store, run.name, settings=as_text(settings))
        resources.callback(writer.release)
        history = read_history(run)
        rows = [(row, row.error.partition(":")[0]) for row in history.trials if row.status == "failed"]
        failed = [row for row, kind in rows if kind in kinds]
        others = Counter(kind for _, kind in rows if kind not in kinds)
        state = history.campaign
        if failed:
            reopened = TrialsReopened(
                time=state.clock.last_time,
                trials=tuple(Trial(row.trial, row.arm, row.parameters, row.attempts) for row in failed),
                steps=tuple(max(1, row.training.last_step) for row in failed),
            )
            writer.append([reopened])
            state = apply(state, reopened)
    return len(failed), others, state


@dataclass(frozen=True)
class Change:
    """A dotted key with its old and new value; None if it is absent."""

    key: str
    old: object
    new: object


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[Change]:
    """Return the keys that differ: in `old`'s order, then new ones. Lists are compared whole."""
    before = dict(leaves(old))
    after = dict(leaves(new))
    return [
        Change(key, before.get(key), after.get(key))
        for key in dict.fromkeys([*before, *after])
        if (key in before, before.get(key)) != (key in after, after.get(key))
    ]


def may_change(key: str) -> bool:
    """Return whether a resume may change this key: budget, resources and folders of code, but no
    decisions."""
    return key.partition(".")[0] in CHANGEABLE or key in (*CHANGEABLE, *_PLACES)


def with_recorded(recorded: Settings, settings: Settings) -> Settings:
    """Return the settings of a resume, completed by the run's settings.

    * Imported results are taken from the record, because their sources may have changed.
    * The first session's decisions about trainings remain valid.
    * The parameters keep their order.
    * If only a budget of steps was given, the number of evaluations increases with it.

    Args:
        recorded: the run's settings.
        settings: the user's settings.
    """
    workers = settings.workers
    budget = settings.budget
    before = recorded.budget
    steps = budget.steps or 0
    if before.steps == before.evaluations == budget.evaluations < steps:  # only `steps` was given
        budget = replace(budget, evaluations=most_trials(steps))
    rule = settings.early_stopping
    begun = recorded.early_stopping
    if isinstance(rule, ModelStopping) and isinstance(begun, ModelStopping):
        left_open = [name for name in _DECIDED if getattr(rule, name) is None]
        rule = replace(rule, **{name: getattr(begun, name) for name in left_open})
        if rule.continues is True:
            workers = replace(workers, trial_folders=True)
    space = settings.space
    if space.keys() == recorded.space.keys():  # their order decides which candidates are drawn
        space = {name: space[name] for name in recorded.space}
    # the recorded results, unless the settings name other sources
    known = recorded.known_results
    imported = [source for source in known if isinstance(source, GivenResults)]
    read = {source.origin for source in imported} - {None}
    now = [source for source in settings.known_results if not isinstance(source, GivenResults)]
    further = [source for source in now if origin_of(source) not in read]
    if further != [source for source in known if not isinstance(source, GivenResults)]:
        known = (*imported, *further)
    return replace(settings, space=space, known_results=known, workers=workers, budget=budget, early_stopping=rule)
