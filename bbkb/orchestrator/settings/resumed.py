"""The settings of a resume: the new settings, completed by the recorded ones."""

import os
from pathlib import Path

from bbkb.orchestrator.settings.imported import GivenResults
from bbkb.orchestrator.settings.known_results import BestOf, Known, Source, of_kind, origin_of
from bbkb.orchestrator.settings.model import Settings
from bbkb.orchestrator.settings.sections import MOST_TRIALS
from bbkb.orchestrator.settings.stopping_sections import ModelStoppingSettings

# settings of `rule: model` that the first session determines unless they are given
_DECIDED = ("continues", "last_step", "first_trials", "first_steps")


def with_recorded(recorded: Settings, settings: Settings) -> Settings:
    """Return the settings of a resume, completed by the run's settings.

    * Imported results, and the best configurations of the same runs, are taken from the record,
      because their sources may have changed.
    * The first session's decisions about trainings remain valid.
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
        budget = budget.model_copy(update={"evaluations": min(steps, MOST_TRIALS)})
    rule = settings.early_stopping
    begun = recorded.early_stopping
    if isinstance(rule, ModelStoppingSettings) and isinstance(begun, ModelStoppingSettings):
        left_open = [name for name in _DECIDED if getattr(rule, name) is None]
        rule = rule.model_copy(update={name: getattr(begun, name) for name in left_open})
        if rule.continues is True:
            workers = workers.model_copy(update={"trial_folders": True})
    return settings.model_copy(
        update={
            "known_results": _known_results(recorded.known_results, settings.known_results),
            "workers": workers,
            "budget": budget,
            "early_stopping": rule,
        }
    )


def _known_results(recorded: Known, now: Known) -> Known:
    """Return the recorded results if `now` has the same sources, apart from imported ones."""
    before, after = ([source for source in known if not isinstance(source, GivenResults)] for known in (recorded, now))
    read = {source.origin for source in recorded if isinstance(source, GivenResults)}
    after = [source for source in after if origin_of(source) is None or origin_of(source) not in read]
    if len(before) == len(after) and all(map(_are_same, before, after)):
        return recorded
    return (*of_kind(recorded, GivenResults), *after)


def _are_same(recorded: Source, source: Source) -> bool:
    """Return whether both are the same source. A recorded run that no longer exists is compared by
    the name of its folder."""
    if not isinstance(recorded, BestOf) or not isinstance(source, BestOf):
        return recorded == source
    return len(recorded.best_of) == len(source.best_of) and all(
        Path(before).resolve() == Path(now).resolve() if os.path.exists(before) else Path(before).name == Path(now).name
        for before, now in zip(recorded.best_of, source.best_of, strict=True)
    )
