"""The checks of a resume: which settings changed, whether another process runs it, and whether
anything is left to do."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.warm_start import SpreadStart
from orchestrator.bandit.strategies.presets import COVERAGE, VERIFY
from orchestrator.campaign.commands import Close, Stop
from orchestrator.campaign.endings import SessionOutcome, StopReason
from orchestrator.campaign.events import SessionOpened
from orchestrator.campaign.policy import decide
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.status import status_of
from orchestrator.campaign.transitions import apply
from orchestrator.errors import RunError, UserError
from orchestrator.session.assemble import Parts, build
from orchestrator.session.retrying import reopen
from orchestrator.session.training import DECIDED
from orchestrator.settings.changes import CHANGEABLE, differences, may_change
from orchestrator.settings.from_log import read_recorded
from orchestrator.settings.imported import Earlier
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.model import Settings
from orchestrator.settings.sections import MOST_TRIALS, ModelStoppingSettings
from orchestrator.store import runs, snapshots
from orchestrator.store.lease import find_free
from orchestrator.wording import plural
from workers.messages import FailureKind

_CHANGEABLE = f"{', '.join(CHANGEABLE[:-1])} and {CHANGEABLE[-1]}"
_MORE = "raise budget.evaluations"
_REMEDIES: Mapping[str, str] = {  # by the reason of the end
    StopReason.STEPS_SPENT: "raise budget.steps",
    StopReason.TIME_SPENT: "raise budget.hours",
    StopReason.TARGET_REACHED: "change budget.target",
    StopReason.NO_GAIN: "change budget.stop_when",
    StopReason.LITTLE_LEFT: "change budget.stop_when",
}


def find_begun(settings: Settings, or_resume: bool) -> runs.Run | None:
    """Return the run that `--run` or the key `run` names, to be resumed; None when a new one
    begins.

    Raises UserError when `--or-resume` has no name to look for, RunError when the run exists and
    may not be resumed.
    """
    if or_resume and settings.run is None:
        raise UserError(
            "--or-resume must know which run to resume, got no name: add --run NAME, or `run: NAME` to the file"
        )
    begun = runs.find(settings)
    if begun is not None and not or_resume:
        raise RunError(
            f"--run (or `run:`) must name a new run, got {settings.run}, which exists in {begun.folder}: add "
            "--or-resume to continue it, or give another name"
        )
    return begun


def prepare(
    old: runs.Run,
    settings: Settings,
    say: Callable[[str], None],
    retried: frozenset[FailureKind] = frozenset(),
    compared: tuple[str, ...] = (),
) -> tuple[Settings, Parts] | Close:
    """Check that `old` can be continued with these settings: the settings to do it with, and what
    was built of them.

    The end, when nothing is left to do. Nothing is written, except that failures of the kinds
    `retried` are queued again. `say` prints a line; `compared`: beginnings of dotted keys that the
    caller has compared itself.

    Raises RunError when a setting differs that may not, or the budget is spent already, HeldError
    when another process runs the campaign, ObjectiveError as `build` does.
    """
    with old.store() as store:
        created, state = snapshots.current(old, store)
        now = status_of(created.name, state)
        done = now.done
        recorded = read_recorded(old.recorded_settings(store)).plain
        settings = with_recorded(recorded, settings)
        check_changes(old.folder, recorded, settings, say, compared)
        check_budget(done, settings)
        find_free(store, old.name, say)  # before the workers are started
    if retried:
        build(settings)
        count, state = reopen(old, settings, retried)
        done -= count
        say(f"failed trials to be evaluated again: {count}")
    ended = end_of(state, settings)
    if ended is not None:
        say(f"{old.folder} has finished: {ended.reason}. To continue, {_REMEDIES.get(ended.reason, _MORE)}")
        return ended
    parts = build(settings)  # raises its errors before anything starts
    say(f"resuming {old.folder}: {_progress(done, now.steps, settings)}")
    return settings, parts


def _progress(done: int, steps: int, settings: Settings) -> str:
    """Return how much of the budget is spent: trials, and steps where these bound the campaign."""
    budget = settings.budget
    if budget.steps is None:
        return f"{done} of {budget.evaluations} done"
    return f"{plural(done, 'trial')} done, {steps} of {budget.steps} steps"


def with_recorded(old: Mapping[str, object], settings: Settings) -> Settings:
    """Return the settings with what the run's settings `old` decide: existing data and what was
    read of the same earlier runs, which are read only once because they may have changed,
    `workers.retries` and options of the strategy where the new settings leave them open, because
    their defaults have changed, and what the first session decided about trainings. Where
    a budget of steps alone was given, the evaluations rise with it."""
    recorded, workers, budget = from_mapping(old), settings.workers, settings.budget
    before, steps = recorded.budget, budget.steps or 0
    if before.steps == before.evaluations == budget.evaluations < steps:  # `steps` alone was given
        budget = budget.model_copy(update={"evaluations": min(steps, MOST_TRIALS)})
    if workers.retries is None:
        workers = workers.model_copy(update={"retries": recorded.workers.retries})
    rule, begun = settings.early_stopping, recorded.early_stopping
    if isinstance(rule, ModelStoppingSettings) and isinstance(begun, ModelStoppingSettings):
        left_open = [name for name in DECIDED if getattr(rule, name) is None]
        rule = rule.model_copy(update={name: getattr(begun, name) for name in left_open})
        if rule.continues is True:
            workers = workers.model_copy(update={"trial_folders": True})
    return settings.model_copy(
        update={
            "existing_data": recorded.existing_data,
            "earlier": recorded.earlier if _are_same(recorded.earlier, settings.earlier) else settings.earlier,
            "workers": workers,
            "budget": budget,
            "early_stopping": rule,
            "strategy": _as_begun(old.get("strategy"), recorded.strategy, settings.strategy),
        }
    )


def _are_same(recorded: Earlier | None, earlier: Earlier | None) -> bool:
    """Return whether the section lists the recorded runs. A recorded folder that is gone was moved
    or removed, and is known by its name."""
    if recorded is None or earlier is None or len(recorded.runs) != len(earlier.runs):
        return False
    return all(
        Path(before).resolve() == Path(now).resolve() if os.path.exists(before) else Path(before).name == Path(now).name
        for before, now in zip(recorded.runs, earlier.runs, strict=True)
    )


def _as_begun(old: object, before: Any, strategy: Any) -> Any:
    """Return the strategy with the start, the coverage and the verification that it was begun with
    by an older version, whose recorded options `old` lack `coverage`, `verify` or
    `model.first_fit`; unchanged where the new settings give other values than the defaults."""
    if not isinstance(old, Mapping) or type(before) is not type(strategy):
        return strategy
    changed: dict[str, object] = {}
    for name, default in (("coverage", COVERAGE), ("verify", VERIFY)):
        if name not in old and getattr(strategy, name, None) == default:
            changed[name] = getattr(before, name)
    model = old.get("model")
    if isinstance(model, Mapping) and "first_fit" not in model and isinstance(strategy.model, Model):
        if strategy.model.first_fit is None:
            changed["model"] = replace(strategy.model, first_fit=before.model.first_fit)
        start = getattr(strategy, "warm_start", None)
        if isinstance(start, SpreadStart) and start.pulls is None:
            changed["warm_start"] = before.warm_start
    return replace(strategy, **changed) if changed else strategy


def check_changes(
    folder: Path,
    old: Mapping[str, object],
    settings: Settings,
    say: Callable[[str], None],
    compared: tuple[str, ...] = (),
) -> None:
    """Print the differences from the run's settings `old`, without the keys that begin as one of
    `compared`.

    Raises RunError when a resume may not make one of them.
    """
    # the run's version had the defaults of keys that it did not know
    changes = differences(from_mapping(old).resolved(), settings.resolved())
    changes = [change for change in changes if not change.key.startswith(compared)]
    refused = [change for change in changes if not may_change(change.key)]
    if refused:
        keys = "\n".join(f"  {change.key}: {change.old!r} became {change.new!r}" for change in refused)
        raise RunError(
            f"a resume may change {_CHANGEABLE} only, but of {folder} these differ:\n"
            f"{keys}\n"
            f"Restore these values, or start a new run"
        )
    for change in changes:
        say(f"{change.key}: {change.old} becomes {change.new}")


def check_address(settings: Settings, address: str | None) -> None:
    """Raise UserError when a Ray cluster is named and the evaluations would not run on it."""
    if address is not None and settings.workers.executor != "ray":
        raise UserError(
            f"--address is for workers.executor ray, got workers.executor {settings.workers.executor}: leave the "
            "address out, or change the executor with --set workers.executor=ray"
        )


def check_budget(done: int, settings: Settings) -> None:
    """Raise RunError when the budget is below the number of trials that are done."""
    if settings.budget.evaluations < done:
        raise RunError(
            f"budget.evaluations must be at least {done}, the number of trials that are done already, got "
            f"{settings.budget.evaluations}: raise it"
        )


def end_of(state: CampaignState, settings: Settings) -> Close | None:
    """Return the immediate end of a further session; None when there is something to do."""
    opened = SessionOpened(
        time=state.clock.last_time,
        epoch=state.session.epoch + 1,  # 0: no session has begun, and nothing would be left to do
        executor="",
        slots=settings.workers.count,
        settings=settings.resolved(),
    )
    command = decide(apply(state, opened), now=state.clock.last_time)
    if isinstance(command, Stop):
        return Close(SessionOutcome.FINISHED, command.reason)
    return command if isinstance(command, Close) else None
