"""The settings of a resume: the new settings, completed by the recorded ones."""

from dataclasses import replace

from bbkb.orchestrator.campaign.settings import (
    GivenResults,
    ModelStopping,
    Settings,
    most_trials,
    origin_of,
)

# settings of `rule: model` that the first session determines unless they are given
_DECIDED = ("continues", "last_step", "first_trials", "first_steps")


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
